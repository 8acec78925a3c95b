// SPDX-License-Identifier: Apache-2.0
#include "sim/roofline/layer_costs.h"

#include <algorithm>
#include <vector>

#include "core/base/real.h"
#include "sim/cost/device_share.h"

namespace metronome {
namespace {

// FLOPs of a token in one head of a state: one by one, and in blocks.
double recurrence_flops(const StatePart& state) {
  const double per_element = state.kind == StateKind::Mamba2 || state.kind == StateKind::Lightning
                                 ? 5   // decay, the update and the output
                                 : 7;  // and what the key recalls
  return per_element * real(state.key_dim * state.value_dim);
}

double scan_flops(const StatePart& state) {
  const double dk = real(state.key_dim);
  const double dv = real(state.value_dim);
  switch (state.kind) {
    case StateKind::None:
    case StateKind::ShortConv: return 0;
    case StateKind::Mamba: {
      // Vector units compute it, at 67 TFLOP/s where matrix units have 989 (H100 data sheet).
      constexpr double kVectorUnits = 15;
      return kVectorUnits * recurrence_flops(state);
    }
    case StateKind::Mamba2:
    case StateKind::Lightning: {
      constexpr double kBlock = 128;  // tokens; chunk_size of published models
      return 2 * (2 * dk * dv + kBlock * (dk + dv));
    }
    case StateKind::GatedDelta:
    case StateKind::KimiDelta: break;
  }
  constexpr double kBlock = 64;  // tokens; as fla's and FlashInfer's kernels
  return 2 * (3 * dk * dv + kBlock * (3 * dk + 2 * dv) + kBlock * kBlock / 3);
}

// Whether the blocks of a sequence follow each other, and a head has one multiprocessor.
bool scans_in_order(StateKind kind) {
  return kind == StateKind::GatedDelta || kind == StateKind::KimiDelta;
}

// Bytes that the kernels between the products of all layers move for a token on one device. A
// norm reads two vectors and writes two, rotary embeddings (and norms of heads) read and write QKV,
// an output gate reads two vectors and writes one, an activation function reads gate and up and
// writes one. Experts copy each vector to those that were picked, and add up what they return: a
// vector read and written, and one read.
double activation_bytes(const ModelConfig& model, std::int64_t tp) {
  const double hidden = real(model.hidden_dim);
  double heads = 0;
  double states = 0;
  std::int64_t widths = 0;
  for (const LayerKind& kind : layer_kinds(model)) {
    const AttentionPart& attention = kind.attention;
    const double layers = real(kind.count());
    const double query = real(attention.n_heads / tp * attention.head_dim);
    double keys = 0;
    if (!attention.latent.is_empty()) {
      keys = real(attention.latent.cached_dim());
    } else if (!attention.is_empty() && !attention.shares_kv) {
      keys = real(std::max<std::int64_t>(attention.n_kv_heads / tp, 1) *
                  (attention.head_dim + attention.value_dim));
    }
    heads += layers * ((model.has_qk_norm ? 2 : 1) * 2 * (query + keys) +
                       (model.has_gated_attention ? 3 * query : 0));
    states += layers * (real(kind.state.moved_elements) / real(tp));
    widths += kind.count() * (kind.ffn_dim + (kind.has_experts ? model.shared_expert_ffn_dim : 0));
  }
  const double norms = model.n_whole_layers() * (real(model.n_layer_norms()) * 4 * hidden);
  // As many vectors as the MLP has matrices: gate, up and the result, or up and the result.
  const double mlps = real(model.n_mlp_matrices() * widths) / real(tp);
  const double experts =
      real(model.n_moe_layers() * model.n_experts_per_token) *
      (3 * hidden + real(model.n_mlp_matrices() * model.expert_ffn_dim) / real(tp));
  return kBytesPerActivation * (experts + norms + heads + states + mlps);
}

// The work for a pair of a query and a key, for a position, and for one that a chunk expands.
struct PairCosts {
  double chunk_flops = 0;
  double decode_flops = 0;
  double entry_bytes = 0;
  double expansion_flops = 0;
  double expansion_bytes = 0;
};

PairCosts pair_costs(const ModelConfig& model, const AttentionPart& attention, std::int64_t tp) {
  PairCosts costs;
  const double heads = real(attention.n_heads) / real(tp);
  const LatentAttention& latent = attention.latent;
  costs.entry_bytes = device_entry_bytes(model, attention, tp) - real(attention.index_bytes());
  if (latent.is_empty()) {
    // Query times key, and weight times value: a multiply and an add per element of each.
    costs.chunk_flops =
        2 * real(attention.n_heads * (attention.head_dim + attention.value_dim)) / real(tp);
    costs.decode_flops = costs.chunk_flops;
    return costs;
  }
  const std::int64_t key_dim = latent.nope_dim + latent.rope_dim;
  costs.decode_flops = 2 * heads * real(latent.cached_dim() + latent.kv_rank);
  if (attention.has_index()) {
    // Kernels for chosen entries compute chunks in latent space, too (vLLM's flashmla_sparse).
    costs.chunk_flops = costs.decode_flops;
    return costs;
  }
  costs.chunk_flops = 2 * heads * real(key_dim + latent.value_dim);
  costs.expansion_flops = 2 * heads * real(latent.kv_rank * (latent.nope_dim + latent.value_dim));
  // Written once and read once.
  costs.expansion_bytes = 2 * heads * real(key_dim + latent.value_dim) * kBytesPerActivation;
  return costs;
}

class Collector {
 public:
  Collector(const ModelConfig& model, std::int64_t tp) : model_(model), tp_(tp) {}

