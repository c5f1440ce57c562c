// SPDX-License-Identifier: Apache-2.0
// Steps that take turns, each of which trains one of several networks with the others' help: it uses their weights one
// at a time, and of its own those of far apart layers at once.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

using Word = std::uint64_t;

constexpr std::size_t layers = 6, layersAtOnce = 3;
constexpr std::uint64_t bytes = 2 * pageBytes;
constexpr Word elements = bytes / Program::stride;

/// Calls that change what is mapped, copy, or wait for the device.
std::uint64_t slowCalls(const FakeDriver &fake) {
  std::uint64_t calls = 0;
  for (const char *symbol : {"cuMemMap", "cuMemUnmap", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
                             "cuStreamSynchronize", "cuCtxSynchronize"})
    calls += fake.callsOf(symbol);
  return calls;
}

Word &at(void *base, Word element) {
  return *reinterpret_cast<Word *>(static_cast<char *>(base) + element * Program::stride);
}

/// out = 3 in + weight
FakeKernel &layerKernel() {
  static FakeKernel kernel{"layer", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (Word i = 0; i < elements; ++i)
                               at(argument<void *>(arguments, 2), i) =
                                   at(argument<void *>(arguments, 0), i) * 3 + at(argument<void *>(arguments, 1), i);
                           }};
  return kernel;
}

/// Of each layer: momentum = 5 momentum + in; weight += momentum. result += in[0]
FakeKernel &optimizerKernel() {
  static FakeKernel kernel{"optimizer", std::vector<std::size_t>(2 + 2 * layersAtOnce, 8),
                           [](const FakeKernel::Arguments &arguments) {
                             void *in = argument<void *>(arguments, 0);
                             at(argument<void *>(arguments, 1), 0) += at(in, 0);
                             for (std::size_t layer = 0; layer < layersAtOnce; ++layer)
                               for (Word i = 0; i < elements; ++i) {
                                 Word &momentum = at(argument<void *>(arguments, 2 + 2 * layer), i);
                                 momentum = momentum * 5 + at(in, i);
                                 at(argument<void *>(arguments, 3 + 2 * layer), i) += momentum;
                               }
                           }};
  return kernel;
}

/// What is on the device at all times: the input, and of each step its result.
constexpr std::uint64_t exclusivePages = bytes / pageBytes;
/// The optimizer's operands.
constexpr std::uint64_t widestPages = (1 + 2 * layersAtOnce) * bytes / pageBytes;

class TurnsTest : public ::testing::Test {
protected:
  struct Value {
    void *buffer;
    std::vector<Word> expected;
  };
  struct Network {
    std::vector<Value> weights, momenta;
    Value result;
    Step *step = nullptr;
  };

