// SPDX-License-Identifier: Apache-2.0
// The C functions in front of the flat pipeline. MLIR is needed where text is: to read saved node times and to print.
#include "pumpgraph/compiler.h"

#include "passes/analysis/AnnotateAccesses.h"
#include "passes/analysis/EstimateCosts.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerManaged.h"
#include "passes/lower/PredictManaged.h"
#include "passes/pipeline/Candidates.h"
#include "passes/pipeline/Compile.h"
#include "passes/report/MemoryTrace.h"
#include "passes/report/Summary.h"
#include "pumpgraph/graph/Conversion.h"
#include "pumpgraph/graph/Printable.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBufferRef.h"

#include <fmt/format.h>
#include <tl/expected.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

using namespace pumpgraph;

namespace {

/// A candidate, and what its C twin points at.
class OwnedCandidate {
public:
  OwnedCandidate(std::string name, Summary summary)
      : name_(std::move(name)), reportJson_(toJson(summary)), reportText_(toText(summary)),
        lowered_(std::move(summary.lowered)), view_(lowered_) {}
  OwnedCandidate(const OwnedCandidate &) = delete;
  OwnedCandidate &operator=(const OwnedCandidate &) = delete;

  const pumpgraph_candidate *get() const { return &candidate_; }

private:
  const std::string name_, reportJson_, reportText_;
  const Description lowered_;
  const DescriptionView view_;
  const pumpgraph_candidate candidate_{name_.c_str(), view_.get(), reportJson_.c_str(), reportText_.c_str()};
};

} // namespace

struct pumpgraph_compilation {
  std::string message;
  std::vector<std::string> notes;
  std::size_t savedTimes = 0;
  std::deque<OwnedCandidate> candidates;
};

namespace {

/// Why a call did not succeed.
struct Failure {
  pumpgraph_compiler_status status;
  std::string message;
};

tl::unexpected<Failure> invalid(std::string message) {
  return tl::unexpected(Failure{PUMPGRAPH_COMPILER_INVALID, std::move(message)});
}

/// The caller's struct may be of an older, shorter version; what it does not have is zero, the default.
pumpgraph_compiler_options currentVersion(const pumpgraph_compiler_options *options) {
  pumpgraph_compiler_options copy{};
  if (options)
    std::memcpy(&copy, options, std::min(options->struct_size, sizeof copy));
  return copy;
}

/// Sets `value` to what the caller asked for, if he did.
std::string take(double asked, std::string_view name, double &value) {
  if (asked == 0)
    return {};
  if (!(asked > 0) || std::isinf(asked))
    return fmt::format("{} is {}", name, asked);
  value = asked;
  return {};
}

tl::expected<CompileOptions, Failure> compileOptions(const pumpgraph_compiler_options &asked) {
  CompileOptions options;
  Machine &machine = options.plan.machine;
  options.plan.budgetBytes = asked.budget_bytes;
  if (asked.host_bytes > 0)
    machine.hostBytes = asked.host_bytes;
  machine.downAtOnce = std::max(asked.down_at_once, 1U);
  options.rematerializes = asked.rematerialize != 0;
  if (asked.found_plan)
    options.plan.foundPlan = [call = asked.found_plan, user = asked.found_plan_user](double us) { call(us, user); };
  if (asked.managed != 0)
    setManagedHosting(machine);
  double downOverheadUs = 0;
  for (const std::string &fault :
       {take(asked.up_bytes_per_second, "up_bytes_per_second", machine.upBytesPerSecond),
        take(asked.down_bytes_per_second, "down_bytes_per_second", machine.downBytesPerSecond),
        take(asked.both_bytes_per_second, "both_bytes_per_second", machine.bothBytesPerSecond),
        take(asked.device_bytes_per_second, "device_bytes_per_second", machine.deviceBytesPerSecond),
        take(asked.copy_overhead_us, "copy_overhead_us", machine.copyOverheadUs),
        take(asked.best_up_bytes_per_second, "best_up_bytes_per_second", machine.bestUpBytesPerSecond),
        take(asked.best_down_bytes_per_second, "best_down_bytes_per_second", machine.bestDownBytesPerSecond),
        take(asked.down_overhead_us, "down_overhead_us", downOverheadUs),
        take(asked.request_us, "request_us", machine.requestUs),
        take(asked.empty_bytes_per_second, "empty_bytes_per_second", machine.emptyBytesPerSecond)})
    if (!fault.empty())
      return invalid(fault);
  if (downOverheadUs > 0)
    machine.downOverheadUs = downOverheadUs;
  return options;
}

tl::expected<Description, Failure> read(const pumpgraph_description *view) {
  if (!view)
    return invalid("there is no description");
  Description description;
  std::string error;
  if (!fromC(*view, description, error))
    return invalid(error);
  return description;
}

/// The same of a step that has to have come so far.
tl::expected<Description, Failure> readStage(const pumpgraph_description *view, Stage stage) {
  tl::expected<Description, Failure> step = read(view);
  if (step)
    if (std::string fault = wrongStage(*step, {stage}); !fault.empty())
      return invalid(std::move(fault));
  return step;
}

/// "costs_ir:2:27: expected integer value"
std::string spell(mlir::Diagnostic &diagnostic) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (const auto place = mlir::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
    stream << place.getFilename().strref() << ':' << place.getLine() << ':' << place.getColumn() << ": ";
  stream << diagnostic;
  return text;
}

/// Of a graph: the name of the GPU that its node times are of.
constexpr llvm::StringLiteral deviceAttribute = "pump.device";

/// Parses IR text with a context of its own and hands each of its graphs to `visit`. Returns what the parser complained
/// about, or nothing. `name` stands for the file in complaints.
std::string forEachGraph(llvm::StringRef text, llvm::StringRef name, llvm::function_ref<void(ir::GraphOp)> visit) {
  // The parser reads bytecode too, but a damaged one may crash it.
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, name)))
    return fmt::format("{} is not text", name.str());
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<ir::PumpDialect>();
  std::string complaints;
  const mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    complaints += (complaints.empty() ? "" : "; ") + spell(diagnostic);
  });
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(text, &context, name);
  if (!module)
    return complaints.empty() ? fmt::format("{} cannot be parsed", name.str()) : complaints;
  for (ir::GraphOp graph : module->getOps<ir::GraphOp>())
    visit(graph);
  return {};
}

