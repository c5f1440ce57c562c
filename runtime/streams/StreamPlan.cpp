// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/StreamPlan.h"

#include "runtime/state/PlanJob.h"
#include "runtime/streams/PlanInput.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pumpgraph::runtime {
namespace {

/// By address; those of freed memory, too.
std::map<std::uint64_t, BlockId> blocksByAddress(const Heap &heap) {
  std::map<std::uint64_t, BlockId> blocks;
  for (const BlockId id : heap.blocks())
    blocks[heap.block(id).address] = id;
  return blocks;
}

Expected<std::vector<BlockId>> blocksOf(const Description &input, const Heap &heap) {
  const std::map<std::uint64_t, BlockId> known = blocksByAddress(heap);
  std::vector<BlockId> blocks;
  for (const Buffer &buffer : input.buffers) {
    const auto found = known.find(buffer.address);
    if (found == known.end() || heap.block(found->second).bytes() != buffer.size)
      return fail(PUMPGRAPH_UNPLANNABLE, "memory of the round at {:#x} is gone", buffer.address);
    blocks.push_back(found->second);
  }
  return blocks;
}

std::string takeString(const Compiler &compiler, char *text) {
  std::string taken = text ? text : "";
  if (text)
    compiler.freeString(text);
  return taken;
}

/// Fills pages that the driver would have to reach in host memory and on the device with one copy.
std::string copiesHostedPages(const Description &lowered) {
  for (const Node &node : lowered.nodes)
    for (const Access &access : node.accesses)
      if (node.kind == NodeKind::Memcpy && overlaps(lowered.buffers[access.buffer].hosted, access.range))
        return fmt::format("\"{}\" copies memory that the plan keeps in host memory", node.name);
  return "";
}

Status check(const Compiler &compiler, const StreamPlan &plan, const Description &input) {
  std::string error = copiesHostedPages(plan.lowered);
  if (!error.empty())
    return fail(PUMPGRAPH_UNPLANNABLE, "{}", error);
  const Description issued = liftIssued(plan.list, plan.lowered, input, streamsOf(plan.script), error);
  if (!error.empty())
    return fail(PUMPGRAPH_INTERNAL, "the operations are no round: {}", error);
  const DescriptionView lifted(issued), captured(input);
  if (error = takeString(compiler, compiler.check(lifted.get(), captured.get())); !error.empty())
    return fail(PUMPGRAPH_INTERNAL, "the checker refused the operations: {}", error);
  BufferIndex lost = noBuffer;
  if (error = checkCuts(plan.lowered, plan.script, plan.list, lost); !error.empty())
    return fail(PUMPGRAPH_INTERNAL, "a program that leaves the round could lack a value: {}", error);
  return {};
}

pumpgraph_compiler_options optionsWith(const LinkSpeed &link) {
  pumpgraph_compiler_options options{};
  options.struct_size = sizeof options;
  options.up_bytes_per_second = link.up;
  options.down_bytes_per_second = link.down;
  options.both_bytes_per_second = link.both;
  return options;
}

} // namespace

double predictWith(const Compiler &compiler, const StreamPlan &plan, const Description &round, const LinkSpeed &link) {
  Description timed = plan.lowered;
  for (Node &node : timed.nodes)
    if (node.captured != notCaptured && !std::isnan(round.nodes[static_cast<std::size_t>(node.captured)].costUs))
      node.costUs = round.nodes[static_cast<std::size_t>(node.captured)].costUs;
  const pumpgraph_compiler_options options = optionsWith(link);
  const DescriptionView view(timed);
  double us = 0;
  static_cast<void>(takeString(compiler, compiler.predict(view.get(), &options, &us))); // for the report
  return us;
}

Expected<std::unique_ptr<StreamPlan>> planRound(const MemoryTools &tools, const Compiler &compiler, RoundScript script,
                                                const std::set<std::uint64_t> &staying, const LinkSpeed &link) {
  Description input = planInput(script, staying);
  Expected<std::vector<BlockId>> blocks = blocksOf(input, tools.heap);
  if (!blocks)
    return tl::unexpected<Error>(blocks.error());
  if (std::all_of(blocks->begin(), blocks->end(),
                  [&](BlockId id) { return tools.heap.block(id).backing == Backing::Device; }))
    return nullptr;
  PUMPGRAPH_TRY(tools.heap.flushCache());
  std::uint64_t frames = tools.frames.available();
  for (const BlockId id : *blocks)
    frames += tools.heap.block(id).frames.size();

  pumpgraph_compiler_options options = optionsWith(link);
  options.budget_bytes = frames * pageBytes;
  if (frames == 0)
    return fail(PUMPGRAPH_UNPLANNABLE, "other allocations take all of the budget");
  const Compilation compiled = compileNow(compiler, input, options);
  if (compiled.status != PUMPGRAPH_COMPILED)
    return fail(PUMPGRAPH_UNPLANNABLE, "{}",
                compiled.made ? compiler.message(compiled.made.get()) : "memory ran out while it was planned");
  auto plan = std::make_unique<StreamPlan>();
  std::string error;
  const pumpgraph_candidate &candidate = *compiler.candidate(compiled.made.get(), 0);
  plan->reportText = candidate.report_text;
  if (!fromC(*candidate.lowered, plan->lowered, error))
    return fail(PUMPGRAPH_INTERNAL, "the compiler library's plan is malformed: {}", error);
  plan->script = std::move(script);
  plan->list = lowerStreams(plan->lowered, input, streamsOf(plan->script), error);
  if (!error.empty())
    return fail(PUMPGRAPH_INTERNAL, "{}", error);
  PUMPGRAPH_TRY(check(compiler, *plan, input));
  plan->predictedUs = predictWith(compiler, *plan, plan->script.description, link);
  plan->blocks = std::move(*blocks);
  for (const BlockId id : plan->blocks)
    plan->addresses.push_back(tools.heap.block(id).address);
  plan->residence = std::make_unique<Residence>(tools, plan->lowered, plan->blocks);
  return plan;
}

} // namespace pumpgraph::runtime
