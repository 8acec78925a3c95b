// SPDX-License-Identifier: Apache-2.0
// Launches kernels with checks, and sets their dynamic shared memory limit. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "gpu/kernels/cuda_check.h"

namespace metronome {

// While an object with is_wanted = true lives, kernels of this host thread are launched early. A
// GPU of compute capability 9.0 then starts their CTAs while the kernel before still runs
// (programmatic dependent launch).
class EarlyLaunches {
 public:
  explicit EarlyLaunches(bool is_wanted) : before_(is_on()) { is_on() = is_wanted; }
  EarlyLaunches(const EarlyLaunches&) = delete;
  EarlyLaunches& operator=(const EarlyLaunches&) = delete;
  ~EarlyLaunches() { is_on() = before_; }

  static bool& is_on() {
    static thread_local bool on = false;
    return on;
  }

 private:
  bool before_;
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
  unsigned cluster = 1;          // CTAs, consecutive along x; more than one on sm_90 and later
};

// An empty grid launches nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  constexpr std::size_t kAlwaysAllowed = 48 * 1024;
  if (shape.shared_bytes > kAlwaysAllowed) {
    // Only raises the limit: a graph may hold a launch that needs more.
    cudaFuncAttributes now = {};
    check_cuda(cudaFuncGetAttributes(&now, reinterpret_cast<const void*>(kernel)),
               "cudaFuncGetAttributes");
    const auto bytes = static_cast<int>(shape.shared_bytes);
    if (now.maxDynamicSharedSizeBytes < bytes) {
      check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                 "cudaFuncSetAttribute");
    }
  }
  if (EarlyLaunches::is_on()) {
    // Gives the whole L1 cache to shared memory. CTAs of two kernels run on one SM at the same time
    // only if both kernels divide the cache alike.
    constexpr int kAllShared = 100;
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributePreferredSharedMemoryCarveout, kAllShared),
               "cudaFuncSetAttribute");
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (EarlyLaunches::is_on()) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
             "kernel launch");
}

}  // namespace metronome
