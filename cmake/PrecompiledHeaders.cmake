# SPDX-License-Identifier: Apache-2.0
# Headers from outside that many files include are parsed once. Files include what they use all the same: where the
# compiler is called through ccache, which does not cache such files unless told to, `tools/dev` builds without.

# A target that holds precompiled headers for those compiled as it is: pumpgraph_headers(NAME HEADERS... LIBRARIES...)
function(pumpgraph_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES")
  # CMake precompiles headers for a file that is to include them.
  file(CONFIGURE OUTPUT ${name}.cpp CONTENT "// Written by CMake.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

pumpgraph_headers(PumpGraphHeaders
  HEADERS <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
          <tuple> <unordered_map> <utility> <vector> <fmt/format.h>
  LIBRARIES PumpGraphFmt)
