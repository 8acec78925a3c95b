// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/device_share.h"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <string>

#include "core/base/error.h"
#include "core/base/real.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/pass_cost.h"

namespace metronome {
namespace {

// A device has whole query heads. Its KV heads are whole, or replicated if there are more devices
// than KV heads. Heads with a state stay with those that share keys.
bool can_split(const LayerKind& kind, std::int64_t tp) {
  const AttentionPart& attention = kind.attention;
  const std::int64_t kv = attention.n_kv_heads;
  const bool splits_kv = attention.is_empty() || (tp <= kv ? kv % tp == 0 : tp % kv == 0);
  const bool splits_states = kind.state.is_empty() || kind.state.n_groups % tp == 0;
  return attention.n_heads % tp == 0 && splits_kv && splits_states && kind.ffn_dim % tp == 0;
}

bool can_split(const ModelConfig& model, std::int64_t tp) {
  const std::vector<LayerKind> kinds = layer_kinds(model);
  return model.expert_ffn_dim % tp == 0 && model.shared_expert_ffn_dim % tp == 0 &&
         std::all_of(kinds.begin(), kinds.end(),
                     [tp](const LayerKind& kind) { return can_split(kind, tp); });
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes / 1e9);
  return text;
}

double block_bytes(const ModelConfig& model, std::int64_t tp, std::int64_t block_tokens,
                   const DraftMemory& drafter) {
  const double token = device_token_bytes(model, tp) + drafter.kv_bytes_per_token;
  return std::max(token, 1.0) * real(block_tokens);  // a model may have states alone
}

}  // namespace

void check_tensor_parallel(const ModelConfig& model, std::int64_t tp) {
  if (tp >= 1 && can_split(model, tp)) return;
  std::string allowed;
  for (std::int64_t size = 1; size <= kMaxTensorParallel; ++size) {
    if (can_split(model, size)) allowed += fmt::format("{}{}", size == 1 ? "" : ", ", size);
  }
  std::string experts =
      model.n_experts == 0 ? "" : fmt::format(", expert_ffn_dim {}", model.expert_ffn_dim);
  if (!model.linear_attention.is_empty()) {
    experts += fmt::format(", linear_attention.n_key_heads {}", model.linear_attention.n_key_heads);
  }
  throw UnplacedConfigError("cost_model.tensor_parallel_size",
                            fmt::format("{} cannot be used with {}, which it does not split evenly "
                                        "(n_heads {}, n_kv_heads {}, ffn_dim {}{}); allowed: {}",
                                        tp, model.name, model.n_heads, model.n_kv_heads,
                                        model.ffn_dim, experts, allowed));
}

std::int64_t device_kv_heads(const ModelConfig& model, std::int64_t tp) {
  return std::max<std::int64_t>(model.n_kv_heads / tp, 1);
}

double device_projection_params(const ModelConfig& model, std::int64_t tp) {
  std::int64_t whole = 0;   // that every device has
  std::int64_t copies = 0;  // of all devices' keys and values, in addition to the model's
  for (const LayerKind& kind : layer_kinds(model)) {
    const AttentionPart& attention = kind.attention;
    whole += kind.count() * attention.whole_params;
    const bool has_heads = attention.latent.is_empty() && attention.cached_elements() > 0;
    if (!has_heads || tp <= attention.n_kv_heads) continue;
    const std::int64_t heads = tp - attention.n_kv_heads;
    copies += kind.count() * model.hidden_dim * heads * attention.cached_head_dim();
  }
  return real(model.n_projection_params() - whole + copies) / real(tp) + real(whole);
}

double device_projection_bytes(const ModelConfig& model, std::int64_t tp) {
  const double mlps = model.has_mlp_formats() ? real(model.n_mlp_params()) / real(tp) : 0;
  return (device_projection_params(model, tp) - mlps) * model.bytes_per_linear_weight() +
         mlps * model.bytes_per_mlp_weight();
}

double device_weight_bytes(const ModelConfig& model, std::int64_t tp) {
  const double projections = device_projection_bytes(model, 1);
  const double routers = real(model.n_router_params() * model.bytes_per_weight);
  return (real(model.weight_bytes()) - projections - routers) / real(tp) + routers +
         device_projection_bytes(model, tp);
}

