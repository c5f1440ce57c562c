// SPDX-License-Identifier: Apache-2.0
#include "test/unit/plan/ChoicesText.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace pumpgraph {

bool operator==(const Choices &one, const Choices &other) {
  return one.start.first == other.start.first && one.start.leaves == other.start.leaves &&
         std::ranges::equal(one.start.boundary, other.start.boundary) &&
         std::ranges::equal(one.start.homes, other.start.homes) && one.start.slackWeight == other.start.slackWeight &&
         one.start.looksFurther == other.start.looksFurther && one.finish == other.finish;
}

namespace test {
namespace {

constexpr std::string_view stateNames = "ARM"; // away, resident, mirrored

/// A line: the name, then each value, runs of equal ones once.
template <typename Values, typename Name>
void writeRuns(std::string &text, std::string_view name, const Values &values, const Name &nameOf) {
  text += name;
  for (auto first = values.begin(); first != values.end();) {
    const auto last = std::find_if(first, values.end(), [&](const auto &value) { return value != *first; });
    const std::string value = nameOf(*first);
    text += last - first > 1 ? fmt::format(" {}*{}", last - first, value) : " " + value;
    first = last;
  }
  text += '\n';
}

std::string framesName(const std::vector<std::int32_t> &frames) {
  std::string name;
  for (auto first = frames.begin(); first != frames.end();) {
    auto last = first + 1;
    while (last != frames.end() && *last == *(last - 1) + 1)
      ++last;
    name += fmt::format("{}{}", name.empty() ? "" : ",", *first);
    if (last - first > 1)
      name += fmt::format("-{}", *(last - 1));
    first = last;
  }
  return name.empty() ? "." : name;
}

std::vector<std::string_view> wordsOf(std::string_view line, char separator) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(separator), line.size());
    if (end > 0)
      words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

template <typename Number> bool read(std::string_view word, Number &number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

bool readFrames(std::string_view word, std::vector<std::int32_t> &frames) {
  if (word == ".")
    return true;
  for (const std::string_view run : wordsOf(word, ',')) {
    const std::size_t dash = run.find('-');
    std::int32_t first = 0, last = 0;
    if (!read(run.substr(0, dash), first) || first < 0)
      return false;
    last = first;
    if (dash != std::string_view::npos && (!read(run.substr(dash + 1), last) || last < first))
      return false;
    for (; first <= last; ++first)
      frames.push_back(first);
  }
  return true;
}

/// Calls `take(value)` for each value of runs; false where one is none.
template <typename Take> bool readRuns(const std::vector<std::string_view> &words, const Take &take) {
  constexpr std::uint64_t most = 1 << 28; // of one run: a text from outside must not fill memory
  for (std::string_view word : words) {
    std::uint64_t count = 1;
    if (const std::size_t star = word.find('*'); star != std::string_view::npos) {
      if (!read(word.substr(0, star), count) || count > most)
        return false;
      word.remove_prefix(star + 1);
    }
    for (; count > 0; --count)
      if (!take(word))
        return false;
  }
  return true;
}

bool readLine(std::string_view name, const std::vector<std::string_view> &words, Choices &choices) {
  DraftStart &start = choices.start;
  const auto numbers = [&](auto &...each) {
    std::size_t next = 0;
    return words.size() == sizeof...(each) && (read(words[next++], each) && ...);
  };
  if (name == "boundary")
    return readRuns(words, [&](std::string_view word) {
      const std::size_t state = word.size() == 1 ? stateNames.find(word) : std::string_view::npos;
      if (state != std::string_view::npos)
        start.boundary.add(static_cast<BoundaryState>(state));
      return state != std::string_view::npos;
    });
  if (name == "leaves")
    return readRuns(words, [&](std::string_view word) {
      start.leaves.push_back(word == "1");
      return word == "0" || word == "1";
    });
  if (name == "first")
    return readRuns(words, [&](std::string_view word) {
      std::uint32_t piece = 0;
      const bool isRead = read(word, piece);
      start.first.push_back(static_cast<PieceIndex>(piece));
      return isRead;
    });
  if (name == "homes")
    return readRuns(words, [&](std::string_view word) { return readFrames(word, start.homes[start.homes.add({})]); });
  if (name == "start") {
    int looksFurther = 0;
    const bool isRead = numbers(start.slackWeight, looksFurther);
    start.looksFurther = looksFurther == 1;
    return isRead && (looksFurther == 0 || looksFurther == 1);
  }
  return name == "finish" && numbers(choices.finish.joinReach, choices.finish.deferrals, choices.finish.rowBytes);
}

} // namespace

std::string toText(const Choices &choices) {
  std::string text;
  const auto number = [](auto value) { return fmt::format("{}", static_cast<std::uint32_t>(value)); };
  writeRuns(text, "boundary", choices.start.boundary,
            [](BoundaryState state) { return std::string(1, stateNames[static_cast<std::size_t>(state)]); });
  writeRuns(text, "leaves", choices.start.leaves, number);
  writeRuns(text, "first", choices.start.first, number);
  writeRuns(text, "homes", choices.start.homes, framesName);
  text += fmt::format("start {} {:d}\n", choices.start.slackWeight, choices.start.looksFurther);
  text += fmt::format("finish {} {} {}\n", choices.finish.joinReach, choices.finish.deferrals, choices.finish.rowBytes);
  return text;
}

tl::expected<Choices, std::string> choicesOf(std::string_view text) {
  Choices choices;
  for (const std::string_view line : wordsOf(text, '\n')) {
    std::vector<std::string_view> words = wordsOf(line, ' ');
    if (words.empty())
      continue;
    const std::string_view name = words.front();
    words.erase(words.begin());
    if (!readLine(name, words, choices))
      return tl::unexpected(fmt::format("no choice: \"{}\"", line.substr(0, 80)));
  }
  return choices;
}

} // namespace test
} // namespace pumpgraph
