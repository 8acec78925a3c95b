// SPDX-License-Identifier: Apache-2.0
// Divides a GPU's memory: weights, activations, workspace, and the rest for KV blocks.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/model_config.h"

namespace metronome {

struct MemoryDemand {
  std::int32_t max_tokens = 0;     // of a forward pass
  std::int32_t max_sequences = 0;  // of a forward pass
  std::int32_t max_rows = 0;       // of logits
  std::int32_t max_model_len = 0;
  std::int32_t max_items = 0;        // of decode attention
  std::int64_t workspace_bytes = 0;  // of cuBLASLt
  std::int64_t partial_floats = 0;   // of one item of decode attention
  std::int64_t sample_scratch_bytes = 0;
  std::int64_t prefill_part_bytes = 0;  // of all parts of launch_wgmma_attention
  std::int64_t step_bytes = 0;          // of the largest block of step arrays
};

// Matrix products compute multiples of this many rows (kGemmRows of gpu/engine/gemm.h), so their
// inputs and outputs have that much memory.
constexpr std::int64_t kActivationRows = 16;

// Bytes of everything except KV blocks. max_tokens and max_rows are rounded up to multiples of
// kActivationRows here.
struct MemoryPlan {
  // Every parameter in bfloat16, whatever the checkpoint's type. A tied output head is the
  // embedding. Also the RoPE tables: float32 [max_model_len, head_dim] for each kind of layer
  // present.
  std::int64_t weights = 0;
  // bfloat16 [max_tokens] rows each: residual and normalised rows, hidden_dim; qkv, (n_heads + 2 *
  // n_kv_heads) * head_dim; queries and attended, n_heads * head_dim; gate-up, 2 * ffn_dim; MLP,
  // ffn_dim; with post norms their inputs, hidden_dim.
  std::int64_t activations = 0;
  // float32 [max_rows, vocab_size].
  std::int64_t logits = 0;
  // workspace_bytes, partial_floats float32 for each of max_items, sample_scratch_bytes,
  // prefill_part_bytes, step_bytes, and sampled tokens, int32 [max_sequences].
  std::int64_t scratch = 0;
  std::int64_t total() const { return weights + activations + logits + scratch; }
};
MemoryPlan plan_memory(const ModelConfig& model, const MemoryDemand& demand);

// Bfloat16 KV blocks that fit beside the plan. `usable_bytes` is the device memory that the run may
// use, including weights. A block has keys and values of all layers. At most 2^31 - 1 tokens. 0 if
// none fits. Requires block_size >= 1.
std::int64_t kv_blocks_that_fit(const ModelConfig& model, const MemoryPlan& plan,
                                std::int64_t usable_bytes, std::int64_t block_size);

// Settings of this model that the kernels do not support, as "key: what; what is allowed"; empty if
// they support it. head_dim must be 64, 128 or 256. hidden_dim, ffn_dim and vocab_size must be
// multiples of 8, as rows of all kernels are. hidden_dim is at most 16384. model.unsupported names
// what no executor supports.
std::string unsupported_on_gpu(const ModelConfig& model);

}  // namespace metronome
