// SPDX-License-Identifier: Apache-2.0
#include "Exchange.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <unistd.h>

namespace pumpgraph::annotate {
namespace {

namespace fs = llvm::sys::fs;
using llvm::StringRef;

std::string readProcessFile(pid_t process, StringRef file) {
  const auto buffer = llvm::MemoryBuffer::getFileAsStream(("/proc/" + llvm::Twine(process) + "/" + file).str());
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// When the process began, which tells it from others that had its number. Empty if there is no such process.
std::string startOf(pid_t process) {
  // The second field is the program's name in parentheses; the 22nd is the start.
  const std::string text = readProcessFile(process, "stat");
  llvm::SmallVector<StringRef, 64> fields;
  StringRef(text).rsplit(')').second.split(fields, ' ', -1, false);
  constexpr size_t start = 19;
  return fields.size() > start ? fields[start].str() : std::string();
}

llvm::SmallVector<StringRef, 32> argumentsIn(const std::string &commandLine) {
  llvm::SmallVector<StringRef, 32> arguments;
  StringRef(commandLine).split(arguments, '\0', -1, false);
  return arguments;
}

/// A driver with one compile to do does it in its own process.
pid_t driverProcess() {
  const std::string commandLine = readProcessFile(getpid(), "cmdline");
  const auto arguments = argumentsIn(commandLine);
  return arguments.size() > 1 && arguments[1] == "-cc1" ? getppid() : getpid();
}

std::string nameOf(pid_t process) {
  return std::to_string(process) + "-" + startOf(process);
}

std::string folder() {
  llvm::SmallString<128> path;
  llvm::sys::path::system_temp_directory(/*erasedOnReboot=*/true, path);
  llvm::sys::path::append(path, "pumpgraph-" + llvm::Twine(getuid()));
  return path.str().str();
}

/// Made by us, and closed to others.
bool isOurs(const std::string &path) {
  fs::file_status status;
  return !fs::status(path, status, /*follow=*/false) && status.type() == fs::file_type::directory_file &&
         status.getUser() == getuid() && !(status.permissions() & (fs::group_write | fs::others_write));
}

std::vector<std::string> filesIn(const std::string &path, StringRef prefix) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (llvm::sys::path::filename(entry->path()).starts_with(prefix))
      files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Removes what drivers that are no more left behind: they were interrupted, or their host compile was.
void removeOrphans(const std::string &path) {
  for (const std::string &file : filesIn(path, "")) {
    const StringRef name = llvm::sys::path::filename(file);
    pid_t process = 0;
    const auto [number, rest] = name.split('-');
    if (!number.getAsInteger(10, process) && !name.starts_with(nameOf(process) + "-"))
      (void)fs::remove(file);
  }
}

} // namespace

Exchange::Exchange(const std::string &cuid) {
  const pid_t driver = driverProcess();
  if (!startOf(driver).empty() && !cuid.empty())
    prefix_ = nameOf(driver) + "-" + cuid + "-";
}

bool Exchange::leave(const std::string &architecture, const std::vector<KernelAccesses> &kernels) const {
  const std::string path = folder();
  if (prefix_.empty() || fs::create_directory(path, true, fs::owner_all) || !isOurs(path))
    return false;
  removeOrphans(path);
  std::error_code error;
  llvm::raw_fd_ostream file(path + "/" + prefix_ + architecture, error);
  if (error)
    return false;
  for (const KernelAccesses &kernel : kernels)
    file << toJson(kernel) << '\n';
  file << "end\n";
  file.close();
  const bool isWritten = !file.has_error();
  file.clear_error();
  return isWritten;
}

DeviceResult Exchange::take() const {
  DeviceResult result;
  const std::string path = folder();
  if (prefix_.empty() || !isOurs(path))
    return result;
  std::map<std::string, unsigned> timesFound;
  unsigned files = 0;
  for (const std::string &file : filesIn(path, prefix_)) {
    const auto buffer = llvm::MemoryBuffer::getFile(file);
    (void)fs::remove(file);
    if (!buffer)
      continue;
    ++files;
    const StringRef text = (*buffer)->getBuffer();
    if (!text.ends_with("end\n")) // what is missing counts as found by nobody
      continue;
    result.isThere = true;
    llvm::SmallVector<StringRef> lines;
    text.split(lines, '\n', -1, false);
    for (const StringRef line : lines) {
      const std::optional<KernelAccesses> kernel = fromJson(line.str());
      if (!kernel)
        continue;
      const auto [place, isNew] = result.kernels.try_emplace(kernel->name, *kernel);
      if (!isNew)
        place->second = join(place->second, *kernel);
      ++timesFound[kernel->name];
    }
  }
  std::erase_if(result.kernels, [&](const auto &entry) { return timesFound[entry.first] != files; });
  return result;
}

bool Exchange::isHostCompileMissing() {
  const std::string commandLine = readProcessFile(driverProcess(), "cmdline");
  bool isMissing = false;
  for (const StringRef argument : argumentsIn(commandLine)) {
    if (argument == "--cuda-device-only" || argument == "--offload-device-only")
      isMissing = true;
    if (argument == "--offload-host-device" || argument == "--cuda-compile-host-device" ||
        argument == "--no-cuda-device-only")
      isMissing = false;
  }
  return isMissing;
}

} // namespace pumpgraph::annotate
