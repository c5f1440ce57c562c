// SPDX-License-Identifier: Apache-2.0
/// \file
/// Cooperative groups, cuda::barrier, cuda::pipeline, asynchronous copies, cuda::atomic_ref.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

namespace groups = cooperative_groups;

__global__ void blockSums(const float *in, float *sums, int count) {
  const groups::thread_block block = groups::this_thread_block();
  const auto warp = groups::tiled_partition<32>(block);
  __shared__ float ofWarp[32];
  const int i = block.group_index().x * block.size() + block.thread_rank();
  const float own = i < count ? in[i] : 0;
  const float sum = groups::reduce(warp, own, groups::plus<float>());
  if (warp.thread_rank() == 0)
    ofWarp[warp.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) {
    float total = 0;
    for (unsigned w = 0; w < warp.meta_group_size(); ++w)
      total += ofWarp[w];
    sums[block.group_index().x] = total;
  }
}

__global__ void gridWide(const float *in, float *partial, float *out, int count) {
  const groups::grid_group grid = groups::this_grid();
  float sum = 0;
  for (int i = grid.thread_rank(); i < count; i += grid.size())
    sum += in[i];
  partial[grid.thread_rank()] = sum;
  grid.sync();
  if (grid.thread_rank() == 0) {
    float total = 0;
    for (unsigned long long i = 0; i < grid.size(); ++i)
      total += partial[i];
    *out = total;
  }
}

__global__ void groupCopy(const float *in, float *out) {
  __shared__ float tile[256];
  const groups::thread_block block = groups::this_thread_block();
  groups::memcpy_async(block, tile, in + blockIdx.x * 256, sizeof(tile));
  groups::wait(block);
  out[blockIdx.x * 256 + threadIdx.x] = 2 * tile[threadIdx.x];
}

__global__ void barrierCopy(const int *in, int *out) {
  __shared__ alignas(16) int tile[256];
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(Barrier) char storage[sizeof(Barrier)];
  Barrier &barrier = reinterpret_cast<Barrier &>(storage);
  if (threadIdx.x == 0)
    init(&barrier, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0)
    cuda::memcpy_async(tile, in + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof(tile)), barrier);
  barrier.arrive_and_wait();
  out[blockIdx.x * 256 + threadIdx.x] = tile[threadIdx.x];
}

__global__ void pipelined(const float4 *in, float4 *out, int tiles) {
  __shared__ float4 stages[2][128];
  cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
  for (int tile = 0; tile < tiles; ++tile) {
    pipeline.producer_acquire();
    cuda::memcpy_async(&stages[tile % 2][threadIdx.x], &in[tile * 128 + threadIdx.x],
                       cuda::aligned_size_t<16>(sizeof(float4)), pipeline);
    pipeline.producer_commit();
    pipeline.consumer_wait();
    out[tile * 128 + threadIdx.x] = stages[tile % 2][threadIdx.x];
    pipeline.consumer_release();
  }
}

__global__ void primitives(const int4 *in, int4 *out) {
  __shared__ int4 tile[128];
  __pipeline_memcpy_async(&tile[threadIdx.x], in + threadIdx.x, sizeof(int4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void lastBlock(const int *in, int *sum, unsigned *arrived, int *result) {
  cuda::atomic_ref<int, cuda::thread_scope_device>(*sum).fetch_add(in[threadIdx.x], cuda::memory_order_relaxed);
  __threadfence();
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> counter(*arrived);
  if (counter.fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x * blockDim.x - 1)
    *result = cuda::atomic_ref<int, cuda::thread_scope_device>(*sum).load(cuda::memory_order_acquire);
}

__global__ void flagged(const int *flag, const int *in, int *out) {
  while (cuda::atomic_ref<int, cuda::thread_scope_device>(*const_cast<int *>(flag)).load() == 0)
    ;
  out[threadIdx.x] = in[threadIdx.x];
}
