// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_mixers.h"

#include <algorithm>
#include <string>

#include "core/base/types.h"

namespace metronome {
namespace {

constexpr const char* kHeadsKeys[] = {"num_attention_heads",     "n_head",    "n_heads",
                                      "decoder_attention_heads", "num_heads", "attention_heads",
                                      "num_query_heads"};
constexpr const char* kKvHeadsKeys[] = {"num_key_value_heads",
                                        "num_kv_heads",
                                        "n_head_kv",
                                        "n_kv_heads",
                                        "kv_n_heads",
                                        "num_query_groups",
                                        "multi_query_group_num",
                                        "num_attention_groups"};
constexpr const char* kHeadDimKeys[] = {
    "head_dim", "attention_head_dim", "attention_head_size", "kv_channels", "dim_head",
    "d_head",   "qk_head_dim",        "hidden_size_per_head"};
constexpr const char* kValueDimKeys[] = {"v_head_dim", "value_head_dim"};
constexpr const char* kWindowKeys[] = {"sliding_window",        "sliding_window_size",
                                       "attention_chunk_size",  "local_attention",
                                       "attention_window_size", "window_size"};
constexpr const char* kWindowHeadsKeys[] = {"swa_num_attention_heads",
                                            "num_sliding_attention_heads"};

// By the first key of `special` that the file has, else of `usual`.
std::int64_t first_number(AnyKeys& keys, AnyKeys::Names special, AnyKeys::Names usual,
                          std::int64_t otherwise) {
  return keys.number(keys.has(special) ? special : usual, otherwise);
}

bool has_gate(const AnyKeys& keys) {
  return keys.is_true("attn_output_gate") || keys.is_true("attention_output_gate") ||
         keys.is_true("mla_use_output_gate");
}

// DeepSeek-V3.2's lightning indexer: queries of its heads from the latent queries (or the hidden
// vector), one key and a weight for each head.
void add_index(AnyKeys& keys, std::int64_t hidden_dim, std::int64_t query_width, bool is_shared,
               AttentionPart& shape) {
  constexpr const char* kIndexHeads[] = {"index_n_heads", "indexer_n_heads"};
  constexpr const char* kIndexDim[] = {"index_head_dim", "indexer_head_dim"};
  constexpr const char* kChosen[] = {"index_topk", "indexer_budget"};
  if (keys.number(kIndexHeads) == 0) return;
  shape.is_sparse = true;
  shape.window = keys.number(kChosen, 2048) * shape.stride;
  if (is_shared) return;
  shape.index_heads = keys.number(kIndexHeads);
  shape.index_dim = keys.number(kIndexDim, 128);
  const std::int64_t index = query_width * shape.index_heads * shape.index_dim +
                             hidden_dim * (shape.index_dim + shape.index_heads);
  shape.in_params += index;
  shape.whole_params += index;
}

AttentionPart any_latent(AnyKeys& keys, std::int64_t hidden_dim, std::int64_t n_heads,
                         const LayerPlan& plan) {
  LatentAttention latent;
  latent.kv_rank = keys.number("kv_lora_rank");
  latent.q_rank = keys.number("q_lora_rank");
  latent.nope_dim = keys.number("qk_nope_head_dim", 128);
  latent.rope_dim = keys.number("qk_rope_head_dim", 64);
  latent.value_dim = keys.number("v_head_dim", latent.nope_dim);  // MiniCPM3 has no such key
  AttentionPart shape = latent_attention(hidden_dim, n_heads, latent);
  if (plan.has_window) {
    shape.window = keys.number(kWindowKeys);
  } else {
    add_index(keys, hidden_dim, latent.q_rank > 0 ? latent.q_rank : hidden_dim, plan.shares_index,
              shape);
  }
  if (has_gate(keys)) shape.in_params += hidden_dim * n_heads * latent.value_dim;
  return shape;
}

// Causal convolution, decays, biases and the gated norm of Mamba 2.
StatePart mamba2(AnyKeys& keys, std::int64_t hidden_dim) {
  constexpr const char* kNumHeads[] = {"mamba_num_heads", "mamba_n_heads", "n_mamba_heads",
                                       "num_heads"};
  constexpr const char* kDim[] = {"mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"};
  constexpr const char* kState[] = {"ssm_state_size", "mamba_d_state", "state_size"};
  constexpr const char* kGroups[] = {"n_groups", "mamba_n_groups", "mamba_ngroups"};
  constexpr const char* kConv[] = {"conv_kernel", "mamba_d_conv"};
  constexpr const char* kExpand[] = {"expand", "mamba_expand"};
  const std::int64_t width =
      keys.number("mamba_d_ssm", std::min(keys.number(kExpand, 2), std::int64_t{64}) * hidden_dim);
  StatePart state{.kind = StateKind::Mamba2};
  state.value_dim = keys.number(kDim, 64);
  state.n_heads = keys.number(kNumHeads, state.value_dim > 0 ? width / state.value_dim : 0);
  state.key_dim = keys.number(kState, 128);
  const std::int64_t groups = keys.number(kGroups, 1);
  const std::int64_t inner = state.n_heads * state.value_dim;
  state.conv_width = keys.number(kConv, 4);
  state.conv_channels = inner + 2 * groups * state.key_dim;
  state.n_groups = groups > 1 ? groups : state.n_heads;  // a single group is on every device
  state.moved_elements = 2 * state.conv_channels + 3 * inner;
  state.in_params = hidden_dim * (inner + state.conv_channels + state.n_heads);
  state.out_params = inner * hidden_dim;
  state.other_params = state.conv_channels * (state.conv_width + 1) + 3 * state.n_heads + inner;
  return state;
}

StatePart mamba(AnyKeys& keys, std::int64_t hidden_dim) {
  constexpr const char* kState[] = {"mamba_d_state", "state_size", "ssm_state_size"};
  constexpr const char* kConv[] = {"mamba_d_conv", "conv_kernel"};
  constexpr const char* kExpand[] = {"mamba_expand", "expand"};
  constexpr const char* kRank[] = {"mamba_dt_rank", "time_step_rank"};
  StatePart state{.kind = StateKind::Mamba, .n_heads = 1};
  state.key_dim = keys.number(kState, 16);
  // Of a model that does not attend, a width is that of the states; FalconMamba's `expand` is not.
  const std::int64_t width = keys.has(kHeadsKeys) ? 0 : keys.number("intermediate_size");
  state.value_dim =
      width > 0 ? width : std::min(keys.number(kExpand, 2), std::int64_t{64}) * hidden_dim;
  const bool is_auto = keys.has(kRank) && !keys.section().find(keys.find(kRank))->is_number();
  const std::int64_t rank =
      is_auto || !keys.has(kRank) ? ceil_div(hidden_dim, 16) : keys.number(kRank);
  const std::int64_t inner = state.value_dim;
  state.conv_width = keys.number(kConv, 4);
  state.conv_channels = inner;
  state.n_groups = inner;
  state.moved_elements = 4 * inner;
  state.in_params = hidden_dim * 2 * inner + inner * (rank + 2 * state.key_dim) + rank * inner;
  state.out_params = inner * hidden_dim;
  state.other_params = inner * (state.conv_width + 1) + inner * state.key_dim + 2 * inner;
  return state;
}

// Kimi Linear: queries, keys and values of the same heads, each with a convolution; low-rank
// projections for the decay of each channel and for the gate.
StatePart kimi_delta(AnyKeys& keys, std::int64_t hidden_dim) {
  const auto nested = keys.section().section("linear_attn_config");
  const auto number = [&](const char* flat, const char* inner, std::int64_t otherwise) {
    if (!nested) return keys.number(flat, otherwise);
    AnyKeys inside(*nested);
    return inside.number(inner, otherwise);
  };
  StatePart state{.kind = StateKind::KimiDelta};
  state.n_heads = number("linear_num_heads", "num_heads", 32);
  state.key_dim = state.value_dim = number("linear_head_dim", "head_dim", 128);
  state.conv_width = number("linear_conv_kernel_dim", "short_conv_kernel_size", 4);
  const std::int64_t inner = state.n_heads * state.value_dim;
  state.conv_channels = 3 * inner;
  state.n_groups = state.n_heads;
  state.bytes_per_element = 4;  // vLLM 0.33: kda_state_dtype in layers/mamba/mamba_utils.py
  state.moved_elements = 2 * state.conv_channels + 3 * inner;
  const std::int64_t low_rank = (hidden_dim + inner) * state.value_dim;
  const bool has_whole_gate = nested && nested->boolean_or("use_full_rank_gate", false);
  state.in_params = hidden_dim * (3 * inner + state.n_heads) + low_rank +
                    (has_whole_gate ? hidden_dim * inner : low_rank);
  state.out_params = inner * hidden_dim;
  state.other_params =
      state.conv_channels * state.conv_width + inner + state.n_heads + state.value_dim;
  return state;
}

// MiniMax-01: queries, keys, values and a gate.
StatePart lightning(AnyKeys& keys, std::int64_t hidden_dim) {
  StatePart state{.kind = StateKind::Lightning};
  state.n_heads = keys.number(kHeadsKeys, 1);
  state.key_dim = state.value_dim =
      keys.number(kHeadDimKeys, hidden_dim / std::max<std::int64_t>(state.n_heads, 1));
  state.n_groups = state.n_heads;
  state.bytes_per_element = 4;
  const std::int64_t inner = state.n_heads * state.value_dim;
  state.moved_elements = 7 * inner;
  state.in_params = hidden_dim * 4 * inner;
  state.out_params = inner * hidden_dim;
  state.other_params = inner;
  return state;
}

StatePart short_conv(AnyKeys& keys, std::int64_t hidden_dim) {
  constexpr const char* kConv[] = {"conv_L_cache", "conv_kernel_size"};
  StatePart state{.kind = StateKind::ShortConv, .n_heads = 1};
  state.conv_width = keys.number(kConv, 3);
  state.conv_channels = state.n_groups = hidden_dim;
  state.moved_elements = 6 * hidden_dim;
  state.in_params = 3 * hidden_dim * hidden_dim;
  state.out_params = hidden_dim * hidden_dim;
  state.other_params = state.conv_channels * state.conv_width;
  return state;
}

}  // namespace

StateKind state_kind(const AnyKeys& keys) {
  struct Mark {
    const char* key;
    StateKind kind;
  };
  constexpr Mark kMarks[] = {
      {"linear_attn_config", StateKind::KimiDelta},
      {"linear_num_heads", StateKind::KimiDelta},
      {"linear_head_dim", StateKind::KimiDelta},
      {"linear_num_value_heads", StateKind::GatedDelta},
      {"conv_L_cache", StateKind::ShortConv},
      {"lru_width", StateKind::ShortConv},
      {"mamba_num_heads", StateKind::Mamba2},
      {"mamba_n_heads", StateKind::Mamba2},
      {"mamba_headdim", StateKind::Mamba2},
      {"mamba_d_head", StateKind::Mamba2},
      {"mamba_d_state", StateKind::Mamba},
      {"time_step_rank", StateKind::Mamba},
      {"state_size", StateKind::Mamba2},
      {"attn_type_list", StateKind::Lightning},
      {"linear_attn_alpha_factor", StateKind::Lightning},
  };
  for (const Mark& mark : kMarks) {
    if (keys.section().find(mark.key) != nullptr) return mark.kind;
  }
  return StateKind::None;
}

AttentionPart any_attention(AnyKeys& keys, std::int64_t hidden_dim, const LayerPlan& plan) {
  const bool is_window = plan.has_window;
  // Keys of layers with a window, or of those without, go before those of all.
  const char* const own_kv_heads[] = {is_window ? "swa_num_key_value_heads"
                                                : "num_global_key_value_heads"};
  const char* const own_head_dim[] = {is_window ? "swa_head_dim" : "global_head_dim"};
  const std::int64_t heads = is_window && keys.has(kWindowHeadsKeys) ? keys.number(kWindowHeadsKeys)
                                                                     : keys.required(kHeadsKeys);
  if (heads < 1) keys.section().fail(keys.find(kWindowHeadsKeys), "is 0; allowed: at least 1");
  if (keys.number("kv_lora_rank") > 0) return any_latent(keys, hidden_dim, heads, plan);
  std::int64_t kv_heads = first_number(keys, own_kv_heads, kKvHeadsKeys, heads);
  // Falcon's second architecture has groups, whatever the first key says.
  if (keys.is_true("multi_query") && !keys.is_true("new_decoder_architecture")) kv_heads = 1;
  kv_heads = std::clamp<std::int64_t>(kv_heads, 1, heads);
  const std::int64_t plain = std::max<std::int64_t>(hidden_dim / heads, 1);
  std::int64_t head_dim = first_number(keys, own_head_dim, kHeadDimKeys, plain);
  if (head_dim == 0) head_dim = plain;
  const char* const own_value_dim[] = {is_window ? "swa_v_head_dim" : kValueDimKeys[0]};
  std::int64_t value_dim = first_number(keys, own_value_dim, kValueDimKeys, head_dim);
  if (value_dim == 0) value_dim = head_dim;
  AttentionPart shape =
      grouped_attention(hidden_dim, heads, kv_heads, head_dim, value_dim, has_gate(keys));
  // Step 3: queries of low rank.
  if (const std::int64_t rank = keys.number("share_q_dim"); rank > 0) {
    shape.in_params += rank * (hidden_dim + heads * head_dim) - hidden_dim * heads * head_dim;
  }
  if (is_window) {
    shape.window = keys.number(kWindowKeys);
  } else {
    add_index(keys, hidden_dim, hidden_dim, plan.shares_index, shape);
  }
  // Gemma 4: keys of layers without a window are values, too; both are cached.
  if (!is_window && keys.is_true("attention_k_eq_v")) {
    shape.in_params -= hidden_dim * kv_heads * value_dim;
  }
  return shape;
}

void share_cache(std::int64_t hidden_dim, AttentionPart& attention) {
  attention.in_params -=
      hidden_dim * attention.n_kv_heads * (attention.head_dim + attention.value_dim);
  attention.in_params = std::max<std::int64_t>(attention.in_params, 0);
  attention.shares_kv = true;
}

StatePart any_state(AnyKeys& keys, std::int64_t hidden_dim, StateKind kind) {
  const auto with_type = [&keys](StatePart state) {
    for (const char* name : {"mamba_ssm_cache_dtype", "mamba_ssm_dtype"}) {
      if (keys.section().text_or(name, "") == "float32") state.bytes_per_element = 4;
    }
    return state;
  };
  switch (kind) {
    case StateKind::Mamba: return with_type(mamba(keys, hidden_dim));
    case StateKind::Mamba2: return with_type(mamba2(keys, hidden_dim));
    case StateKind::KimiDelta: return kimi_delta(keys, hidden_dim);
    case StateKind::Lightning: return lightning(keys, hidden_dim);
    case StateKind::ShortConv: return short_conv(keys, hidden_dim);
    case StateKind::None:
    case StateKind::GatedDelta: break;
  }
  LinearAttention linear;
  linear.n_key_heads = keys.number("linear_num_key_heads", 16);
  linear.n_value_heads = keys.number("linear_num_value_heads", 32);
  linear.key_head_dim = keys.number("linear_key_head_dim", 128);
  linear.value_head_dim = keys.number("linear_value_head_dim", 128);
  linear.conv_width = std::max<std::int64_t>(keys.number("linear_conv_kernel_dim", 4), 1);
  return with_type(gated_delta(hidden_dim, linear));
}

}  // namespace metronome
