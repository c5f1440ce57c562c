// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ways by which a program gets at a driver function, each of which leads to the shim's: dlsym(),
/// cuGetProcAddress() and being linked with libcuda. cudart, linked statically or not, asks dlsym() for
/// cuGetProcAddress() and that for all else.
#include "runtime/preload/Interpose.h"
#include "runtime/preload/EntryPoints.h"
#include "runtime/preload/Libraries.h"
#include "runtime/preload/Nvml.h"
#include "runtime/preload/Shim.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#ifndef __x86_64__
#error "the stubs below are x86-64 code"
#endif

// dlsym, dlopen and dlmopen look at who called them, so the real ones are entered by a jump and not by a call.
__asm__(R"(
.text
.macro PUMPGRAPH_SAVE
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
.endm
.macro PUMPGRAPH_RESTORE
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
.endm
.globl dlsym
.type dlsym,@function
dlsym:
  .cfi_startproc
  PUMPGRAPH_SAVE
  call pumpgraphLooksUp
  PUMPGRAPH_RESTORE
  test %rax,%rax
  jne 1f
  jmp *pumpgraphRealDlsym(%rip)
1:
  ret
  .cfi_endproc
.size dlsym,.-dlsym
.globl dlopen
.type dlopen,@function
dlopen:
  .cfi_startproc
  PUMPGRAPH_SAVE
  call pumpgraphOpens
  PUMPGRAPH_RESTORE
  jmp *pumpgraphRealDlopen(%rip)
  .cfi_endproc
.size dlopen,.-dlopen
.globl dlmopen
.type dlmopen,@function
dlmopen:
  .cfi_startproc
  PUMPGRAPH_SAVE
  call pumpgraphOpensApart
  PUMPGRAPH_RESTORE
  jmp *pumpgraphRealDlmopen(%rip)
  .cfi_endproc
.size dlmopen,.-dlmopen

// Stand-ins for functions without a known signature: all registers of arguments are kept.
.balign 16
pumpgraphUnknownStubs:
.set number,0
.rept 64
.balign 16
  movl $number,%r11d
  jmp pumpgraphUnknownStub
.set number,number+1
.endr
.type pumpgraphUnknownStub,@function
pumpgraphUnknownStub:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp,-16
  mov %rsp,%rbp
  .cfi_def_cfa_register %rbp
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  sub $128,%rsp
  movups %xmm0,(%rsp)
  movups %xmm1,16(%rsp)
  movups %xmm2,32(%rsp)
  movups %xmm3,48(%rsp)
  movups %xmm4,64(%rsp)
  movups %xmm5,80(%rsp)
  movups %xmm6,96(%rsp)
  movups %xmm7,112(%rsp)
  mov %r11d,%edi
  call pumpgraphUnknownIsCalled
  movups (%rsp),%xmm0
  movups 16(%rsp),%xmm1
  movups 32(%rsp),%xmm2
  movups 48(%rsp),%xmm3
  movups 64(%rsp),%xmm4
  movups 80(%rsp),%xmm5
  movups 96(%rsp),%xmm6
  movups 112(%rsp),%xmm7
  add $128,%rsp
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %rbp
  .cfi_def_cfa %rsp,8
  jmp *%rax
  .cfi_endproc
)");

#define PUMPGRAPH_HIDDEN __attribute__((used, visibility("hidden")))

extern "C" {
PUMPGRAPH_HIDDEN void *(*pumpgraphRealDlsym)(void *, const char *);
PUMPGRAPH_HIDDEN void *(*pumpgraphRealDlopen)(const char *, int);
PUMPGRAPH_HIDDEN void *(*pumpgraphRealDlmopen)(Lmid_t, const char *, int);
extern char pumpgraphUnknownStubs[] __attribute__((visibility("hidden")));
}

namespace pumpgraph::preload {
namespace {

constexpr int stubs = 64, stubBytes = 16;

/// A function that the table does not have, and that may matter.
struct Unknown {
  const char *name;
  void *real;
};
constinit std::mutex unknownMutex;
Unknown unknown[stubs]; // those up to `unknownCount` never change
int unknownCount = 0;

template <typename Function> void findReal(Function &function, const char *name) {
  // Of x86-64's glibc from 2.34 on, and of earlier ones.
  for (const char *version : {"GLIBC_2.34", "GLIBC_2.2.5"})
    if (!function)
      function = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, name, version));
}

void findLoader() {
  findReal(pumpgraphRealDlsym, "dlsym");
  findReal(pumpgraphRealDlopen, "dlopen");
  for (const char *version : {"GLIBC_2.34", "GLIBC_2.3.4"})
    if (!pumpgraphRealDlmopen)
      pumpgraphRealDlmopen = reinterpret_cast<decltype(pumpgraphRealDlmopen)>(dlvsym(RTLD_NEXT, "dlmopen", version));
}

bool isOfDriver(void *function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libcuda.so");
}

void *stubFor(const char *name, void *real) {
  const std::lock_guard lock(unknownMutex);
  for (int i = 0; i < unknownCount; ++i)
    if (unknown[i].real == real)
      return pumpgraphUnknownStubs + static_cast<std::ptrdiff_t>(i) * stubBytes;
  if (unknownCount == stubs)
    return real;
  unknown[unknownCount] = {strdup(name), real};
  return pumpgraphUnknownStubs + static_cast<std::ptrdiff_t>(unknownCount++) * stubBytes;
}

/// Unless a driver gives the stand-in itself, since it looks its own functions up by name.
void setReal(EntryPoint &entry, void *real) {
  void *none = nullptr;
  if (real != entry.standIn)
    entry.real.compare_exchange_strong(none, real);
}

