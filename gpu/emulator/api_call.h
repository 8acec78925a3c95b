// SPDX-License-Identifier: Apache-2.0
// The common frame of all runtime calls.
#pragma once

#include <mutex>

#include "gpu/emulator/device.h"

namespace metronome::emulator {

// Keeps an error for cudaGetLastError; returns it.
cudaError_t remember(cudaError_t error);

template <class Call>
cudaError_t api_call(Call call) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex());
  const cudaError_t status = gpu.status();
  return remember(status != cudaSuccess ? status : call(gpu));
}

template <class Call>
cudaError_t stream_call(cudaStream_t handle, Call call) {
  return api_call([&](Device& gpu) {
    CUstream_st* const stream = gpu.find(handle);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : call(gpu, *stream);
  });
}

}  // namespace metronome::emulator