  void open(std::uint64_t pages, std::size_t networks = 2) {
    networks_.clear();
    session_.reset();
    Expected<std::unique_ptr<Session>> made = openSession(fake_, pages, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    budget_ = pages;
    input_ = allocate("input", 0, false);
    for (Word i = 0; i < elements; ++i)
      at(input_.buffer, i) = input_.expected[i] = i + 1;
    for (std::size_t n = 0; n < networks; ++n) {
      Network &network = networks_.emplace_back();
      for (std::size_t layer = 0; layer < layers; ++layer) {
        network.weights.push_back(allocate(fmt::format("weight{}.{}", n, layer), 100 * n + layer, true));
        network.momenta.push_back(allocate(fmt::format("momentum{}.{}", n, layer), 0, true));
      }
    }
  }

  Value allocate(const std::string &name, Word first, bool isPrivate) {
    Value value{*session_->allocate(bytes, nullptr, name), std::vector<Word>(elements)};
    for (Word i = 0; i < elements; ++i)
      at(value.buffer, i) = value.expected[i] = first == 0 ? 0 : first + i;
    if (isPrivate) {
      EXPECT_TRUE(session_->declarePrivate(value.buffer));
    }
    return value;
  }

  /// The step that trains the network, once the program has done `meanwhile`: its plan is not in force then.
  CUgraph record(std::size_t trained, const std::function<void()> &meanwhile = [] {}) {
    CUgraph graph = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    meanwhile();
    CUgraphNode last = nullptr;
    const auto add = [&](FakeKernel &kernel, const std::vector<std::vector<char>> &arguments) {
      last = last ? fake_.addKernel(graph, {last}, kernel, arguments) : fake_.addKernel(graph, {}, kernel, arguments);
    };
    void *in = input_.buffer;
    for (const Network &network : networks_)
      for (const Value &weight : network.weights) {
        void *out = *session_->allocate(bytes, nullptr, "activation");
        add(layerKernel(), {bytesOf(in), bytesOf(weight.buffer), bytesOf(out)});
        if (in != input_.buffer) {
          EXPECT_TRUE(session_->free(in, nullptr));
        }
        in = out;
      }
    Network &network = networks_[trained];
    network.result = {*session_->allocate(Program::stride, nullptr, "result"), {0}};
    constexpr std::size_t parts = layers / layersAtOnce;
    for (std::size_t part = 0; part < parts; ++part) {
      std::vector<std::vector<char>> arguments{bytesOf(in), bytesOf(network.result.buffer)};
      for (std::size_t layer = part; layer < layers; layer += parts) {
        arguments.push_back(bytesOf(network.momenta[layer].buffer));
        arguments.push_back(bytesOf(network.weights[layer].buffer));
      }
      add(optimizerKernel(), arguments);
    }
    EXPECT_TRUE(session_->free(in, nullptr));
    EXPECT_TRUE(session_->captureEnd());
    return graph;
  }

  Expected<Step *> tryToAdopt(std::size_t network, CUgraph graph) {
    const Expected<Step *> step = session_->adopt(graph, {.name = fmt::format("step{}", network),
                                                          .keepFirstPlan = keepsFirstPlans_,
                                                          .boundary = BoundaryChoice::Shared,
                                                          .plansOthersAgain = plansOthersAgain_});
    networks_[network].step = step ? *step : nullptr;
    if (step)
      at(networks_[network].result.buffer, 0) = 0;
    return step;
  }
  void adopt(std::size_t network) {
    const Expected<Step *> step = tryToAdopt(network, record(network));
    ASSERT_TRUE(step) << messageOf(step);
    ASSERT_TRUE((*step)->rewritten()) << (*step)->report();
  }
  void adoptAll() {
    for (std::size_t network = 0; network < networks_.size(); ++network)
      adopt(network);
  }

  Status train(std::size_t trained) {
    Status replayed = networks_[trained].step->replay(nullptr);
    if (!replayed)
      return replayed;
    std::vector<Word> in = input_.expected;
    for (const Network &network : networks_)
      for (const Value &weight : network.weights)
        for (Word i = 0; i < elements; ++i)
          in[i] = in[i] * 3 + weight.expected[i];
    Network &network = networks_[trained];
    network.result.expected[0] += layers / layersAtOnce * in[0];
    for (std::size_t layer = 0; layer < layers; ++layer)
      for (Word i = 0; i < elements; ++i) {
        Word &momentum = network.momenta[layer].expected[i];
        momentum = momentum * 5 + in[i];
        network.weights[layer].expected[i] += momentum;
      }
    return {};
  }
  /// "0110": which network is trained, in this order.
  void run(const std::string &turns) {
    for (const char turn : turns) {
      const Status trained = train(static_cast<std::size_t>(turn - '0'));
      ASSERT_TRUE(trained) << messageOf(trained);
    }
  }

  void expectAllValues(const std::string &when) {
    for (const Network &network : networks_) {
      for (const std::vector<Value> *values : {&network.weights, &network.momenta})
        for (const Value &value : *values) {
          const Status mapped = session_->map(value.buffer);
          ASSERT_TRUE(mapped) << messageOf(mapped) << when;
          for (Word i = 0; i < elements; ++i)
            ASSERT_EQ(at(value.buffer, i), value.expected[i]) << when << ", element " << i;
          ASSERT_TRUE(session_->unmap(value.buffer));
        }
      if (network.step) {
        EXPECT_EQ(at(network.result.buffer, 0), network.result.expected[0]) << when;
      }
    }
    EXPECT_EQ(at(input_.buffer, 5), 6u) << when;
  }

  static nlohmann::json runtimeReport(const Network &network) {
    return nlohmann::json::parse(network.step->report()).at("runtime");
  }
  std::string boundaryOf(std::size_t network) { return runtimeReport(networks_[network]).at("boundary"); }
  std::uint64_t exchanges() {
    std::uint64_t sum = 0;
    for (const Network &network : networks_)
      sum += network.step ? runtimeReport(network).at("exchanges").get<std::uint64_t>() : 0;
    return sum;
  }
  /// Turns of all kinds, in which nothing is exchanged, and values are right.
  void expectTurnsAtOnce(const std::vector<std::string> &turns) {
    const std::uint64_t before = exchanges();
    for (const std::string &some : turns) {
      run(some);
      expectAllValues("after " + some);
    }
    EXPECT_EQ(exchanges(), before);
    for (const Network &network : networks_) {
      if (!network.step)
        continue;
      const Expected<Validation> validation = network.step->validate();
      ASSERT_TRUE(validation) << messageOf(validation);
      EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
    }
    expectAllValues("after validation");
    EXPECT_LE(fake_.deviceFrames(), budget_ + 1);
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::uint64_t budget_ = 0;
  bool plansOthersAgain_ = true, keepsFirstPlans_ = true;
  Value input_{};
  std::vector<Network> networks_;
};

/// Less, and no plan of one step leaves a boundary for the other.
constexpr std::uint64_t leastPages = exclusivePages + 2 + widestPages;
constexpr const char *oneFrame = "to which other steps have given one frame";

// No replay waits, copies or maps anything, whichever was before. Where no step is planned again they have boundaries
// of their own.
TEST_F(TurnsTest, shareABoundaryOnceTheFirstIsPlannedAgain) {
  for (const std::uint64_t pages : {leastPages + 1, leastPages + 4, leastPages + 12}) {
    SCOPED_TRACE(pages);
    plansOthersAgain_ = false;
    open(pages);
    adoptAll();
    EXPECT_EQ(boundaryOf(1), "own");
    EXPECT_NE(networks_[1].step->report().find(oneFrame), std::string::npos) << networks_[1].step->report();
    plansOthersAgain_ = true;
    open(pages);
    adopt(0);
    run("000");
    adopt(1);
    EXPECT_EQ(boundaryOf(0), "shared with step1");
    EXPECT_EQ(boundaryOf(1), "shared with step0");
    EXPECT_EQ(runtimeReport(networks_[1]).at("planned_again"), nlohmann::json({"step0"}));
    EXPECT_EQ(runtimeReport(networks_[0]).at("plans").size(), 2u);
    EXPECT_EQ(runtimeReport(networks_[0]).at("plans")[1].at("why"), "\"step1\" shares its boundary");
    expectAllValues("before any turn");
    run("01");
    const std::uint64_t calls = slowCalls(fake_);
    run("0101101001010101");
    EXPECT_EQ(slowCalls(fake_), calls);
    expectTurnsAtOnce({"0", "1", "10", "0011", "0101010101010101"});
    EXPECT_EQ(exchanges(), 0u);
  }
}

// The budget has room for all: nothing is planned again.
TEST_F(TurnsTest, areLeftAloneWhereTheyShareAnyway) {
  open(80);
  adoptAll();
  EXPECT_EQ(boundaryOf(1), "shared with step0");
  EXPECT_FALSE(runtimeReport(networks_[1]).contains("planned_again"));
  EXPECT_EQ(runtimeReport(networks_[0]).at("plans").size(), 1u);
  expectTurnsAtOnce({"01", "10"});
}

// There is no such plan: the first step goes on with its own, and a note says why.
TEST_F(TurnsTest, exchangePlansWhereNoneAreFound) {
  open(leastPages - 1, 3);
  adopt(0);
  run("00");
  const std::string before = networks_[0].step->report();
  adopt(1);
  EXPECT_EQ(boundaryOf(1), "own");
  EXPECT_EQ(boundaryOf(0), "own");
  EXPECT_NE(networks_[1].step->report().find("nor is there one if other steps are planned again: "), std::string::npos)
      << networks_[1].step->report();
  EXPECT_EQ(networks_[0].step->report(), before);
  EXPECT_FALSE(networks_[0].step->beforeLaunch(nullptr)->graphHasChanged);
  for (const std::string turns : {"0", "1", "01", "1001"}) {
    run(turns);
    expectAllValues("after " + turns);
  }
  EXPECT_GT(exchanges(), 0u);
}

// All that share are planned again, for a third one too. What each keeps on the device is known to the others.
TEST_F(TurnsTest, shareABoundaryAmongThree) {
  for (const std::uint64_t pages : {leastPages + 4, leastPages + 20}) {
    SCOPED_TRACE(pages);
    open(pages, 3);
    adopt(0);
    run("0");
    adopt(1);
    run("0110");
    adopt(2);
    EXPECT_EQ(boundaryOf(2), "shared with step0, step1") << networks_[2].step->report();
    EXPECT_EQ(runtimeReport(networks_[2]).at("planned_again"), nlohmann::json({"step0", "step1"}));
    expectAllValues("before any turn");
    expectTurnsAtOnce({"0", "1", "2", "012", "210", "00112202"});
  }
}

// Any of them can go, then another comes, for which the others are planned again once more.
TEST_F(TurnsTest, areSharedWithWhoeverIsLeft) {
  for (const std::size_t gone : {0, 1}) {
    SCOPED_TRACE(gone);
    open(leastPages + 6, 3);
    adoptAll();
    run("012");
    session_->destroy(std::exchange(networks_[gone].step, nullptr));
    expectAllValues("with two");
    const std::string left = gone == 0 ? "12" : gone == 1 ? "02" : "01";
    run(left); // puts the plans in force again
    expectTurnsAtOnce({left, left + left});
    adopt(gone);
    expectAllValues("with three again");
    run("012");
    expectTurnsAtOnce({"210", "012"});
    for (Network &network : networks_)
      session_->destroy(std::exchange(network.step, nullptr));
    expectAllValues("without any");
  }
}

/// What a step had before another was adopted is not what it runs afterwards.
class StaleGraphTest : public TurnsTest {
protected:
  /// As one who launches an instantiation of his own, and never again asks whether it is stale.
  void launchMine(CUgraphExec exec) {
    ASSERT_TRUE(networks_[0].step->putInForce());
    ASSERT_TRUE(fake_.table()->graphLaunch(exec, nullptr));
  }
};

// The caller is told. One who has not said that he listens keeps what he has.
TEST_F(StaleGraphTest, isToldToTheCaller) {
  for (const bool again : {true, false}) {
    plansOthersAgain_ = again;
    open(leastPages + 6);
    const CUgraph graph = record(0);
    ASSERT_TRUE(tryToAdopt(0, graph));
    const Driver &driver = *fake_.table();
    CUgraphExec exec = nullptr;
    ASSERT_TRUE(driver.graphInstantiate(&exec, graph, 0));
    ASSERT_TRUE(networks_[0].step->beforeLaunch(nullptr));
    run("0");
    adopt(1);
    if (again) {
      const Expected<LaunchState> state = networks_[0].step->beforeLaunch(nullptr);
      ASSERT_TRUE(state);
      EXPECT_TRUE(state->graphHasChanged);
      ASSERT_TRUE(driver.graphExecDestroy(exec));
      ASSERT_TRUE(driver.graphInstantiate(&exec, graph, 0));
    }
    const std::vector<Word> weight = networks_[0].weights[0].expected;
    launchMine(exec);
    run("1");
    launchMine(exec);
    const Expected<LaunchState> state = networks_[0].step->beforeLaunch(nullptr);
    ASSERT_TRUE(state);
    EXPECT_FALSE(state->graphHasChanged);
    // The same launches, by a session of its own.
    std::vector<std::vector<Word>> mine;
    for (const Value &value : networks_[0].weights) {
      ASSERT_TRUE(session_->map(value.buffer));
      std::vector<Word> &values = mine.emplace_back();
      for (Word i = 0; i < elements; ++i)
        values.push_back(at(value.buffer, i));
      ASSERT_TRUE(session_->unmap(value.buffer));
    }
    ASSERT_TRUE(driver.graphExecDestroy(exec));
    open(80);
    adoptAll();
    run("0010");
    for (std::size_t layer = 0; layer < layers; ++layer)
      EXPECT_EQ(mine[layer], networks_[0].weights[layer].expected) << layer;
  }
}

// A step that has failed to be adopted leaves the others' plans, and what they compute.
TEST_F(TurnsTest, surviveARefusedStep) {
  open(leastPages + 6);
  adoptAll();
  run("01");
  static FakeKernel large{"large", {8}, [](const FakeKernel::Arguments &) {}};
  CUgraph graph = fake_.createGraph();
  ASSERT_TRUE(session_->captureBegin());
  const Expected<void *> result = session_->allocate(60 * pageBytes, nullptr, "result");
  ASSERT_TRUE(result);
  fake_.addKernel(graph, {}, large, {bytesOf(*result)});
  ASSERT_TRUE(session_->captureEnd());
  EXPECT_FALSE(session_->adopt(graph, {.boundary = BoundaryChoice::Shared, .plansOthersAgain = true}));
  expectTurnsAtOnce({"01", "10"});
}

// What is written between replays, while the plan that goes is in force or none is, reaches the plans that come.
TEST_F(TurnsTest, haveWhatIsWrittenMeanwhile) {
  for (const Use use : {Use::Read, Use::Write, Use::UntilReplay}) {
    open(leastPages + 6);
    adopt(0);
    run("00");
    std::vector<void *> all;
    for (const Network &network : networks_)
      for (const Value &weight : network.weights)
        all.push_back(weight.buffer);
    const auto write = [&](Word by) {
      ASSERT_TRUE(session_->bring(all, use));
      for (Network &network : networks_)
        for (Value &weight : network.weights)
          for (Word i = 0; i < elements; ++i) {
            ASSERT_EQ(at(weight.buffer, i), weight.expected[i]);
            if (use != Use::Read)
              at(weight.buffer, i) = weight.expected[i] += by;
          }
    };
    write(7);
    const CUgraph graph = record(1, [&] { write(11); });
    write(13);
    ASSERT_TRUE(tryToAdopt(1, graph));
    EXPECT_EQ(boundaryOf(1), "shared with step0");
    write(17);
    expectTurnsAtOnce({"0", "1", "01"});
  }
}

// What is mapped when a step is adopted has its value afterwards, and keeps steps from running until it is not.
TEST_F(TurnsTest, respectWhatIsMapped) {
  open(leastPages + 6);
  adopt(0);
  run("0");
  Value &weight = networks_[1].weights[2];
  ASSERT_TRUE(session_->map(weight.buffer));
  EXPECT_FALSE(session_->captureBegin());
  ASSERT_TRUE(session_->unmap(weight.buffer));
  adopt(1);
  ASSERT_TRUE(session_->map(weight.buffer));
  at(weight.buffer, 3) = weight.expected[3] = 77;
  EXPECT_FALSE(networks_[0].step->replay(nullptr));
  EXPECT_FALSE(networks_[1].step->replay(nullptr));
  ASSERT_TRUE(session_->unmap(weight.buffer));
  expectTurnsAtOnce({"0", "1", "01"});
}

// Whatever the first step's own planning again has come to when the second is adopted, it goes on from the new plan.
TEST_F(TurnsTest, areTimedFromThenOn) {
  keepsFirstPlans_ = false;
  for (const int replays : {3, 6, 10, 14, 20}) {
    SCOPED_TRACE(replays);
    open(leastPages + 6);
    layerKernel().milliseconds = 20; // not what anybody predicts
    adopt(0);
    for (int i = 0; i < replays; ++i)
      run("0");
    expectAllValues("before the second");
    adopt(1);
    EXPECT_EQ(boundaryOf(1), "shared with step0") << networks_[1].step->report();
    expectAllValues("with the second");
    for (int i = 0; i < 8; ++i)
      run("01");
    EXPECT_EQ(boundaryOf(1), "shared with step0");
    expectTurnsAtOnce({"0", "1", "01"});
  }
  layerKernel().milliseconds = 0;
}

/// A driver call, and which of them fails while a step is adopted.
class TurnsFailureTest : public TurnsTest,
                         public ::testing::WithParamInterface<std::tuple<const char *, int, std::size_t>> {};

// Every step goes on, or says that it has lost its memory.
TEST_P(TurnsFailureTest, neverComputesNonsense) {
  const auto [call, nth, networks] = GetParam();
  open(leastPages + 6, networks);
  for (std::size_t n = 0; n + 1 < networks; ++n)
    adopt(n);
  run(networks == 2 ? "00" : "0110");
  const std::size_t last = networks - 1;
  const CUgraph graph = record(last);
  fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
  const Expected<Step *> step = tryToAdopt(last, graph);
  fake_.stopFailing(call);
  bool isLost = false;
  for (int turn = 0; turn < 2; ++turn)
    for (std::size_t n = 0; n < networks; ++n)
      if (networks_[n].step)
        if (const Status trained = train(n); !trained) {
          EXPECT_EQ(trained.error().status, PUMPGRAPH_INTERNAL) << messageOf(trained);
          EXPECT_NE(trained.error().message.find("has lost its memory"), std::string::npos) << messageOf(trained);
          isLost = true;
        }
  if (!isLost)
    expectAllValues("after the failure");
  for (Network &network : networks_)
    if (network.step)
      session_->destroy(std::exchange(network.step, nullptr));
}

INSTANTIATE_TEST_SUITE_P(OfTwo, TurnsFailureTest,
                         ::testing::Combine(::testing::Values("cuMemHostRegister", "cuMemMap", "cuMemUnmap",
                                                              "cuMemcpyDtoHAsync", "cuCtxSynchronize",
                                                              "cuGraphAddMemcpyNode", "cuGraphAddDependencies",
                                                              "cuGraphDestroyNode"),
                                            ::testing::Values(1, 9, 30), ::testing::Values<std::size_t>(2)));
INSTANTIATE_TEST_SUITE_P(OfThree, TurnsFailureTest,
                         ::testing::Combine(::testing::Values("cuMemMap", "cuGraphAddMemcpyNode"),
                                            ::testing::Values(30, 90), ::testing::Values<std::size_t>(3)));

} // namespace
