// SPDX-License-Identifier: Apache-2.0
/// \file
/// Starts a program with libpumpgraph_preload.so ahead of the CUDA driver. It becomes the program, whose exit status is
/// therefore its own.
#include "runtime/preload/Settings.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace {

using pumpgraph::preload::Settings;

constexpr const char *usage =
    R"(usage: pump-graph-run --budget=SIZE [OPTION...] -- PROGRAM [ARGUMENT...]

Runs a program with its device memory under a budget. Nothing of the program changes.

  --budget=SIZE    device memory of the program's allocations: 16GiB, 512MiB
  --host=SIZE      host memory for allocations beyond the budget, which kernels reach over the link; 0: none, such
                   allocations fail as without memory. Three quarters of the available host memory if not given
  --mode=auto      the only mode
  --plan           plans the rounds of programs that need more than the budget: values move between its calls
  --report=FOLDER  writes each period of calls as a step, for pump-graph-opt
  --help           this text

PUMPGRAPH_LOG is error, warning, info (if not set) or debug.
)";

struct Options {
  std::string budget, host, report;
  bool plans = false;
  int program = 0; ///< its place among the arguments
};

[[noreturn]] void fail(const std::string &message) {
  fmt::print(stderr, "pump-graph-run: error: {}\n", message);
  std::exit(2);
}

/// "16GiB", "1.5GiB", "512MiB", "0" in bytes.
std::optional<std::uint64_t> parseSize(const std::string &text) {
  constexpr struct {
    std::string_view unit;
    double bytes;
  } units[] = {{"", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0) || number > 0x1p50)
    return std::nullopt;
  for (const auto &[unit, bytes] : units)
    if (unit == std::string_view(end) && number * bytes < 0x1p60)
      return static_cast<std::uint64_t>(number * bytes);
  return std::nullopt;
}

std::string sizeOption(const char *option, const std::string &text) {
  const std::optional<std::uint64_t> bytes = parseSize(text);
  if (!bytes)
    fail(fmt::format("{}={}: that is no size; write 16GiB or 512MiB", option, text));
  return std::to_string(*bytes);
}

Options parse(int count, char **arguments) {
  Options options;
  int at = 1;
  for (; at < count && std::strncmp(arguments[at], "--", 2) == 0; ++at) {
    const std::string_view argument = arguments[at];
    if (argument == "--") {
      ++at;
      break;
    }
    if (argument == "--help") {
      fmt::print("{}", usage);
      std::exit(0);
    }
    if (argument == "--plan") {
      options.plans = true;
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    if (equals == std::string_view::npos)
      fail(fmt::format("{}: an option is written {}=VALUE; --help lists them", argument, name));
    const std::string value(argument.substr(equals + 1));
    if (name == "--budget")
      options.budget = sizeOption("--budget", value);
    else if (name == "--host")
      options.host = sizeOption("--host", value);
    else if (name == "--report")
      options.report = std::filesystem::absolute(value).string();
    else if (name != "--mode")
      fail(fmt::format("{}: there is no such option; --help lists them", name));
    else if (value != "auto")
      fail(fmt::format("--mode={}: there is no such mode; write --mode=auto", value));
  }
  options.program = at;
  return options;
}

void checkLevel() {
  const char *const given = std::getenv(Settings::levelVariable);
  const std::string_view level = given ? given : "";
  if (!level.empty() && level != "error" && level != "warning" && level != "info" && level != "debug")
    fail(fmt::format("{}={}: write error, warning, info or debug", Settings::levelVariable, level));
}

/// In lib/ beside bin/, in the folder of this program, or as a Python package has it: above that.
std::string findPreload() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char *place : {"../lib", "../lib/x86_64-linux-gnu", "../lib64", ".", ".."})
    if (const std::filesystem::path path = folder / place / "libpumpgraph_preload.so"; exists(path, error))
      return canonical(path, error).string();
  fail(fmt::format("libpumpgraph_preload.so is not beside {}: it belongs into ../lib", folder.string()));
}

void set(const char *variable, const std::string &value) {
  if (!value.empty())
    setenv(variable, value.c_str(), 1);
  else
    unsetenv(variable);
}

} // namespace

int main(int count, char **arguments) {
  const Options options = parse(count, arguments);
  if (options.budget.empty())
    fail("there is no budget; write --budget=16GiB");
  if (options.budget == "0")
    fail("--budget=0: no program runs without device memory");
  if (options.program >= count)
    fail("there is no program; write it behind --");
  checkLevel();
  set(Settings::budgetVariable, options.budget);
  set(Settings::hostVariable, options.host);
  set(Settings::reportVariable, options.report);
  set(Settings::planVariable, options.plans ? "1" : "");
  set(Settings::processVariable, std::to_string(getpid()));
  const char *const preloaded = std::getenv("LD_PRELOAD");
  const std::string others = preloaded ? preloaded : "";
  set("LD_PRELOAD", others.empty() ? findPreload() : findPreload() + ":" + others);
  execvp(arguments[options.program], arguments + options.program);
  const int error = errno;
  fmt::print(stderr, "pump-graph-run: error: {}: {}\n", arguments[options.program], std::strerror(error));
  return error == ENOENT ? 127 : 126;
}
