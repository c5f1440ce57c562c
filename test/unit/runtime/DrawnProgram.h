// SPDX-License-Identifier: Apache-2.0
/// \file
/// Draws small programs of captured steps and of what a caller does between their replays, and runs each twice:
/// plainly, on ordinary memory, and in a session with a small budget on the fake driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime::test {

/// What became of a program. It is wrong where `wrong` says so, whatever it was refused before.
struct Outcome {
  std::string wrong;                 ///< empty: every value that could be read was that of the plain run
  std::vector<std::string> refusals; ///< errors of calls, in their order
  std::vector<std::string> trace;    ///< what the program did
  int replays = 0;                   ///< that ran
  int moved = 0;                     ///< of steps whose plan moves data
  std::uint64_t pagedBytes = 0;      ///< that eager operators moved
};

struct DrawOptions {
  bool failures = false;   ///< driver calls fail
  bool ownReplays = false; ///< PumpGraph replays on its own account: planning again, validation, ...
};

/// The program of a seed: the same for the same options.
Outcome runDrawnProgram(std::uint32_t seed, const DrawOptions &options, const char *compilerLibrary);

} // namespace pumpgraph::runtime::test
