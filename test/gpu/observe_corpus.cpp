// SPDX-License-Identifier: Apache-2.0
// The Clang plugin's table against what its kernels are seen to do: `observe_corpus [RUNS] [--json FILE]`. Exit status
// 1 if the table is wrong anywhere. FILE gets a line for every slot, which corpus.py --observed reads.
#include "runtime/session/Session.h"
#include "runtime/session/Step.h"
#include "test/gpu/CorpusLaunches.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace pumpgraph::smoke {
namespace {

using namespace runtime;

[[noreturn]] void stop(const std::string &message) {
  std::fprintf(stderr, "observe_corpus: %s\n", message.c_str());
  std::exit(1);
}
template <typename Value> Value take(Expected<Value> made, const char *what) {
  if (!made)
    stop(fmt::format("{}: {}", what, made.error().message));
  if constexpr (!std::is_void_v<Value>)
    return std::move(*made);
}
void cuda(cudaError_t status, const char *what) {
  if (status != cudaSuccess)
    stop(fmt::format("{}: {}", what, cudaGetErrorName(status)));
}

/// The corpus as one step of a session.
class Corpus {
public:
  Corpus() {
    const std::string compiler =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libpumpgraph-compiler.so";
    SessionOptions options;
    options.unlimited = true;
    options.compilerLibrary = compiler;
    session_ = take(Session::create(options, take(Driver::load(), "driver")), "session");
    inputs_.floats = allocate<float>("floats");
    inputs_.values = allocate<int>("values");
    inputs_.places = allocate<int>("places");
    inputs_.offsets = allocate<int>("offsets");
    inputs_.tokens = allocate<int>("tokens");
    inputs_.ones = allocate<int>("ones");
    setInputs(0);
    step_ = take(
        session_->capture([&](CUstream stream) { return record(stream); }, {.name = "corpus", .keepFirstPlan = true}),
        "capture");
    if (!step_->rewritten()) // what it is said to do is known all the same
      std::printf("the corpus is left as captured: %s\n", step_->report().c_str());
    take(step_->replay(nullptr), "replay");
    cuda(cudaDeviceSynchronize(), "replay");
  }

  /// Different ones for each run.
  void setInputs(unsigned run) {
    std::mt19937 random(run);
    std::uniform_real_distribution<float> size(0.5F, 2);
    std::vector<float> floats(corpusCount);
    for (std::size_t i = 0; i < floats.size(); ++i)
      floats[i] = i % 3 == run % 3 ? -size(random) : size(random);
    std::vector<int> values(corpusCount), places(corpusCount), offsets(corpusCount), tokens(corpusCount);
    std::generate(values.begin(), values.end(), [&] { return static_cast<int>(random() % 128); });
    std::generate(tokens.begin(), tokens.end(), [&] { return static_cast<int>(random() % 64); });
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (int i = 0; i < corpusCount; ++i)
      offsets[static_cast<std::size_t>(i)] = std::min(i * static_cast<int>(16 + run), corpusCount);
    upload(inputs_.floats, floats);
    upload(inputs_.values, values);
    upload(inputs_.places, places);
    upload(inputs_.offsets, offsets);
    upload(inputs_.tokens, tokens);
    upload(inputs_.ones, std::vector<int>(corpusCount, 1));
  }

  Observation observe() { return take(step_->observe(plainValues_), "observe"); }
  const std::string &kernel(NodeIndex node) const { return step_->captured().nodes[node].name; }

private:
  template <typename Value> Value *allocate(const char *name) {
    Value *made = static_cast<Value *>(take(session_->allocate(corpusCount * sizeof(Value), nullptr, name), name));
    if (std::string_view(name) == "values")
      plainValues_.push_back(reinterpret_cast<CUdeviceptr>(made));
    return made;
  }

  template <typename Value> void upload(Value *to, const std::vector<Value> &from) {
    cuda(cudaMemcpy(to, from.data(), from.size() * sizeof(Value), cudaMemcpyHostToDevice), "upload");
  }

  /// The step is captured twice: values of the first capture are nobody's afterwards.
  int record(CUstream stream) {
    plainValues_.resize(1);
    std::vector<void *> made;
    const auto fresh = [&](std::size_t bytes) {
      made.push_back(take(session_->allocate(bytes, stream, fmt::format("fresh{}", made.size())), "allocate"));
      return made.back();
    };
    const auto freshValues = [&](std::size_t bytes) {
      void *values = fresh(bytes);
      plainValues_.push_back(reinterpret_cast<CUdeviceptr>(values));
      return values;
    };
    const cudaError_t launched = launchCorpus(stream, inputs_, {fresh, freshValues});
    if (launched != cudaSuccess)
      std::fprintf(stderr, "launching the corpus: %s\n", cudaGetErrorName(launched));
    for (void *memory : made)
      take(session_->free(memory, stream), "free");
    return launched == cudaSuccess ? 0 : 1;
  }

