// SPDX-License-Identifier: Apache-2.0
/// \file
/// A proposer that has one turn for each of some values.
#pragma once

#include "passes/plan/search/Search.h"

#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace pumpgraph {

/// The choices that `make` returns for each value, unless the search is spent.
template <typename Value> class Each : public Proposer {
public:
  using Make = std::function<std::optional<Choices>(const Value &)>;
  Each(std::string_view name, const Search &search, std::vector<Value> values, Make make)
      : name_(name), search_(search), values_(std::move(values)), make_(std::move(make)) {}

  void tryWhenSpent() { whenSpent_ = Turn::Try; }

  std::string_view name() const override { return name_; }
  Turn at(std::size_t turn) const override {
    return turn >= values_.size() ? Turn::Over : search_.isSpent() ? whenSpent_ : Turn::Try;
  }
  std::optional<Proposal> propose(std::size_t turn) override {
    std::optional<Choices> choices = make_(values_[turn]);
    return choices ? std::optional(Proposal{std::move(*choices), false, 0}) : std::nullopt;
  }

private:
  std::string_view name_;
  const Search &search_;
  std::vector<Value> values_;
  Make make_;
  Turn whenSpent_ = Turn::Skip;
};

} // namespace pumpgraph
