// SPDX-License-Identifier: Apache-2.0
// From JSON to a step in three readings: the text must be JSON, the fields must be there and make sense one by one,
// and the kernels must make sense in their order.
#include "passes/trace/ImportTrace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <vector>

namespace pumpgraph {

using nlohmann::json;

template <typename T> using Traced = tl::expected<T, TraceError>;

namespace {

/// The longest a kernel may take. A damaged time must not make sums of times meaningless.
constexpr double mostKernelUs = 365.0 * 24 * 3600 * 1e6;
/// No link comes near; a thousandth of a byte a second is no link either.
constexpr double mostLinkGBps = 1e9, leastLinkGBps = 1e-12;

enum class TensorKind { Persistent, Intermediate, Workspace };

struct Tensor {
  std::string name;
  std::uint64_t bytes = 0;
  TensorKind kind = TensorKind::Intermediate;
  bool readOnly = false;
  bool noProducer = false;
};

struct Kernel {
  std::string name;
  double timeUs = 0;
  std::vector<BufferIndex> reads;
  std::vector<BufferIndex> writes;
};

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

/// Goes through the text without keeping anything but where it stops being JSON.
class SyntaxCheck : public nlohmann::json_sax<json> {
public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool key(string_t &) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string &, const json::exception &exception) override {
    position_ = position;
    message_ = exception.what();
    return false;
  }

  bool isTooDeep() const { return depth_ > mostDepth; }
  std::size_t position() const { return position_; } ///< bytes read when it stopped
  /// The library's words without its name, its error number and its own idea of the place.
  std::string message() const {
    std::string_view text = message_;
    for (std::string_view before : {"] ", ": "})
      if (const std::size_t at = text.find(before); at != std::string_view::npos)
        text.remove_prefix(at + before.size());
    return std::string(text);
  }

  /// No trace nests as deep, and the library's own recursion is safe up to here.
  static constexpr std::size_t mostDepth = 64;

private:
  bool open() { return ++depth_ <= mostDepth; }
  bool close() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
  std::size_t position_ = 0;
  std::string message_;
};

TraceError syntaxError(std::string_view text, const SyntaxCheck &check) {
  if (check.isTooDeep())
    return {"", fmt::format("brackets are nested more than {} deep", SyntaxCheck::mostDepth)};
  // The last byte read is the one to blame.
  const std::string_view before = text.substr(0, check.position() == 0 ? 0 : check.position() - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t lineStart = before.rfind('\n') + 1; // npos + 1 is 0
  return {fmt::format("line {}, column {}", line, before.size() - lineStart + 1), check.message()};
}

Traced<json> parse(std::string_view text) {
  SyntaxCheck check;
  if (!json::sax_parse(text, &check))
    return tl::unexpected(syntaxError(text, check));
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string asText(const json &value) {
  static constexpr std::size_t mostBytes = 60;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= mostBytes ? text : text.substr(0, mostBytes) + "...";
}

/// One object of the trace: reads its fields and keeps the first complaint. Values read after one are meaningless.
class Fields {
public:
  Fields(std::string place, const json &object) : place_(std::move(place)), object_(object) {
    if (!object.is_object())
      complain(fmt::format("{} is no object", asText(object)));
  }

  const std::string &place() const { return place_; }
  void nameIs(const std::string &name) { place_ += fmt::format(" \"{}\"", name); }

  std::string text(const char *field) {
    const json *value = required(field);
    if (!value)
      return "";
    if (!value->is_string())
      return complain(field, *value, "is no text"), "";
    return value->get<std::string>();
  }

  /// A whole number, at least `least`.
  std::uint64_t count(const char *field, std::uint64_t least) {
    const json *value = required(field);
    if (!value)
      return 0;
    // A negative zero, a fraction, more than 64 bits: all of them are other types.
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least)
      return complain(field, *value, fmt::format("is no whole number from {} on", least)), 0;
    return value->get<std::uint64_t>();
  }

  double number(const char *field, double least, double most) {
    const json *value = required(field);
    if (!value)
      return 0;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= least && number <= most))
      return complain(field, *value, fmt::format("is no number from {} to {}", least, most)), 0;
    return number;
  }

