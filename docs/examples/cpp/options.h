// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transformer example's command line.
#pragma once

#include "memory.h"
#include "model.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

struct Options {
  Shape shape;
  std::uint64_t budgetBytes = std::uint64_t{3} << 30;
  bool unlimited = false;
  bool plain = false;
  bool leaveAsCaptured = false;
  bool validate = false;
  int steps = 20;
  int warmup = 1;
  int timed = 10;
  int measure = 0;
  std::string losses, json, save, costs;
  std::string products = "cublas", allocates = "step";

  bool allocatesOnce() const { return allocates == "once"; }
  Matmul matmul() const { return products == "source" ? Matmul::Source : Matmul::Cublas; }
};

inline const char *const usage =
    R"(usage: pumpgraph-example-transformer [OPTIONS]

Trains a small transformer as a captured CUDA graph under a device-memory budget.

  --budget SIZE         device memory, such as 3GiB, or unlimited (3GiB)
  --plain               without PumpGraph: cudaMalloc and the unmodified graph
  --batch N             texts a step (8)
  --length N            words a text (512)
  --width N             of a layer (1024)
  --heads N             (16)
  --layers N            (8)
  --words N             vocabulary (8192)
  --frozen N            layers, the first ones, that keep their weights, as the embedding does then: fine-tuning (0)
  --matmul WHOSE        matrix products by cublas (TF32), or by a kernel in the example's source (fp32, slow) (cublas)
  --allocate WHEN       activations and gradients in every step, or once, before the first (step)
  --steps N             training steps (20)
  --warmup N            eager steps before the capture (1)
  --timed N             replays timed after training (10)
  --losses FILE         write the losses as hexadecimal floats, one a line
  --json FILE           write all figures
  --save FILE           write the captured step as IR text
  --costs FILE          plan with the node times of a step saved before
  --leave-as-captured   rewrite nothing: what exceeds the budget is read from the host
  --measure N           time every node by N instrumented replays, for --save; implies --leave-as-captured
  --validate            compare the rewritten step with the captured one
)";

inline std::uint64_t parseNumber(std::string_view text, const std::string &option) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(option + ": \"" + std::string(text) + "\" is not a number");
  return value;
}

inline std::uint64_t parseSize(std::string_view text, const std::string &option) {
  for (const auto &[unit, shift] : {std::pair{"GiB", 30}, {"MiB", 20}, {"KiB", 10}})
    if (text.ends_with(unit))
      return parseNumber(text.substr(0, text.size() - 3), option) << shift;
  return parseNumber(text, option);
}

inline Options parseOptions(int count, char **arguments) {
  Options options;
  const std::pair<const char *, int *> numbers[] = {
      {"--batch", &options.shape.batch},   {"--length", &options.shape.length}, {"--width", &options.shape.width},
      {"--heads", &options.shape.heads},   {"--layers", &options.shape.layers}, {"--words", &options.shape.words},
      {"--frozen", &options.shape.frozen}, {"--steps", &options.steps},         {"--warmup", &options.warmup},
      {"--timed", &options.timed},         {"--measure", &options.measure},
  };
  const std::pair<const char *, std::string *> texts[] = {
      {"--losses", &options.losses}, {"--json", &options.json},       {"--save", &options.save},
      {"--costs", &options.costs},   {"--matmul", &options.products}, {"--allocate", &options.allocates}};
  const std::pair<const char *, bool *> switches[] = {{"--plain", &options.plain},
                                                      {"--leave-as-captured", &options.leaveAsCaptured},
                                                      {"--validate", &options.validate}};
  for (int i = 1; i < count; ++i) {
    const std::string option = arguments[i];
    bool known = false;
    const auto value = [&]() -> std::string {
      known = true;
      if (++i == count)
        fail(option + " needs a value");
      return arguments[i];
    };
    for (const auto &[name, target] : switches)
      if (option == name)
        known = *target = true;
    for (const auto &[name, target] : numbers)
      if (option == name)
        *target = static_cast<int>(parseNumber(value(), option));
    for (const auto &[name, target] : texts)
      if (option == name)
        *target = value();
    if (option == "--budget") {
      const std::string size = value();
      options.unlimited = size == "unlimited";
      options.budgetBytes = options.unlimited ? 0 : parseSize(size, option);
    }
    if (option == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (!known)
      fail("unknown option " + option + "; --help lists them");
  }
  options.leaveAsCaptured = options.leaveAsCaptured || options.measure > 0;
  if (options.products != "cublas" && options.products != "source")
    fail("--matmul: \"" + options.products + "\" is neither cublas nor source");
  if (options.allocates != "step" && options.allocates != "once")
    fail("--allocate: \"" + options.allocates + "\" is neither step nor once");
  if (options.warmup < 1)
    fail("--warmup: cuBLAS sets itself up in the first step, which a capture cannot hold; at least 1 is needed");
  return options;
}
