// SPDX-License-Identifier: Apache-2.0
/// \file
/// The figures of one compiled step, once, for every report: text, JSON, HTML, the runtime's own.
#pragma once

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/analysis/Sweeps.h"
#include "passes/pipeline/Budgets.h"
#include "passes/pipeline/Compile.h"
#include "passes/report/Ways.h"
#include "passes/simulate/Compare.h"
#include "pumpgraph/graph/Description.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph {

/// Everything a report says about one step at one budget: what was compiled, and what follows from it.
struct Summary : Compiled {
  explicit Summary(Compiled step);

  Traffic required;                           ///< of `lowered`: what its residencies make it move
  HostedTraffic hosted;                       ///< of `lowered`: traffic of nodes themselves, to hosted operands
  std::vector<RepeatedSweeps> repeatedSweeps; ///< of `lowered`
  std::optional<Ways> ways;                   ///< of `lowered`, if it may run nodes again
  /// The smallest budget found at which the step runs at its in-memory speed; see findEnough().
  std::optional<std::uint64_t> enoughBytes;
  std::optional<Comparison> comparison; ///< the same budget without a plan, where that was asked for

  /// Bytes moved for each that has to be: 1 where nothing moves in vain, infinite where nothing has to move at all.
  double movedOverRequired() const;
  /// How often a buffer goes on at another address, and the bytes of it that have other frames there, or are hosted at
  /// one of the two, added up.
  std::size_t continuations() const { return lowered.buffers.size() - captured.buffers.size(); }
  std::uint64_t continuedBytes() const;
  /// What the nodes take over their own traffic, if nothing else uses the link meanwhile.
  double hostedUs() const;
  /// Nodes of `lowered` that run again, what they take, and what they write.
  struct Repeated {
    std::uint64_t nodes = 0;
    double us = 0;
    std::uint64_t bytes = 0;
  };
  Repeated repeated() const;
};

/// "compute", "link up", "link down", "link both ways", or "nothing: everything fits".
std::string limitedBy(const Summary &summary);

/// One sentence: "16.0 of 31.0 GiB; 1.08 x in-memory; limited by link up; 21.0 GiB removes it".
std::string verdict(const Summary &summary);

/// One sentence: "6 walks over 4.20 GiB of state by 412 kernels (nodes 3120-3531); a fused optimizer would walk once
/// and move 18.3 GiB less per step". Where none of that moves more than once, it says how much less would be touched.
std::string verdict(const Summary &summary, const RepeatedSweeps &sweeps);

/// One sentence: "2 of 49 measured nodes take 99 % of their time: the trace is damaged, and its figures are not the
/// step's".
std::string warning(const FewNodes &few);

/// Accesses of the captured step by how they are known: by Evidence.
std::array<std::uint64_t, 5> accessesByEvidence(const Summary &summary);

/// Edges of `lowered` that the captured step does not have, those of added nodes included.
std::size_t countAddedEdges(const Summary &summary);

/// The text for a terminal; `points` add a table.
std::string toText(const Summary &summary, const std::vector<SweepPoint> &points = {});
/// Keys: docs/reference/report.md. `points` become "sweep".
std::string toJson(const Summary &summary, const std::vector<SweepPoint> &points = {});
/// The keys of that which depend on node times.
std::string timesToJson(const Summary &summary);
/// The plan for an outsider: buffer, offset, size, direction, after, before, frame.
std::string planToJson(const Compiled &compiled);
/// Chrome trace events (opens in Perfetto).
std::string timelineToJson(const Summary &summary);
/// One self-contained page. `points` may be empty: then the curve is left out.
std::string toHtml(const Summary &summary, const std::vector<SweepPoint> &points);
/// Step time against budget as one self-contained picture. `points` must hold a plannable point.
std::string toSvg(const Summary &summary, const std::vector<SweepPoint> &points);

} // namespace pumpgraph
