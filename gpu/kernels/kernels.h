// SPDX-License-Identifier: Apache-2.0
// The kernels of a forward pass, as functions that enqueue them on a stream. A function enqueues
// one kernel or several.
//
// Activations are bfloat16, row-major, one row per token. Arithmetic inside a kernel is float.
// Every kernel computes a row from that row's inputs alone, in a fixed order. The order does not
// depend on the number of rows, the row's index, or the size of the grid. All pointers are device
// memory, 16-byte aligned at their start. Row lengths are multiples of 8 elements. Functions return
// when all is enqueued; they throw CudaError if that fails.
//
// Shapes are [rows, columns]. n_* and *_dim are the model's (core/model/model_config.h), num_*
// those of a pass. [*, k] has as many rows as its indices need.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/plan/prefill_gemm_tile.h"
#include "gpu/plan/step_types.h"

namespace metronome {

using bf16 = __nv_bfloat16;

// out[t] = table[id of t] * scale, rounded once. An id >= 0 is a token. An id < 0 stands for
// sampled[-1 - id], a token that the host does not know yet.
struct EmbedArgs {
  const bf16* table = nullptr;              // [vocab_size, hidden_dim]
  const std::int32_t* token_ids = nullptr;  // [num_tokens]
  const std::int32_t* sampled = nullptr;    // [number of samples]: DeviceEngine::sampled()
  std::int32_t num_tokens = 0;
  std::int32_t hidden_dim = 0;
  std::int32_t vocab_size = 0;  // an id outside of it (a failed sample) counts as token 0
  float scale = 1;              // Gemma: bf16(sqrt(hidden_dim))
  bf16* out = nullptr;          // [num_tokens, hidden_dim]
};
void launch_embed(const EmbedArgs& args, cudaStream_t stream);

// RMSNorm. Optionally adds an update to the residual stream first.
//
//   if (update)  residual[r] = bf16(residual[r] + (post_weight ? norm(update[r], post_weight)
//                                                              : update[r]))
//   if (weight)  out[i] = norm(residual[r], weight)         for r = rows ? rows[i] : i
//
// norm(x, w) of a row, in float: y = x * rsqrt(mean(x^2) + eps). The result is bf16(w * bf16(y)),
// as in Llama and Qwen 3, or bf16(y * (1 + w)) with unit_offset, as in Gemma. With an update, rows
// must be null.
struct NormArgs {
  const bf16* update = nullptr;        // [num_rows, hidden_dim] or null
  const bf16* post_weight = nullptr;   // [hidden_dim] or null
  bf16* residual = nullptr;            // [*, hidden_dim]
  const bf16* weight = nullptr;        // [hidden_dim] or null
  const std::int32_t* rows = nullptr;  // [num_rows] or null
  bf16* out = nullptr;                 // [num_rows, hidden_dim]
  std::int32_t num_rows = 0;
  std::int32_t hidden_dim = 0;  // at most 16384
  float eps = 0;
  bool unit_offset = false;
};
void launch_norm(const NormArgs& args, cudaStream_t stream);

// Splits the fused projections. Queries and keys are normalised and rounded (as above, over
// head_dim, if there are weights). RoPE then rotates them in float, and they are rounded again.
// Keys and values go to the cache. Pair i of a head is elements i and i + head_dim / 2.
struct HeadsArgs {
  const bf16* qkv = nullptr;         // [num_tokens, (n_heads + 2 * n_kv_heads) * head_dim]
  const bf16* query_norm = nullptr;  // [head_dim] or null
  const bf16* key_norm = nullptr;    // [head_dim] or null
  const float* cos_sin = nullptr;    // [max_model_len, head_dim]: head_dim / 2 cosines, then sines
  const std::int32_t* positions = nullptr;  // [num_tokens]
  // [num_tokens]: block * block_size + offset in the block; < 0: padding, not stored.
  const std::int32_t* slots = nullptr;
  bf16* queries = nullptr;  // [num_tokens, n_heads, head_dim]
  bf16* keys = nullptr;     // of this layer: [num_blocks, n_kv_heads, block_size, head_dim]
  bf16* values = nullptr;   // the same shape
  std::int32_t num_tokens = 0;
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;  // 64, 128 or 256
  std::int32_t block_size = 0;
  float eps = 0;
  bool unit_offset = false;
};
void launch_heads(const HeadsArgs& args, cudaStream_t stream);

// out[t][i] = bf16(act(gate_up[t][i]) * gate_up[t][dim + i]). act is computed in float:
// x * sigmoid(x), or the tanh form of GELU.
struct GatedActivationArgs {
  const bf16* gate_up = nullptr;  // [num_tokens, 2 * dim]
  bf16* out = nullptr;            // [num_tokens, dim]
  std::int32_t num_tokens = 0;
  std::int32_t dim = 0;
  bool is_gelu = false;
};
void launch_gated_activation(const GatedActivationArgs& args, cudaStream_t stream);

// How an output follows from the float sum s of a product.
enum class GemmEpilogue : std::uint8_t {
  Store,       // y = bf16(s)
  Add,         // y = bf16(y + s)
  StoreFloat,  // y = s, a float
  Silu,        // y = bf16(act(bf16(gate)) * bf16(up)), as in launch_gated_activation
  Gelu,
};

// Whether an output uses two rows of weights: one for its gate, one for its up.
constexpr bool has_gates(GemmEpilogue epilogue) {
  return epilogue == GemmEpilogue::Silu || epilogue == GemmEpilogue::Gelu;
}

// A linear layer of few tokens: y[t] = epilogue(input(t) w^T), each weight read once.
//
//   r = x[rows ? rows[t] : t]
//   if (update)       r = bf16(r + norm(update[the same row], post_weight)), kept in updated[t]
//   if (norm_weight)  r = norm(r, norm_weight)            input(t) = r
//
// norm() and its roundings are those of launch_norm. Sums run over parts of k in an order that
// depends on k alone. So a row has the same bits for every num_tokens and num_ctas.
//
// Earlier kernels must not write w: this kernel reads it before they have ended.
struct DecodeGemmArgs {
  // [n, k]; with Silu and Gelu [2 * n, k]: the gates, then the ups.
  const bf16* w = nullptr;
  const bf16* x = nullptr;             // [*, k]
  const std::int32_t* rows = nullptr;  // [num_tokens] or null
  const bf16* norm_weight = nullptr;   // [k] or null
  const bf16* update = nullptr;        // [*, k] or null
  const bf16* post_weight = nullptr;   // [k]; required with an update
  // [num_tokens, k] or null. Every CTA reads x and update, and one CTA writes this. It must be
  // neither of the two.
  bf16* updated = nullptr;
  float eps = 0;
  bool unit_offset = false;
  GemmEpilogue epilogue = GemmEpilogue::Store;
  void* y = nullptr;  // [num_tokens, n] bf16, or float with StoreFloat
  std::int32_t num_tokens = 0;
  std::int32_t n = 0;         // any number
  std::int32_t k = 0;         // a multiple of 8
  std::int32_t num_ctas = 0;  // at most this many; the number of SMs of the device
};
// Requires decode_gemm_takes(args).
void launch_decode_gemm(const DecodeGemmArgs& args, cudaStream_t stream);
// True for at most 16 tokens, if their inputs and the data of the norms fit the shared memory of a
// CTA. Looks only at num_tokens, k, and whether there are norms.
bool decode_gemm_takes(const DecodeGemmArgs& args);

// A linear layer of many tokens, on compute capability 9.0: y[t] = epilogue(x[t] w^T), by wgmma and
// the bulk copy engine. One float accumulator runs over k in order. So a row has the same bits for
// every num_tokens, tile and num_ctas.
//
// Earlier kernels must not write w: this kernel reads it before they have ended.
struct PrefillGemmArgs {
  // [n, k]; with Silu and Gelu [2 * n, k]: the gates, then the ups.
  const bf16* w = nullptr;
  const bf16* x = nullptr;                      // [num_tokens, k]
  GemmEpilogue epilogue = GemmEpilogue::Store;  // not StoreFloat
  bf16* y = nullptr;                            // [num_tokens, n]
  std::int32_t num_tokens = 0;
  std::int32_t n = 0;         // a multiple of 8
  std::int32_t k = 0;         // a multiple of 8
  PrefillGemmTile tile = {};  // choose_prefill_gemm_tile(), with 2 * n for gates
  std::int32_t num_ctas = 0;  // at most this many; the number of SMs of the device
};
void launch_prefill_gemm(const PrefillGemmArgs& args, cudaStream_t stream);

// The cache as attention reads it: the pools of one layer and the sequences' block tables.
struct PagedKv {
  const bf16* keys = nullptr;    // [num_blocks, n_kv_heads, block_size, head_dim]
  const bf16* values = nullptr;  // the same shape
  // [blocks of all sequences]: block ids, concatenated by sequence.
  const std::int32_t* block_tables = nullptr;
  const std::int32_t* table_start = nullptr;  // [num_sequences]: index of its first id
  std::int32_t block_size = 0;                // any size >= 1
};

// The shape of attention in one layer. A query at position p attends to the positions kv <= p
// with p - kv < window (core/model/attention_mask.h). Scores are scaled in float.
struct AttentionShape {
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;        // 64, 128 or 256
  std::int32_t window = INT32_MAX;  // kNoWindow: all positions
  // A score is scale * (query . key). 1 / sqrt(s): s is the model's query_pre_attn_scalar, or
  // head_dim where that is 0.
  float scale = 0;
};

// Attention of whole chunks, whose keys and values are already in the cache. Chunk-invariant: a row
// visits KV tiles at absolute positions (multiples of 64, of 32 with head_dim 256) in ascending
// order. Each tile is one full step of the online softmax. A tile that is masked for a row does not
// change its bits. So a row's result depends neither on its chunk nor on its tile.
struct PrefillAttentionArgs {
  AttentionShape shape;
  PagedKv kv;
  const bf16* queries = nullptr;  // [num_tokens, n_heads, head_dim]
  // [num_sequences + 1]: sequence s has the tokens [query_start[s], query_start[s + 1]) of
  // `queries` and `out`.
  const std::int32_t* query_start = nullptr;
  const std::int32_t* context_lens = nullptr;  // [num_sequences]; the last query is at len - 1
  const PrefillTile* tiles = nullptr;          // [num_tiles], each for every KV head
  std::int32_t num_tiles = 0;
  bf16* out = nullptr;  // [num_tokens, n_heads, head_dim]
};
void launch_prefill_attention(const PrefillAttentionArgs& args, cudaStream_t stream);

// Attention of sequences with one query each. Contexts are cut into splits at absolute positions:
// split i has positions [i * split_size, (i + 1) * split_size). Decode d attends to the splits from
// first_attended(p, window) / split_size (core/model/attention_mask.h) to p / split_size, where p
// is its last position, context_len - 1. They are the items [item_start[d], item_start[d + 1]), in
// that order. A second kernel merges the partial results of a decode in ascending order. A result
// depends on split_size, not on other decodes.
struct DecodeAttentionArgs {
  AttentionShape shape;
  PagedKv kv;
  const bf16* queries = nullptr;               // [num_tokens, n_heads, head_dim]
  const std::int32_t* query_start = nullptr;   // [num_sequences]: its token in queries and out
  const std::int32_t* context_lens = nullptr;  // [num_sequences]
  const std::int32_t* sequences = nullptr;     // [num_decodes]: its sequence; < 0: padding
  const std::int32_t* item_start = nullptr;    // [num_decodes + 1]; the last is num_items
  const std::int32_t* item_decode = nullptr;   // [num_items]: the decode whose split it is
  std::int32_t num_decodes = 0;
  std::int32_t split_size = 0;  // a multiple of 64
  std::int32_t num_ctas = 0;    // of the first kernel; CTAs loop over the items
  float* partials = nullptr;    // scratch, [num_items, decode_partial_floats()]
  bf16* out = nullptr;          // [num_tokens, n_heads, head_dim]
};
void launch_decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream);
// Whether launch_decode_attention supports the shape: at most 16 query heads per KV head.
bool can_split_decode(const AttentionShape& shape);
std::int64_t decode_partial_floats(const AttentionShape& shape);
// Number of CTAs of the first kernel that the device runs at once.
std::int32_t decode_attention_ctas(const AttentionShape& shape);

// Samples the same token as Sampler (core/engine/sampling.h) from the same logits. Exception: a
// draw within the rounding of a sum from a border between two tokens; see sm80/any/sampling.cu.
struct SampleArgs {
  const float* logits = nullptr;    // [num_rows, vocab_size]
  const SampleRow* rows = nullptr;  // [num_rows]
  std::int32_t num_rows = 0;
  std::int32_t vocab_size = 0;
  void* scratch = nullptr;         // [sample_scratch_bytes(num_rows, vocab_size)]
  std::int32_t* tokens = nullptr;  // [more than every SampleRow::out]
};
void launch_sample(const SampleArgs& args, cudaStream_t stream);
std::int64_t sample_scratch_bytes(std::int32_t num_rows, std::int32_t vocab_size);

}  // namespace metronome
