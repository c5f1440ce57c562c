# SPDX-License-Identifier: Apache-2.0
# How much our own code is watched while it runs.
#
# PUMPGRAPH_ASSERTIONS: assertions are checked in every build type. They cost nothing that can be measured.
# PUMPGRAPH_SANITIZE: "address" watches memory and undefined behaviour, "thread" data races. What other programs load
# (the plugin, the Python package, the examples) is left out of such a build, and so are the tests of it. With Clang,
# "address" builds the fuzz targets for its fuzzer.
option(PUMPGRAPH_ASSERTIONS "check assertions" ON)
set(PUMPGRAPH_SANITIZE "" CACHE STRING "what to watch: address, thread, or nothing")
set_property(CACHE PUMPGRAPH_SANITIZE PROPERTY STRINGS "" address thread)

if(PUMPGRAPH_ASSERTIONS)
  add_compile_options(-UNDEBUG)
endif()
if(PUMPGRAPH_SANITIZE STREQUAL "address")
  set(sanitizers address,undefined)
elseif(PUMPGRAPH_SANITIZE STREQUAL "thread")
  set(sanitizers thread)
elseif(NOT PUMPGRAPH_SANITIZE STREQUAL "")
  message(FATAL_ERROR "PUMPGRAPH_SANITIZE is \"${PUMPGRAPH_SANITIZE}\"; it is address, thread, or empty")
endif()

# For libraries that programs load: they bring the C++ library along. One that is watched takes what watches it from the
# program.
set(PUMPGRAPH_LOADED_LINK_OPTIONS -static-libstdc++ -static-libgcc -Wl,-z,defs)
if(PUMPGRAPH_SANITIZE)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -O2 -g1)
  # Clang's precompiled headers are of one kind of code: all of it is as in a library.
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)
  add_link_options(-fsanitize=${sanitizers})
  if(PUMPGRAPH_SANITIZE STREQUAL "address")
    add_compile_options(-fno-sanitize=vptr) # LLVM has no type information
  endif()
  if(PUMPGRAPH_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(PUMPGRAPH_HAS_FUZZER ON)
  endif()
  set(PUMPGRAPH_LOADED_LINK_OPTIONS)
endif()
