// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/Tags.h"

#include <utility>

namespace pumpgraph::runtime {

thread_local constinit Tags::Open *Tags::innermost = nullptr;

/// Apart from `innermost`, whose read needs no initialization.
std::unique_ptr<Tags::Open> &Tags::ownedByThread() {
  struct Owner {
    ~Owner() { innermost = nullptr; } // what the thread's end allocates has no tag
    std::unique_ptr<Open> open;
  };
  thread_local Owner owner;
  return owner.open;
}

TagId Tags::findOfThread() const {
  for (const Open *open = innermost; open; open = open->outer.get())
    if (open->session == identity_)
      return open->tag;
  return noTag;
}

Expected<std::uint64_t> Tags::begin(std::string_view name) {
  if (name.empty() || name.size() > longestName || name.find('/') != std::string_view::npos)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a tag \"{}\"; it has 1 to {} bytes and no \"/\"", name, longestName);
  const TagId outer = ofThread();
  std::string path = outer == noTag ? std::string(name) : nameOf(outer) + "/" + std::string(name);
  auto known = byName_.find(path);
  if (known == byName_.end()) {
    if (all_.size() == mostTags)
      return fail(PUMPGRAPH_INVALID_ARGUMENT,
                  "a tag \"{}\" beside {} others; a session has no more: give one name to "
                  "all rounds of a loop",
                  path, mostTags);
    all_.push_back({{path, {}}, outer});
    known = byName_.emplace(std::move(path), static_cast<TagId>(all_.size())).first;
  }
  auto open = std::make_unique<Open>(Open{identity_, known->second, ++lastNumber_, nullptr});
  std::unique_ptr<Open> &owned = ownedByThread();
  open->outer = std::move(owned);
  owned = std::move(open);
  innermost = owned.get();
  return owned->number;
}

Status Tags::end(std::uint64_t opened) {
  std::unique_ptr<Open> *place = &ownedByThread();
  while (*place && (*place)->session != identity_) // another session's may be ended later
    place = &(*place)->outer;
  if (!*place || (*place)->number != opened)
    return fail(
        PUMPGRAPH_INVALID_ARGUMENT,
        "tag {} is not the innermost one that this thread has open; end it in its thread, after those inside it",
        opened);
  std::unique_ptr<Open> outer = std::move((*place)->outer);
  *place = std::move(outer);
  innermost = ownedByThread().get();
  return {};
}

std::vector<TagRow> Tags::rows() const {
  std::vector<TagRow> rows;
  for (const auto &[name, id] : byName_)
    rows.push_back(all_[id - 1].row);
  return rows;
}

void Tags::resetPeaks() {
  for (Tag &tag : all_)
    tag.row.bytes.resetPeaks();
}

} // namespace pumpgraph::runtime