using GetProcAddress1 = CUresult (*)(const char *, void **, int, cuuint64_t);
using GetProcAddress2 = CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/// The stand-in for a function that cuGetProcAddress found, or the function itself.
void *standInFor(const char *name, void *real, int version, cuuint64_t flags) {
  const bool perThread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  EntryPoint *const entry = findVersion(name, std::min(version, CUDA_VERSION), perThread);
  // A newer signature of a known name is another function.
  const bool isNewer = version > CUDA_VERSION && driverFunction(name, CUDA_VERSION, flags) != real;
  if (entry && !isNewer) {
    setReal(*entry, real);
    return entry->standIn;
  }
  return !entry && isDeclared(name) ? real : entry || mayMatter(name) ? stubFor(name, real) : real;
}

/// Without the suffixes of versions and default streams.
std::string_view baseOf(std::string_view symbol) {
  for (const char *suffix : {"_ptsz", "_ptds"})
    if (symbol.ends_with(suffix))
      symbol.remove_suffix(5);
  if (symbol.size() > 3 && symbol[symbol.size() - 3] == '_' && symbol[symbol.size() - 2] == 'v')
    symbol.remove_suffix(3);
  return symbol;
}

} // namespace

void *realDlsym(void *handle, const char *name) {
  findLoader();
  return pumpgraphRealDlsym(handle, name);
}

void *libcuda() {
  static void *const handle = [] {
    findLoader();
    return pumpgraphRealDlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  }();
  return handle;
}

void *driverFunction(const char *name, int version, cuuint64_t flags) {
  if (!libcuda())
    return nullptr;
  // Once, since dlsym() waits for the loader's lock, and this is called under the shim's.
  static const auto find2 = reinterpret_cast<GetProcAddress2>(realDlsym(libcuda(), "cuGetProcAddress_v2"));
  static const auto find1 = reinterpret_cast<GetProcAddress1>(realDlsym(libcuda(), "cuGetProcAddress"));
  void *found = nullptr;
  CUdriverProcAddressQueryResult result{};
  if (find2)
    return find2(name, &found, version, flags, &result) == CUDA_SUCCESS ? found : nullptr;
  return find1 && find1(name, &found, version, flags) == CUDA_SUCCESS ? found : nullptr;
}

void *realFunction(EntryPoint &entry) {
  if (void *const known = entry.real.load(std::memory_order_acquire))
    return known;
  void *found = libcuda() ? realDlsym(libcuda(), entry.symbol) : nullptr;
  if (!found)
    found = driverFunction(entry.name, versionOf(entry),
                           entry.perThread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                           : CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  entry.real.store(found, std::memory_order_release);
  return found;
}

std::string otherPreload() {
  Dl_info info{};
  void *const next = realDlsym(RTLD_NEXT, "cuLaunchKernel");
  if (!next || isOfDriver(next) || dladdr(next, &info) == 0)
    return {};
  return info.dli_fname;
}

} // namespace pumpgraph::preload

using namespace pumpgraph::preload;

extern "C" {

/// The stand-in for a symbol, or null where the real dlsym() is to answer.
PUMPGRAPH_HIDDEN void *pumpgraphLooksUp(void *handle, const char *name) {
  findLoader();
  if (!name)
    return nullptr;
  if (void *const standIn = nvmlStandIn(handle, name))
    return standIn;
  if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z')
    return nullptr;
  shim().looksAtLibraries(); // one of those that were loaded with another asks for the driver here, at the latest
  if (std::string_view(name).starts_with("cuFile")) // its library may be opened and not used
    shim().stopPlanningBeside(name);
  EntryPoint *const entry = findSymbol(name);
  if (!entry && (isDeclared(baseOf(name)) || !mayMatter(name)))
    return nullptr;
  void *const real = pumpgraphRealDlsym(handle, name);
  if (!real || (entry && real == entry->standIn))
    return real;
  if (!isOfDriver(real))
    return nullptr;
  if (!entry)
    return stubFor(name, real);
  setReal(*entry, real);
  return entry->standIn;
}

PUMPGRAPH_HIDDEN void pumpgraphOpens(const char *path, int flags) {
  findLoader();
  if ((flags & RTLD_DEEPBIND) != 0 && path)
    shim().stepAside(fmt::format("{} is opened with RTLD_DEEPBIND, so its CUDA calls cannot be seen", path));
  shim().looksAtLibraries();
  if (path && reachesMemoryUnseen(path))
    shim().stopPlanningBeside(path);
}

PUMPGRAPH_HIDDEN void pumpgraphOpensApart(Lmid_t space, const char *path, int) {
  findLoader();
  if (space != LM_ID_BASE && path)
    shim().stepAside(fmt::format("{} is opened with dlmopen(), so its CUDA calls cannot be seen", path));
}

/// The function to go on with.
PUMPGRAPH_HIDDEN void *pumpgraphUnknownIsCalled(int number) {
  shim().stepAside(fmt::format("{} is called, which this version of PumpGraph does not know (CUDA {}.{})",
                               unknown[number].name, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10));
  return unknown[number].real;
}

CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags) {
  const Real<decltype(&::cuGetProcAddress)> real(Symbol::cuGetProcAddress);
  const CUresult result = real(name, address, version, flags);
  if (result == CUDA_SUCCESS && name && address && *address)
    *address = standInFor(name, *address, version, flags);
  return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  const Real<decltype(&::cuGetProcAddress_v2)> real(Symbol::cuGetProcAddress_v2);
  const CUresult result = real(name, address, version, flags, status);
  if (result == CUDA_SUCCESS && name && address && *address)
    *address = standInFor(name, *address, version, flags);
  return result;
}
}
