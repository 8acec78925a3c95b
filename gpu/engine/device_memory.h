// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA resources: device memory, pinned host memory, streams, events and graphs.
// Move-only; destructors never throw.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "gpu/kernels/cuda_check.h"

namespace metronome {

// A handle that is released once. The destructor calls Release unless the handle is empty.
template <class Handle, auto Release>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != Handle{}) Release(handle_);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

using Stream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using GraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

Stream make_stream();
CudaEvent make_event();  // with timing
// Time between two events that the device has passed.
double elapsed_ms(const CudaEvent& from, const CudaEvent& to);

// Captures what `enqueue` enqueues on the stream; none of it runs. Every kernel must have been
// launched once before: the first launch loads it, and the driver may not load during a capture.
// Throws CudaError and what `enqueue` throws. The capture has ended in every case.
template <class Enqueue>
GraphExec capture_graph(cudaStream_t stream, const Enqueue& enqueue) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  cudaGraph_t captured = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
  const CudaHandle<cudaGraph_t, cudaGraphDestroy> graph(captured);
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return GraphExec(executable);
}

// Copies and waits. cudaMemcpy from pageable memory may return once the bytes are staged, and
// non-blocking streams do not wait for it.
inline void copy_to_device(void* to, const void* from, std::size_t num_bytes) {
  check_cuda(cudaMemcpy(to, from, num_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// An array in device memory, not initialised. Throws CudaError if memory runs out.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : size_(size) {
    void* memory = nullptr;
    if (size > 0) check_cuda(cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc");
    memory_ = CudaHandle<void*, cudaFree>(memory);
  }

  T* data() const { return static_cast<T*>(memory_.get()); }
  std::size_t size() const { return size_; }
  std::size_t num_bytes() const { return size_ * sizeof(T); }

  // Both wait for the copy, and so for all work on the device. Use them for loading and tests. A
  // step copies on its own stream.
  void upload(std::span<const T> values, std::size_t first = 0) const {
    copy_to_device(data() + first, values.data(), values.size_bytes());
  }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    check_cuda(cudaMemcpy(values.data(), data(), num_bytes(), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return values;
  }

 private:
  CudaHandle<void*, cudaFree> memory_;
  std::size_t size_ = 0;
};

// Page-locked host memory: copies to and from it are asynchronous to the host.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(std::size_t size) : size_(size) {
    void* memory = nullptr;
    if (size > 0) check_cuda(cudaMallocHost(&memory, size), "cudaMallocHost");
    memory_ = CudaHandle<void*, cudaFreeHost>(memory);
  }

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  std::size_t size() const { return size_; }

 private:
  CudaHandle<void*, cudaFreeHost> memory_;
  std::size_t size_ = 0;
};

}  // namespace metronome
