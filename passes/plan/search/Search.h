// SPDX-License-Identifier: Apache-2.0
/// \file
/// The one loop of the planner: proposers suggest changes to the best choices so far, the evaluator judges them, the
/// best stays (docs/design/planner.md, "Types, and the path of a step through them").
#pragma once

#include "passes/plan/SearchTrace.h"
#include "passes/plan/Workers.h"
#include "passes/plan/search/Evaluator.h"
#include "passes/plan/search/Repairs.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace pumpgraph {

struct Proposal {
  Choices choices;
  /// All pieces but a few have the frames of the best plan. Then nothing is repaired, and what is only read and leaves
  /// is mirrored.
  bool keepsHomes = false;
  std::uint64_t effort = 0; ///< of thinking of it, as in Draft
};

enum class Turn { Over, Skip, Try };

class Search;

/// Suggests changes, turn after turn. What it does at a turn depends on the turn, on the best plan so far and on what
/// it has learned, so that turns can be looked at ahead, as if nothing before them came to anything.
class Proposer {
public:
  virtual ~Proposer() = default;
  virtual std::string_view name() const = 0;
  /// Also called again when the turn comes.
  virtual Turn at(std::size_t turn) const = 0;
  /// Nothing: there is nothing to try at this turn.
  virtual std::optional<Proposal> propose(std::size_t turn) = 0;
  /// What came of a turn, in order; null: it was skipped or known, or found no frames.
  virtual void learn(const Evaluated * /*plan*/, bool /*isKept*/) {}
  /// Turns that may be looked at ahead, this one among them: 1 for one that learns from every outcome.
  virtual unsigned reach() const { return UINT32_MAX; }
};

class Search {
public:
  /// All are referred to. `mostEffort`: after that only what promises most is tried.
  Search(const Evaluator &evaluator, Repairs &repairs, Workers &workers, const Shares &shares, std::uint64_t mostEffort)
      : evaluator_(evaluator), repairs_(repairs), workers_(workers), shares_(shares), mostEffort_(mostEffort) {}
  ~Search() { waitForAbandoned(0); }
  Search(const Search &) = delete;
  Search &operator=(const Search &) = delete;

  /// Until the proposer's turns are over.
  void run(Proposer &proposer);
  /// What was made otherwise, if it is the best so far. Returns whether it is.
  bool take(std::string_view proposer, Evaluated plan);

  bool hasPlan() const { return best_.has_value(); }
  const Evaluated &best() const { return *best_; }
  /// The choices that the best plan was proposed with, before repairs; as they begin, if there is none.
  Choices &asked() { return asked_; }
  const Choices &asked() const { return asked_; }

  bool isSpent() const { return effort_ >= mostEffort_; }
  std::uint64_t effort() const { return effort_; }
  std::uint64_t mostEffort() const { return mostEffort_; }
  const Evaluator &evaluator() const { return evaluator_; }
  const PlannerInput &input() const { return evaluator_.input(); }
  const Timeline &timeline() const { return input().timeline; }
  const SearchTrace &trace() const { return trace_; }

private:
  /// A turn that is looked at ahead.
  struct Trial {
    std::optional<Proposal> proposal;
    std::uint64_t key = 0;
    Job<Outcome> job;
  };

  Trial trialAt(Proposer &proposer, std::size_t turn);
  /// Of what the job works on there is a copy in it.
  Job<Outcome> jobOf(const Proposal &proposal, bool isAhead);
  void settle(Proposer &proposer, Trial trial);
  /// Whether it is the best so far: then best() is what was `plan`.
  bool keep(std::string_view proposer, std::optional<Evaluated> &plan, std::uint64_t effort);
  void abandon();
  void waitForAbandoned(std::size_t most);
  bool isKnown(std::uint64_t key) const { return known_.contains(key); }

  const Evaluator &evaluator_;
  Repairs &repairs_;
  Workers &workers_;
  const Shares &shares_;
  std::uint64_t mostEffort_;
  std::uint64_t effort_ = 0;
  std::optional<Evaluated> best_;
  Choices asked_;
  std::uint64_t changes_ = 0;                    ///< of the best plan and of the repairs
  std::map<std::uint64_t, std::uint64_t> known_; ///< by hash of choices that came to nothing: their effort
  std::vector<Trial> ahead_;
  std::vector<Job<Outcome>> abandoned_; ///< that may be under way
  SearchTrace trace_;
};

} // namespace pumpgraph
