// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/Validate.h"

#include "runtime/lower/PoisonHandOvers.h"
#include "runtime/measure/KeptValues.h"
#include "runtime/measure/PurityCheck.h"
#include "runtime/measure/StepPart.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace pumpgraph::runtime {

/// One validation. Whatever happens, values and plan are put back at the end, if the driver lets us.
class Validating {
public:
  Validating(StepState &step) : step_(step), session_(step.session), driver_(*step.session.driver), before_(step) {}

  Expected<Validation> run() {
    PUMPGRAPH_TRY(before_.keep(3)); // what each of two runs leaves is kept too
    Status compared = runRewritten();
    if (compared)
      compared = runCaptured();
    if (compared && result_.differentBuffers + result_.unstableBuffers != 0)
      compared = findImpure();
    const Status restored = restore();
    PUMPGRAPH_TRY(compared);
    PUMPGRAPH_TRY_WHILE(restored, "restoring the state after validation");
    return result_;
  }

private:
  using Values = std::vector<std::vector<char>>; ///< by BufferIndex; empty where there is no value

  const std::vector<Buffer> &buffers() const { return step_.captured.description.buffers; }

  Status read(Values &values) {
    values.resize(buffers().size());
    for (BufferIndex buffer = 0; buffer < values.size(); ++buffer) {
      if (!buffers()[buffer].liveIn && !buffers()[buffer].liveOut)
        continue;
      values[buffer].resize(buffers()[buffer].size);
      PUMPGRAPH_TRY(readValue(step_, buffer, values[buffer].data()));
    }
    return {};
  }

