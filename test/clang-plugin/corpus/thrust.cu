// SPDX-License-Identifier: Apache-2.0
/// \file
/// Thrust's algorithms on plain device pointers.
#include <thrust/execution_policy.h>
#include <thrust/gather.h>
#include <thrust/reduce.h>
#include <thrust/scatter.h>
#include <thrust/sort.h>

void instantiate(int *keys, int *values, const int *map, const int *in, int *outKeys, int *outValues, int n) {
  thrust::sort(thrust::device, keys, keys + n);
  thrust::reduce_by_key(thrust::device, keys, keys + n, values, outKeys, outValues);
  thrust::gather(thrust::device, map, map + n, in, outValues);
  thrust::scatter(thrust::device, in, in + n, map, outValues);
}
