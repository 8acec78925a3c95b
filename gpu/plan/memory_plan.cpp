// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/memory_plan.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {
namespace {

constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kTokenBytes = 4;

std::int64_t padded_rows(std::int64_t num_rows) {
  return ceil_div(num_rows, kActivationRows) * kActivationRows;
}

std::int64_t num_rope_tables(const ModelConfig& model) {
  return (model.n_global_layers() > 0 ? 1 : 0) + (model.n_window_layers() > 0 ? 1 : 0);
}

// Elements of the activations of one token.
std::int64_t activation_elements(const ModelConfig& model) {
  const std::int64_t query_dim = model.n_heads * model.head_dim;
  const std::int64_t kv_dim = model.n_kv_heads * model.head_dim;
  const std::int64_t residual_and_normalised = 2 * model.hidden_dim;
  const std::int64_t qkv = query_dim + 2 * kv_dim;
  const std::int64_t queries_and_attended = 2 * query_dim;
  const std::int64_t gate_up_and_mlp = 3 * model.ffn_dim;
  const std::int64_t update = model.has_post_norms ? model.hidden_dim : 0;
  return residual_and_normalised + update + qkv + queries_and_attended + gate_up_and_mlp;
}

std::string of_eight(const std::string& key, std::int64_t dim) {
  if (dim % 8 == 0) return {};
  return key + ": is " + std::to_string(dim) + "; allowed: multiples of 8";
}

}  // namespace

MemoryPlan plan_memory(const ModelConfig& model, const MemoryDemand& demand) {
  MemoryPlan plan;
  const std::int64_t rope_floats = num_rope_tables(model) * demand.max_model_len * model.head_dim;
  plan.weights = model.n_params() * kBf16Bytes + rope_floats * kFloatBytes;
  plan.activations = padded_rows(demand.max_tokens) * activation_elements(model) * kBf16Bytes;
  plan.logits = padded_rows(demand.max_rows) * model.vocab_size * kFloatBytes;
  plan.scratch = demand.workspace_bytes + demand.max_items * demand.partial_floats * kFloatBytes +
                 demand.sample_scratch_bytes + demand.prefill_part_bytes + demand.step_bytes +
                 demand.max_sequences * kTokenBytes;
  return plan;
}

std::int64_t kv_blocks_that_fit(const ModelConfig& model, const MemoryPlan& plan,
                                std::int64_t usable_bytes, std::int64_t block_size) {
  METRONOME_CHECK(block_size >= 1, "a block holds tokens");
  const std::int64_t token_bytes =
      2 * model.n_layers * model.n_kv_heads * model.head_dim * kBf16Bytes;
  const std::int64_t free_bytes = std::max<std::int64_t>(usable_bytes - plan.total(), 0);
  // Slots are 32-bit numbers. Counts tokens first: the bytes of a block may overflow.
  const std::int64_t num_tokens = std::min<std::int64_t>(free_bytes / token_bytes, INT32_MAX);
  return num_tokens / block_size;
}

namespace {

// The first part that the kernels do not compute: they compute layers of Llama, Qwen 3 and Gemma 3.
std::string unsupported_part(const ModelConfig& model) {
  ModelTraits traits = model;
  if (traits.activation == Activation::GeluTanh) traits.activation = Activation::Silu;
  traits.has_post_norms = traits.has_unit_offset_norms = traits.has_qk_norm = false;
  traits.scales_embeddings = false;
  traits.has_normalised_expert_weights = true;
  if (const std::string trait = first_unlike(traits, {}); !trait.empty()) return trait;
  const RopeScaling::Kind scaling = model.rope_scaling.kind;
  const struct {
    const char* key;
    bool is_used;
  } parts[] = {
      {"architecture", !model.given_kinds.empty()},
      {"has_post_norms without has_qk_norm", model.has_post_norms && !model.has_qk_norm},
      {"linear_attention", !model.linear_attention.is_empty()},
      {"n_experts", model.n_experts > 0},
      {"vision", !model.vision.is_empty()},
      {"rope_scaling",
       scaling == RopeScaling::Kind::Yarn || scaling == RopeScaling::Kind::LongRope},
      {"rotary_dim", model.num_rotated() != model.head_dim},
      {"latent_attention", !model.latent_attention.is_empty()},
      {"unrotated_layers", !model.unrotated_layers.empty()},
      {"window_layers", !model.window_layers.empty()},
      {"attention_softcap", model.attention_softcap > 0},
      {"logit_softcap", model.logit_softcap > 0},
      {"attention_multiplier", model.attention_multiplier > 0},
      {"embedding_multiplier", model.embedding_multiplier != 1},
      {"residual_multiplier", model.residual_multiplier != 1},
      {"logit_divisor", model.logit_divisor != 1},
      {"qkv_clip", model.qkv_clip > 0},
      {"query_scale_beta", model.query_scale_beta != 0},
  };
  for (const auto& part : parts) {
    if (part.is_used) return part.key;
  }
  return {};
}

}  // namespace

std::string unsupported_on_gpu(const ModelConfig& model) {
  if (const std::string part = unsupported_part(model); !part.empty()) {
    return part +
           ": is not computed on the GPU; allowed: models made like Llama, Qwen 3 or Gemma " +
           "3, or --backend=cpu";
  }
  if (model.head_dim != 64 && model.head_dim != 128 && model.head_dim != 256) {
    return "head_dim: is " + std::to_string(model.head_dim) + "; allowed: 64, 128 or 256";
  }
  constexpr std::int64_t kMaxHiddenDim = 16384;
  if (model.hidden_dim > kMaxHiddenDim) {
    return "hidden_dim: is " + std::to_string(model.hidden_dim) + "; allowed: at most " +
           std::to_string(kMaxHiddenDim);
  }
  std::string error = of_eight("hidden_dim", model.hidden_dim);
  if (error.empty()) error = of_eight("ffn_dim", model.ffn_dim);
  if (error.empty()) error = of_eight("vocab_size", model.vocab_size);
  return error;
}

}  // namespace metronome
