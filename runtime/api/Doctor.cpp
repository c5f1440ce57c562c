// SPDX-License-Identifier: Apache-2.0
// Says what this machine offers, and what to do where it offers too little.
#include "pumpgraph/graph/Printable.h"
#include "runtime/api/Handles.h"
#include "runtime/state/Compiler.h"

namespace pumpgraph::runtime {
namespace {

/// One line of the examination: [ok], [no] with the fix, or a plain fact. Names of devices and files are from outside.
class Findings {
public:
  void fact(const std::string &text) { add("       ", text); }
  void judge(bool good, const std::string &text, const std::string &fix) {
    add(good ? "  ok   " : "  NO   ", text);
    if (!good)
      add("       fix: ", fix);
  }
  std::string text() const { return text_; }

private:
  void add(const char *mark, const std::string &text) { text_ += mark + printable(text) + "\n"; }

  std::string text_;
};

void examineDevice(const Driver &driver, int index, Findings &findings) {
  CUdevice device = 0;
  char name[256] = "?";
  std::size_t bytes = 0;
  if (driver.deviceGet.raw(&device, index) != CUDA_SUCCESS)
    return;
  driver.deviceGetName.raw(name, sizeof name, device);
  driver.deviceTotalMem.raw(&bytes, device);
  findings.fact(fmt::format("device {}: {}, {}", index, name, bytesText(bytes)));
  const auto supports = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.deviceGetAttribute.raw(&value, attribute, device) == CUDA_SUCCESS && value != 0;
  };
  findings.judge(supports(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), "virtual memory management",
                 "none on this GPU or in this virtual machine; steps cannot be rewritten");
  findings.judge(supports(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
                 "host memory behind device addresses",
                 fmt::format("a driver for CUDA {} or newer; some virtual GPUs lack it", Driver::oldestVersionText()));
}

void examineHost(Findings &findings) {
  const std::uint64_t available = availableHostBytes();
  findings.judge(available >= std::uint64_t{4} << 30, fmt::format("host memory available: {}", bytesText(available)),
                 "spilled data lives in pinned host memory: free some, or raise the container's limit");
}

} // namespace

std::string examineMachine() {
  Findings findings;
  const Expected<std::shared_ptr<const Driver>> driver = Driver::load();
  findings.judge(driver.has_value(), driver ? "CUDA driver" : driver.error().message,
                 fmt::format("install the NVIDIA driver, CUDA {} or newer; planning and pump-graph-opt work without",
                             Driver::oldestVersionText()));
  if (driver) {
    int version = 0, count = 0;
    (*driver)->driverGetVersion.raw(&version);
    (*driver)->deviceGetCount.raw(&count);
    findings.fact(fmt::format("supports CUDA {}.{}", version / 1000, version % 1000 / 10));
    findings.judge(count > 0, fmt::format("{} CUDA devices", count), "check nvidia-smi and CUDA_VISIBLE_DEVICES");
    for (int index = 0; index < count; ++index)
      examineDevice(**driver, index, findings);
  }
  examineHost(findings);
  const Expected<Compiler> compiler = Compiler::open("");
  findings.judge(compiler.has_value(), compiler ? "compiler library" : compiler.error().message,
                 "put libpumpgraph-compiler.so beside libpumpgraph.so; without it steps replay as captured");
  return findings.text();
}

} // namespace pumpgraph::runtime
