// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session as a memory resource of CCCL: thrust, CUB, cuda::buffer and whatever takes a cuda::mr resource allocate
/// from it. Needs pumpgraph.hpp and the headers of CCCL 3 (CUDA 13).
///
/// ```cpp
/// pumpgraph::Resource memory(*session);
/// thrust::sort(thrust::cuda::par_nosync(memory.allocator(stream)).on(stream), first, last);
/// cuda::mr::any_resource<cuda::mr::device_accessible> any = memory; // CCCL 3.1; of 3.0: async_resource_ref
/// ```
///
/// CCCL before 3.1 hides its resources behind LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE: define that for the whole
/// program, or include this header ahead of CCCL's.
#pragma once

#include "pumpgraph/pumpgraph.hpp"

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
/// Lets CCCL before 3.1 show its resources.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace pumpgraph {

/// Thrown where neither budget nor host limit has room.
class OutOfMemory : public std::bad_alloc {
public:
  /// Of the call's error.
  explicit OutOfMemory(const Error &error) : code_(error.code), message_(error.message) {}
  /// PUMPGRAPH_OUT_OF_DEVICE_MEMORY or PUMPGRAPH_OUT_OF_HOST_MEMORY.
  pumpgraph_status code() const noexcept { return code_; }
  /// Names the sizes.
  const char *what() const noexcept override { return message_.what(); }

private:
  pumpgraph_status code_;
  std::runtime_error message_; ///< a text whose copies do not throw
};

/// Thrown where an allocation fails for another reason, such as its alignment or its stream.
class ResourceError : public std::runtime_error {
public:
  /// Of the call's error.
  explicit ResourceError(const Error &error) : std::runtime_error(error.message), code_(error.code) {}
  /// The reason, for programs.
  pumpgraph_status code() const noexcept { return code_; }

private:
  pumpgraph_status code_;
};

template <typename Element> class ResourceAllocator;

/// A memory resource, synchronous and stream-ordered, whose memory is device_accessible.
///
/// Ownership: holds the session, as a copy of Session does. Memory that is not freed lives as long as the last holder.
/// Two resources are equal if their session is the same; either frees what the other allocated.
///
/// Order: memory freed on a stream serves later allocations on that stream at once, and no other stream. Work on
/// another stream is ordered ahead of the free by the program, as with cudaFreeAsync. Such a stream is synchronized
/// ahead of its destruction. Synchronous calls fit any stream: their memory is never shared with a stream's, and the
/// free waits for the device. Inside a capture of the session all memory is the step's, and nothing waits.
/// A graph of the program keeps memory that is allocated or freed on its stream while that is captured; synchronous
/// frees fail then.
///
/// Threading: that of pumpgraph_allocate(), so any thread at any time. Statistics and limits are the session's.
class Resource {
public:
  /// The largest alignment, which every allocation has.
  static constexpr std::size_t largestAlignment = 512;

  /// Of a session, which it shares.
  explicit Resource(Session session) : session_(std::move(session)) {}

