// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Search.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

// Most turns come to nothing. So those that would follow one another if none of them did are looked at side by side,
// and taken in order: what was begun before something changed counts for nothing.
void Search::run(Proposer &proposer) {
  for (std::size_t turn = 0; proposer.at(turn) != Turn::Over; ++turn) {
    const std::size_t width = std::min(shares_.ofEach(), proposer.reach());
    while (ahead_.size() < std::max<std::size_t>(1, width)) {
      if (!ahead_.empty() && proposer.at(turn + ahead_.size()) == Turn::Over)
        break;
      ahead_.push_back(trialAt(proposer, turn + ahead_.size()));
    }
    Trial trial = std::move(ahead_.front());
    ahead_.erase(ahead_.begin());
    if (proposer.at(turn) == Turn::Skip)
      trial.proposal.reset();
    const std::uint64_t changes = changes_;
    settle(proposer, std::move(trial));
    if (changes_ != changes)
      abandon();
  }
  abandon();
}

Search::Trial Search::trialAt(Proposer &proposer, std::size_t turn) {
  Trial trial;
  if (proposer.at(turn) != Turn::Try)
    return trial;
  trial.proposal = proposer.propose(turn);
  if (!trial.proposal)
    return trial;
  input().settleCopies(trial.proposal->choices.start.boundary);
  trial.key = hashOf(trial.proposal->choices);
  const auto isAhead = [&](const Trial &other) { return other.proposal && other.key == trial.key; };
  if (!isKnown(trial.key) && std::none_of(ahead_.begin(), ahead_.end(), isAhead))
    trial.job = jobOf(*trial.proposal, !ahead_.empty());
  return trial;
}

Job<Outcome> Search::jobOf(const Proposal &proposal, bool isAhead) {
  const Evaluator &evaluate = evaluator_;
  Choices choices =
      proposal.keepsHomes ? proposal.choices : repairs_.applied(proposal.choices, best_ ? &*best_ : nullptr);
  std::function<Outcome()> work = [&evaluate, choices = std::move(choices), keepsHomes = proposal.keepsHomes] {
    return evaluate(choices, keepsHomes);
  };
  return isAhead ? workers_.begin(std::move(work)) : Job<Outcome>(std::move(work));
}

void Search::settle(Proposer &proposer, Trial trial) {
  if (!trial.proposal)
    return proposer.learn(nullptr, false);
  Proposal &proposal = *trial.proposal;
  effort_ += proposal.effort;
  if (const auto known = known_.find(trial.key); known != known_.end()) {
    if (proposal.keepsHomes)
      effort_ += known->second; // as if it were carried out
    return proposer.learn(nullptr, false);
  }
  Outcome outcome = trial.job.get();
  std::uint64_t effort = outcome.effort;
  while (!proposal.keepsHomes && !outcome.evaluated && outcome.stuck.node &&
         repairs_.repair(*outcome.stuck.node, hasPlan())) {
    ++changes_;
    outcome = jobOf(proposal, false).get();
    effort += outcome.effort;
  }
  effort_ += effort;
  known_.emplace(trial.key, effort);
  const bool isKept = keep(proposer.name(), outcome.evaluated, effort);
  if (isKept)
    asked_ = std::move(proposal.choices);
  proposer.learn(isKept ? &*best_ : outcome.evaluated ? &*outcome.evaluated : nullptr, isKept);
}

bool Search::keep(std::string_view proposer, std::optional<Evaluated> &plan, std::uint64_t effort) {
  TraceRow row{
      proposer, timeline().mostPagesOfPiece() * timeline().pageBytes(), best_ ? best_->schedule.totalUs : 0, 0, effort,
      false};
  if (plan) {
    row.afterUs = plan->schedule.totalUs;
    row.kept = !best_ || isBetter(*plan, *best_, input().machine);
  }
  trace_.push_back(row);
  if (!row.kept)
    return false;
  best_ = std::move(plan);
  ++changes_;
  if (input().foundPlan)
    (*input().foundPlan)(best_->schedule.totalUs);
  return true;
}

bool Search::take(std::string_view proposer, Evaluated plan) {
  std::optional<Evaluated> taken = std::move(plan);
  return keep(proposer, taken, 0);
}

/// What is looked at ahead counts for nothing. What is under way goes on beside what comes next, but no more of it than
/// so much.
void Search::abandon() {
  for (Trial &trial : ahead_)
    if (trial.job && trial.job.abandon())
      abandoned_.push_back(std::move(trial.job));
  ahead_.clear();
  waitForAbandoned(shares_.ofEach());
}

void Search::waitForAbandoned(std::size_t most) {
  while (abandoned_.size() > most) {
    abandoned_.front().wait();
    abandoned_.erase(abandoned_.begin());
  }
}

} // namespace pumpgraph
