// SPDX-License-Identifier: Apache-2.0
#include "tools/pump-graph-opt/Input.h"

#include "pumpgraph/graph/Printable.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Support/FileUtilities.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace pumpgraph {

namespace {

/// One zlib stream, ended when it goes out of scope.
class Inflater {
public:
  explicit Inflater(llvm::StringRef packed) : left_(packed) {
    static constexpr int gzipOnly = 16;
    ready_ = inflateInit2(&stream_, gzipOnly + MAX_WBITS) == Z_OK;
  }
  Inflater(const Inflater &) = delete;
  Inflater &operator=(const Inflater &) = delete;
  ~Inflater() {
    if (ready_)
      inflateEnd(&stream_);
  }

  /// Appends everything to `out`; false if the stream is damaged or ends early.
  bool run(std::string &out) {
    std::vector<char> chunk(std::size_t{1} << 20);
    int status = ready_ ? Z_OK : Z_MEM_ERROR;
    while (status == Z_OK) {
      feed();
      stream_.next_out = reinterpret_cast<Bytef *>(chunk.data());
      stream_.avail_out = static_cast<uInt>(chunk.size());
      status = inflate(&stream_, Z_NO_FLUSH);
      out.append(chunk.data(), chunk.size() - stream_.avail_out);
      // A file may be several gzip streams, one after the other.
      if (status == Z_STREAM_END && stream_.avail_in + left_.size() > 0)
        status = inflateReset(&stream_);
    }
    return status == Z_STREAM_END;
  }

private:
  void feed() {
    if (stream_.avail_in > 0)
      return;
    const std::size_t size = std::min<std::size_t>(left_.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(left_.data()));
    stream_.avail_in = static_cast<uInt>(size);
    left_ = left_.drop_front(size);
  }

  llvm::StringRef left_;
  z_stream stream_{};
  bool ready_ = false;
};

bool isGzip(llvm::StringRef bytes) {
  return bytes.starts_with("\x1f\x8b");
}

/// The unpacked stream under the name of the packed one, or null with a message in `error`.
std::unique_ptr<llvm::MemoryBuffer> gunzip(const llvm::MemoryBuffer &packed, std::string &error) {
  std::string unpacked;
  if (!Inflater(packed.getBuffer()).run(unpacked)) {
    error = fmt::format("\"{}\" is a damaged or truncated gzip file: {} bytes unpacked before the damage",
                        packed.getBufferIdentifier().str(), unpacked.size());
    return nullptr;
  }
  return llvm::MemoryBuffer::getMemBufferCopy(unpacked, packed.getBufferIdentifier());
}

/// As the strings of IR spell it. Lines stay lines.
std::string spellAsIr(std::string_view bytes) {
  if (bytes == "\n" || bytes == "\r" || bytes == "\t")
    return std::string(bytes);
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("\\{:02X}", static_cast<unsigned char>(byte));
  return text;
}

} // namespace

std::unique_ptr<llvm::MemoryBuffer> openInput(llvm::StringRef fileName, std::string &error) {
  std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(fileName, &error);
  if (!file || !isGzip(file->getBuffer()))
    return file;
  return gunzip(*file, error);
}

std::unique_ptr<llvm::MemoryBuffer> openStep(llvm::StringRef fileName, std::string &error) {
  std::unique_ptr<llvm::MemoryBuffer> file = openInput(fileName, error);
  if (!file || mlir::isBytecode(*file))
    return file;
  return llvm::MemoryBuffer::getMemBufferCopy(printable(file->getBuffer(), spellAsIr),
                                              printable(file->getBufferIdentifier()));
}

} // namespace pumpgraph
