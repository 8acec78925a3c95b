// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/residual_stream.h"

#include <utility>

namespace metronome {

// `added` is post_weight, or null if no update waits.
void ResidualStream::add_and_norm(const bf16* added, const InputNorm& norm,
                                  cudaStream_t stream) const {
  launch_norm({.update = added != nullptr ? update : nullptr,
               .post_weight = added,
               .residual = rows,
               .weight = norm.weight,
               .rows = norm.rows,
               .out = spare,
               .num_rows = num_rows(norm),
               .hidden_dim = hidden_dim,
               .eps = eps,
               .unit_offset = unit_offset},
              stream);
}

void ResidualStream::normalise(const InputNorm& norm, cudaStream_t stream) {
  const bf16* added = std::exchange(post_weight, nullptr);
  if (added != nullptr && norm.rows != nullptr) {
    // launch_norm cannot add an update when it selects rows.
    add_and_norm(std::exchange(added, nullptr), {}, stream);
  }
  add_and_norm(added, norm, stream);
}

void ResidualStream::give_inputs(const InputNorm& norm, DecodeGemmArgs& args) const {
  args.x = rows;
  args.rows = norm.rows;
  args.norm_weight = norm.weight;
  args.eps = eps;
  args.unit_offset = unit_offset;
  args.num_tokens = num_rows(norm);
  if (post_weight == nullptr) return;
  args.update = update;
  args.post_weight = post_weight;
  args.updated = spare;
}

void ResidualStream::accept_rows() {
  if (std::exchange(post_weight, nullptr) != nullptr) std::swap(rows, spare);
}

}  // namespace metronome
