# SPDX-License-Identifier: Apache-2.0
# Finds fmt and defines PumpGraphFmt, which links it statically. Distributions ship it as a shared library, and ours must
# load where there is none. Header-only it is compiled anew in every file, which takes long, so what its headers declare is
# compiled once, of the version whose declarations are known.
find_package(fmt CONFIG REQUIRED)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  get_target_property(PUMPGRAPH_FMT_INCLUDE fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  add_library(PumpGraphFmt STATIC ${CMAKE_CURRENT_LIST_DIR}/Fmt.cpp)
  target_include_directories(PumpGraphFmt SYSTEM PUBLIC ${PUMPGRAPH_FMT_INCLUDE})
else()
  add_library(PumpGraphFmt INTERFACE)
  target_link_libraries(PumpGraphFmt INTERFACE fmt::fmt-header-only)
endif()