  bool flag(const char *field) {
    const json *value = optional(field);
    if (!value)
      return false;
    if (!value->is_boolean())
      return complain(field, *value, "is neither true nor false"), false;
    return value->get<bool>();
  }

  /// The list, or an empty one after a complaint.
  const json &list(const char *field) {
    static const json none = json::array();
    const json *value = required(field);
    if (!value)
      return none;
    if (!value->is_array())
      return complain(field, *value, "is no list"), none;
    return *value;
  }

  /// Null if it is not there.
  const json *optional(const char *field) const {
    if (error || !object_.is_object())
      return nullptr;
    const auto found = object_.find(field);
    return found == object_.end() ? nullptr : &*found;
  }

  void complain(std::string message) {
    if (!error)
      error = TraceError{place_, std::move(message)};
  }
  void complain(const char *field, const json &value, const std::string &why) {
    complain(fmt::format("\"{}\": {} {}", field, asText(value), why));
  }

  std::optional<TraceError> error;

private:
  const json *required(const char *field) {
    const json *value = optional(field);
    if (!value)
      complain(fmt::format("\"{}\" is missing", field));
    return value;
  }

  std::string place_;
  const json &object_;
};

/// Reads the id, which has to be the position in the list, and the name. Everything later is then found by position.
std::string readIdentity(Fields &fields, std::size_t position) {
  std::string name = fields.text("name");
  if (!fields.error)
    fields.nameIs(name);
  const std::uint64_t id = fields.count("id", 0);
  if (fields.error || id == position)
    return name;
  fields.complain(id < position ? fmt::format("\"id\": {} is given twice; the first is number {} of the list", id, id)
                                : fmt::format("\"id\": {} is out of order; here it has to be {}", id, position));
  return name;
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

TensorKind readKind(Fields &fields) {
  static constexpr std::pair<std::string_view, TensorKind> kinds[] = {{"persistent", TensorKind::Persistent},
                                                                      {"intermediate", TensorKind::Intermediate},
                                                                      {"workspace", TensorKind::Workspace}};
  const std::string text = fields.text("kind");
  for (const auto &[name, kind] : kinds)
    if (text == name)
      return kind;
  fields.complain(fmt::format("\"kind\": \"{}\" is unknown; known: persistent, intermediate, workspace", text));
  return TensorKind::Intermediate;
}

Traced<Tensor> readTensor(const json &object, std::size_t position) {
  Fields fields(fmt::format("tensor {}", position), object);
  Tensor tensor;
  tensor.name = readIdentity(fields, position);
  tensor.bytes = fields.count("bytes", 1);
  tensor.kind = readKind(fields);
  tensor.readOnly = fields.flag("read_only");
  tensor.noProducer = fields.flag("no_producer");
  if (tensor.readOnly && tensor.kind != TensorKind::Persistent)
    fields.complain("\"read_only\": only a persistent tensor can be");
  if (tensor.noProducer && tensor.kind == TensorKind::Workspace)
    fields.complain("\"no_producer\": a workspace has none in any case");
  if (fields.error)
    return tl::unexpected(*fields.error);
  return tensor;
}

std::vector<BufferIndex> readIds(Fields &fields, const char *field, std::size_t tensorCount) {
  std::vector<BufferIndex> ids;
  for (const json &id : fields.list(field)) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tensorCount) {
      fields.complain(field, id, fmt::format("is no tensor; there are {}", tensorCount));
      return {};
    }
    ids.push_back(id.get<BufferIndex>());
  }
  // x * x reads x once.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Traced<Kernel> readKernel(const json &object, std::size_t position, std::size_t tensorCount) {
  Fields fields(fmt::format("kernel {}", position), object);
  Kernel kernel;
  kernel.name = readIdentity(fields, position);
  kernel.timeUs = fields.number("time_us", 0, mostKernelUs);
  kernel.reads = readIds(fields, "reads", tensorCount);
  kernel.writes = readIds(fields, "writes", tensorCount);
  if (fields.error)
    return tl::unexpected(*fields.error);
  return kernel;
}

