// SPDX-License-Identifier: Apache-2.0
// Addresses that are taken apart, put together, parked and loaded, in text and beside it. fuzz.py draws more.
// RUN: %accesses -O0 %s | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 %s | %print > %t.O2 && FileCheck %s < %t.O2

using Address = unsigned long long;

// CHECK-LABEL: {{^}}splitByText(float*){{$}}
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void splitByText(float *out) {
  unsigned low, high;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(out));
  reinterpret_cast<float *>(Address(high) << 32 | low)[threadIdx.x] = 1;
}

// CHECK-LABEL: {{^}}splitInQuarters(
// CHECK-NEXT:  parameter 0: readwrite atomic{{$}}
__global__ void splitInQuarters(float *sum) {
  unsigned short a, b, c, d;
  asm("mov.b64 {%0, %1, %2, %3}, %4;" : "=h"(a), "=h"(b), "=h"(c), "=h"(d) : "l"(sum));
  Address whole;
  asm("{ .reg .b32 low, high; mov.b32 low, {%1, %2}; mov.b32 high, {%3, %4}; mov.b64 %0, {low, high}; }"
      : "=l"(whole)
      : "h"(a), "h"(b), "h"(c), "h"(d));
  atomicAdd(reinterpret_cast<float *>(whole), 1.0F);
}

// One half is an address's, the other a number: the results of a text are told apart.
// CHECK-LABEL: {{^}}onlyOneResult(
// CHECK-NEXT:  parameter 0: read{{$}}
// CHECK-NEXT:  parameter 1: write [
__global__ void onlyOneResult(const float *in, float *out, int count) {
  Address moved;
  int twice;
  asm("add.u64 %0, %2, 4; add.s32 %1, %3, %3;" : "=&l"(moved), "=r"(twice) : "l"(in), "r"(count));
  out[twice] = *reinterpret_cast<const float *>(moved);
}

// CHECK-LABEL: {{^}}loadedAndUsedInText(float**, float){{$}}
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void loadedAndUsedInText(float **places, float value) {
  asm volatile("{ .reg .u64 to; ld.global.u64 to, [%0]; st.global.f32 [to], %1; }" ::"l"(places), "f"(value)
               : "memory");
}

// CHECK-LABEL: {{^}}halvesLoadedInText(
// CHECK-NEXT:  parameter 0: readwrite atomic holds pointers{{$}}
__global__ void halvesLoadedInText(unsigned **counters) {
  asm volatile("{ .reg .b32 low, high; .reg .b64 to; ld.v2.b32 {low, high}, [%0]; mov.b64 to, {low, high};\n"
               "  red.global.add.u32 [to], 1; }" ::"l"(counters)
               : "memory");
}

// CHECK-LABEL: {{^}}halvesLoaded(unsigned int const*){{$}}
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void halvesLoaded(const unsigned *halves) {
  *reinterpret_cast<float *>(Address(halves[7]) << 32 | halves[3]) = 1;
}

// CHECK-LABEL: {{^}}loadedAsFloats(
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void loadedAsFloats(const float2 *halves) {
  const float2 both = halves[threadIdx.x];
  *reinterpret_cast<float *>(Address(__float_as_uint(both.y)) << 32 | __float_as_uint(both.x)) = 1;
}

// CHECK-LABEL: {{^}}loadedThenShuffled(
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void loadedThenShuffled(float **places) {
  const Address place = reinterpret_cast<Address>(places[threadIdx.x]);
  const unsigned low = __shfl_sync(~0U, unsigned(place), 0), high = __shfl_sync(~0U, unsigned(place >> 32), 0);
  *reinterpret_cast<float *>(Address(high) << 32 | __byte_perm(low, high, 0x3210)) = 1;
}

// CHECK-LABEL: {{^}}shuffled(
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void shuffled(float *out) {
  const auto place = reinterpret_cast<Address>(out);
  const unsigned low = __shfl_sync(~0U, unsigned(place), 0), high = __shfl_sync(~0U, unsigned(place >> 32), 0);
  *reinterpret_cast<float *>(Address(high) << 32 | low) = 1;
}

// Addresses out of memory pass through shared memory. Numbers that do leave no trace.
// CHECK-LABEL: {{^}}loadedThenShared(
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void loadedThenShared(float **places) {
  __shared__ float *parked[32];
  parked[threadIdx.x] = places[threadIdx.x];
  __syncthreads();
  *parked[31 - threadIdx.x] = 1;
}

