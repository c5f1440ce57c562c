# SPDX-License-Identifier: Apache-2.0
# Assertions and sanitizers.
#
# PUMPGRAPH_ASSERTIONS checks assertions in every build type.
# PUMPGRAPH_SANITIZE=address adds the address and undefined-behaviour sanitizers, =thread the thread sanitizer. A
# sanitized build leaves out the plugin, the Python package, the examples and their tests. With Clang, "address" links
# the fuzz targets with libFuzzer.
option(PUMPGRAPH_ASSERTIONS "check assertions" ON)
set(PUMPGRAPH_SANITIZE "" CACHE STRING "sanitizer: address, thread, or empty")
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

# Link options of shared libraries: they contain the C++ library. A sanitized one gets the sanitizer's runtime from the
# program.
set(PUMPGRAPH_LOADED_LINK_OPTIONS -static-libstdc++ -static-libgcc -Wl,-z,defs)
if(PUMPGRAPH_SANITIZE)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -O2 -g1)
  # Clang uses a precompiled header only for code with the same -fPIC or -fPIE: all code is compiled with -fPIC.
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
