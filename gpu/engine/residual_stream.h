// SPDX-License-Identifier: Apache-2.0
// The residual stream of a pass. Linear layers read it through a norm and add to it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/kernels/kernels.h"

namespace metronome {

// A norm between the stream and a linear layer.
struct InputNorm {
  const __nv_bfloat16* weight = nullptr;  // [hidden_dim]
  // [num_rows]: the tokens to normalise; null: all tokens.
  const std::int32_t* rows = nullptr;
  std::int32_t num_rows = 0;
};

// With post norms, a layer's sums are normalised before they are added. The sums stay in `update`
// until the norm before the next linear layer adds them.
struct ResidualStream {
  __nv_bfloat16* rows = nullptr;  // [num_tokens, hidden_dim]
  // [num_tokens, hidden_dim]: normalised rows. A linear layer that fuses the norm leaves the new
  // rows of the stream here instead: every block reads the old rows while one block writes.
  __nv_bfloat16* spare = nullptr;
  __nv_bfloat16* update = nullptr;             // [num_tokens, hidden_dim]; null without post norms
  const __nv_bfloat16* post_weight = nullptr;  // [hidden_dim], of `update`; null: no update waits
  std::int32_t num_tokens = 0;
  std::int32_t hidden_dim = 0;
  float eps = 0;
  bool unit_offset = false;

  // [num_tokens, hidden_dim]: linear layers add to it, or with post norms write it.
  __nv_bfloat16* sums() const { return update != nullptr ? update : rows; }
  std::int32_t num_rows(const InputNorm& norm) const {
    return norm.rows != nullptr ? norm.num_rows : num_tokens;
  }

  // Adds the waiting update. Then `spare` has normalised rows: [num_rows(norm), hidden_dim].
  void normalise(const InputNorm& norm, cudaStream_t stream);

  // Sets the inputs of a decode GEMM that adds the waiting update and normalises. Call it before
  // the launch.
  void give_inputs(const InputNorm& norm, DecodeGemmArgs& args) const;
  // Accepts the new rows, which that kernel left in `spare`.
  void accept_rows();

 private:
  void add_and_norm(const bf16* added, const InputNorm& norm, cudaStream_t stream) const;
};

}  // namespace metronome
