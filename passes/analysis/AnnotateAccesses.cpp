// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/AnnotateAccesses.h"

#include "pumpgraph/graph/Reliance.h"

#include <cxxabi.h>

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace pumpgraph {
namespace {

std::optional<std::string> demangle(std::string_view mangledName) {
  if (!mangledName.starts_with("_Z"))
    return std::nullopt;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(std::string(mangledName).c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0)
    return std::nullopt;
  return std::string(text.get());
}

/// What stands between the last closing parenthesis and its partner. Parentheses balance in demangled names whatever
/// else is in them; angle brackets do not (operators, comparisons).
std::optional<std::string_view> parameterList(std::string_view name) {
  if (!name.ends_with(')'))
    return std::nullopt;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')')
      ++depth;
    if (name[i] == '(' && --depth == 0)
      return name.substr(i + 1, name.size() - i - 2);
  }
  return std::nullopt;
}

/// Whether every angle bracket in `types` belongs to a template argument list.
bool hasOnlyTemplateBrackets(std::string_view types) {
  constexpr std::array<std::string_view, 6> doubtful = {"operator", "->", ">(", ")<", "<=", ">="};
  for (const std::string_view sign : doubtful)
    if (types.find(sign) != std::string_view::npos)
      return false;
  return true;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Splits at the commas outside all brackets. Empty if the brackets do not match or a part is empty.
std::vector<std::string_view> splitParameters(std::string_view types) {
  constexpr std::string_view opening = "(<[{", closing = ")>]}";
  std::vector<std::string_view> parameters;
  std::string open;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= types.size(); ++i) {
    if (i == types.size() || (types[i] == ',' && open.empty())) {
      parameters.push_back(trim(types.substr(begin, i - begin)));
      if (parameters.back().empty())
        return {};
      begin = i + 1;
      continue;
    }
    if (opening.find(types[i]) != std::string_view::npos)
      open.push_back(types[i]);
    const std::size_t kind = closing.find(types[i]);
    if (kind == std::string_view::npos)
      continue;
    if (open.empty() || open.back() != opening[kind])
      return {};
    open.pop_back();
  }
  return open.empty() ? parameters : std::vector<std::string_view>{};
}

bool removeSuffix(std::string_view &text, std::string_view suffix) {
  if (!text.ends_with(suffix))
    return false;
  text = trim(text.substr(0, text.size() - suffix.size()));
  return true;
}

/// `T const*`, `T const volatile* __restrict__`, `T const&`. The qualifiers nearest the last star are the pointee's
/// own; those of a pointer it points to further inside say nothing. A pointer to a function or to an array ends in a
/// bracket and is left alone.
bool pointsToConstant(std::string_view type) {
  while (removeSuffix(type, " const") || removeSuffix(type, " volatile") || removeSuffix(type, "__restrict__") ||
         removeSuffix(type, "__restrict"))
    ;
  if (!removeSuffix(type, "*") && !removeSuffix(type, "&"))
    return false;
  while (removeSuffix(type, " volatile"))
    ;
  return type.ends_with(" const");
}

/// Remembers what it has worked out: a step launches few different kernels many times.
class KernelSignatures {
public:
  bool isConstantPointee(const std::string &kernel, std::int32_t parameter) {
    const auto [found, isNew] = byName_.try_emplace(kernel);
    if (isNew)
      found->second = constantPointees(kernel);
    return parameter >= 0 && static_cast<std::size_t>(parameter) < found->second.size() && found->second[parameter];
  }

private:
  std::unordered_map<std::string, std::vector<bool>> byName_;
};

/// The mode a copy or a fill certainly has. What the lift could not tell apart (readwrite) stays unknown, but for a
/// fill, which has no source.
std::optional<Mode> provedMode(const Node &node, const Access &access) {
  if (node.kind == NodeKind::Memset)
    return modeWrite;
  if (node.kind != NodeKind::Memcpy || access.may == modeReadWrite)
    return std::nullopt;
  return static_cast<Mode>(access.may);
}

std::string placeOf(const Access &access) {
  return access.parameter == unknownParameter ? "an unknown parameter" : fmt::format("parameter {}", access.parameter);
}

