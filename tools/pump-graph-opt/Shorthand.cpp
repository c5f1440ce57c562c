// SPDX-License-Identifier: Apache-2.0
#include "tools/pump-graph-opt/Shorthand.h"

#include "passes/analysis/AnnotateAccesses.h"
#include "passes/pipeline/Budgets.h"
#include "passes/pipeline/Compile.h"
#include "passes/report/MemoryTrace.h"
#include "passes/report/Quantity.h"
#include "passes/report/SearchReport.h"
#include "passes/report/Summary.h"
#include "passes/trace/ImportTrace.h"
#include "pumpgraph/graph/Conversion.h"
#include "pumpgraph/graph/Printable.h"
#include "tools/pump-graph-opt/Input.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pumpgraph {

namespace cl = llvm::cl;

static constexpr std::uint64_t leastPageBytes = 4096;
static constexpr int defaultSweepPoints = 24;
static constexpr int mostSweepPoints = 1000;

// The category's name decides where --help prints it: the groups are sorted.
struct Shorthand::Options {
  cl::OptionCategory category{"Budget shorthand",
                              "Any of these plans the one step of the input with the default pipeline, checks the plan "
                              "and lowers it; -o writes the lowered step."};
  cl::opt<std::string> trace{
      "import-trace", cl::cat(category), cl::value_desc("file"),
      cl::desc("plan this kernel and tensor trace (JSON, gzipped or not) instead of a step; it may name the link")};
  cl::opt<std::string> page{"page-size", cl::cat(category), cl::value_desc("size"),
                            cl::desc("pages that an imported trace is cut into (default: 2MiB)")};
  cl::opt<std::string> budget{
      "budget", cl::cat(category), cl::value_desc("size"),
      cl::desc("device memory for the step: 8GiB, 12GB, or 50% of its own peak (default: 100%)")};
  cl::opt<std::string> compare{
      "compare", cl::cat(category), cl::value_desc("memory"), cl::ValueOptional,
      cl::desc("also simulate the step without a plan, as unified memory of: h200 (default), v100, g10, g10-32")};
  cl::opt<std::string> up{"up", cl::cat(category), cl::value_desc("GB/s"),
                          cl::desc("bandwidth of the link from host to device alone (default: 55)")};
  cl::opt<std::string> down{"down", cl::cat(category), cl::value_desc("GB/s"),
                            cl::desc("bandwidth of the link from device to host alone (default: 55)")};
  cl::opt<std::string> both{"both", cl::cat(category), cl::value_desc("GB/s"),
                            cl::desc("both directions at once, summed (default: 84% of up + down)")};
  cl::opt<std::string> hostMemory{"host-memory", cl::cat(category), cl::value_desc("size"),
                                  cl::desc("pinned host memory the plan may use (default: no limit)")};
  cl::list<std::string> reports{"report", cl::cat(category), cl::value_desc("kind[:file]"),
                                cl::desc("text, json, html, svg (curve of --sweep), plan (JSON), timeline (Chrome "
                                         "trace) or memory-viz (for PyTorch's memory viewer); to standard output if no "
                                         "file is named; may be repeated")};
  cl::opt<std::string> sweep{"sweep", cl::cat(category), cl::value_desc("points"), cl::ValueOptional,
                             cl::desc("also plan this many other budgets, for the curve in the reports (default: 24)")};
  cl::opt<std::string> rematerialize{
      "rematerialize", cl::cat(category), cl::value_desc("when"),
      cl::desc("whether pure nodes may run again, where that is faster than moving what they make: automatic (default) "
               "or never")};
  cl::opt<std::string> effort{"plan-effort", cl::cat(category), cl::value_desc("how much"),
                              cl::desc("low takes a fraction of the time, for a plan that is as fast or some percent "
                                       "slower; default")};
  cl::opt<std::string> planTrace{"plan-trace", cl::cat(category), cl::value_desc("file"),
                                 cl::desc("write what the planner's search tried, and what it kept, as CSV")};
  bool areGiven() const {
    const std::array single{&trace, &page,    &budget,        &up,     &down,     &both, &hostMemory,
                            &sweep, &compare, &rematerialize, &effort, &planTrace};
    return reports.getNumOccurrences() > 0 || std::any_of(single.begin(), single.end(), [](const auto *option) {
             return option->getNumOccurrences() > 0;
           });
  }
};

