// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime for devices, memory and kernels.
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/emulator/api_call.h"
#include "gpu/emulator/cuda.h"
#include "gpu/emulator/device.h"

using namespace metronome::emulator;

namespace metronome::emulator {

namespace {

constinit thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace metronome::emulator

// ---- The driver.

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return api_call([&](Device&) {
    const bool is_known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *function = is_known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
    if (result != nullptr) {
      *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return is_known ? cudaSuccess : cudaErrorNotSupported;
  });
}

// ---- Devices.

cudaError_t cudaGetDeviceCount(int* count) {
  return api_call([&](Device& gpu) {
    *count = gpu.settings.device_count_error == cudaSuccess ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int index) {
  return api_call([&](Device&) { return index == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDevice(int* index) {
  return api_call([&](Device&) {
    *index = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  return api_call([&](Device& gpu) {
    if (index != 0) return cudaErrorInvalidDevice;
    const Settings& settings = gpu.settings;
    *properties = {};
    std::strcpy(properties->name, "CUDA emulator");
    properties->totalGlobalMem = settings.memory_limit;
    properties->sharedMemPerBlock = kDefaultShared;
    properties->regsPerBlock = 65536;
    properties->warpSize = warpSize;
    properties->maxThreadsPerBlock = kMaxThreadsPerBlock;
    properties->major = settings.major;
    properties->minor = settings.minor;
    properties->multiProcessorCount = settings.num_multiprocessors;
    properties->memoryBusWidth = 5120;
    properties->l2CacheSize = 1 << 18;  // small, because programs that time kernels clear it often
    properties->maxThreadsPerMultiProcessor =
        max_threads_per_multiprocessor(settings.major, settings.minor);
    properties->sharedMemPerMultiprocessor =
        shared_per_multiprocessor(settings.major, settings.minor);
    properties->sharedMemPerBlockOptin = max_shared_per_block(settings.major, settings.minor);
    properties->reservedSharedMemPerBlock = 1024;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index)) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrClockRate: *value = 1'000'000; break;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = 1'000'000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = properties.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    default: return remember(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(device().mutex());
  *version = device().settings.device_count_error == cudaSuccess ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return api_call([](Device& gpu) {
    if (const cudaError_t error = gpu.check_synchronising_call()) return error;
    gpu.finish_all();
    return gpu.status();
  });
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  const std::lock_guard lock(device().mutex());
  return error == cudaSuccess ? device().sticky_error : error;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(device().mutex());
  return last_error == cudaSuccess ? device().sticky_error : last_error;
}

// ---- Memory. It is filled with bytes 0xff: NaN as float and bfloat16, -1 as an integer.

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
  return api_call([&](Device& gpu) {
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    return gpu.allocate(pointer, size);
  });
}

// Waits for all work, as on a GPU. Also frees the memory of a broken device.
cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(device().mutex());
  Device& gpu = device();
  if (pointer == nullptr) return remember(gpu.status());
  if (const cudaError_t error = gpu.check_unsafe_call()) return remember(error);
  gpu.finish_all();
  if (!gpu.free(pointer)) return remember(cudaErrorInvalidValue);
  return remember(gpu.status());
}

cudaError_t cudaMallocHost(void** pointer, std::size_t size) {
  return cudaHostAlloc(pointer, size, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned) {
  return api_call([&](Device& gpu) {
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    return gpu.allocate_pinned(pointer, size);
  });
}

cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(device().mutex());
  Device& gpu = device();
  if (pointer == nullptr) return remember(gpu.status());
  if (const cudaError_t error = gpu.check_unsafe_call()) return remember(error);
  gpu.finish_all();
  if (!gpu.free_pinned(pointer)) return remember(cudaErrorInvalidValue);
  return remember(gpu.status());
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api_call([&](Device& gpu) {
    *total = gpu.settings.memory_limit;
    *free = *total > gpu.bytes_allocated() ? *total - gpu.bytes_allocated() : 0;
    return cudaSuccess;
  });
}

namespace {

// Determines which ends of a copy are device memory. Returns an error if `kind` says otherwise.
cudaError_t check_copy(const Device& gpu, const void* to, const void* from, std::size_t size,
                       cudaMemcpyKind& kind) {
  const bool is_to_device = gpu.is_device_memory(to);
  const bool is_from_device = gpu.is_device_memory(from);
  const auto actual =
      static_cast<cudaMemcpyKind>((is_to_device ? 1 : 0) + (is_from_device ? 2 : 0));
  if (kind == cudaMemcpyDefault) kind = actual;
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (kind != actual) return cudaErrorInvalidValue;
  if (is_to_device && !gpu.is_device_memory(to, size)) return cudaErrorInvalidValue;
  if (is_from_device && !gpu.is_device_memory(from, size)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

// Copies on `stream`, as late as allowed. A copy from pageable memory reads its source at once. A
// copy to pageable memory ends before the call returns.
cudaError_t copy_async(Device& gpu, void* to, const void* from, std::size_t size,
                       cudaMemcpyKind kind, CUstream_st& stream) {
  if (size == 0) return cudaSuccess;
  if (const cudaError_t error = check_copy(gpu, to, from, size, kind)) return error;
  const bool is_from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
  const bool is_to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
  if (is_from_host && !stream.capture && !gpu.is_pinned_memory(from, size)) {
    const auto* bytes = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(bytes, bytes + size);
    const cudaError_t error =
        gpu.issue(stream, [to, staged] { std::memcpy(to, staged->data(), staged->size()); });
    if (error != cudaSuccess) return error;
  } else {
    const cudaError_t error = gpu.issue(stream, [to, from, size] { std::memmove(to, from, size); });
    if (error != cudaSuccess) return error;
  }
  if (is_to_host && !stream.capture && !gpu.is_pinned_memory(to, size)) gpu.finish(stream);
  return gpu.status();
}

cudaError_t set_async(Device& gpu, void* pointer, int value, std::size_t size,
                      CUstream_st& stream) {
  if (size == 0) return cudaSuccess;
  if (!gpu.is_device_memory(pointer, size)) return cudaErrorInvalidValue;
  return gpu.issue(stream, [pointer, value, size] { std::memset(pointer, value, size); });
}

}  // namespace

// Copies on the legacy stream, which does not wait for non-blocking streams. As on a GPU, copies of
// their results need a synchronisation first.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
  return api_call([&](Device& gpu) {
    if (const cudaError_t error = gpu.check_synchronising_call()) return error;
    CUstream_st& legacy = *gpu.find(nullptr);
    if (const cudaError_t error = copy_async(gpu, to, from, size, kind, legacy)) return error;
    gpu.finish(legacy);
    return gpu.status();
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    return copy_async(gpu, to, from, size, kind, target);
  });
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t size) {
  return api_call([&](Device& gpu) {
    if (const cudaError_t error = gpu.check_synchronising_call()) return error;
    return set_async(gpu, pointer, value, size, *gpu.find(nullptr));
  });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t size, cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    return set_async(gpu, pointer, value, size, target);
  });
}

// ---- Kernels.

namespace {

// Maximum dynamic shared memory of a launch.
std::size_t allowed_shared(const Device& gpu, const void* kernel) {
  const auto allowed = gpu.max_dynamic_shared.find(kernel);
  return allowed == gpu.max_dynamic_shared.end() ? kDefaultShared
                                                 : static_cast<std::size_t>(allowed->second);
}

// Limits of the CUDA C++ programming guide.
cudaError_t check_shape(const Device& gpu, const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const bool has_grid = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffu &&
                        grid.y <= 65535 && grid.z <= 65535;
  const bool has_block = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 &&
                         block.y <= 1024 && block.z <= 64 &&
                         std::uint64_t{block.x} * block.y * block.z <= kMaxThreadsPerBlock;
  if (!has_grid || !has_block) return cudaErrorInvalidConfiguration;
  return config.dynamicSmemBytes <= allowed_shared(gpu, kernel) ? cudaSuccess
                                                                : cudaErrorInvalidValue;
}

// For launches whose shape was checked. The manual defines valid clusters, but not the error for an
// invalid one.
cudaError_t set_attributes(const Device& gpu, const cudaLaunchConfig_t& config,
                           KernelLaunch& launch) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      launch.is_early = attribute.val.programmaticStreamSerializationAllowed != 0;
    } else if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& cluster = attribute.val.clusterDim;
      if (gpu.settings.major < 9) return cudaErrorNotSupported;
      if (cluster.y != 1 || cluster.z != 1) return cudaErrorNotSupported;  // not emulated
      if (cluster.x == 0 || cluster.x > kMaxBlocksPerCluster || config.gridDim.x % cluster.x != 0) {
        return cudaErrorInvalidClusterSize;
      }
      launch.cluster = cluster.x;
    }
  }
  return launch.is_early && gpu.settings.major < 9 ? cudaErrorNotSupported : cudaSuccess;
}

}  // namespace

namespace metronome::emulator {

cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel, const char* type,
                           std::function<void()> body) {
  return stream_call(config.stream, [&](Device& gpu, CUstream_st& stream) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (const cudaError_t error = check_shape(gpu, config, kernel)) return error;
    if (const cudaError_t error = gpu.next_launch_error()) return error;
    auto launch = std::make_shared<KernelLaunch>();
    launch->grid = config.gridDim;
    launch->block = config.blockDim;
    launch->shared_bytes = config.dynamicSmemBytes;
    launch->number = gpu.counters.num_launches++;
    launch->type = type;
    if (const cudaError_t error = set_attributes(gpu, config, *launch)) return error;
    launch->body = std::move(body);
    ++gpu.counters.launches_of[kernel];
    // A launch in a graph is checked against the limit at the time of its execution. The manual
    // does not rule out that a GPU does that.
    return gpu.issue(stream, [&gpu, launch, kernel] {
      if (launch->shared_bytes > allowed_shared(gpu, kernel)) {
        return gpu.fail(cudaErrorInvalidValue,
                        "launch " + std::to_string(launch->number) +
                            " needs more shared memory than its kernel is allowed by now");
      }
      gpu.execute(*launch);
    });
  });
}

}  // namespace metronome::emulator

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return api_call([&](Device& gpu) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(allowed_shared(gpu, kernel));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api_call([&](Device& gpu) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
    const std::size_t limit = max_shared_per_block(gpu.settings.major, gpu.settings.minor);
    if (value < 0 || static_cast<std::size_t>(value) > limit) return cudaErrorInvalidValue;
    gpu.max_dynamic_shared[kernel] = value;
    return cudaSuccess;
  });
}

// Limits by threads, blocks and shared memory. Registers are not known here.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, const void* kernel,
                                                          int block_size,
                                                          std::size_t dynamic_shared_bytes) {
  return api_call([&](Device& gpu) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (block_size <= 0) return cudaErrorInvalidValue;
    const int major = gpu.settings.major;
    const int minor = gpu.settings.minor;
    const int num_warps = (block_size + warpSize - 1) / warpSize;
    const int by_threads = max_threads_per_multiprocessor(major, minor) / (num_warps * warpSize);
    const std::size_t block_bytes = dynamic_shared_bytes + 1024;  // the system reserves 1 KB
    const auto by_shared = static_cast<int>(shared_per_multiprocessor(major, minor) / block_bytes);
    const int limit = major == 8 && minor == 6 ? 16 : major == 8 && minor == 9 ? 24 : 32;
    const bool fits = block_size <= static_cast<int>(kMaxThreadsPerBlock) &&
                      dynamic_shared_bytes <= max_shared_per_block(major, minor);
    *num_blocks = fits ? std::min({by_threads, by_shared, limit}) : 0;
    return cudaSuccess;
  });
}