// CHECK-LABEL: {{^}}onlyNumbersShared(
// CHECK-NEXT:  parameter 0: read [
// CHECK-NEXT:  parameter 1: write [
__global__ void onlyNumbersShared(const int *indices, float *out) {
  __shared__ int staged[32];
  staged[threadIdx.x] = indices[threadIdx.x];
  __syncthreads();
  out[staged[31 - threadIdx.x]] = 1;
}

// CHECK-LABEL: {{^}}copiedToShared(
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void copiedToShared(float **places) {
  __shared__ float *parked[2];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n\tcp.async.wait_all;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(parked))),
               "l"(places)
               : "memory");
  __syncthreads();
  *parked[threadIdx.x] = 1;
}

// CHECK-LABEL: {{^}}loadedThroughText(
// CHECK-NEXT:  parameter 0: readwrite holds pointers{{$}}
__global__ void loadedThroughText(float **places) {
  __shared__ float *parked;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&parked));
  asm volatile("st.shared.b64 [%0], %1;" ::"r"(at), "l"(*places) : "memory");
  __syncthreads();
  asm volatile("{ .reg .b64 to; ld.shared.b64 to, [%0]; st.f32 [to], 0f3F800000; }" ::"r"(at) : "memory");
}

// Each byte is a low one of some number, but not of the address.
// CHECK-LABEL: {{^}}byteByByte(
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void byteByByte(float *out) {
  const auto place = reinterpret_cast<Address>(out);
  Address whole = 0;
  for (int i = 0; i < 64; i += 8) {
    Address byte = place >> i & 255;
    asm("mov.b64 %0, %0;" : "+l"(byte));
    whole |= byte << i;
  }
  *reinterpret_cast<float *>(whole) = 1;
}

// The second half of what one store writes into a local array.
// CHECK-LABEL: {{^}}wideLocal(
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void wideLocal(float *out, int which) {
  ulonglong2 both[2];
  both[0] = both[1] = make_ulonglong2(which, reinterpret_cast<Address>(out));
  *reinterpret_cast<float *>(reinterpret_cast<Address *>(both)[(which & 1) * 2 + 1]) = 1;
}

struct Halves {
  unsigned low, high;
};
__device__ __noinline__ Halves split(Address whole) {
  return {static_cast<unsigned>(whole), static_cast<unsigned>(whole >> 32)};
}
// CHECK-LABEL: {{^}}splitByFunction(
// CHECK-NEXT:  parameter 0: write
__global__ void splitByFunction(float *out) {
  const Halves halves = split(reinterpret_cast<Address>(out));
  *reinterpret_cast<float *>(Address(halves.high) << 32 | halves.low) = 1;
}

struct Span {
  float *data;
  int count;
};
__device__ __noinline__ Span rest(Span span, int count) {
  return {span.data + count, span.count - count};
}
// A count beside an address is none.
// CHECK-LABEL: {{^}}countBesideAddress(
// CHECK-NEXT:  parameter 0: read{{( \[16, 20\))?$}}
// CHECK:       parameter 1: write [
__global__ void countBesideAddress(Span in, float *out) {
  const Span from = rest(in, 4);
  out[from.count] = *from.data;
}

// What is kept in a register outside of braces, the next text may use.
// CHECK-LABEL: {{^}}keptInRegister({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite escapes{{$}}
__global__ void keptInRegister(float *out) {
  asm volatile(".reg .u64 kept; mov.u64 kept, %0;" ::"l"(out));
  asm volatile("st.global.f32 [kept], 0f3F800000;" ::: "memory");
}

// CHECK-LABEL: {{^}}inVariableOfText(
// CHECK-NEXT:  parameter 0: readwrite escapes{{$}}
__global__ void inVariableOfText(float *out) {
  asm volatile("{ .local .b64 place; .reg .b64 to; st.local.b64 [place], %0; ld.local.b64 to, [place];\n"
               "  st.f32 [to], 0f3F800000; }" ::"l"(out)
               : "memory");
}

// The inner register is another one; a name may stand for several.
// CHECK-LABEL: {{^}}scopes(
// CHECK-NEXT:  parameter 0: none{{$}}
// CHECK-NEXT:  parameter 1: write [0, 4) overwrites [0, 4){{$}}
__global__ void scopes(float *a, float *b) {
  asm volatile("{ .reg .b64 to<2>; mov.b64 to1, %1; { .reg .b64 to<2>; mov.b64 to1, %0; }\n"
               "  st.f32 [to1], 0f3F800000; }" ::"l"(a),
               "l"(b)
               : "memory");
}