  std::unique_ptr<Session> session_;
  CorpusInputs inputs_;
  std::vector<CUdeviceptr> plainValues_;
  Step *step_ = nullptr;
};

/// A slot of a kernel, and what all launches in all runs have shown of it together.
struct SeenSlot {
  std::uint8_t seen = modeNone;    ///< what happened
  std::uint8_t notSeen = modeNone; ///< what some launch certainly did not do
  std::uint8_t tabled = modeNone;
  bool isUnderstood = false;
  bool isOverwritten = false; ///< by some launch, in full
  bool isTabled = false;
  std::size_t launches = 0;
  std::set<std::pair<std::uint32_t, std::uint32_t>> alike; ///< words that held the same address in some launch
};
using SlotKey = std::tuple<std::string, std::uint32_t, std::uint32_t>; ///< kernel, parameter, offset

void add(SeenSlot &slot, const Sighting &sighting) {
  const auto note = [&](Answer answer, Mode mode) {
    slot.seen |= answer == Answer::Yes ? mode : modeNone;
    slot.notSeen |= answer == Answer::No ? mode : modeNone;
  };
  note(sighting.read, modeRead);
  note(sighting.written, modeWrite);
  slot.isOverwritten = slot.isOverwritten || sighting.overwritten == Answer::Yes;
}

std::map<SlotKey, SeenSlot> slotsOf(const Corpus &corpus, const Observation &observation) {
  std::map<SlotKey, SeenSlot> slots;
  for (const ObservedOperand &operand : observation.operands) {
    const std::string &name = corpus.kernel(operand.node);
    const std::optional<KernelAccesses> kernel = AccessTables::ofProcess().find(name);
    // Words of the same address cannot be told apart: each may do what any of them may.
    std::uint8_t tabled = modeNone;
    for (const OperandWord &word : operand.words)
      if (const Slot *slot = kernel ? kernel->find(word.parameter, word.inParameter) : nullptr)
        tabled |= slot->may;
    for (const OperandWord &word : operand.words) {
      const Slot *slot = kernel ? kernel->find(word.parameter, word.inParameter) : nullptr;
      SeenSlot &seen = slots[{name, word.parameter, word.inParameter}];
      seen.isTabled = slot != nullptr;
      seen.isUnderstood = slot && slot->isUnderstood();
      seen.tabled |= tabled;
      for (const OperandWord &other : operand.words)
        seen.alike.emplace(other.parameter, other.inParameter);
      ++seen.launches;
      for (const Sighting &sighting : operand.sightings)
        add(seen, sighting);
    }
  }
  return slots;
}

enum Verdict { Right, Conservative, Wrong, Open, NoTable };
constexpr const char *verdictNames[] = {"right", "conservative", "wrong", "open", "not in a table"};

Verdict judge(const SeenSlot &slot) {
  if (!slot.isTabled)
    return NoTable;
  if (!slot.isUnderstood)
    return Conservative;
  if ((slot.seen & ~slot.tabled) != 0)
    return Wrong;
  if (slot.seen == slot.tabled)
    return Right;
  return (slot.tabled & ~slot.seen & ~slot.notSeen) != 0 ? Open : Conservative;
}

const char *modeName(std::uint8_t mode) {
  constexpr const char *names[] = {"none", "read", "write", "readwrite"};
  return names[mode & modeReadWrite];
}

int run(unsigned runs, const std::string &json) {
  Corpus corpus;
  Observation observation;
  for (unsigned i = 0; i < runs; ++i) {
    corpus.setInputs(i);
    observation = corpus.observe();
    std::printf("run %u: %llu kernels, %zu operands, %.0f ms in all\n", i,
                static_cast<unsigned long long>(observation.kernels), observation.operands.size(),
                observation.milliseconds);
  }
  const std::map<SlotKey, SeenSlot> slots = slotsOf(corpus, observation);
  std::size_t verdicts[5] = {};
  std::size_t overwritten = 0;
  std::ofstream lines(json);
  for (const auto &[key, slot] : slots) {
    const auto &[kernel, parameter, offset] = key;
    const Verdict verdict = judge(slot);
    ++verdicts[verdict];
    overwritten += slot.isOverwritten;
    if (verdict != Right)
      std::printf("%s: %s %u+%u: table %s, seen %s, certainly not %s, %zu launches\n", verdictNames[verdict],
                  kernel.c_str(), parameter, offset, modeName(slot.tabled), modeName(slot.seen), modeName(slot.notSeen),
                  slot.launches);
    if (!json.empty())
      lines << nlohmann::json{{"kernel", kernel},
                              {"parameter", parameter},
                              {"offset", offset},
                              {"same_address", slot.alike},
                              {"table", slot.isTabled ? modeName(slot.tabled) : "no slot"},
                              {"seen", modeName(slot.seen)},
                              {"not_seen", modeName(slot.notSeen)},
                              {"overwritten", slot.isOverwritten},
                              {"verdict", verdictNames[verdict]}}
                   .dump()
            << "\n";
  }
  for (const ObservedDisagreement &one : observation.disagreements)
    std::printf("disagreement: %s\n", one.message.c_str());
  const auto proved = std::count_if(observation.disagreements.begin(), observation.disagreements.end(),
                                    [](const ObservedDisagreement &one) { return one.evidence == Evidence::Proved; });
  std::printf("%zu slots of launched kernels:", slots.size());
  for (const Verdict verdict : {Right, Conservative, Wrong, Open, NoTable})
    std::printf(" %zu %s%s", verdicts[verdict], verdictNames[verdict], verdict == NoTable ? "\n" : ",");
  std::printf("%llu operands of %zu covered, %llu differ between runs; %zu slots seen to be overwritten in full; "
              "%zu disagreements, %td with the table\n",
              static_cast<unsigned long long>(observation.covered()), observation.operands.size(),
              static_cast<unsigned long long>(observation.differing()), overwritten, observation.disagreements.size(),
              proved);
  return verdicts[Wrong] == 0 && proved == 0 ? 0 : 1;
}

} // namespace
} // namespace pumpgraph::smoke

int main(int argc, char **argv) {
  unsigned runs = 3;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc)
      json = argv[++i];
    else
      runs = static_cast<unsigned>(std::max(1, std::atoi(argv[i])));
  }
  return pumpgraph::smoke::run(runs, json);
}
