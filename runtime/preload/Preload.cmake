# SPDX-License-Identifier: Apache-2.0
# libpumpgraph_preload.so: what pump-graph-run preloads. Its stubs are x86-64 code.
find_package(Python3 3.9 COMPONENTS Interpreter)
if(NOT Python3_FOUND OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR PUMPGRAPH_SANITIZE)
  message(STATUS "PumpGraph: without pump-graph-run, which needs x86-64 and a Python to build, and no sanitizer")
  return()
endif()

set(preload ${CMAKE_CURRENT_SOURCE_DIR}/preload)
set(PUMPGRAPH_ENTRY_POINTS ${preload}/generate_entry_points.py)
set(generated ${CMAKE_BINARY_DIR}/runtime/preload)
add_custom_command(OUTPUT ${generated}/EntryPoints.inc ${generated}/KnownNames.inc ${generated}/Wrappers.inc
  COMMAND ${Python3_EXECUTABLE} ${PUMPGRAPH_ENTRY_POINTS} --include ${PUMPGRAPH_CUDA_INCLUDE}
          --classes ${preload}/entry_points.txt --out ${generated} ${CMAKE_CXX_COMPILER}
  DEPENDS ${PUMPGRAPH_ENTRY_POINTS} ${preload}/entry_points.txt
          ${PUMPGRAPH_CUDA_INCLUDE}/cuda.h ${PUMPGRAPH_CUDA_INCLUDE}/cudaTypedefs.h
  VERBATIM)

add_library(pumpgraph_preload SHARED
  ${generated}/EntryPoints.inc ${generated}/Wrappers.inc
  preload/CallBuilder.cpp
  preload/CallLog.cpp
  preload/ContextHooks.cpp
  preload/EntryPoints.cpp
  preload/Executables.cpp
  preload/GraphHooks.cpp
  preload/HostHooks.cpp
  preload/HostRanges.cpp
  preload/Interpose.cpp
  preload/Kernels.cpp
  preload/LaunchHooks.cpp
  preload/Libraries.cpp
  preload/MappingHooks.cpp
  preload/Memory.cpp
  preload/MemoryHooks.cpp
  preload/Nvml.cpp
  preload/Settings.cpp
  preload/Shim.cpp
  preload/Wrappers.cpp)
# Every version of a name by itself: cuMemAlloc is not cuMemAlloc_v2 here.
target_compile_definitions(pumpgraph_preload PRIVATE __CUDA_API_VERSION_INTERNAL __CUDA_API_PUSH_VISIBILITY_DEFAULT)
# A preloaded library is there from the start, so its thread-local data has a place of its own.
target_compile_options(pumpgraph_preload PRIVATE -ftls-model=initial-exec -Wno-deprecated-declarations)
target_link_libraries(pumpgraph_preload PRIVATE PumpGraphRuntime)
target_link_options(pumpgraph_preload PRIVATE
  ${PUMPGRAPH_LOADED_LINK_OPTIONS} -Wl,--as-needed -Wl,--gc-sections -Wl,--exclude-libs,ALL
  -Wl,--version-script=${preload}/preload.map)
set_target_properties(pumpgraph_preload PROPERTIES LINK_DEPENDS ${preload}/preload.map)
