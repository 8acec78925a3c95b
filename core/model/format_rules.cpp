// SPDX-License-Identifier: Apache-2.0
#include "core/model/format_rules.h"

#include <algorithm>
#include <map>
#include <span>

#include "core/model/module_formats.h"

namespace metronome {
namespace {

bool has_int4_groups(WeightFormat format) {
  return format == WeightFormat::Int4 || format == WeightFormat::Int4Fp8;
}

void add(const ModuleFormat& more, std::vector<ModuleFormat>& all) {
  for (ModuleFormat& one : all) {
    if (one.kind != more.kind || one.format != more.format ||
        one.bytes_per_weight != more.bytes_per_weight) {
      continue;
    }
    one.num_params += more.num_params;
    return;
  }
  all.push_back(more);
}

// Matrices for each of the module's weights.
double share_of_matrices(const ModelModule& module) {
  return static_cast<double>(module.num_matrices) / static_cast<double>(module.num_params);
}

// The format of the most weights; of two with as many, one that is not plain.
std::optional<WeightFormat> most_frequent(const std::vector<ModuleFormat>& all,
                                          std::span<const ModuleKind> kinds) {
  std::map<WeightFormat, std::int64_t> sums;
  for (const ModuleFormat& one : all) {
    if (has_kind(kinds, one.kind)) sums[one.format] += one.num_params;
  }
  std::optional<WeightFormat> most;
  for (const auto& [format, sum] : sums) {  // plain is the first
    if (sum > 0 && (!most || sum >= sums[*most])) most = format;
  }
  return most;
}

// Whether the three formats of the model say all.
bool is_told(const std::vector<ModuleFormat>& all, const ModelConfig& model) {
  return std::all_of(all.begin(), all.end(), [&](const ModuleFormat& one) {
    const WeightFormat format = main_format(model, one.kind);
    const bool is_plain = one.format == WeightFormat::Plain;
    return one.format == format &&
           (is_plain || one.bytes_per_weight ==
                            bytes_of(format, model.bytes_per_weight, model.int4_group_size));
  });
}

}  // namespace

StoredFormat FormatRules::format_of(const ModelModule& module) const {
  const bool is_table = module.kind == ModuleKind::Embedding || module.kind == ModuleKind::Head;
  if (is_table && !stores_tables) {
    // Patterns are written for layers.
    for (const std::string& name : module.names) {
      const auto entry = named_.find_text(name);
      if (entry && !plain_.find_text(name)) return formats_[*entry].value_or(StoredFormat{});
    }
    return {};
  }
  if (plain_.find(module)) return {};
  const auto entry = named_.find(module);
  return (entry ? formats_[*entry] : otherwise).value_or(StoredFormat{});
}

void FormatRules::apply(ModelConfig& model) const {
  std::vector<ModuleFormat> all;
  bool has_group_size = false;
  for (const ModelModule& module : model_modules(model)) {
    const StoredFormat stored = format_of(module);
    if (has_int4_groups(stored.format) && !has_group_size) {
      model.int4_group_size = stored.int4_group_size;
      has_group_size = true;
    }
    const bool is_plain = stored.format == WeightFormat::Plain;
    double bytes = 0;
    if (!is_plain) {
      bytes = stored.bytes.value_or(
          bytes_of(stored.format, model.bytes_per_weight, stored.int4_group_size));
      if (stored.codebook_bytes > 0) bytes += stored.codebook_bytes * share_of_matrices(module);
    }
    add({module.kind, stored.format, bytes, module.num_params}, all);
  }
  model.linear_format = most_frequent(all, kAttentionModules).value_or(WeightFormat::Plain);
  model.mlp_format = most_frequent(all, kMlpModules);
  if (model.mlp_format == model.linear_format) model.mlp_format.reset();
  model.expert_format = most_frequent(all, kExpertModules).value_or(WeightFormat::Plain);
  model.module_formats.clear();
  if (!is_told(all, model)) model.module_formats = std::move(all);
}

}  // namespace metronome
