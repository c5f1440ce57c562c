// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on its seeds where the compiler has no fuzzer: fuzz_NAME FILES AND FOLDERS
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

int runs = 0;

void run(const std::filesystem::path &file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  std::printf("%s\n", file.c_str());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size());
  ++runs;
}

} // namespace

int main(int count, char **arguments) {
  for (int i = 1; i < count; ++i) {
    if (!std::filesystem::is_directory(arguments[i])) {
      run(arguments[i]);
      continue;
    }
    for (const auto &entry : std::filesystem::directory_iterator(arguments[i]))
      run(entry.path());
  }
  return runs > 0 ? 0 : 1;
}