/// Takes node times from `options.costs_ir`, and notes how many. Returns what is wrong with that text, or nothing.
std::string takeSavedTimes(Description &step, const pumpgraph_compiler_options &options,
                           pumpgraph_compilation &compilation) {
  std::string otherDevice;
  const auto take = [&](ir::GraphOp graph) {
    const auto device = graph->getAttrOfType<mlir::StringAttr>(deviceAttribute);
    if (device && options.device && device.getValue() != options.device)
      otherDevice = device.str();
    else
      compilation.savedTimes += mergeCosts(step, ir::toDescription(graph).description);
  };
  if (std::string fault = forEachGraph(options.costs_ir, "costs_ir", take); !fault.empty())
    return fault;
  if (!otherDevice.empty())
    compilation.notes.push_back(printable(
        fmt::format("the saved node times are those of {}; on {} they are not used", otherDevice, options.device)));
  else if (compilation.savedTimes < step.nodes.size())
    compilation.notes.push_back(fmt::format("the saved step has times for {} of {} nodes, by position and name",
                                            compilation.savedTimes, step.nodes.size()));
  return {};
}

/// Takes what is in host memory out of the step. On managed memory it stays there where the options say so, which also
/// have what else may be hosted. Returns what is wrong with them, or nothing.
std::string takeHosting(Description &step, CompileOptions &wanted, const pumpgraph_compiler_options &options) {
  std::vector<std::vector<Range>> stays; // what is in host memory already
  for (Buffer &buffer : step.buffers)
    stays.push_back(std::exchange(buffer.hosted, {}));
  if (!options.hosting || wanted.plan.backend == Backend::Virtual)
    return {};
  const std::uint32_t rounds = std::max<std::uint32_t>(1, options.hosted_rounds);
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
    if (options.hosting[buffer] == 0)
      continue;
    if (options.hosting[buffer] > 2 || !step.buffers[buffer].isPrivate || step.buffers[buffer].isPresent)
      return fmt::format("hosting of buffer {} \"{}\" is {}; it is 0 to 2, and 0 if the buffer stays on the device",
                         buffer, step.buffers[buffer].name, options.hosting[buffer]);
    if (options.hosting[buffer] == 1) {
      if (options.hosted_us && options.hosted_round && options.hosted_round[buffer] >= rounds)
        return fmt::format("buffer {} \"{}\" was in host memory in round {} of {}, which begin with 0", buffer,
                           step.buffers[buffer].name, options.hosted_round[buffer], rounds);
      wanted.managed.mayBeHosted.push_back(buffer);
      continue;
    }
    if (stays[buffer].empty())
      return fmt::format("hosting of buffer {} \"{}\" is 2, and the description has none of it in host memory", buffer,
                         step.buffers[buffer].name);
    for (const Range &range : stays[buffer])
      wanted.plan.hosted.push_back({buffer, range});
  }
  return {};
}