namespace {

enum class ReportKind { Text, Json, Html, Svg, Plan, Timeline, MemoryViz };

struct Report {
  ReportKind kind;
  std::string file; ///< "-": standard output
};

/// What the command line says of the link, bytes per second; a trace may name what is left open.
struct Link {
  std::optional<double> up, down, both;
};

/// The command line, understood.
struct Request {
  std::string trace; ///< empty: the input is a step
  std::uint64_t pageBytes = std::uint64_t{2} << 20;
  std::optional<Budget> budget;
  Link link;
  std::uint64_t hostBytes = UINT64_MAX;
  int sweepPoints = 0;
  bool rematerializes = true;
  bool isQuick = false;
  std::optional<UnifiedMemory> unifiedMemory; ///< to compare the plan with
  std::vector<Report> reports;
  std::string planTrace; ///< where the trace of the search goes; empty: nowhere
  std::string lowered;   ///< where the lowered IR goes; empty: nowhere

  bool hasFigures() const {
    return std::any_of(reports.begin(), reports.end(), [](const Report &report) {
      return report.kind != ReportKind::Plan && report.kind != ReportKind::Timeline &&
             report.kind != ReportKind::MemoryViz;
    });
  }
};

/// A step read from a file, with all that its diagnostics need.
struct Source {
  llvm::SourceMgr files;
  mlir::MLIRContext context;
  mlir::SourceMgrDiagnosticHandler diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ir::GraphOp graph;
  ir::Lifted lifted;
  std::string trace; ///< the file, if it was a trace: then the ops have no places of their own
  Machine machine;   ///< what the file says of it; the default where it says nothing

  explicit Source(const mlir::DialectRegistry &registry)
      : context(registry, mlir::MLIRContext::Threading::DISABLED), diagnostics(files, &context) {
    context.printOpOnDiagnostic(false); // the line of the file is shown already, in the user's own words
  }
};

} // namespace

static int fail(const std::string &message) {
  llvm::WithColor::error(llvm::errs(), "pump-graph-opt") << printable(message) << "\n";
  return 1;
}

//===----------------------------------------------------------------------===//
// The command line
//===----------------------------------------------------------------------===//

static Parsed<Report> parseReport(const std::string &text) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string file = colon == std::string::npos ? "-" : text.substr(colon + 1);
  if (file.empty())
    return tl::unexpected(fmt::format("\"{}\" names no file after the colon", text));
  static constexpr std::array<std::pair<const char *, ReportKind>, 7> kinds{{{"text", ReportKind::Text},
                                                                             {"json", ReportKind::Json},
                                                                             {"html", ReportKind::Html},
                                                                             {"svg", ReportKind::Svg},
                                                                             {"plan", ReportKind::Plan},
                                                                             {"timeline", ReportKind::Timeline},
                                                                             {"memory-viz", ReportKind::MemoryViz}}};
  for (const auto &[name, value] : kinds)
    if (kind == name)
      return Report{value, file};
  return tl::unexpected(
      fmt::format("unknown report \"{}\"; known: text, json, html, svg, plan, timeline, memory-viz", kind));
}

static Parsed<std::string> parseFile(const std::string &text) {
  if (text.empty())
    return tl::unexpected(std::string("no file is named"));
  return text;
}

static Parsed<std::uint64_t> parsePage(const std::string &text) {
  Parsed<std::uint64_t> bytes = parseBytes(text);
  if (bytes && (*bytes < leastPageBytes || !llvm::isPowerOf2_64(*bytes)))
    return tl::unexpected(fmt::format("\"{}\" is no page size: it has to be a power of 2, at least 4KiB", text));
  return bytes;
}

static Parsed<UnifiedMemory> parseUnifiedMemory(const std::string &text) {
  const std::optional<UnifiedMemory> memory = text.empty() ? h200UnifiedMemory() : unifiedMemoryOf(text);
  if (!memory)
    return tl::unexpected(fmt::format("no unified memory \"{}\" is known; there are {}", text, unifiedMemoryNames));
  return *memory;
}

static Parsed<bool> parseRematerialize(const std::string &text) {
  if (text != "automatic" && text != "never")
    return tl::unexpected(fmt::format("\"{}\" is neither automatic nor never", text));
  return text == "automatic";
}

