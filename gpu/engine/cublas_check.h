// SPDX-License-Identifier: Apache-2.0
// Turns errors of cuBLASLt into exceptions.
#pragma once

#include <cublasLt.h>

#include <string>

#include "gpu/kernels/cuda_check.h"

namespace metronome {

// The library refuses to run an algorithm. cublasLtMatmulAlgoCheck does not rule this out.
class CublasRefused : public CudaError {
 public:
  using CudaError::CudaError;
};

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = std::string(call) + ": " + cublasLtGetStatusString(status);
  const bool is_refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  if (is_refused) throw CublasRefused(text);
  throw CudaError(text);
}

}  // namespace metronome
