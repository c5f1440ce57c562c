// SPDX-License-Identifier: Apache-2.0
/// \file
/// Planning apart from the session: a request that has all that the plan depends on, and a thread that has it answered.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/state/Compiler.h"

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// The compiler's answer. Without one memory has run out.
struct Compilation {
  pumpgraph_compiler_status status = PUMPGRAPH_COMPILER_NO_MEMORY;
  std::unique_ptr<pumpgraph_compilation, decltype(Compiler::release)> made{nullptr, nullptr};
  double milliseconds = 0;
};

Compilation compileNow(const Compiler &compiler, const Description &captured,
                       const pumpgraph_compiler_options &options);

/// A step that is to be planned. It keeps copies, so any thread may have it planned, whatever becomes of the step.
struct PlanRequest {
  Description captured;
  std::optional<Description> given; ///< a boundary that is shared, with places, which the compiler does not choose here
  Description boundary;             ///< the same without
  std::string costsIr, device;
  std::vector<pumpgraph_apart_pages> apart;
  pumpgraph_compiler_options options{}; ///< of pointers to what is above run() takes care
  std::uint64_t otherFrames = 0;        ///< see CompiledPlan
  std::uint64_t budgetFrames = 0;

  Compilation run(const Compiler &compiler) const;
};

/// Has a request answered on a thread of its own. The last owner waits for it, and so does the end of a program that
/// has left its session open: the compiler library's static objects have to be there.
class PlanJob {
public:
  /// Throws std::system_error where there is no thread.
  PlanJob(const Compiler &compiler, PlanRequest request);
  PlanJob(const PlanJob &) = delete;
  PlanJob &operator=(const PlanJob &) = delete;
  ~PlanJob() { done_.wait(); }

  const PlanRequest &request() const { return request_; }
  bool isDone() const;
  /// Once, after it is done.
  Compilation take() { return std::move(made_); }

private:
  const Compiler compiler_;
  const PlanRequest request_;
  Compilation made_;
  std::shared_future<void> done_; ///< last: the thread uses all others
};

} // namespace pumpgraph::runtime
