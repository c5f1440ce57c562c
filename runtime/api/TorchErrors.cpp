// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/TorchErrors.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace pumpgraph::runtime {
namespace {

/// What throws an object: the three pointers of the C++ ABI (Itanium), with the function that takes them.
struct Thrown {
  void (*raise)(void *object, void *type, void (*destroy)(void *)) = nullptr;
  void *object = nullptr;
  void *type = nullptr;
  void (*destroy)(void *) = nullptr;
};

/// A library that is loaded already, and those that it needs.
class Loaded {
public:
  explicit Loaded(const char *name) : handle_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Loaded() {
    if (handle_)
      dlclose(handle_);
  }
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;

  template <typename Pointer> Pointer find(const char *symbol) const {
    return handle_ ? reinterpret_cast<Pointer>(dlsym(handle_, symbol)) : nullptr;
  }

private:
  void *handle_;
};

/// An object of so many bytes that is not built yet.
Thrown allocate(const Loaded &library, const char *type, std::size_t bytes) {
  Thrown thrown;
  const auto make = library.find<void *(*)(std::size_t)>("__cxa_allocate_exception");
  thrown.raise = library.find<decltype(thrown.raise)>("__cxa_throw");
  thrown.type = library.find<void *>(type);
  if (make && thrown.raise && thrown.type)
    thrown.object = make(bytes);
  return thrown;
}

/// As c10::SourceLocation.
struct Place {
  const char *function;
  const char *file;
  std::uint32_t line;
};

/// c10::OutOfMemoryError, which is a c10::Error with a vtable of its own. PyTorch catches it by this class: to raise
/// torch.cuda.OutOfMemoryError, and to try an algorithm of cuDNN's that needs less.
Thrown torchOutOfMemory(const char *message) {
  const Loaded torch("libtorch_python.so");
  const auto build = torch.find<void (*)(void *, Place, std::string)>(
      "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  auto **table = torch.find<void **>("_ZTVN3c1016OutOfMemoryErrorE");
  if (!build || !table)
    return {};
  constexpr std::size_t moreThanAnError = 1024;
  constexpr std::size_t offsetAndType = 2; // before the functions, of which destructors come first
  Thrown thrown = allocate(torch, "_ZTIN3c1016OutOfMemoryErrorE", moreThanAnError);
  if (!thrown.object)
    return {};
  build(thrown.object, {"pumpgraph_torch_malloc", __FILE__, __LINE__}, message);
  *static_cast<void ***>(thrown.object) = table + offsetAndType;
  thrown.destroy = reinterpret_cast<void (*)(void *)>(table[offsetAndType]);
  return thrown;
}

Thrown runtimeError(const char *message) {
  const Loaded standard("libstdc++.so.6");
  const auto build = standard.find<void (*)(void *, const char *)>("_ZNSt13runtime_errorC1EPKc");
  const auto destroy = standard.find<void (*)(void *)>("_ZNSt13runtime_errorD1Ev");
  if (!build || !destroy)
    return {};
  Thrown thrown = allocate(standard, "_ZTISt13runtime_error", sizeof(void *) * 2);
  thrown.destroy = destroy;
  if (thrown.object)
    build(thrown.object, message);
  return thrown;
}

/// Apart, for here is what has to be destroyed.
[[gnu::noinline]] Thrown prepare(TorchError kind, const char *message) {
  const Thrown thrown = kind == TorchError::OutOfMemory ? torchOutOfMemory(message) : Thrown{};
  return thrown.object ? thrown : runtimeError(message);
}

} // namespace

void throwForTorch(TorchError kind, const char *message) {
  const Thrown thrown = prepare(kind, message);
  if (thrown.object)
    thrown.raise(thrown.object, thrown.type, thrown.destroy);
}

} // namespace pumpgraph::runtime