/// The times of nodes with operands in host memory, if somebody knows them.
std::optional<HostingRounds> roundsOf(const Description &step, const pumpgraph_compiler_options &options) {
  if (!options.hosting || !options.hosted_us)
    return std::nullopt;
  HostingRounds rounds;
  rounds.ofBuffer.resize(step.buffers.size(), 0);
  if (options.hosted_round)
    rounds.ofBuffer.assign(options.hosted_round, options.hosted_round + step.buffers.size());
  for (std::uint32_t round = 0; round < std::max<std::uint32_t>(1, options.hosted_rounds); ++round) {
    const double *us = options.hosted_us + round * step.nodes.size();
    rounds.nodesUs.emplace_back(us, us + step.nodes.size());
  }
  return rounds;
}

/// Takes the pages that are to be apart. Returns what is wrong with them, or nothing.
std::string takeApart(const Description &step, PlanOptions &plan, const pumpgraph_compiler_options &options) {
  if (!options.apart || plan.backend != Backend::Virtual)
    return {};
  for (std::uint64_t i = 0; i < options.apart_count; ++i) {
    const pumpgraph_apart_pages &pages = options.apart[i];
    if (pages.buffer >= step.buffers.size())
      return fmt::format("pages of buffer {} are to be apart, and there are {} buffers", pages.buffer,
                         step.buffers.size());
    const Buffer &buffer = step.buffers[pages.buffer];
    if (pages.offset > buffer.size || pages.size > buffer.size - pages.offset)
      return fmt::format("{} bytes from {} on of buffer {} \"{}\" are to be apart; it has {}", pages.size, pages.offset,
                         pages.buffer, buffer.name, buffer.size);
    if (i == 0 || options.apart[i - 1].group != pages.group)
      plan.apart.emplace_back();
    plan.apart.back().push_back({pages.buffer, {pages.offset, pages.size}});
  }
  return {};
}

tl::expected<std::vector<Candidate>, Failure> compile(const pumpgraph_description *captured,
                                                      const pumpgraph_compiler_options &options,
                                                      pumpgraph_compilation &compilation) {
  tl::expected<Description, Failure> step = readStage(captured, Stage::Captured);
  if (!step)
    return tl::unexpected(step.error());
  tl::expected<CompileOptions, Failure> wanted = compileOptions(options);
  if (!wanted)
    return tl::unexpected(wanted.error());
  std::optional<Description> boundary;
  if (options.boundary) {
    tl::expected<Description, Failure> given = readStage(options.boundary, Stage::LoweredVirtual);
    if (!given)
      return invalid("the boundary: " + given.error().message);
    boundary = std::move(*given);
    wanted->plan.boundary = &*boundary;
  }
  annotateAccesses(*step);
  if (options.costs_ir)
    if (const std::string fault = takeSavedTimes(*step, options, compilation); !fault.empty())
      return invalid(fault);
  if (options.prefetching < 0 || options.prefetching > static_cast<int>(Prefetching::None))
    return invalid(fmt::format("prefetching is {}", options.prefetching));
  wanted->managed.prefetching = static_cast<Prefetching>(options.prefetching);
  wanted->plan.backend = options.managed == 0              ? Backend::Virtual
                         : options.every_access_known != 0 ? Backend::Managed
                                                           : Backend::ManagedUnknown;
  if (const std::string fault = takeHosting(*step, *wanted, options); !fault.empty())
    return invalid(fault);
  if (const std::string fault = takeApart(*step, wanted->plan, options); !fault.empty())
    return invalid(fault);
  return compileCandidates(*step, *wanted, roundsOf(*step, options));
}

std::string join(const std::vector<Violation> &violations) {
  std::string text;
  for (const Violation &violation : violations)
    text += (text.empty() ? "" : "; ") + violation.message;
  return text;
}

/// Why a candidate is none, if so.
std::optional<Failure> failureOf(const Candidate &candidate) {
  if (!candidate.compiled)
    return Failure{PUMPGRAPH_COMPILER_UNPLANNABLE, candidate.compiled.error().message};
  if (!candidate.compiled->checked())
    return Failure{PUMPGRAPH_COMPILER_REFUSED, "the checker refused the plan: " + join(candidate.compiled->violations)};
  return std::nullopt;
}