/// One for each parameter of a kernel.
class Disagreements {
public:
  explicit Disagreements(AnnotateStats &stats) : stats_(stats) {}

  void add(NodeIndex index, const Node &node, const Access &access, std::string message) {
    if (reported_.emplace(node.name, access.parameter).second)
      stats_.disagreements.push_back({index, std::move(message)});
  }

private:
  AnnotateStats &stats_;
  std::set<std::pair<std::string, std::int32_t>> reported_;
};

/// Whether nothing that is known of the kernel makes it any better known.
bool isSettled(Evidence evidence) {
  return evidence == Evidence::Proved || evidence == Evidence::Allocated;
}

/// Gives the accesses of kernels in `tables` the modes that these have for them.
class TableJoin {
public:
  TableJoin(const KernelTable &tables, AnnotateStats &stats, Disagreements &disagreements)
      : tables_(tables), stats_(stats), disagreements_(disagreements) {}

  void annotate(NodeIndex index, Node &node) {
    const auto kernel = tables_.find(node.name);
    if (node.kind != NodeKind::Kernel || kernel == tables_.end())
      return;
    std::vector<Access> kept;
    for (Access access : node.accesses) {
      const std::optional<Mode> mode =
          isSettled(access.evidence) ? std::nullopt : kernel->second.modeOf(access.parameter);
      if (!mode) {
        kept.push_back(access);
        continue;
      }
      compare(index, node, access, *mode);
      if (*mode == modeNone) {
        ++stats_.dropped;
        continue;
      }
      access.must = reliableMust(access) & *mode;
      access.may = *mode;
      access.evidence = Evidence::Proved;
      ++stats_.proved;
      kept.push_back(access);
    }
    node.accesses = std::move(kept);
  }

private:
  void compare(NodeIndex index, const Node &node, const Access &access, Mode tabled) {
    if (access.evidence == Evidence::Declared && (tabled & ~access.may) != 0)
      disagreements_.add(index, node, access,
                         fmt::format("\"{}\" may do more through {} than is declared, says the access table", node.name,
                                     placeOf(access)));
    if (access.evidence == Evidence::Observed && (access.may & ~tabled) != 0)
      disagreements_.add(index, node, access,
                         fmt::format("\"{}\" was observed to do more through {} than the access table says", node.name,
                                     placeOf(access)));
  }

  const KernelTable &tables_;
  AnnotateStats &stats_;
  Disagreements &disagreements_;
};

} // namespace

std::vector<bool> constantPointees(std::string_view mangledName) {
  const std::optional<std::string> name = demangle(mangledName);
  if (!name)
    return {};
  const std::optional<std::string_view> types = parameterList(*name);
  if (!types || !hasOnlyTemplateBrackets(*types))
    return {};
  std::vector<bool> constant;
  for (const std::string_view type : splitParameters(*types))
    constant.push_back(pointsToConstant(type));
  return constant;
}

AnnotateStats annotateAccesses(Description &description, const KernelTable &tables) {
  AnnotateStats stats;
  KernelSignatures signatures;
  Disagreements disagreements(stats);
  TableJoin join(tables, stats, disagreements);
  for (NodeIndex index = 0; index < description.nodes.size(); ++index) {
    Node &node = description.nodes[index];
    join.annotate(index, node);
    for (Access &access : node.accesses) {
      if (isSettled(access.evidence) || access.evidence == Evidence::Declared)
        continue; // what was observed overrules nothing
      if (const std::optional<Mode> mode = provedMode(node, access)) {
        access.may = access.must = *mode;
        access.evidence = Evidence::Proved;
        ++stats.proved;
        continue;
      }
      if (node.kind == NodeKind::Kernel && signatures.isConstantPointee(node.name, access.parameter)) {
        if (access.evidence == Evidence::Observed && (access.may & modeWrite) != 0)
          disagreements.add(index, node, access,
                            fmt::format("\"{}\" was observed to write through {}, which points to constant data",
                                        node.name, placeOf(access)));
        access.must = reliableMust(access) & modeRead;
        access.may = modeRead;
        access.evidence = Evidence::Declared;
        ++stats.declared;
        continue;
      }
      stats.assumed += access.evidence == Evidence::Assumed ? 1 : 0;
    }
  }
  return stats;
}

} // namespace pumpgraph
