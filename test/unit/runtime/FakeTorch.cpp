// SPDX-License-Identifier: Apache-2.0
// Stands in for libtorch_python.so: exceptions with PyTorch's names, and a caller of the allocator that catches them.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace {
int living = 0; // errors of PyTorch's
}

namespace c10 {

struct SourceLocation {
  const char *function;
  const char *file;
  std::uint32_t line;
};

class Error : public std::exception {
public:
  Error(SourceLocation place, std::string message);
  ~Error() override { --living; }
  const char *what() const noexcept override { return message_.c_str(); }

private:
  [[maybe_unused]] SourceLocation place_; // as in PyTorch's class
  std::string message_;
};

// As in PyTorch, not inline: an inline one is not to be seen from outside.
Error::Error(SourceLocation place, std::string message) : place_(place), message_(std::move(message)) {
  ++living;
}

class OutOfMemoryError : public Error {
public:
  using Error::Error;
};

} // namespace c10

struct CUstream_st;

extern "C" {

int alive() {
  return living;
}

/// What PyTorch tells Python.
const char *caught(void *(*allocate)(std::size_t, int, CUstream_st *), std::size_t bytes) {
  static std::string text;
  try {
    if (bytes == 0)
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "as PyTorch itself does");
    allocate(bytes, 0, nullptr);
    text = "nothing";
  } catch (const c10::OutOfMemoryError &error) {
    text = std::string("OutOfMemoryError: ") + error.what();
  } catch (const c10::Error &error) {
    text = std::string("Error: ") + error.what();
  } catch (const std::runtime_error &error) {
    text = std::string("runtime_error: ") + error.what();
  }
  if (std::uncaught_exceptions() != 0)
    text += " (still in flight)";
  return text.c_str();
}

} // extern "C"