/// Without any candidate it fails as the first one does.
pumpgraph_compiler_status fill(pumpgraph_compilation &compilation,
                               tl::expected<std::vector<Candidate>, Failure> candidates) {
  std::vector<std::string> missing;
  if (candidates)
    for (Candidate &candidate : *candidates) {
      if (const std::optional<Failure> failure = failureOf(candidate))
        missing.push_back(printable(fmt::format("there is no plan \"{}\": {}", candidate.name, failure->message)));
      else
        compilation.candidates.emplace_back(candidate.name, Summary(std::move(*candidate.compiled)));
    }
  if (compilation.candidates.empty()) {
    const Failure failure = candidates ? *failureOf(candidates->front()) : candidates.error();
    compilation.message = printable(failure.message);
    return failure.status;
  }
  compilation.notes.insert(compilation.notes.end(), missing.begin(), missing.end());
  return PUMPGRAPH_COMPILED;
}

/// What a call returns belongs to C.
char *copyOut(const std::string &text) {
  char *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy)
    std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

/// Everything wrong with `lowered`, or an empty string. The plan relied on what is known of the accesses, which a step
/// lifted from the driver does not say: it is worked out again.
template <Stage stage, std::vector<Violation> (*checkStep)(const Description &, std::size_t)>
std::string check(const pumpgraph_description *lowered, const pumpgraph_description *captured) {
  tl::expected<Description, Failure> rewritten = readStage(lowered, stage);
  if (!rewritten)
    return rewritten.error().message;
  annotateAccesses(*rewritten);
  constexpr std::size_t mostViolations = 10;
  std::vector<Violation> violations = checkStep(*rewritten, mostViolations);
  if (!captured)
    return join(violations);
  tl::expected<Description, Failure> original = readStage(captured, Stage::Captured);
  if (!original)
    return "the captured step: " + original.error().message;
  annotateAccesses(*original);
  for (Violation &violation : checkPreserves(*original, *rewritten))
    violations.push_back(std::move(violation));
  return join(violations);
}

std::string checkBoundary(const pumpgraph_description *rewritten, const pumpgraph_description *boundary) {
  const tl::expected<Description, Failure> step = readStage(rewritten, Stage::LoweredVirtual);
  if (!step)
    return step.error().message;
  const tl::expected<Description, Failure> given = readStage(boundary, Stage::LoweredVirtual);
  return given ? join(checkKeepsBoundary(*given, *step)) : "the boundary: " + given.error().message;
}

/// What a check has to say, for the caller to free; NULL where that is nothing.
char *messageOf(std::string (*check)(const pumpgraph_description *, const pumpgraph_description *),
                const pumpgraph_description *first, const pumpgraph_description *second) {
  try {
    const std::string fault = check(first, second);
    return fault.empty() ? nullptr : copyOut(printable(fault));
  } catch (const std::exception &) {
    return strdup("memory ran out");
  }
}

tl::expected<double, Failure> predictedUs(const pumpgraph_description *lowered,
                                          const pumpgraph_compiler_options &options) {
  const tl::expected<Description, Failure> step = readStage(lowered, Stage::LoweredVirtual);
  if (!step)
    return tl::unexpected(step.error());
  const tl::expected<CompileOptions, Failure> asked = compileOptions(options);
  if (!asked)
    return tl::unexpected(asked.error());
  return predict(*step, asked->plan.machine).totalUs;
}

tl::expected<std::string, Failure> retimedFigures(const pumpgraph_description *captured,
                                                  const pumpgraph_description *lowered,
                                                  const pumpgraph_compiler_options &options,
                                                  std::uint64_t peakBytesBefore) {
  tl::expected<Description, Failure> original = readStage(captured, Stage::Captured);
  if (!original)
    return invalid("the captured step: " + original.error().message);
  const tl::expected<Description, Failure> step = readStage(lowered, Stage::LoweredVirtual);
  if (!step)
    return tl::unexpected(step.error());
  if (step->buffers.size() < original->buffers.size())
    return invalid(fmt::format("the lowered step has {} buffers, the captured one {}", step->buffers.size(),
                               original->buffers.size()));
  const tl::expected<CompileOptions, Failure> asked = compileOptions(options);
  if (!asked)
    return tl::unexpected(asked.error());
  annotateAccesses(*original);
  return timesToJson(Summary(retimed(*original, *step, *asked, peakBytesBefore)));
}

tl::expected<std::string, Failure> memoryViz(const pumpgraph_description *lowered,
                                             const pumpgraph_compiler_options &options) {
  const tl::expected<Description, Failure> step = read(lowered);
  if (!step)
    return tl::unexpected(step.error());
  if (std::string fault = wrongStage(*step, {Stage::LoweredVirtual, Stage::LoweredManaged}); !fault.empty())
    return invalid(std::move(fault));
  const tl::expected<CompileOptions, Failure> asked = compileOptions(options);
  if (!asked)
    return tl::unexpected(asked.error());
  const auto predicted = step->stage == Stage::LoweredVirtual ? predict : predictManaged;
  return toPickle(traceMemory(*step, predicted(*step, asked->plan.machine)));
}

