// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tags of allocations, for C++20: which part of a program took the memory.
///
/// ```cpp
/// pumpgraph::Tag etl(session, "etl");
/// {
///   pumpgraph::Tag join(session, "join"); // what this thread allocates here carries "etl/join"
/// }
/// std::string json = *pumpgraph::tags(session);
/// ```
#pragma once

#include "pumpgraph/pumpgraph.hpp"

#include <cassert>
#include <cstdint>
#include <string>

namespace pumpgraph {

/// While it lives, allocations of its thread in the session carry its name, after those of tags around it. It ends in
/// the thread that made it, in the reverse order of tags: a local variable. Holds the session.
class Tag {
public:
  /// See pumpgraph_tag_begin(). A name that is refused tags nothing: see begun().
  Tag(const Session &session, const std::string &name)
      : session_(session), begun_(detail::call(pumpgraph_tag_begin, session_.handle(), name.c_str(), &tag_)) {}
  Tag(const Tag &) = delete;
  Tag &operator=(const Tag &) = delete;
  ~Tag() {
    [[maybe_unused]] const bool ended = !begun_ || pumpgraph_tag_end(session_.handle(), tag_, nullptr) == PUMPGRAPH_OK;
    assert(ended && "a tag ends in its thread, after those inside it");
  }

  /// Success, or the reason why the name was refused.
  const Status &begun() const { return begun_; }

private:
  Session session_;
  std::uint64_t tag_ = 0;
  Status begun_;
};

/// The bytes of all tags as JSON, ordered by tag; with `resetPeaks`, then sets their peaks to the present values. See
/// pumpgraph_tags().
inline Expected<std::string> tags(const Session &session, bool resetPeaks = false) {
  char *json = nullptr;
  if (const Status made = detail::call(pumpgraph_tags, session.handle(), resetPeaks ? 1 : 0, &json); !made)
    return made.error();
  std::string text = json;
  pumpgraph_string_free(json);
  return text;
}

} // namespace pumpgraph