  /// Allocates for use on `stream`. Of 0 bytes, too, there is an address: CUB takes NULL for the question of a size.
  /// Throws OutOfMemory, or ResourceError for an alignment beyond largestAlignment, the per-thread default stream,
  /// which is another stream in each thread, and other failures.
  void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = largestAlignment) {
    const pumpgraph_stream order = orderOf(stream);
    if (order == perThread())
      throw ResourceError({PUMPGRAPH_INVALID_ARGUMENT,
                           "memory on the per-thread default stream, which is another stream "
                           "in each thread; create a stream"});
    return allocateOn(order, bytes, alignment);
  }
  /// Frees in the order of `stream`; on the per-thread default stream it waits for the device. A failure is a message
  /// of level error, and the memory stays allocated.
  void deallocate(cuda::stream_ref stream, void *pointer, std::size_t = 0, std::size_t = 0) noexcept {
    const pumpgraph_stream order = orderOf(stream);
    pumpgraph_release(session_.handle(), pointer, order, order == perThread() ? 1 : 0);
  }
  /// Allocates for use on any stream, at once. Throws as the other does.
  void *allocate_sync(std::size_t bytes, std::size_t alignment = largestAlignment) {
    return allocateOn(cudaStreamLegacy, bytes, alignment); // apart from NULL's memory, for nothing frees on it but
  } // deallocate_sync()
  /// Waits for the device, outside a capture of the session, and frees.
  void deallocate_sync(void *pointer, std::size_t = 0, std::size_t = 0) noexcept {
    pumpgraph_release(session_.handle(), pointer, cudaStreamLegacy, 1);
  }

  /// The name of allocate_sync() in CCCL 3.0.
  void *allocate(std::size_t bytes, std::size_t alignment = largestAlignment) {
    return allocate_sync(bytes, alignment);
  }
  /// The name of deallocate_sync() in CCCL 3.0.
  void deallocate(void *pointer, std::size_t = 0, std::size_t = 0) noexcept { deallocate_sync(pointer); }
  /// The name of allocate() on a stream in CCCL 3.0.
  void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  /// The same, with the largest alignment.
  void *allocate_async(std::size_t bytes, cuda::stream_ref stream) { return allocate(stream, bytes); }
  /// The name of deallocate() on a stream in CCCL 3.0.
  void deallocate_async(void *pointer, std::size_t, std::size_t, cuda::stream_ref stream) noexcept {
    deallocate(stream, pointer);
  }
  /// The same.
  void deallocate_async(void *pointer, std::size_t, cuda::stream_ref stream) noexcept { deallocate(stream, pointer); }

  /// An allocator on one stream, for thrust's policies and for containers.
  template <typename Element = char> ResourceAllocator<Element> allocator(cuda::stream_ref stream) const {
    return ResourceAllocator<Element>(*this, stream);
  }
  /// The session, for statistics() and tags.
  const Session &session() const noexcept { return session_; }

  /// Whether the session is the same.
  friend bool operator==(const Resource &one, const Resource &other) noexcept {
    return one.session_.handle() == other.session_.handle();
  }
  /// Whether the sessions differ.
  friend bool operator!=(const Resource &one, const Resource &other) noexcept { return !(one == other); }
  /// Kernels can use the memory.
  friend constexpr void get_property(const Resource &, cuda::mr::device_accessible) noexcept {}
#if CCCL_VERSION >= 3002000
  /// The properties that cuda::make_buffer() asks for.
  using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;
#endif

private:
  static pumpgraph_stream perThread() noexcept { return cudaStreamPerThread; }

  /// One handle for a stream: both the runtime and the library have to mean the same by it.
  static pumpgraph_stream orderOf(cuda::stream_ref stream) noexcept {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    if (stream.get() == nullptr)
      return perThread();
#endif
    return stream.get() == cudaStreamLegacy ? nullptr : stream.get();
  }

  void *allocateOn(pumpgraph_stream stream, std::size_t bytes, std::size_t alignment) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > largestAlignment)
      throw ResourceError({PUMPGRAPH_INVALID_ARGUMENT, "an alignment of " + std::to_string(alignment) +
                                                           "; it is a power of two, at most " +
                                                           std::to_string(largestAlignment)});
    void *pointer = nullptr;
    const Status allocated = detail::call(pumpgraph_allocate, session_.handle(), bytes == 0 ? std::size_t{1} : bytes,
                                          stream, static_cast<const char *>(nullptr), &pointer);
    if (allocated)
      return pointer;
    if (allocated.error().code == PUMPGRAPH_OUT_OF_DEVICE_MEMORY ||
        allocated.error().code == PUMPGRAPH_OUT_OF_HOST_MEMORY)
      throw OutOfMemory(allocated.error());
    throw ResourceError(allocated.error());
  }

  Session session_;
};

/// An allocator of the standard library's kind, on one stream of a Resource.
template <typename Element> class ResourceAllocator {
public:
  using value_type = Element; ///< of the elements

  /// Allocates and frees on `stream`, which lives as long as the allocator's memory.
  ResourceAllocator(Resource resource, cuda::stream_ref stream) : resource_(std::move(resource)), stream_(stream) {}
  /// For other elements, from the same memory.
  template <typename Other>
  ResourceAllocator(const ResourceAllocator<Other> &other) : resource_(other.resource_), stream_(other.stream_) {}

  /// See Resource::allocate().
  Element *allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(Element))
      throw std::bad_array_new_length();
    return static_cast<Element *>(resource_.allocate(stream_, count * sizeof(Element)));
  }
  /// See Resource::deallocate().
  void deallocate(Element *pointer, std::size_t) noexcept { resource_.deallocate(stream_, pointer); }

  /// Whether memory and stream are the same.
  template <typename Other> bool operator==(const ResourceAllocator<Other> &other) const noexcept {
    return resource_ == other.resource_ && stream_ == other.stream_;
  }

private:
  template <typename> friend class ResourceAllocator;

  Resource resource_;
  cuda::stream_ref stream_;
};

} // namespace pumpgraph