std::string print(const Description &description, const char *device) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module = ir::toModule(description, context);
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (ir::GraphOp graph : module->getOps<ir::GraphOp>()) {
    if (device)
      graph->setAttr(deviceAttribute, mlir::StringAttr::get(&context, device));
    graph.print(stream);
  }
  stream << '\n';
  return text;
}

} // namespace

pumpgraph_compiler_status pumpgraph_compiler_compile(const pumpgraph_description *captured,
                                                     const pumpgraph_compiler_options *options,
                                                     pumpgraph_compilation **out) {
  try {
    auto compilation = std::make_unique<pumpgraph_compilation>();
    const pumpgraph_compiler_status status =
        fill(*compilation, compile(captured, currentVersion(options), *compilation));
    *out = compilation.release();
    return status;
  } catch (const std::exception &) {
    *out = nullptr;
    return PUMPGRAPH_COMPILER_NO_MEMORY;
  }
}

const pumpgraph_candidate *pumpgraph_compilation_candidate(const pumpgraph_compilation *compilation,
                                                           uint64_t position) {
  return compilation && position < compilation->candidates.size() ? compilation->candidates[position].get() : nullptr;
}

const char *pumpgraph_compilation_message(const pumpgraph_compilation *compilation) {
  return compilation ? compilation->message.c_str() : "memory ran out";
}

uint64_t pumpgraph_compilation_saved_times(const pumpgraph_compilation *compilation) {
  return compilation ? compilation->savedTimes : 0;
}

const char *pumpgraph_compilation_note(const pumpgraph_compilation *compilation, uint64_t position) {
  return compilation && position < compilation->notes.size() ? compilation->notes[position].c_str() : nullptr;
}

void pumpgraph_compilation_free(pumpgraph_compilation *compilation) {
  delete compilation;
}

char *pumpgraph_compiler_check(const pumpgraph_description *lowered, const pumpgraph_description *captured) {
  return messageOf(check<Stage::LoweredVirtual, checkResidency>, lowered, captured);
}

char *pumpgraph_compiler_check_managed(const pumpgraph_description *lowered, const pumpgraph_description *captured) {
  return messageOf(check<Stage::LoweredManaged, checkManaged>, lowered, captured);
}

char *pumpgraph_compiler_check_boundary(const pumpgraph_description *rewritten, const pumpgraph_description *boundary) {
  return messageOf(checkBoundary, rewritten, boundary);
}

char *pumpgraph_compiler_predict(const pumpgraph_description *lowered, const pumpgraph_compiler_options *options,
                                 double *predicted_us) {
  try {
    const tl::expected<double, Failure> predicted = predictedUs(lowered, currentVersion(options));
    if (!predicted)
      return copyOut(printable(predicted.error().message));
    *predicted_us = *predicted;
    return nullptr;
  } catch (const std::exception &) {
    return strdup("memory ran out");
  }
}

char *pumpgraph_compiler_retime(const pumpgraph_description *captured, const pumpgraph_description *lowered,
                                const pumpgraph_compiler_options *options, uint64_t peak_bytes_before, char **json) {
  try {
    const tl::expected<std::string, Failure> figures =
        retimedFigures(captured, lowered, currentVersion(options), peak_bytes_before);
    if (!figures)
      return copyOut(printable(figures.error().message));
    *json = copyOut(*figures);
    return *json ? nullptr : strdup("memory ran out");
  } catch (const std::exception &) {
    return strdup("memory ran out");
  }
}

char *pumpgraph_compiler_memory_viz(const pumpgraph_description *lowered, const pumpgraph_compiler_options *options,
                                    char **pickle, size_t *size) {
  try {
    const tl::expected<std::string, Failure> file = memoryViz(lowered, currentVersion(options));
    if (!file)
      return copyOut(printable(file.error().message));
    *pickle = copyOut(*file);
    *size = file->size();
    return *pickle ? nullptr : strdup("memory ran out");
  } catch (const std::exception &) {
    return strdup("memory ran out");
  }
}

char *pumpgraph_compiler_print(const pumpgraph_description *description, const char *device) {
  try {
    const tl::expected<Description, Failure> step = read(description);
    return step ? copyOut(print(*step, device)) : nullptr;
  } catch (const std::exception &) {
    return nullptr;
  }
}

void pumpgraph_compiler_string_free(char *string) {
  std::free(string);
}