/// Whether it is the low one.
static Parsed<bool> parseEffort(const std::string &text) {
  if (text != "low" && text != "default")
    return tl::unexpected(fmt::format("\"{}\" is neither low nor default", text));
  return text == "low";
}

static Parsed<int> parsePoints(const std::string &text) {
  if (text.empty())
    return defaultSweepPoints;
  int points = 0;
  if (llvm::StringRef(text).getAsInteger(10, points) || points < 2 || points > mostSweepPoints)
    return tl::unexpected(fmt::format("\"{}\" is no number of budgets between 2 and {}", text, mostSweepPoints));
  return points;
}

namespace {

/// Reads option values into places and keeps the first complaint.
class OptionReader {
public:
  template <typename T, typename Parse> void read(const cl::opt<std::string> &option, Parse parse, T &place) {
    if (option.getNumOccurrences() > 0)
      readValue(option.ArgStr, option.getValue(), parse, place);
  }
  template <typename T, typename Parse>
  void readValue(llvm::StringRef name, const std::string &text, Parse parse, T &place) {
    auto value = parse(text);
    if (value)
      place = *std::move(value);
    else if (error.empty())
      error = fmt::format("--{}: {}", name.str(), value.error());
  }

  std::string error;
};

} // namespace

/// `machine` with what was given of its link. Links are usually given alone; together they then carry less than the
/// sum, by as much as they do on `machine`.
static Machine withLink(const Machine &machine, const Link &link) {
  Machine result = machine;
  result.upBytesPerSecond = link.up.value_or(machine.upBytesPerSecond);
  result.downBytesPerSecond = link.down.value_or(machine.downBytesPerSecond);
  const double sum = result.upBytesPerSecond + result.downBytesPerSecond;
  const double share = machine.bothBytesPerSecond / (machine.upBytesPerSecond + machine.downBytesPerSecond);
  result.bothBytesPerSecond = link.both ? std::min(*link.both, sum) : sum * share;
  return result;
}

static bool isGiven(llvm::StringRef option) {
  const auto &registered = cl::getRegisteredOptions();
  const auto found = registered.find(option);
  return found != registered.end() && found->second->getNumOccurrences() > 0;
}

static std::string findConflict(const Request &request, llvm::StringRef input) {
  if (!request.trace.empty() && input != "-")
    return fmt::format("--import-trace=\"{}\" takes the place of the input file \"{}\"; give one of them",
                       request.trace, input.str());
  // Passes given by flags of their own are one option with many names.
  if (isGiven("pass-pipeline") || isGiven("plan-residency"))
    return "passes and the budget shorthand do not go together: the shorthand is a pipeline of its own";
  const auto toStdout = std::count_if(request.reports.begin(), request.reports.end(),
                                      [](const Report &report) { return report.file == "-"; }) +
                        (request.lowered == "-" ? 1 : 0) + (request.planTrace == "-" ? 1 : 0);
  if (toStdout > 1)
    return fmt::format("{} outputs go to standard output; name files for all but one", toStdout);
  const bool wantsSvg = std::any_of(request.reports.begin(), request.reports.end(),
                                    [](const Report &report) { return report.kind == ReportKind::Svg; });
  if (wantsSvg && request.sweepPoints == 0)
    return "--report=svg draws step time against budget: it needs --sweep";
  return "";
}

static Parsed<Request> readRequest(const auto &options, llvm::StringRef input, llvm::StringRef output) {
  Request request;
  OptionReader reader;
  reader.read(options.trace, parseFile, request.trace);
  reader.read(options.page, parsePage, request.pageBytes);
  reader.read(options.budget, parseBudget, request.budget);
  reader.read(options.up, parseBandwidth, request.link.up);
  reader.read(options.down, parseBandwidth, request.link.down);
  reader.read(options.both, parseBandwidth, request.link.both);
  reader.read(options.hostMemory, parseBytes, request.hostBytes);
  reader.read(options.sweep, parsePoints, request.sweepPoints);
  reader.read(options.rematerialize, parseRematerialize, request.rematerializes);
  reader.read(options.effort, parseEffort, request.isQuick);
  reader.read(options.planTrace, parseFile, request.planTrace);
  reader.read(options.compare, parseUnifiedMemory, request.unifiedMemory);
  for (const std::string &text : options.reports)
    reader.readValue("report", text, parseReport, request.reports.emplace_back());
  if (!reader.error.empty())
    return tl::unexpected(reader.error);

  // The parser's default is standard output; here nothing goes there that was not asked for by name.
  if (isGiven("o"))
    request.lowered = output.str();
  if (request.reports.empty() && request.lowered.empty() && request.planTrace.empty())
    request.reports.push_back({ReportKind::Text, "-"});
  if (options.page.getNumOccurrences() > 0 && request.trace.empty())
    return tl::unexpected(std::string("--page-size is for imported traces; a step has its own pages"));
  if (std::string conflict = findConflict(request, input); !conflict.empty())
    return tl::unexpected(std::move(conflict));
  return request;
}

