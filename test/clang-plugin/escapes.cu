// SPDX-License-Identifier: Apache-2.0
// RUN: %accesses -O0 -fgpu-rdc %s | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 -fgpu-rdc %s | %print > %t.O2 && FileCheck %s < %t.O2

struct Node {
  Node *next;
  float value;
};
__device__ Node *head;

// An address in memory can be used by anybody.
// CHECK-LABEL: {{^}}push({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite escapes
__global__ void push(Node *node) {
  node->next = head;
  head = node;
}

// CHECK-LABEL: {{^}}storedInShared(
// CHECK-NEXT:  parameter 0: readwrite escapes
__global__ void storedInShared(float *values) {
  __shared__ float *parked;
  if (threadIdx.x == 0)
    parked = values;
  __syncthreads();
  parked[threadIdx.x] = 1;
}

// CHECK-LABEL: {{^}}storedAsInteger(
// CHECK-NEXT:  parameter 0: readwrite escapes
// CHECK-NEXT:  parameter 1: write
__global__ void storedAsInteger(float *values, unsigned long long *address) {
  *address = reinterpret_cast<unsigned long long>(values) ^ 0x5555;
}

// CHECK-LABEL: {{^}}halvesStored(
// CHECK-NEXT:  parameter 0: readwrite escapes
// CHECK-NEXT:  parameter 1: write
__global__ void halvesStored(float *values, unsigned *address) {
  address[0] = static_cast<unsigned>(reinterpret_cast<unsigned long long>(values));
  address[1] = static_cast<unsigned>(reinterpret_cast<unsigned long long>(values) >> 32);
}

extern __device__ void elsewhere(float *values);
// CHECK-LABEL: {{^}}passedOn({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite escapes
__global__ void passedOn(float *values) {
  elsewhere(values);
}

// A function behind a pointer; the pointer itself leads to code.
// CHECK-LABEL: {{^}}calledThroughPointer({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: readwrite escapes
// CHECK-NEXT:  parameter 1: none
__global__ void calledThroughPointer(float *values, void (*function)(float *)) {
  function(values);
}

// Addresses in the slot's memory: what they lead to may be that memory.
// CHECK-LABEL: {{^}}throughTable(
// CHECK-NEXT:  parameter 0: readwrite holds pointers
__global__ void throughTable(float **table) {
  table[threadIdx.x][0] = 1;
}

// CHECK-LABEL: {{^}}sumOfList(
// CHECK-NEXT:  parameter 0: read holds pointers
// CHECK-NEXT:  parameter 1: write
__global__ void sumOfList(const Node *first, float *sum) {
  float total = 0;
  for (const Node *node = first; node; node = node->next)
    total += node->value;
  *sum = total;
}

// Addresses as data are only copied.
// CHECK-LABEL: {{^}}copiesTable(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 1: write
__global__ void copiesTable(float **from, float **to) {
  to[threadIdx.x] = from[threadIdx.x];
}

// An integer parameter that is an address is a slot like another.
// CHECK-LABEL: {{^}}addressInInteger({{[^)]*}}){{$}}
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 1: write
__global__ void addressInInteger(unsigned long long address, float *out) {
  out[0] = *reinterpret_cast<const float *>(address);
}

// An integer parameter that is none is no slot.
// CHECK-LABEL: {{^}}countInInteger(
// CHECK-NEXT:  parameter 1: write
__global__ void countInInteger(unsigned long long count, float *out) {
  out[count] = 1;
}

// An address that comes from elsewhere than the parameters.
// CHECK-LABEL: {{^}}addressOutOfHash({{.*}}(other memory too)
// CHECK-NEXT:  parameter 1: write
__global__ void addressOutOfHash(unsigned key, float *out) {
  out[0] = *reinterpret_cast<const float *>(key * 256ULL);
}

__device__ float table[16];
// CHECK-LABEL: {{^}}usesGlobal({{.*}}(other memory too)
// CHECK-NEXT:  parameter 0: write
__global__ void usesGlobal(float *out) {
  out[threadIdx.x] = table[threadIdx.x % 16];
}

__constant__ float factors[16];
// CHECK-LABEL: {{^}}usesConstant({{[^)]*}}){{$}}
// CHECK-NEXT:  parameter 0: write
__global__ void usesConstant(float *out) {
  out[threadIdx.x] = factors[threadIdx.x % 16];
}