Traced<std::vector<Tensor>> readTensors(const json &list, std::uint64_t pageBytes) {
  std::vector<Tensor> tensors;
  std::uint64_t pages = 0;
  for (const json &object : list) {
    Traced<Tensor> tensor = readTensor(object, tensors.size());
    if (!tensor)
      return tl::unexpected(tensor.error());
    pages += tensor->bytes / pageBytes + (tensor->bytes % pageBytes != 0);
    if (pages > mostTracePages)
      return tl::unexpected(TraceError{
          fmt::format("tensor {} \"{}\"", tensors.size(), tensor->name),
          fmt::format("\"bytes\": {} more take all tensors together over {} pages of {} bytes, the most of a trace",
                      tensor->bytes, mostTracePages, pageBytes)});
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

Traced<std::vector<Kernel>> readKernels(const json &list, std::size_t tensorCount) {
  std::vector<Kernel> kernels;
  for (const json &object : list) {
    Traced<Kernel> kernel = readKernel(object, kernels.size(), tensorCount);
    if (!kernel)
      return tl::unexpected(kernel.error());
    kernels.push_back(*std::move(kernel));
  }
  return kernels;
}

/// The link of the study's machine; a simplex one moves in both directions together what it moves in one.
Traced<Machine> readMachine(const json *hardware) {
  Machine machine;
  if (!hardware)
    return machine;
  Fields fields("hardware_of_study", *hardware);
  const double bytesPerSecond = fields.number("pcie_GBps", leastLinkGBps, mostLinkGBps) * 1e9;
  const bool isDuplex = fields.flag("pcie_full_duplex");
  if (fields.error)
    return tl::unexpected(*fields.error);
  machine.upBytesPerSecond = machine.downBytesPerSecond = bytesPerSecond;
  machine.bothBytesPerSecond = isDuplex ? 2 * bytesPerSecond : bytesPerSecond;
  return machine;
}

//===----------------------------------------------------------------------===//
// Kernels in their order
//===----------------------------------------------------------------------===//

/// Turns kernels into nodes, one after the other, and keeps track of what there is to read.
class StepWriter {
public:
  StepWriter(const std::vector<Tensor> &tensors, Description &step)
      : tensors_(tensors), step_(step), workspaceOf_(tensors.size()) {
    for (const Tensor &tensor : tensors)
      hasValue_.push_back(tensor.kind == TensorKind::Persistent);
  }

  std::optional<TraceError> add(const Kernel &kernel) {
    const NodeIndex index = static_cast<NodeIndex>(step_.nodes.size());
    const std::string place = fmt::format("kernel {} \"{}\"", index, kernel.name);
    for (const BufferIndex id : kernel.reads)
      if (const std::string message = cannotRead(id); !message.empty())
        return TraceError{place, message};
    for (const BufferIndex id : kernel.writes)
      if (const std::string message = cannotWrite(id, index); !message.empty())
        return TraceError{place, message};

    Node node;
    node.name = kernel.name;
    node.captured = static_cast<std::int32_t>(index);
    node.costUs = kernel.timeUs;
    node.accesses = accessesOf(kernel);
    for (const Access &access : node.accesses)
      hasValue_[access.buffer] = true;
    if (index > 0)
      step_.edges.push_back({index - 1, index, EdgeKind::Full});
    step_.nodes.push_back(std::move(node));
    return std::nullopt;
  }

private:
  std::string cannotRead(BufferIndex id) const {
    const Tensor &tensor = tensors_[id];
    if (tensor.kind == TensorKind::Workspace)
      return fmt::format("\"reads\": workspace {} \"{}\" has nothing to read", id, tensor.name);
    if (hasValue_[id] || tensor.noProducer)
      return "";
    return fmt::format("\"reads\": nothing has written tensor {} \"{}\" before", id, tensor.name);
  }

  std::string cannotWrite(BufferIndex id, NodeIndex kernel) {
    const Tensor &tensor = tensors_[id];
    if (tensor.readOnly)
      return fmt::format("\"writes\": tensor {} \"{}\" is read_only", id, tensor.name);
    if (tensor.kind != TensorKind::Workspace)
      return "";
    if (workspaceOf_[id])
      return fmt::format("\"writes\": workspace {} \"{}\" belongs to kernel {} alone", id, tensor.name,
                         *workspaceOf_[id]);
    workspaceOf_[id] = kernel;
    return "";
  }

  /// Every access is of the whole tensor: what is written is overwritten, but for what the kernel reads as well.
  std::vector<Access> accessesOf(const Kernel &kernel) const {
    std::vector<Access> accesses;
    const auto add = [&](BufferIndex id, Mode mode) {
      accesses.push_back({id, {0, tensors_[id].bytes}, mode, mode, Evidence::Declared});
    };
    for (const BufferIndex id : kernel.reads) {
      const bool isWritten = std::binary_search(kernel.writes.begin(), kernel.writes.end(), id);
      // What has no producer is there when it is first used, as if that kernel had made it.
      if (!hasValue_[id])
        add(id, modeWrite);
      else
        add(id, isWritten ? modeReadWrite : modeRead);
    }
    for (const BufferIndex id : kernel.writes)
      if (!std::binary_search(kernel.reads.begin(), kernel.reads.end(), id))
        add(id, modeWrite);
    return accesses;
  }

  const std::vector<Tensor> &tensors_;
  Description &step_;
  std::vector<bool> hasValue_;                        ///< by tensor: whether there is something to read
  std::vector<std::optional<NodeIndex>> workspaceOf_; ///< by tensor
};

Traced<Description> writeStep(std::string name, std::uint64_t pageBytes, const std::vector<Tensor> &tensors,
                              const std::vector<Kernel> &kernels) {
  Description step;
  step.name = std::move(name);
  step.pageBytes = pageBytes;
  for (const Tensor &tensor : tensors) {
    Buffer &buffer = step.buffers.emplace_back();
    buffer.name = tensor.name;
    buffer.size = tensor.bytes;
    buffer.isPrivate = true;
    buffer.liveIn = buffer.liveOut = tensor.kind == TensorKind::Persistent;
    buffer.isRenamable = !buffer.liveIn;
  }
  StepWriter writer(tensors, step);
  for (const Kernel &kernel : kernels)
    if (std::optional<TraceError> error = writer.add(kernel))
      return tl::unexpected(*std::move(error));
  return step;
}

} // namespace

Traced<Trace> importTrace(std::string_view text, std::uint64_t pageBytes) {
  assert(pageBytes > 0 && "a page has bytes");
  const Traced<json> root = parse(text);
  if (!root)
    return tl::unexpected(root.error());
  Fields fields("", *root);
  std::string name = fields.text("name");
  const json &tensorList = fields.list("tensors");
  const json &kernelList = fields.list("kernels");
  if (fields.error)
    return tl::unexpected(*fields.error);
  if (kernelList.empty())
    return tl::unexpected(TraceError{"", "\"kernels\" is empty: there is nothing to plan"});

  const Traced<Machine> machine = readMachine(fields.optional("hardware_of_study"));
  if (!machine)
    return tl::unexpected(machine.error());
  const Traced<std::vector<Tensor>> tensors = readTensors(tensorList, pageBytes);
  if (!tensors)
    return tl::unexpected(tensors.error());
  const Traced<std::vector<Kernel>> kernels = readKernels(kernelList, tensors->size());
  if (!kernels)
    return tl::unexpected(kernels.error());
  Traced<Description> step = writeStep(std::move(name), pageBytes, *tensors, *kernels);
  if (!step)
    return tl::unexpected(step.error());
  return Trace{*std::move(step), *machine};
}

} // namespace pumpgraph
