// SPDX-License-Identifier: Apache-2.0
// Turns errors of CUDA into exceptions.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace metronome {

// what() names the call and the error: "cudaMalloc: out of memory".
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw CudaError(std::string(call) + ": " + cudaGetErrorString(status));
}

}  // namespace metronome
