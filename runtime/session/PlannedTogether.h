// SPDX-License-Identifier: Apache-2.0
/// \file
/// Steps that share a boundary, planned again so that another one can share it too (docs/decisions/18).
#pragma once

#include "runtime/session/Rewriting.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// The steps of a boundary, planned again for the sake of one that is being adopted and finds no plan in it: pages that
/// its nodes use together get frames of their own, and what it has on the device at all times is left some. Each step
/// is planned into the boundary of those before it, the first one for itself.
///
/// Nothing of the steps changes until take(); after it either keep() or giveBack() is called.
class PlannedTogether {
public:
  /// `steps`: all that share the boundary, in the order of their adoption. All are referred to.
  PlannedTogether(const std::vector<StepState *> &steps, const StepState &adopted, const Compiler &compiler);

  Status plan();
  /// Of all plans: what the adopted step is planned beside.
  const Residence &residence() const { return *members_.back().memory; }

  /// Puts the plans in force with `memory`, which is made from residence(). No plan is in force before. When it fails,
  /// giveBack() is still to be called.
  Status take(const std::shared_ptr<Residence> &memory);
  bool isTaken() const { return isTaken_; }
  /// The steps have the plans that they had. No plan is in force then.
  Status giveBack();
  void keep();

  std::vector<std::string> names() const;

  /// Adds to a captured step what those of `owners` keep in frames of `theirs` between replays, and the step does not
  /// know: it is the step's to leave alone, or to bring back. Returns how many buffers that are.
  static std::size_t addBystanders(CapturedStep &captured, const std::vector<StepState *> &owners,
                                   const Residence &theirs);

private:
  struct Member {
    StepState &step;
    Rewriting rewriting;
    // What the step gets; once it has that, what it had.
    CapturedStep captured;
    std::size_t bystanders = 0;
    CompiledPlan plan = {};
    std::shared_ptr<Residence> memory = nullptr;
    bool isExchanged = false;
    bool wasWatched = false;
  };

  /// By its place among `members_`.
  Status planMember(std::size_t place);
  void swapCaptured(Member &member);
  /// Of the device, what a plan of a step has to leave alone beside what is in the boundary of those before it.
  std::uint64_t framesBeside(std::size_t place) const;
  /// Of the values that a step keeps, what each node of the steps after it uses at once.
  std::vector<pumpgraph_apart_pages> usedTogether(std::size_t place) const;
  /// The steps that are planned after the one at `place`, the adopted one last.
  std::vector<const StepState *> later(std::size_t place) const;
  Status giveBack(Member &member);

  SessionState &session_;
  const StepState &adopted_;
  const Compiler &compiler_;
  std::vector<Member> members_;
  bool isTaken_ = false;
};

} // namespace pumpgraph::runtime