//===----------------------------------------------------------------------===//
// In, out
//===----------------------------------------------------------------------===//

/// True after a message at the first node of the plan, or at the step if the plan has none.
static bool isAlreadyPlanned(const Source &source) {
  const Description &step = source.lifted.description;
  const std::string fault = wrongStage(step, {Stage::Captured});
  if (fault.empty())
    return false;
  ir::GraphOp graph = source.graph;
  mlir::Location at = graph.getLoc();
  for (NodeIndex i = step.nodes.size(); i-- > 0;)
    if (isAdded(step.nodes[i].kind))
      at = source.lifted.nodes[i]->getLoc();
  mlir::emitError(at) << fault;
  return true;
}

/// Reads and verifies the file and finds its one step. False after a message.
static bool readStep(llvm::StringRef input, Source &source) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> file = openStep(input, error);
  if (!file) {
    fail(error);
    return false;
  }
  source.files.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  source.module = mlir::parseSourceFile<mlir::ModuleOp>(source.files, mlir::ParserConfig(&source.context));
  if (!source.module)
    return false;
  const auto graphs = llvm::to_vector(source.module->getOps<ir::GraphOp>());
  if (graphs.empty()) {
    fail(fmt::format("\"{}\" holds no step (pump.graph)", input.str()));
    return false;
  }
  if (graphs.size() > 1) {
    ir::GraphOp second = graphs[1];
    second.emitError() << "the second of " << graphs.size() << " steps; the budget shorthand takes one";
    return false;
  }
  source.graph = graphs.front();
  source.lifted = ir::toDescription(source.graph);
  if (isAlreadyPlanned(source))
    return false;
  annotateAccesses(source.lifted.description);
  return true;
}

/// Reads a trace and makes a step of it. False after a message.
static bool readTrace(const Request &request, Source &source) {
  std::string error;
  const std::unique_ptr<llvm::MemoryBuffer> file = openInput(request.trace, error);
  if (!file) {
    fail(error);
    return false;
  }
  const tl::expected<Trace, TraceError> trace = importTrace(file->getBuffer(), request.pageBytes);
  if (!trace) {
    fail(fmt::format("{}: {}", request.trace, trace.error().text()));
    return false;
  }
  source.machine = trace->machine;
  source.module = ir::toModule(trace->step, source.context);
  source.graph = *source.module->getOps<ir::GraphOp>().begin();
  source.trace = request.trace;
  source.lifted = ir::toDescription(source.graph);
  return true;
}

/// Writes one output; the file is removed again if that fails half way.
static bool write(const std::string &file, llvm::function_ref<void(llvm::raw_ostream &)> print) {
  std::error_code error;
  llvm::ToolOutputFile out(file, error, llvm::sys::fs::OF_None);
  if (!error) {
    print(out.os());
    out.os().flush();
    error = out.os().error();
  }
  if (error) {
    out.os().clear_error();
    fail(fmt::format("cannot write \"{}\": {}", file, error.message()));
    return false;
  }
  out.keep();
  return true;
}

static std::string render(ReportKind kind, const Summary &summary, const std::vector<SweepPoint> &points) {
  switch (kind) {
  case ReportKind::Text:
    return toText(summary, points);
  case ReportKind::Json:
    return toJson(summary, points);
  case ReportKind::Html:
    return toHtml(summary, points);
  case ReportKind::Svg:
    return toSvg(summary, points);
  case ReportKind::Plan:
    return planToJson(summary);
  case ReportKind::Timeline:
    return timelineToJson(summary);
  case ReportKind::MemoryViz:
    return toPickle(traceMemory(summary.lowered, summary.prediction));
  }
  return "";
}

