// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_formats.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "core/base/number_chars.h"
#include "core/model/module_formats.h"

namespace metronome {
namespace {

struct NamedKind {
  std::string_view part;
  ModuleKind kind;
};

// Names: llama.cpp, src/llama-arch.cpp. Linear attention names its projections of queries, keys and
// values attn_qkv, too.
constexpr NamedKind kKinds[] = {
    {"attn_q", ModuleKind::AttentionIn},
    {"attn_k", ModuleKind::AttentionIn},
    {"attn_v", ModuleKind::AttentionIn},
    {"attn_qkv", ModuleKind::AttentionIn},
    {"attn_gate", ModuleKind::AttentionIn},
    {"attn_q_a", ModuleKind::AttentionIn},
    {"attn_q_b", ModuleKind::AttentionIn},
    {"attn_kv_a_mqa", ModuleKind::AttentionIn},
    {"attn_kv_b", ModuleKind::AttentionIn},
    {"attn_k_b", ModuleKind::AttentionIn},
    {"attn_v_b", ModuleKind::AttentionIn},
    {"attn_output", ModuleKind::AttentionOut},
    {"ssm_in", ModuleKind::StateIn},
    {"ssm_ba", ModuleKind::StateIn},
    {"ssm_alpha", ModuleKind::StateIn},
    {"ssm_beta", ModuleKind::StateIn},
    {"ssm_out", ModuleKind::StateOut},
    {"ffn_gate", ModuleKind::MlpIn},
    {"ffn_up", ModuleKind::MlpIn},
    {"ffn_down", ModuleKind::MlpOut},
    {"ffn_gate_shexp", ModuleKind::SharedIn},
    {"ffn_up_shexp", ModuleKind::SharedIn},
    {"ffn_down_shexp", ModuleKind::SharedOut},
    {"ffn_gate_exps", ModuleKind::ExpertIn},
    {"ffn_up_exps", ModuleKind::ExpertIn},
    {"ffn_gate_up_exps", ModuleKind::ExpertIn},
    {"ffn_down_exps", ModuleKind::ExpertOut},
};

std::optional<ModuleKind> kind_of(const GgufName& name) {
  if (name.ending != "weight") return std::nullopt;
  if (name.layer < 0) {
    if (name.part == "token_embd") return ModuleKind::Embedding;
    if (name.part == "output") return ModuleKind::Head;
    return std::nullopt;
  }
  for (const NamedKind& named : kKinds) {
    if (named.part == name.part) return named.kind;
  }
  return std::nullopt;
}

bool is_plain(const GgmlType& type) {
  return type.name == "F32" || type.name == "F16" || type.name == "BF16";
}

WeightFormat format_of(const GgmlType& type, ModuleKind kind) {
  if (type.name == "MXFP4") return WeightFormat::Mxfp4;
  if (type.name == "NVFP4") return WeightFormat::Nvfp4;
  // The embedding's bytes may have others added to them.
  const bool is_half = is_plain(type) && type.block_bytes == 2;
  return is_half && kind != ModuleKind::Embedding ? WeightFormat::Plain : WeightFormat::WeightOnly;
}

bool is_counted(const GgufName& name, std::int64_t n_layers) {
  const bool is_of_rope = name.part == "rope_freqs" || name.part == "attn_rot_embd" ||
                          name.part.starts_with("rope_factors_");
  return name.layer < n_layers && !is_of_rope;
}

// The format of most of such weights.
std::optional<WeightFormat> main_of(const std::vector<ModuleFormat>& all,
                                    std::span<const ModuleKind> kinds) {
  std::map<WeightFormat, std::int64_t> sums;
  std::optional<WeightFormat> most;
  for (const ModuleFormat& one : all) {
    if (!has_kind(kinds, one.kind)) continue;
    sums[one.format] += one.num_params;
    if (!most || sums[one.format] > sums[*most]) most = one.format;
  }
  return most;
}

// Adds to the embedding's bytes what the model lacks of the file's.
void add_rest(const GgufSize& file, ModelConfig& model) {
  const std::int64_t missing = file.num_params - model.n_params();
  if (std::abs(missing) > file.num_params / 100) return;
  const auto rest = static_cast<double>(file.num_bytes - model.weight_bytes());
  for (ModuleFormat& module : model.module_formats) {
    if (module.kind != ModuleKind::Embedding) continue;
    const double more = rest / static_cast<double>(module.num_params);
    if (module.bytes_per_weight + more > 0) module.bytes_per_weight += more;
    return;
  }
}

}  // namespace

GgufName split_gguf_name(std::string_view name) {
  GgufName result;
  constexpr std::string_view kLayer = "blk.";
  if (name.starts_with(kLayer)) {
    const char* const begin = name.data() + kLayer.size();
    std::int64_t layer = 0;
    const auto read = read_number(begin, name.data() + name.size(), layer);
    const auto length = static_cast<std::size_t>(read.ptr - name.data());
    if (read.ec == std::errc() && layer >= 0 && length < name.size() && name[length] == '.') {
      result.layer = layer;
      name.remove_prefix(length + 1);
    }
  }
  const std::size_t dot = name.rfind('.');
  result.part = name.substr(0, dot);
  if (dot != name.npos) result.ending = name.substr(dot + 1);
  return result;
}

std::int64_t num_elements(const GgufTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= dim;
  return count;
}

GgufSize gguf_size(const GgufFile& file, std::int64_t n_layers) {
  GgufSize size;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!is_counted(split_gguf_name(tensor.name), n_layers)) continue;
    size.num_params += num_elements(tensor);
    size.num_bytes += static_cast<std::int64_t>(tensor.bytes.size());
  }
  return size;
}

void read_gguf_formats(const GgufFile& file, ModelConfig& model) {
  std::map<std::pair<ModuleKind, std::uint32_t>, ModuleFormat> sums;  // by the type's number
  const GgmlType* only = nullptr;
  bool is_one_type = true;
  for (const GgufTensor& tensor : file.tensors()) {
    const GgufName name = split_gguf_name(tensor.name);
    const std::optional<ModuleKind> kind = kind_of(name);
    if (!kind || !is_counted(name, model.n_layers)) continue;
    if (only == nullptr) only = tensor.type;
    is_one_type &= is_plain(*tensor.type) && tensor.type->block_bytes == only->block_bytes;
    ModuleFormat& sum = sums[{*kind, tensor.type->id}];
    sum.kind = *kind;
    sum.format = format_of(*tensor.type, *kind);
    sum.bytes_per_weight = static_cast<double>(tensor.type->block_bytes) /
                           static_cast<double>(tensor.type->block_elements);
    sum.num_params += num_elements(tensor);
  }
  model.bytes_per_weight = 2;
  if (only == nullptr) return;
  if (is_one_type) {
    model.bytes_per_weight = only->block_bytes;
    return;
  }
  for (const auto& [key, sum] : sums) model.module_formats.push_back(sum);
  const std::vector<ModuleFormat>& all = model.module_formats;
  model.linear_format = main_of(all, kAttentionModules).value_or(WeightFormat::Plain);
  model.mlp_format = main_of(all, kMlpModules);
  if (model.mlp_format == model.linear_format) model.mlp_format.reset();
  model.expert_format = main_of(all, kExpertModules).value_or(WeightFormat::Plain);
  add_rest(gguf_size(file, model.n_layers), model);
}

}  // namespace metronome
