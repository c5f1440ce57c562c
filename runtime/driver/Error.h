// SPDX-License-Identifier: Apache-2.0
/// \file
/// The runtime's one error type, and how errors travel: `Expected<T>` up to the C API, which turns them into a status
/// and a message.
#pragma once

#include "pumpgraph/pumpgraph.h"

#include <fmt/core.h>
#include <tl/expected.hpp>

#include <string>
#include <utility>

namespace pumpgraph::runtime {

struct Error {
  pumpgraph_status status = PUMPGRAPH_INTERNAL;
  std::string message; ///< lower case, with names and numbers, no trailing period
};

template <typename Value> using Expected = tl::expected<Value, Error>;
using Status = Expected<void>;

/// `return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is not an allocation", pointer);`
template <typename... Arguments>
tl::unexpected<Error> fail(pumpgraph_status status, fmt::format_string<Arguments...> format, Arguments &&...arguments) {
  return tl::unexpected<Error>(Error{status, fmt::format(format, std::forward<Arguments>(arguments)...)});
}

/// The error with its context: "while mapping page 3: cuMemMap: CUDA_ERROR_...".
inline tl::unexpected<Error> inContext(Error error, const std::string &context) {
  error.message = context + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

/// Keeps the first failure of several operations that are all carried out.
inline void keepFirst(Status &first, Status done) {
  if (first && !done)
    first = std::move(done);
}

/// Bytes as a person reads them: "512 bytes", "2.0 MiB", "3.2 GiB".
std::string bytesText(std::uint64_t bytes);

} // namespace pumpgraph::runtime

/// Returns from the enclosing function with the error of `expression`, if it has one.
#define PUMPGRAPH_TRY(expression)                                                                                      \
  do {                                                                                                                 \
    if (auto tried_ = (expression); !tried_)                                                                           \
      return tl::unexpected<::pumpgraph::runtime::Error>(std::move(tried_).error());                                   \
  } while (false)

/// The same, with a context built only when there is an error: a format string and its arguments.
#define PUMPGRAPH_TRY_WHILE(expression, ...)                                                                           \
  do {                                                                                                                 \
    if (auto tried_ = (expression); !tried_)                                                                           \
      return ::pumpgraph::runtime::inContext(std::move(tried_).error(), fmt::format(__VA_ARGS__));                     \
  } while (false)
