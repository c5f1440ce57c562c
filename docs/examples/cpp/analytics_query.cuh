// SPDX-License-Identifier: Apache-2.0
/// \file
/// The query of the analytics example: scan and filter, join, group-by and top-k, by CUB, thrust and kernels of its own
/// on one stream, without a synchronization. Sizes are upper bounds: what a filter drops keeps its place, with a key
/// that joins nothing. All arithmetic is on integers, so neither batches nor atomics change a bit of the result.
#pragma once

#include "analytics_memory.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <thrust/binary_search.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cstdint>
#include <vector>

namespace analytics {

constexpr std::uint32_t noKey = UINT32_MAX;
constexpr int columns = 4, segments = 32, topCount = 100, blockThreads = 256;
/// Key, price, quantity, day.
constexpr std::uint32_t seeds[columns] = {11, 22, 33, 44};

/// Rows of the sales, and of the customers, a power of two. Every ninth sale is of no customer.
struct Shape {
  std::size_t rows = 0, customers = 0;
  int batches = 16;       ///< in which the rows are worked on
  bool isByBatch = false; ///< all stages for a batch ahead of the next one, which keeps nothing in between

  std::uint32_t range(int column) const {
    const std::uint32_t ranges[columns] = {static_cast<std::uint32_t>(customers + customers / 8), 10000, 100, 365};
    return ranges[column];
  }
};

struct Result {
  std::uint64_t bySegment[segments];
  std::uint64_t topRevenue[topCount];
  std::uint32_t topCustomer[topCount];
  std::uint64_t ofGroups; ///< a sum over a hash of each group's aggregates
};

/// Of one customer's sales.
struct Aggregate {
  std::uint64_t sum, most, count;
};

__host__ __device__ inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

struct ToAggregate {
  __host__ __device__ Aggregate operator()(std::uint64_t revenue) const { return {revenue, revenue, 1}; }
};

struct Combine {
  __host__ __device__ Aggregate operator()(const Aggregate &one, const Aggregate &other) const {
    return {one.sum + other.sum, one.most > other.most ? one.most : other.most, one.count + other.count};
  }
};

struct HashOfGroup {
  const Aggregate *groups;
  __host__ __device__ std::uint64_t operator()(std::uint32_t key) const {
    const Aggregate &group = groups[key];
    return mix(mix(mix(key ^ group.sum) ^ group.most) ^ group.count);
  }
};

namespace kernels {

__device__ inline std::size_t thread() {
  return blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
}

__global__ void generate(std::uint32_t *column, std::size_t count, std::size_t first, std::uint32_t seed,
                         std::uint32_t range) {
  if (const std::size_t i = thread(); i < count)
    column[i] = static_cast<std::uint32_t>(mix(mix(first + i) ^ seed) % range);
}

__global__ void generateCustomers(std::uint32_t *keys, std::uint32_t *segmentOf, std::size_t count) {
  if (const std::size_t i = thread(); i < count) {
    keys[i] = static_cast<std::uint32_t>((i * 2654435761ULL + 12345) & (count - 1));
    segmentOf[i] = static_cast<std::uint32_t>(mix(keys[i]) % segments);
  }
}

__global__ void scan(const std::uint32_t *key, const std::uint32_t *price, const std::uint32_t *quantity,
                     const std::uint32_t *day, std::size_t count, std::uint32_t *kept, std::uint64_t *revenue) {
  if (const std::size_t i = thread(); i < count) {
    const bool isKept = day[i] >= 30 && day[i] < 330 && quantity[i] < 90;
    kept[i] = isKept ? key[i] : noKey;
    revenue[i] = isKept ? static_cast<std::uint64_t>(price[i]) * quantity[i] : 0;
  }
}

/// Drops what has no customer, and sums up revenue by the customers' segments.
__global__ void join(const std::uint32_t *place, const std::uint32_t *customer, const std::uint32_t *segmentOf,
                     std::size_t customers, const std::uint64_t *revenue, std::size_t count, std::uint32_t *key,
                     unsigned long long *bySegment) {
  __shared__ unsigned long long sums[segments];
  if (threadIdx.x < segments)
    sums[threadIdx.x] = 0;
  __syncthreads();
  if (const std::size_t i = thread(); i < count) {
    if (place[i] < customers && customer[place[i]] == key[i])
      atomicAdd(&sums[segmentOf[place[i]]], static_cast<unsigned long long>(revenue[i]));
    else
      key[i] = noKey;
  }
  __syncthreads();
  if (threadIdx.x < segments)
    atomicAdd(&bySegment[threadIdx.x], sums[threadIdx.x]);
}

/// The keys of a batch are different ones.
__global__ void merge(const std::uint32_t *key, const Aggregate *partial, const std::uint32_t *count,
                      std::size_t customers, Aggregate *groups) {
  if (const std::size_t i = thread(); i < *count && key[i] < customers)
    groups[key[i]] = Combine()(groups[key[i]], partial[i]);
}

__global__ void rank(const Aggregate *groups, std::size_t customers, std::uint64_t *revenue, std::uint32_t *customer) {
  if (const std::size_t i = thread(); i < customers) {
    revenue[i] = groups[i].sum;
    customer[i] = static_cast<std::uint32_t>(i);
  }
}

__global__ void report(const std::uint64_t *revenue, const std::uint32_t *customer, const std::uint64_t *ofGroups,
                       const std::uint64_t *bySegment, Result *result) {
  const unsigned i = threadIdx.x;
  if (i < topCount) {
    result->topRevenue[i] = revenue[i];
    result->topCustomer[i] = customer[i];
  }
  if (i < segments)
    result->bySegment[i] = bySegment[i];
  if (i == 0)
    result->ofGroups = *ofGroups;
}

} // namespace kernels

inline unsigned blocksFor(std::size_t count) {
  return static_cast<unsigned>((count + blockThreads - 1) / blockThreads);
}

/// Rows in device memory, one array a column.
using Columns = std::uint32_t *[columns];

inline void generate(const Shape &shape, int column, std::uint32_t *target, std::size_t first, std::size_t count,
                     cudaStream_t stream) {
  kernels::generate<<<blocksFor(count), blockThreads, 0, stream>>>(target, count, first, seeds[column],
                                                                   shape.range(column));
  check(cudaGetLastError(), "generate");
}

inline void generateCustomers(const Shape &shape, std::uint32_t *keys, std::uint32_t *segmentOf, cudaStream_t stream) {
  kernels::generateCustomers<<<blocksFor(shape.customers), blockThreads, 0, stream>>>(keys, segmentOf, shape.customers);
  check(cudaGetLastError(), "generateCustomers");
}

/// One run of the query: made with the customers, given rows by the batch, finished.
template <typename Memory> class Query {
public:
  template <typename Element> using Made = Array<Element, Memory>;
  /// What a scan keeps of a batch.
  struct Kept {
    std::size_t count;
    Made<std::uint32_t> keys;
    Made<std::uint64_t> revenue;
  };

  Query(Memory &memory, const Shape &shape, const std::uint32_t *customerKeys, const std::uint32_t *segmentOf,
        cudaStream_t stream)
      : memory_(memory), shape_(shape), stream_(stream), sortedKeys_(memory, stream, shape.customers),
        sortedSegments_(memory, stream, shape.customers), groups_(memory, stream, shape.customers),
        bySegment_(memory, stream, segments) {
    withTemporary([&](void *temporary, std::size_t &bytes) {
      return cub::DeviceRadixSort::SortPairs(temporary, bytes, customerKeys, sortedKeys_.data(), segmentOf,
                                             sortedSegments_.data(), shape.customers, 0, 32, stream);
    });
    check(cudaMemsetAsync(groups_.data(), 0, shape.customers * sizeof(Aggregate), stream), "groups");
    check(cudaMemsetAsync(bySegment_.data(), 0, segments * sizeof(std::uint64_t), stream), "segments");
  }

  Kept scan(const Columns &from, std::size_t first, std::size_t count) {
    [[maybe_unused]] const auto tag = memory_.tag("scan");
    Kept kept{count, {memory_, stream_, count}, {memory_, stream_, count}};
    kernels::scan<<<blocksFor(count), blockThreads, 0, stream_>>>(from[0] + first, from[1] + first, from[2] + first,
                                                                  from[3] + first, count, kept.keys.data(),
                                                                  kept.revenue.data());
    check(cudaGetLastError(), "scan");
    memory_.reads(stream_, {from[0] + first, from[1] + first, from[2] + first, from[3] + first}, count);
    return kept;
  }

  void join(Kept &kept) {
    [[maybe_unused]] const auto tag = memory_.tag("join");
    Made<std::uint32_t> places(memory_, stream_, kept.count);
    thrust::lower_bound(thrust::cuda::par_nosync(memory_.allocator(stream_)).on(stream_), sortedKeys_.data(),
                        sortedKeys_.data() + shape_.customers, kept.keys.data(), kept.keys.data() + kept.count,
                        places.data());
    kernels::join<<<blocksFor(kept.count), blockThreads, 0, stream_>>>(
        places.data(), sortedKeys_.data(), sortedSegments_.data(), shape_.customers, kept.revenue.data(), kept.count,
        kept.keys.data(), reinterpret_cast<unsigned long long *>(bySegment_.data()));
    check(cudaGetLastError(), "join");
  }

  /// Sorts, and reduces runs of equal keys.
  void group(const Kept &kept) {
    [[maybe_unused]] const auto tag = memory_.tag("group");
    Made<std::uint32_t> keys(memory_, stream_, kept.count);
    Made<std::uint64_t> revenue(memory_, stream_, kept.count);
    withTemporary([&](void *temporary, std::size_t &bytes) {
      return cub::DeviceRadixSort::SortPairs(temporary, bytes, kept.keys.data(), keys.data(), kept.revenue.data(),
                                             revenue.data(), kept.count, 0, 32, stream_);
    });
    const std::size_t most = std::min(kept.count, shape_.customers + 1); // keys that joined, and noKey
    Made<std::uint32_t> groupKeys(memory_, stream_, most), count(memory_, stream_, 1);
    Made<Aggregate> partial(memory_, stream_, most);
    const auto values = thrust::make_transform_iterator(revenue.data(), ToAggregate());
    withTemporary([&](void *temporary, std::size_t &bytes) {
      return cub::DeviceReduce::ReduceByKey(temporary, bytes, keys.data(), groupKeys.data(), values, partial.data(),
                                            count.data(), Combine(), static_cast<int>(kept.count), stream_);
    });
    kernels::merge<<<blocksFor(most), blockThreads, 0, stream_>>>(groupKeys.data(), partial.data(), count.data(),
                                                                  shape_.customers, groups_.data());
    check(cudaGetLastError(), "merge");
  }

  void finish(Result *result) {
    [[maybe_unused]] const auto tag = memory_.tag("top");
    const std::size_t count = shape_.customers;
    Made<std::uint64_t> revenue(memory_, stream_, count), sorted(memory_, stream_, count), hash(memory_, stream_, 1);
    Made<std::uint32_t> customer(memory_, stream_, count), ranked(memory_, stream_, count);
    kernels::rank<<<blocksFor(count), blockThreads, 0, stream_>>>(groups_.data(), count, revenue.data(),
                                                                  customer.data());
    check(cudaGetLastError(), "rank");
    withTemporary([&](void *temporary, std::size_t &bytes) {
      return cub::DeviceRadixSort::SortPairsDescending(temporary, bytes, revenue.data(), sorted.data(), customer.data(),
                                                       ranked.data(), count, 0, 64, stream_);
    });
    const auto hashes =
        thrust::make_transform_iterator(thrust::make_counting_iterator(0u), HashOfGroup{groups_.data()});
    withTemporary([&](void *temporary, std::size_t &bytes) {
      return cub::DeviceReduce::Sum(temporary, bytes, hashes, hash.data(), count, stream_);
    });
    kernels::report<<<1, blockThreads, 0, stream_>>>(sorted.data(), ranked.data(), hash.data(), bySegment_.data(),
                                                     result);
    check(cudaGetLastError(), "report");
  }

private:
  /// As CUB wants it: asked for the size of its temporary memory, then called with it.
  template <typename Call> void withTemporary(Call call) {
    std::size_t bytes = 0;
    check(call(nullptr, bytes), "CUB");
    Made<char> temporary(memory_, stream_, bytes);
    check(call(temporary.data(), bytes), "CUB");
  }

  Memory &memory_;
  const Shape &shape_;
  cudaStream_t stream_;
  Made<std::uint32_t> sortedKeys_, sortedSegments_;
  Made<Aggregate> groups_;
  Made<std::uint64_t> bySegment_;
};

/// The whole query, stage by stage or batch by batch, on columns in device memory.
template <typename Memory>
void run(Memory &memory, const Shape &shape, const Columns &rows, const std::uint32_t *customerKeys,
         const std::uint32_t *segmentOf, Result *result, cudaStream_t stream, int batches) {
  Query<Memory> query(memory, shape, customerKeys, segmentOf, stream);
  const std::size_t count = shape.rows / shape.batches;
  std::vector<typename Query<Memory>::Kept> kept;
  for (int batch = 0; batch < batches; ++batch) {
    kept.push_back(query.scan(rows, batch * count, count));
    if (!shape.isByBatch)
      continue;
    query.join(kept.back());
    query.group(kept.back());
    kept.pop_back();
  }
  for (auto &each : kept)
    query.join(each);
  while (!kept.empty()) {
    query.group(kept.back());
    kept.pop_back();
  }
  query.finish(result);
}

} // namespace analytics