// Which of the two is written depends on the launch: neither is overwritten for certain.
// CHECK-LABEL: {{^}}oneOfTwo(
// CHECK-NEXT:  parameter 0: write{{$}}
// CHECK-NEXT:  parameter 1: write{{$}}
__global__ void oneOfTwo(float *a, float *b, int which) {
  asm volatile("{ .reg .pred p; .reg .u64 to; setp.ne.s32 p, %2, 0; mov.u64 to, %0; @p mov.u64 to, %1;\n"
               "  st.global.f32 [to], 0f3F800000; }" ::"l"(a),
               "l"(b), "r"(which)
               : "memory");
}

// CHECK-LABEL: {{^}}copyOfAddress(
// CHECK-NEXT:  parameter 0: write [0, 4) overwrites [0, 4){{$}}
__global__ void copyOfAddress(float *out) {
  asm volatile("{ .reg .u64 to; cvta.to.global.u64 to, %0; st.global.f32 [to], 0f3F800000; }" ::"l"(out) : "memory");
}

// CHECK-LABEL: {{^}}asMemoryOperand(
// CHECK-NEXT:  parameter 0: readwrite {{.*}}unresolved{{$}}
__global__ void asMemoryOperand(float *out) {
  asm volatile("st.global.f32 %0, 0f3F800000;" : "=m"(*out));
}

// An instruction that is not known may do anything with what memory holds, too.
// CHECK-LABEL: {{^}}unknownOfLoaded({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite atomic holds pointers{{$}}
__global__ void unknownOfLoaded(const unsigned *numbers) {
  asm volatile("frobnicate.b32 %0;" ::"r"(*numbers) : "memory");
}

// CHECK-LABEL: {{^}}bracesLeftOpen({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite unresolved{{$}}
// CHECK-NEXT:  parameter 1: readwrite unresolved{{$}}
__global__ void bracesLeftOpen(float *out, float *others) {
  asm volatile("{ .reg .u64 to; mov.u64 to, %0;" ::"l"(out));
  asm volatile("st.global.f32 [to], 0f3F800000; }" ::: "memory");
  *others = 1;
}

// Text can name what no operand shows.
// CHECK-LABEL: {{^}}parameterByName (other memory too)
// CHECK-NEXT:  parameter 0: readwrite unresolved{{$}}
extern "C" __global__ void parameterByName(float *out) {
  asm volatile("{ .reg .u64 to; ld.param.u64 to, [parameterByName_param_0]; st.f32 [to], 0f3F800000; }" ::: "memory");
}

__device__ float variable;
// CHECK-LABEL: {{^}}variableByName (other memory too)
// CHECK-NEXT:  parameter 0: write
extern "C" __global__ void variableByName(float *out) {
  asm volatile("st.global.f32 [variable], 0f3F800000;" ::: "memory");
  *out = 1;
}

// Pointers in constant memory: the host sets them, or the program.
__constant__ float *setByHost;
__device__ float *const table[] = {&variable, nullptr};
// CHECK-LABEL: {{^}}throughSymbol({{.*}}(other memory too)
__global__ void throughSymbol(float *out) {
  *setByHost = 2;
  *out = 1;
}
// CHECK-LABEL: {{^}}throughTable({{.*}}(other memory too)
__global__ void throughTable(float *out, int index) {
  *table[index] = 2;
  *out = 1;
}

// CHECK-LABEL: {{^}}numberToPointer({{.*}}(other memory too)
// CHECK-NEXT:  parameter 1: write
__global__ void numberToPointer(unsigned key, float *out) {
  float *place;
  asm("mov.u64 %0, %1;" : "=l"(place) : "l"(key * 256ULL));
  *place = 1;
  *out = 1;
}

// An address that text makes of a number.
// CHECK-LABEL: {{^}}numberAsAddress({{.*}}(other memory too)
// CHECK-NEXT:  parameter 1: write
__global__ void numberAsAddress(unsigned key, float *out) {
  asm volatile("st.global.f32 [%0], 0f3F800000;" ::"l"(key * 256ULL) : "memory");
  *out = 1;
}
