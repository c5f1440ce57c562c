// SPDX-License-Identifier: Apache-2.0
/// \file
/// Libraries that give addresses of the program's memory to other parts of the device, past the driver's calls.
#pragma once

#include <string>
#include <string_view>

namespace pumpgraph::preload {

inline constexpr std::string_view pastTheDriver = "the library reaches memory past the driver's calls";

/// NVENC, NVDEC and OptiX.
bool reachesMemoryUnseen(std::string_view path);
/// The name of one that the process has: the program is linked with it, or a library that it has opened is. Empty:
/// none, or no library has come since the last question.
std::string loadedPastTheDriver();

} // namespace pumpgraph::preload
