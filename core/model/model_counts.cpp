// SPDX-License-Identifier: Apache-2.0
// The sizes of a model's weights, KV and states; a part of model_config.h.
#include <algorithm>
#include <cmath>

#include "core/model/model_config.h"
#include "core/model/module_formats.h"

namespace metronome {
bool has_kind(std::span<const ModuleKind> kinds, ModuleKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

WeightFormat main_format(const ModelConfig& model, ModuleKind kind) {
  if (has_kind(kAttentionModules, kind)) return model.linear_format;
  if (has_kind(kMlpModules, kind)) return model.mlp_format.value_or(model.linear_format);
  return has_kind(kExpertModules, kind) ? model.expert_format : WeightFormat::Plain;
}

ModuleKind head_table(const ModelConfig& model) {
  return model.has_tied_embeddings ? ModuleKind::Embedding : ModuleKind::Head;
}

namespace {

// The sum of a number over all layers.
template <class Number>
std::int64_t sum_of(const ModelConfig& model, Number number) {
  std::int64_t sum = 0;
  for (const LayerKind& kind : layer_kinds(model)) sum += kind.count() * number(kind);
  return sum;
}

}  // namespace

std::int64_t ModelConfig::n_mlp_params() const {
  return sum_of(*this, [this](const LayerKind& kind) { return mlp_params(*this, kind); });
}

std::int64_t ModelConfig::n_projection_params() const {
  return sum_of(*this, [](const LayerKind& kind) { return kind.mixer_params(); }) + n_mlp_params();
}

std::int64_t ModelConfig::n_expert_params() const {
  const std::int64_t width = expert_hidden_dim > 0 ? expert_hidden_dim : hidden_dim;
  return n_mlp_matrices() * width * expert_ffn_dim;
}

std::int64_t ModelConfig::n_embedding_params() const { return vocab_size * hidden_dim; }

std::int64_t ModelConfig::n_position_params() const {
  return has_learned_positions ? max_position_embeddings * hidden_dim : 0;
}

std::int64_t ModelConfig::n_small_params() const {
  const auto of_kind = [](const LayerKind& kind) {
    return kind.other_params + kind.state.other_params;
  };
  const std::int64_t last_norm = has_norm_weights ? (has_norm_biases ? 2 : 1) * hidden_dim : 0;
  return sum_of(*this, of_kind) + last_norm + (has_head_bias ? vocab_size : 0);
}

std::int64_t ModelConfig::n_params() const {
  const std::int64_t tables = has_tied_embeddings ? 1 : 2;
  return n_linear_params() + n_moe_layers() * n_experts * n_expert_params() +
         tables * n_embedding_params() + n_position_params() + n_small_params() +
         vision.n_params() + tower_params + extra_params + idle_params - repeated_params;
}

std::int64_t ModelConfig::n_active_params() const {
  return n_params() - vision.n_params() - tower_params - idle_params -
         n_moe_layers() * (n_experts - n_experts_per_token) * n_expert_params();
}

std::vector<FormatShare> ModelConfig::formats_of(std::span<const ModuleKind> kinds) const {
  std::vector<FormatShare> shares;
  double total = 0;
  for (const ModuleFormat& module : module_formats) {
    if (!has_kind(kinds, module.kind)) continue;
    const bool is_plain = module.format == WeightFormat::Plain;
    const double bytes = is_plain ? static_cast<double>(bytes_per_weight) : module.bytes_per_weight;
    const auto found = std::find_if(shares.begin(), shares.end(), [&](const FormatShare& share) {
      return share.format == module.format && share.bytes_per_weight == bytes;
    });
    const auto params = static_cast<double>(module.num_params);
    if (found == shares.end()) {
      shares.push_back({module.format, bytes, params});
    } else {
      found->share += params;
    }
    total += params;
  }
  for (FormatShare& share : shares) share.share /= total;
  if (!shares.empty()) return shares;
  const WeightFormat format = main_format(*this, kinds.front());
  return {{format, bytes_of(format, bytes_per_weight, int4_group_size), 1}};
}

double ModelConfig::mean_bytes(std::span<const ModuleKind> kinds) const {
  double sum = 0;
  for (const FormatShare& share : formats_of(kinds)) sum += share.share * share.bytes_per_weight;
  return sum;
}

double ModelConfig::bytes_per_head_weight() const {
  const ModuleKind kind[] = {head_table(*this)};
  return mean_bytes(kind);
}

bool ModelConfig::is_quantised() const {
  return linear_format != WeightFormat::Plain || expert_format != WeightFormat::Plain ||
         mlp_format.value_or(WeightFormat::Plain) != WeightFormat::Plain || !module_formats.empty();
}

void ModelConfig::store_as(WeightFormat format) {
  linear_format = format == WeightFormat::Mxfp4 ? WeightFormat::Plain : format;
  mlp_format.reset();
  expert_format = n_experts > 0 ? format : WeightFormat::Plain;
  module_formats.clear();
}

std::int64_t ModelConfig::table_bytes() const {
  constexpr ModuleKind kEmbedding[] = {ModuleKind::Embedding};
  constexpr ModuleKind kHead[] = {ModuleKind::Head};
  const auto params = static_cast<double>(n_embedding_params());
  const double heads = has_tied_embeddings ? 0 : params * mean_bytes(kHead);
  return std::llround(params * mean_bytes(kEmbedding) + heads);
}

std::int64_t ModelConfig::weight_bytes() const {
  const std::int64_t projections = n_projection_params();
  const std::int64_t experts = n_moe_layers() * n_experts * n_expert_params();
  const std::int64_t tables = (has_tied_embeddings ? 1 : 2) * n_embedding_params();
  const std::int64_t plain =
      (n_params() + repeated_params - projections - experts - tables) * bytes_per_weight;
  const auto bytes = [](std::int64_t params, double of_one) {
    return std::llround(static_cast<double>(params) * of_one);
  };
  const std::int64_t mlps = has_mlp_formats() ? n_mlp_params() : 0;
  return plain + table_bytes() - bytes(repeated_params, bytes_per_linear_weight()) +
         bytes(projections - mlps, bytes_per_linear_weight()) +
         bytes(mlps, bytes_per_mlp_weight()) + bytes(experts, bytes_per_expert_weight());
}

std::int64_t ModelConfig::kv_bytes_per_token() const {
  double bytes = 0;  // an integer where no layer has strides
  for (const LayerKind& kind : layer_kinds(*this)) {
    bytes += static_cast<double>(kind.count()) * kv_bytes(*this, kind.attention);
  }
  return std::llround(bytes);
}

std::int64_t ModelConfig::state_bytes() const {
  return sum_of(*this, [](const LayerKind& kind) { return kind.state.bytes(); });
}

std::int64_t VisionTower::n_params() const {
  if (is_empty()) return 0;
  const std::int64_t h = hidden_dim;
  const std::int64_t patches = patch_inputs() * h + h + num_positions * h;
  const std::int64_t attention = 4 * h * h + 4 * h;
  const std::int64_t mlp = 2 * h * ffn_dim + ffn_dim + h;
  const std::int64_t norms = 2 * 2 * h;
  // A merger normalises patches one by one; those of deepstack normalise what they have joined.
  const std::int64_t joined = merge_size * merge_size * h;
  const std::int64_t merger = joined * joined + joined + joined * out_dim + out_dim;
  const auto num_deepstack = static_cast<std::int64_t>(deepstack_layers.size());
  return patches + depth * (attention + mlp + norms) + merger + 2 * h +
         num_deepstack * (merger + 2 * joined);
}

}  // namespace metronome