  Status runRewritten() {
    mirrorFaults_.resize(buffers().size());
    if (step_.memory.managed) { // its words are those of one graph, so there is no copy to poison
      step_.memory.managed->wake();
      PUMPGRAPH_TRY(runOnce(step_, step_.graph.handle, "rewritten step"));
      PUMPGRAPH_TRY(read(rewritten_));
      return before_.restore();
    }
    CUgraph copy = nullptr;
    PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy, step_.graph.handle), "copying the rewritten graph");
    Status done = poison(copy);
    if (done)
      done = runOnce(step_, copy, "rewritten step");
    driver_.graphDestroy.raw(copy);
    PUMPGRAPH_TRY(done);
    PUMPGRAPH_TRY(read(rewritten_));
    compareMirrors();
    return before_.restore();
  }

  /// Pages that are on the device and in host memory have to be left the same in both.
  void compareMirrors() {
    for (BufferIndex buffer = 0; buffer < rewritten_.size(); ++buffer) {
      if (rewritten_[buffer].empty())
        continue;
      if (const auto byte =
              step_.memory.residence->firstStale(step_.captured.blocks[buffer], rewritten_[buffer].data()))
        mirrorFaults_[buffer] = fmt::format("\"{}\": byte {} is not the same on the device and in host memory",
                                            buffers()[buffer].name, *byte);
    }
  }

  Status poison(CUgraph copy) {
    std::size_t count = 0;
    PUMPGRAPH_TRY(driver_.graphGetNodes(step_.graph.handle, nullptr, &count));
    std::vector<CUgraphNode> present(count);
    if (count != 0)
      PUMPGRAPH_TRY(driver_.graphGetNodes(step_.graph.handle, present.data(), &count));
    const std::unordered_set<CUgraphNode> known(present.begin(), present.end());
    std::vector<CUgraphNode> nodes;
    for (const CUgraphNode original : step_.graph.readBack.nodes) {
      CUgraphNode node = nullptr; // the graph is the caller's, who may have taken a node out
      if (known.contains(original))
        PUMPGRAPH_TRY(driver_.graphNodeFindInClone(&node, original, copy));
      nodes.push_back(node);
    }
    GraphEditor editor(driver_, copy, session_.device.context);
    const Expected<std::uint64_t> fills = poisonHandOvers(editor, step_.graph.readBack.description, nodes);
    if (!fills)
      return inContext(fills.error(), "poisoning frames that change hands");
    editor.commit();
    return {};
  }

  Status runCaptured() {
    if (step_.memory.residence)
      PUMPGRAPH_TRY_WHILE(step_.memory.residence->remove(Keep::EveryBlock, {}, &step_.captured.blocks),
                          "giving every buffer memory of its own");
    PUMPGRAPH_TRY(runOnce(step_, step_.graph.original, "step as captured"));
    Values captured, again;
    PUMPGRAPH_TRY(read(captured));
    PUMPGRAPH_TRY(before_.restore());
    PUMPGRAPH_TRY(runOnce(step_, step_.graph.original, "step as captured, again"));
    PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "comparing");
    for (BufferIndex buffer = 0; buffer < buffers().size(); ++buffer)
      PUMPGRAPH_TRY(compare(buffer, captured[buffer]));
    return {};
  }

  Status compare(BufferIndex buffer, const std::vector<char> &captured) {
    const Buffer &described = buffers()[buffer];
    if (!described.liveOut)
      return {};
    std::vector<char> again(described.size);
    PUMPGRAPH_TRY(readValue(step_, buffer, again.data()));
    std::string difference = mirrorFaults_[buffer];
    if (again != captured) {
      ++result_.unstableBuffers;
    } else {
      ++result_.comparedBuffers;
      result_.comparedBytes += described.size;
      if (difference.empty() && rewritten_[buffer] != captured)
        difference = differenceOf(described.name, captured, rewritten_[buffer]);
    }
    if (difference.empty())
      return {};
    ++result_.differentBuffers;
    if (result_.firstDifference.empty())
      result_.firstDifference = std::move(difference);
    return {};
  }

  /// Among the nodes that the plan runs again. Every buffer has memory of its own.
  Status findImpure() {
    const std::vector<NodeIndex> repeated = PurityCheck::repeated(step_);
    if (repeated.empty())
      return {};
    PurityCheck check(step_, step_.graph.originalNodes, repeated, PurityCheck::anyBytes);
    const Expected<std::string> obstacle = check.reserve();
    if (!obstacle)
      return tl::unexpected<Error>(obstacle.error());
    if (!obstacle->empty()) {
      result_.impure = "no node that the plan runs again was looked at: " + *obstacle;
      return {};
    }
    PUMPGRAPH_TRY(before_.restore());
    PUMPGRAPH_TRY_WHILE(runChecked(check), "looking for kernels that are not pure");
    result_.impureNodes = check.found().size();
    for (const FalseKernel &kernel : byKernel(check.found(), step_.captured.description))
      result_.impure += fmt::format("{}{}, and the plan runs {} of its nodes again", result_.impure.empty() ? "" : "; ",
                                    kernel.text, kernel.nodes);
    return check.release();
  }

  Status runChecked(PurityCheck &check) {
    const auto count = static_cast<NodeIndex>(step_.graph.originalNodes.size());
    NodeIndex begin = 0;
    const auto runTo = [&](NodeIndex end) -> Status {
      if (begin == end)
        return {};
      StepPart part(driver_, begin, end);
      PUMPGRAPH_TRY(part.make(step_.graph.original, step_.graph.originalNodes));
      begin = end;
      return part.run(session_.device.stream);
    };
    for (NodeIndex node = 0; node < count; ++node) {
      if (!check.wants(node))
        continue;
      PUMPGRAPH_TRY(runTo(node));
      const Expected<bool> hasRun = check.check(node);
      if (!hasRun)
        return tl::unexpected<Error>(hasRun.error());
      if (*hasRun)
        begin = node + 1;
    }
    return runTo(count);
  }

  static std::string differenceOf(const std::string &name, const std::vector<char> &captured,
                                  const std::vector<char> &rewritten) {
    const auto [expected, found] = std::mismatch(captured.begin(), captured.end(), rewritten.begin());
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < captured.size(); ++i)
      bytes += captured[i] != rewritten[i] ? 1 : 0;
    return fmt::format("\"{}\": {} of {} bytes differ, the first at {}: {:#04x} instead of {:#04x}", name, bytes,
                       captured.size(), expected - captured.begin(), static_cast<unsigned char>(*found),
                       static_cast<unsigned char>(*expected));
  }

  Status restore() {
    PUMPGRAPH_TRY(before_.restore());
    if (step_.memory.residence && !step_.memory.residence->installed())
      PUMPGRAPH_TRY(install(session_, *step_.memory.residence));
    return {};
  }

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  KeptValues before_;
  Values rewritten_;
  std::vector<std::string> mirrorFaults_; ///< by BufferIndex; empty where there is none
  Validation result_;
};

Expected<Validation> validate(StepState &step) {
  return Validating(step).run();
}

} // namespace pumpgraph::runtime
