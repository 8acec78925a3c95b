// SPDX-License-Identifier: Apache-2.0
// The activations of the gates of SwiGLU and GeGLU.
#pragma once

#include <cuda_runtime.h>

#include "gpu/kernels/common/ptx.h"

namespace metronome {

// The tanh form of GELU is x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 * x^3)
// (Hendrycks and Gimpel, arXiv 1606.08415). It equals x * sigmoid(2 * u). This form has no 1 + tanh
// that cancels.
template <bool kIsGelu>
__device__ __forceinline__ float gate(float x) {
  constexpr float kTwiceRootTwoOverPi = 1.5957691216057308f;
  const float z = kIsGelu ? kTwiceRootTwoOverPi * (x + 0.044715f * x * x * x) : x;
  // If exp(-z) exceeds 2^126, this division gives 0. That loses no normal bf16.
  return __fdividef(x, 1.0f + exp2_fast(-kLog2OfE * z));
}

}  // namespace metronome