  LayerCosts collect() {
    for (const LayerKind& kind : layer_kinds(model_)) {
      if (!kind.attention.is_empty()) add_attention(kind);
      if (!kind.state.is_empty()) add_state(kind);
    }
    costs_.state_bytes = device_state_bytes(model_, tp_);
    costs_.activation_bytes = activation_bytes(model_, tp_);
    return costs_;
  }

 private:
  // The reach with that window. Beyond kMaxWindows of them, the last one stands for more.
  Reach& reach_of(std::int64_t window) {
    if (window == 0) return costs_.reaches[0];
    for (std::size_t r = 1; r < costs_.num_reaches(); ++r) {
      if (costs_.reaches[r].window == window) return costs_.reaches[r];
    }
    if (costs_.num_windows < kMaxWindows) ++costs_.num_windows;
    Reach& reach = costs_.reaches[costs_.num_windows];
    reach.window = std::max(reach.window, window);
    return reach;
  }

  void add_attention(const LayerKind& kind) {
    const AttentionPart& attention = kind.attention;
    const double layers = real(kind.count());
    const PairCosts costs = pair_costs(model_, attention, tp_);
    const double chunk_bytes = costs.entry_bytes + costs.expansion_bytes;
    if (costs_.num_attending == 0) {
      costs_.chunk_flops_per_pair = costs.chunk_flops;
      costs_.decode_flops_per_pair = costs.decode_flops;
      costs_.kv_bytes_per_position = costs.entry_bytes;
      costs_.chunk_bytes_per_position = chunk_bytes;
    }
    const auto add = [&](std::int64_t window, double count) {
      Reach& reach = reach_of(window);
      reach.chunk_pairs += count * (costs.chunk_flops / costs_.chunk_flops_per_pair);
      reach.decode_pairs += count * (costs.decode_flops / costs_.decode_flops_per_pair);
      reach.chunk_positions += count * (chunk_bytes / costs_.chunk_bytes_per_position);
      reach.decode_positions += count * (costs.entry_bytes / costs_.kv_bytes_per_position);
    };
    add(attention.window, layers / real(attention.stride));
    if (attention.nearest > 0) add(attention.nearest, layers);
    if (attention.has_index()) add_index(attention, layers / real(attention.stride));
    costs_.num_attending += layers;
    if (attention.latent.is_empty()) return;
    costs_.num_latent += layers;
    if (costs.expansion_flops == 0) return;
    costs_.num_expanding += layers;
    costs_.expansion_flops = costs.expansion_flops;
  }

  // Every device scores all entries with all heads of the index, in fp8 (vLLM 0.33, Indexer in
  // models/deepseek_v2.py: ReplicatedLinear). Twice the rate of 16 bits is half the work.
  void add_index(const AttentionPart& attention, double layers) {
    Reach& reach = costs_.reaches[0];
    const double flops = real(attention.index_heads * attention.index_dim);
    const double bytes = real(attention.index_bytes());
    reach.chunk_pairs += layers * (flops / costs_.chunk_flops_per_pair);
    reach.decode_pairs += layers * (flops / costs_.decode_flops_per_pair);
    reach.chunk_positions += layers * (bytes / costs_.chunk_bytes_per_position);
    reach.decode_positions += layers * (bytes / costs_.kv_bytes_per_position);
  }

  void add_state(const LayerKind& kind) {
    const StatePart& state = kind.state;
    const double layers = real(kind.count());
    const double heads = layers * real(state.n_heads) / real(tp_);
    costs_.recurrence_flops += heads * recurrence_flops(state);
    costs_.scan_flops += heads * scan_flops(state);
    if (scans_in_order(state.kind)) costs_.scan_flops_in_order += layers * scan_flops(state);
  }

  const ModelConfig& model_;
  const std::int64_t tp_;
  LayerCosts costs_;
};

}  // namespace

LayerCosts layer_costs(const ModelConfig& model, std::int64_t tensor_parallel_size) {
  return Collector(model, tensor_parallel_size).collect();
}

}  // namespace metronome
