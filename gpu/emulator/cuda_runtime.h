// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime on the CPU, for tests. Kernels run as fibers, one block (or cluster of blocks)
// after another. Streams do their work as late as the host allows. cuda_emulator.h controls it.
//
// Signatures as in CUDA 13. The functions in runtime_api.cpp say where the emulator is stricter or
// more lenient than a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gpu/emulator/device_code.h"
#include "gpu/emulator/runtime_types.h"

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();
// Supports cuTensorMapEncodeTiled only.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result = nullptr);

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaMalloc(void** pointer, std::size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, std::size_t size);
cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* pointer, int value, std::size_t size);
cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t size,
                            cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, const void* kernel,
                                                          int block_size,
                                                          std::size_t dynamic_shared_bytes);

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t size) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size);
  if (error == cudaSuccess) *pointer = static_cast<T*>(memory);
  return error;
}

template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t size) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, size);
  if (error == cudaSuccess) *pointer = static_cast<T*>(memory);
  return error;
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks,
                                                          void (*kernel)(Parameters...),
                                                          int block_size,
                                                          std::size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      num_blocks, reinterpret_cast<const void*>(kernel), block_size, dynamic_shared_bytes);
}

namespace metronome::emulator {

// The result contains the name of the type.
template <class Type>
const char* type_text() {
  return __PRETTY_FUNCTION__;
}

// `body` is the work of each thread of the grid. `type` is the kernel's type_text().
cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel, const char* type,
                           std::function<void()> body);

}  // namespace metronome::emulator

// Converts the arguments to the kernel's parameter types now, and copies them for each thread.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "kernel parameters are copied as bytes");
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "kernel parameters have at most 4 KB");
  return [&](Parameters... values) {
    using namespace metronome::emulator;
    std::function<void()> body = [kernel, tuple = std::tuple<Parameters...>(values...)] {
      std::apply(kernel, tuple);
    };
    return enqueue_launch(*config, reinterpret_cast<const void*>(kernel),
                          type_text<void(Parameters...)>(), std::move(body));
  }(std::forward<Arguments>(arguments)...);
}