double device_state_bytes(const ModelConfig& model, std::int64_t tp) {
  return real(model.state_bytes()) / real(tp);
}

double device_entry_bytes(const ModelConfig& model, const AttentionPart& attention,
                          std::int64_t tp) {
  if (attention.is_empty()) return 0;
  std::int64_t elements = attention.entry_elements();
  if (attention.latent.is_empty()) {
    elements = std::max<std::int64_t>(attention.n_kv_heads / tp, 1) * attention.cached_head_dim();
  }
  return real(elements * model.bytes_per_kv_element + attention.index_bytes());
}

double device_token_bytes(const ModelConfig& model, std::int64_t tp) {
  double bytes = 0;
  for (const LayerKind& kind : layer_kinds(model)) {
    if (kind.attention.shares_kv) continue;
    bytes += real(kind.count()) * device_entry_bytes(model, kind.attention, tp) /
             real(kind.attention.stride);
  }
  return bytes;
}

double device_kv_bytes(const ModelConfig& model, std::int64_t tp) {
  return device_token_bytes(model, tp) /
         real(std::max<std::int64_t>(model.n_attention_layers(), 1));
}

double qk_norm_exchange_bytes(const ModelConfig& model) {
  constexpr double kTwoSums = 2 * 4;  // of queries and of keys
  return model.architecture == "MiniMaxM2ForCausalLM" ? kTwoSums : 0;
}

TimeNs host_gap_ns(const HardwareSpec& hardware, const CostModelConfig& config,
                   std::size_t num_requests) {
  const double us = config.host_gap_us.value_or(hardware.host_gap_us.value_or(kDefaultHostGapUs));
  const double requests_us = config.host_gap_us_per_request * static_cast<double>(num_requests);
  return round_ns((us + requests_us) * kNsPerMicro);
}

std::int64_t kv_capacity_blocks(const ModelConfig& model, const HardwareSpec& hardware,
                                const CostModelConfig& config, std::int64_t block_tokens,
                                const DraftMemory& drafter) {
  METRONOME_CHECK(block_tokens > 0, "a block holds at least one token");
  if (hardware.memory_bytes == 0) {
    throw UnplacedConfigError("kv_cache.num_blocks",
                              "required key is missing: the memory of " + hardware.name +
                                  " is not known; allowed: a number of blocks");
  }
  const std::int64_t tp = config.tensor_parallel_size;
  const double usable = real(hardware.memory_bytes) * config.gpu_memory_utilization;
  const double weights = device_weight_bytes(model, tp);
  const double reserved = config.reserved_memory_gib.value_or(kPlainReservedGib) * kGib;
  const double room = usable - weights - drafter.weight_bytes - reserved;
  const double block = block_bytes(model, tp, block_tokens, drafter);
  if (room < block) {
    const std::string of_drafter =
        drafter.weight_bytes == 0 ? ""
                                  : ", " + gigabytes(drafter.weight_bytes) + " of " + drafter.name;
    const std::string of_engine =
        reserved > 0 ? ", and " + gigabytes(reserved) + " for activations and the engine," : "";
    const double memory = reserved > 0 ? usable : real(hardware.memory_bytes);
    throw UnplacedConfigError(
        "model", model.name + " does not fit on " + hardware.name + ": " + gigabytes(weights) +
                     " of weights" + of_drafter + of_engine + " leave no KV block in " +
                     gigabytes(memory) +
                     "; allowed: a smaller model, more memory, fewer tokens or sequences in a "
                     "step, or other values of cost_model.gpu_memory_utilization, "
                     "cost_model.reserved_memory_gib or cost_model.tensor_parallel_size");
  }
  return static_cast<std::int64_t>(room / block);
}

std::int64_t most_kv_blocks(const ModelConfig& model, const HardwareSpec& hardware, std::int64_t tp,
                            std::int64_t block_tokens, const DraftMemory& drafter) {
  METRONOME_CHECK(block_tokens > 0, "a block holds at least one token");
  const double room =
      real(hardware.memory_bytes) - device_weight_bytes(model, tp) - drafter.weight_bytes;
  return static_cast<std::int64_t>(std::max(room, 0.0) /
                                   block_bytes(model, tp, block_tokens, drafter));
}

}  // namespace metronome
