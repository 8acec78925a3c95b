// SPDX-License-Identifier: Apache-2.0
// Decoder layers by their parts, counted. Sizes of weights, KV and states and the arithmetic of a
// step follow from the kinds of a model's layers, whatever its family.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/layer_parts.h"

namespace metronome {

// Parts that attend to the KV of earlier tokens. Empty (no heads) in a layer without them.
struct AttentionPart {
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;     // of a query or key
  std::int64_t value_dim = 0;    // of a head's value
  bool keys_are_values = false;  // the cache has one vector for both
  LatentAttention latent;        // the cache has its vector instead of the keys and values of heads
  // The cache has an entry for each `stride` tokens.
  std::int64_t stride = 1;
  // Tokens whose entries a query reads; 0 = all.
  std::int64_t window = 0;
  bool is_sparse = false;  // they are chosen among all, and not the nearest
  // Beside strided entries, a query reads those of so many nearest tokens, which are not strided.
  std::int64_t nearest = 0;
  // An index scores all entries for each query: heads, and the elements of an entry's key. Layers
  // without one of their own take what the index of an earlier layer chose.
  std::int64_t index_heads = 0;
  std::int64_t index_dim = 0;
  // Reads the cache of an earlier layer, and has no keys and values of its own.
  bool shares_kv = false;
  // Weights of the projections of queries, keys and values, and of the output. Of the former,
  // `whole_params` are on every device.
  std::int64_t in_params = 0;
  std::int64_t out_params = 0;
  std::int64_t whole_params = 0;

  bool is_empty() const { return n_heads == 0; }
  bool has_index() const { return index_heads > 0; }
  std::int64_t cached_head_dim() const { return head_dim + (keys_are_values ? 0 : value_dim); }
  // Elements of an entry that is read: keys and values of all heads, or the latent vector. Without
  // the index.
  std::int64_t entry_elements() const;
  // Of an entry that the layer adds to the cache.
  std::int64_t cached_elements() const { return shares_kv ? 0 : entry_elements(); }
  // Bytes that the index, if there is one, keeps of an entry: fp8, with a scale of four bytes for
  // each 128 (vLLM 0.33, DeepseekV32IndexerCache; SGLang's NSATokenToKVPool).
  std::int64_t index_bytes() const;

  bool operator==(const AttentionPart&) const = default;
};

// A state of constant size for each request.
enum class StateKind : std::uint8_t {
  None,
  GatedDelta,  // Qwen3-Next
  KimiDelta,   // the same with a decay for each channel
  Mamba,       // selective scan, a decay for each channel and state
  Mamba2,      // a decay for each head
  Lightning,   // MiniMax-01: a constant decay for each head
  ShortConv,   // LFM2: a convolution alone
};
// As shown to users, in the order of the enumerators.
constexpr std::string_view kStateKindNames[] = {
    "none",    "gated delta rule", "Kimi delta rule",  "mamba",
    "mamba 2", "lightning",        "short convolution"};

struct StatePart {
  StateKind kind = StateKind::None;
  std::int64_t n_heads = 0;
  std::int64_t key_dim = 0;  // of a head's state, which is key_dim x value_dim
  std::int64_t value_dim = 0;
  std::int64_t more_elements = 0;  // of all heads, beside their matrices
  std::int64_t conv_width = 0;
  std::int64_t conv_channels = 0;
  std::int64_t bytes_per_element = 2;
  std::int64_t bytes_per_conv_element = 2;
  // Devices divide heads in groups that share something: key heads, or n_groups of Mamba 2.
  std::int64_t n_groups = 1;
  // Elements that kernels around the state read and write for each token.
  std::int64_t moved_elements = 0;
  std::int64_t in_params = 0;
  std::int64_t out_params = 0;
  std::int64_t other_params = 0;  // convolutions, decays, norms and their biases

  bool is_empty() const { return kind == StateKind::None; }
  std::int64_t elements() const { return n_heads * key_dim * value_dim + more_elements; }
  std::int64_t conv_elements() const {
    return conv_channels > 0 ? (conv_width - 1) * conv_channels : 0;
  }
  std::int64_t bytes() const {
    return elements() * bytes_per_element + conv_elements() * bytes_per_conv_element;
  }

  bool operator==(const StatePart&) const = default;
};

// A layer may attend, have a state, or both; it may have a dense MLP, or experts, or neither.
struct LayerParts {
  AttentionPart attention;
  StatePart state;
  std::int64_t ffn_dim = 0;  // of the dense MLP; 0 = none
  bool has_experts = false;  // those of the model (ModelConfig::n_experts)
  // Weights of further products with every token.
  std::int64_t side_params = 0;
  std::int64_t other_params = 0;  // norms, biases, and parts that only some models have

  bool has_mixer() const { return !attention.is_empty() || !state.is_empty(); }
  bool has_mlp() const { return ffn_dim > 0 || has_experts; }
  // Projections of attention and of the state.
  std::int64_t mixer_params() const {
    return attention.in_params + attention.out_params + state.in_params + state.out_params;
  }
  // "attention to the last 1024, experts"
  std::string name() const;

  bool operator==(const LayerParts&) const = default;
};

// Layers that are alike.
struct LayerKind : LayerParts {
  std::vector<std::int64_t> layers;  // from 0, ascending

  std::int64_t count() const { return static_cast<std::int64_t>(layers.size()); }

  bool operator==(const LayerKind&) const = default;
};

// The kinds of layers that are given one by one.
std::vector<LayerKind> group_layers(const std::vector<LayerParts>& layers);

// Attention of grouped queries in a layer of that width. `has_gate`: queries bring as many gates.
AttentionPart grouped_attention(std::int64_t hidden_dim, std::int64_t n_heads,
                                std::int64_t n_kv_heads, std::int64_t head_dim,
                                std::int64_t value_dim, bool has_gate);
// Multi-head latent attention.
AttentionPart latent_attention(std::int64_t hidden_dim, std::int64_t n_heads,
                               const LatentAttention& latent);
// A layer of Qwen3-Next with a state.
StatePart gated_delta(std::int64_t hidden_dim, const LinearAttention& linear);

}  // namespace metronome
