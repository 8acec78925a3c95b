// The residual stream of a pass: linear layers read it behind a norm, and add to it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/kernels/kernels.h"

namespace metronome {

// A norm between the stream and a linear layer.
struct InputNorm {
  const __nv_bfloat16* weight = nullptr;  // [hidden_dim]
  // [num_rows]: the tokens whose rows are wanted; null: all tokens.
  const std::int32_t* rows = nullptr;
  std::int32_t num_rows = 0;
};

// Where a model has post norms, a layer's sums are normalised before they are added. They wait in
// `update`, and the norm in front of the next linear layer adds them.
struct ResidualStream {
  __nv_bfloat16* rows = nullptr;  // [num_tokens, hidden_dim]
  // [num_tokens, hidden_dim]: rows behind a norm. Linear layers that compute the norm themselves
  // leave the new rows here instead: every block reads the old ones while one writes.
  __nv_bfloat16* spare = nullptr;
  __nv_bfloat16* update = nullptr;             // [num_tokens, hidden_dim]; null without post norms
  const __nv_bfloat16* post_weight = nullptr;  // [hidden_dim], of what waits; null: nothing does
  std::int32_t num_tokens = 0;
  std::int32_t hidden_dim = 0;
  float eps = 0;
  bool unit_offset = false;

  // [num_tokens, hidden_dim]: what a linear layer adds to, or with post norms writes.
  __nv_bfloat16* sums() const { return update != nullptr ? update : rows; }
  std::int32_t num_rows(const InputNorm& norm) const {
    return norm.rows != nullptr ? norm.num_rows : num_tokens;
  }

  // Adds what waits. Then rows behind the norm are in `spare`: [num_rows(norm), hidden_dim].
  void normalise(const InputNorm& norm, cudaStream_t stream);

  // The same by a decode GEMM that computes the norm: its inputs, before it is launched ...
  void give_inputs(const InputNorm& norm, DecodeGemmArgs& args) const;
  // ... and the new rows, which it has left in `spare`.
  void take_rows();

 private:
  void add_and_norm(const bf16* added, const InputNorm& norm, cudaStream_t stream) const;
};

}  // namespace metronome
