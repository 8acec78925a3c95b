// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/gpu_info.h"

#include <cuda_runtime.h>

#include "core/base/error.h"
#include "gpu/kernels/cuda_check.h"

namespace metronome {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace

std::string GpuInfo::text() const {
  return name + ", CUDA " + version_text(runtime_version) + ", driver for CUDA " +
         version_text(driver_version);
}

GpuInfo open_gpu(std::int32_t device) {
  int num_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess || num_devices == 0) {
    const std::string reason =
        status == cudaSuccess ? "none is visible" : cudaGetErrorString(status);
    throw ConfigError("backend cuda: no NVIDIA GPU can be used here (" + reason +
                      "); allowed: --backend=sim or cpu");
  }
  if (device >= num_devices) {
    throw UnplacedConfigError("cuda.device", std::to_string(device) +
                                                 " is not a GPU of this machine; allowed: 0 to " +
                                                 std::to_string(num_devices - 1));
  }
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  GpuInfo gpu;
  gpu.device = device;
  gpu.name = properties.name;
  gpu.compute_capability = properties.major * 10 + properties.minor;
  gpu.num_processors = properties.multiProcessorCount;
  gpu.l2_bytes = properties.l2CacheSize;
  if (gpu.compute_capability < kOldestCapability) {
    throw UnplacedConfigError(
        "cuda.device", gpu.name + " has compute capability " +
                           capability_text(gpu.compute_capability) +
                           "; allowed: " + capability_text(kOldestCapability) + " and later");
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  gpu.free_bytes = static_cast<std::int64_t>(free_bytes);
  gpu.memory_bytes = static_cast<std::int64_t>(total_bytes);
  check_cuda(cudaDriverGetVersion(&gpu.driver_version), "cudaDriverGetVersion");
  check_cuda(cudaRuntimeGetVersion(&gpu.runtime_version), "cudaRuntimeGetVersion");
  return gpu;
}

int num_processors() {
  int device = 0;
  int number = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  return number;
}

}  // namespace metronome