static bool writeLowered(const std::string &file, const Summary &summary, Source &source) {
  ir::update(source.graph, summary.lowered);
  return write(file, [&](llvm::raw_ostream &out) {
    if (mlir::MlirOptMainConfig::createFromCLOptions().shouldEmitBytecode()) {
      static_cast<void>(mlir::writeBytecodeToFile(*source.module, out));
      return;
    }
    source.module->print(out);
    out << "\n";
  });
}

//===----------------------------------------------------------------------===//
// The pipeline
//===----------------------------------------------------------------------===//

static void complain(mlir::Operation *culprit, const std::string &message, const Source &source) {
  if (source.trace.empty())
    culprit->emitError() << message;
  else
    fail(fmt::format("{}: {}", source.trace, message));
}

static void report(const PlanError &error, Source &source) {
  mlir::Operation *culprit = source.graph;
  if (error.node && *error.node < source.lifted.nodes.size())
    culprit = source.lifted.nodes[*error.node];
  complain(culprit, error.message, source);
}

static tl::expected<Compiled, PlanError> plan(const Description &captured, const std::optional<Budget> &budget,
                                              CompileOptions options) {
  if (budget) {
    const tl::expected<std::uint64_t, PlanError> peak =
        budget->percent ? peakBytes(captured, options.plan.machine) : std::uint64_t{0};
    if (!peak)
      return tl::unexpected(peak.error());
    options.plan.budgetBytes = budget->of(*peak);
  }
  return compile(captured, options);
}

/// A plan that our own checker refuses is a bug of ours. It is reported, and nothing is written.
static bool isChecked(const Compiled &step, Source &source) {
  for (const Violation &violation : step.violations)
    complain(source.graph, "the plan is wrong, please report this: " + violation.message, source);
  return step.checked();
}

/// Whether the search for a budget that suffices, up to six quick plans, takes little beside the plan. That goes by the
/// step and not by a clock: a report says the same on a busy machine.
static bool isSearchedCheaply(const Description &captured, const CompileOptions &options) {
  return captured.nodes.size() <= (options.plan.isQuick ? 1000 : 100);
}

int Shorthand::run(llvm::StringRef input, llvm::StringRef output, mlir::DialectRegistry &registry) const {
  const Parsed<Request> request = readRequest(*options_, input, output);
  if (!request)
    return fail(request.error());

  Source source(registry);
  if (!(request->trace.empty() ? readStep(input, source) : readTrace(*request, source)))
    return 1;
  const Description &captured = source.lifted.description;
  Machine machine = withLink(source.machine, request->link);
  machine.hostBytes = request->hostBytes;
  const CompileOptions options{.plan = {.machine = machine, .isQuick = request->isQuick},
                               .rematerializes = request->rematerializes};
  tl::expected<Compiled, PlanError> compiled = plan(captured, request->budget, options);
  if (!compiled) {
    report(compiled.error(), source);
    return 1;
  }
  if (!isChecked(*compiled, source))
    return 1;

  std::vector<SweepPoint> points;
  if (request->sweepPoints > 0)
    points = sweep(captured, options, request->sweepPoints);
  Summary summary(std::move(*compiled));
  summary.enoughBytes = request->hasFigures() && isSearchedCheaply(summary.captured, options)
                            ? findEnough(summary)
                            : findEnough(summary, points);

  if (request->unifiedMemory) {
    tl::expected<Comparison, std::string> comparison =
        compare(summary.captured, summary.budgetBytes(), withinLink(*request->unifiedMemory, machine));
    if (!comparison) {
      complain(source.graph, comparison.error(), source);
      return 1;
    }
    summary.comparison = std::move(*comparison);
  }

  for (const Report &wanted : request->reports)
    if (!write(wanted.file, [&](llvm::raw_ostream &out) { out << render(wanted.kind, summary, points); }))
      return 1;
  if (!request->planTrace.empty() &&
      !write(request->planTrace, [&](llvm::raw_ostream &out) { out << toCsv(summary.trace); }))
    return 1;
  return request->lowered.empty() || writeLowered(request->lowered, summary, source) ? 0 : 1;
}

Shorthand::Shorthand() : options_(std::make_unique<Options>()) {}

Shorthand::~Shorthand() = default;

bool Shorthand::isRequested() const {
  return options_->areGiven();
}

} // namespace pumpgraph
