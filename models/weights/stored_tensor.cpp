// SPDX-License-Identifier: Apache-2.0
#include "models/weights/stored_tensor.h"

#include <span>
#include <string_view>
#include <utility>

#include "core/model/model_family.h"
#include "models/weights/vision_weights.h"

namespace metronome {
namespace {

// A part of a fused tensor: the parts' names, in order, and the tensor that holds them.
struct Fused {
  std::string_view parts[3];  // an empty one: there are fewer
  std::string_view whole;
};

constexpr Fused kPhi3Fused[] = {
    {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, "self_attn.qkv_proj"},
    {{"mlp.gate_proj", "mlp.up_proj", ""}, "mlp.gate_up_proj"},
};
constexpr Fused kGlmFused[] = {{{"mlp.gate_proj", "mlp.up_proj", ""}, "mlp.gate_up_proj"}};
constexpr Fused kGpt2Fused[] = {
    {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, "attn.c_attn"},
};

using Renames = std::pair<std::string_view, std::string_view>;

constexpr Renames kGpt2Names[] = {
    {"input_layernorm", "ln_1"},          {"self_attn.o_proj", "attn.c_proj"},
    {"post_attention_layernorm", "ln_2"}, {"mlp.up_proj", "mlp.c_fc"},
    {"mlp.down_proj", "mlp.c_proj"},      {"model.embed_tokens", "wte"},
    {"model.embed_positions", "wpe"},     {"model.norm", "ln_f"},
};
constexpr Renames kGlm4Names[] = {
    {"post_attention_layernorm", "post_self_attn_layernorm"},
    {"pre_feedforward_layernorm", "post_attention_layernorm"},
    {"post_feedforward_layernorm", "post_mlp_layernorm"},
};
constexpr Renames kHunYuanNames[] = {
    {"self_attn.q_norm", "self_attn.query_layernorm"},
    {"self_attn.k_norm", "self_attn.key_layernorm"},
};
constexpr Renames kApertusNames[] = {
    {"input_layernorm", "attention_layernorm"},
    {"post_attention_layernorm", "feedforward_layernorm"},
};
constexpr Renames kStarcoder2Names[] = {
    {"mlp.up_proj", "mlp.c_fc"},
    {"mlp.down_proj", "mlp.c_proj"},
};
constexpr Renames kPhiNames[] = {
    {"self_attn.o_proj", "self_attn.dense"},
    {"self_attn.q_norm", "self_attn.q_layernorm"},
    {"self_attn.k_norm", "self_attn.k_layernorm"},
    {"mlp.up_proj", "mlp.fc1"},
    {"mlp.down_proj", "mlp.fc2"},
    {"model.norm", "model.final_layernorm"},
};
constexpr Renames kGptNeoxNames[] = {
    {"self_attn.o_proj", "attention.dense"},     {"mlp.up_proj", "mlp.dense_h_to_4h"},
    {"mlp.down_proj", "mlp.dense_4h_to_h"},      {"model.embed_tokens", "gpt_neox.embed_in"},
    {"model.norm", "gpt_neox.final_layer_norm"},
};
constexpr Renames kMixtralNames[] = {
    {"mlp.gate", "block_sparse_moe.gate"},
    {"gate_proj", "w1"},
    {"up_proj", "w3"},
    {"down_proj", "w2"},
};

// Whole names, or what they begin with.
constexpr Renames kDeepSeekNames[] = {{"mlp.shared_expert", "mlp.shared_experts"}};
constexpr Renames kHunYuanMoeNames[] = {
    {"mlp.gate", "mlp.gate.wg"},
    {"mlp.shared_expert", "mlp.shared_mlp"},
    {"self_attn.q_norm", "self_attn.query_layernorm"},
    {"self_attn.k_norm", "self_attn.key_layernorm"},
};
constexpr Renames kGraniteNames[] = {
    {"mlp.gate", "block_sparse_moe.router.layer"},
    {"mlp.shared_expert.gate_proj", "shared_mlp.input_linear"},
    {"mlp.shared_expert.up_proj", "shared_mlp.input_linear"},
    {"mlp.shared_expert.down_proj", "shared_mlp.output_linear"},
};
constexpr Renames kGptOssNames[] = {{"mlp.gate", "mlp.router"}};

constexpr std::string_view kExperts = "mlp.experts.";
constexpr std::string_view kChoiceBias = ".e_score_correction_bias";

// "model.layers.3.mlp.up_proj.weight" as "model.layers.3.", "mlp.up_proj" and ".weight".
struct NameParts {
  std::string prefix;
  std::string name;
  std::string suffix;
};

NameParts split(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t end = name.rfind('.');
  std::size_t begin = 0;
  if (name.starts_with(kLayers)) begin = name.find('.', kLayers.size()) + 1;
  return {name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
}

std::string renamed(const std::string& name, std::span<const Renames> renames) {
  for (const auto& [from, to] : renames) {
    if (name == from) return std::string(to);
  }
  return name;
}

template <std::size_t N>
std::string renamed_below(const std::string& name, const Renames (&renames)[N]) {
  for (const auto& [from, to] : renames) {
    const bool is_below = name.starts_with(from) && name.substr(from.size()).starts_with('.');
    if (name == from || is_below) return std::string(to) + name.substr(from.size());
  }
  return name;
}

std::int64_t rows_of(const ModelConfig& model, std::string_view part) {
  if (part == "self_attn.q_proj") return model.query_dim();
  if (part == "self_attn.k_proj" || part == "self_attn.v_proj") return model.kv_dim();
  return part.empty() ? 0 : model.ffn_dim;
}

// Places a part within the fused tensor, and takes its name.
void place_in_fused(const ModelConfig& model, std::span<const Fused> all, std::string& name,
                    StoredTensor& stored) {
  for (const Fused& fused : all) {
    bool is_part = false;
    std::int64_t rows = 0;
    for (const std::string_view part : fused.parts) {
      if (part == name) {
        is_part = true;
        stored.first_row = rows;
      }
      rows += rows_of(model, part);
    }
    if (!is_part) continue;
    stored.rows = rows;
    name = fused.whole;
    return;
  }
}

// A bias is one row of `rows` elements: here it counts like the matrix beside it.
StoredTensor as_stored(const ModelConfig& model, const WeightSpec& spec) {
  StoredTensor stored;
  const bool is_row = spec.role == WeightRole::Bias;
  stored.rows = is_row ? spec.cols : spec.rows;
  stored.cols = is_row ? 1 : spec.cols;
  const bool is_norm = spec.role == WeightRole::Norm || spec.role == WeightRole::GatedNorm;
  if (is_norm) stored.shape = {spec.cols};
  if (is_norm && model.has_qk_norm_per_head && spec.name.find("self_attn.") != std::string::npos) {
    stored.shape = {spec.cols / model.head_dim, model.head_dim};
  }
  if (spec.role == WeightRole::Convolution) stored.shape = {spec.rows, 1, spec.cols};
  return stored;
}

// The parts of a fused tensor that alternate: in each of `num_groups` groups of its rows, the part
// has rows [first, first + count).
struct Interleaved {
  std::string_view part;
  std::string_view whole;
  std::int64_t num_groups;
  std::int64_t first;
  std::int64_t count;
  std::int64_t stride;
};

void place_interleaved(std::span<const Interleaved> all, std::string& name, StoredTensor& stored) {
  for (const Interleaved& fused : all) {
    if (fused.part != name) continue;
    stored.rows = fused.num_groups * fused.stride;
    stored.first_row = fused.first;
    stored.row_group = fused.count;
    stored.row_stride = fused.stride;
    name = fused.whole;
    return;
  }
}

void place_gated_queries(const ModelConfig& model, std::string& name, StoredTensor& stored) {
  const std::int64_t dim = model.head_dim;
  const Interleaved all[] = {
      {"self_attn.q_proj", "self_attn.q_proj", model.n_heads, 0, dim, 2 * dim},
      {"self_attn.gate_proj", "self_attn.q_proj", model.n_heads, dim, dim, 2 * dim},
  };
  place_interleaved(all, name, stored);
}

void place_by_key_head(const LinearAttention& linear, std::string& name, StoredTensor& stored) {
  if (linear.is_empty()) return;
  const std::int64_t ratio = linear.n_value_heads / linear.n_key_heads;
  const std::int64_t key = linear.key_head_dim;
  const std::int64_t value = ratio * linear.value_head_dim;
  const std::int64_t num_heads = linear.n_key_heads;
  const std::int64_t stride = 2 * (key + value);
  constexpr std::string_view kMatrix = "linear_attn.in_proj_qkvz";
  constexpr std::string_view kGates = "linear_attn.in_proj_ba";
  const Interleaved all[] = {
      {"linear_attn.in_proj_q", kMatrix, num_heads, 0, key, stride},
      {"linear_attn.in_proj_k", kMatrix, num_heads, key, key, stride},
      {"linear_attn.in_proj_v", kMatrix, num_heads, 2 * key, value, stride},
      {"linear_attn.in_proj_z", kMatrix, num_heads, 2 * key + value, value, stride},
      {"linear_attn.in_proj_b", kGates, num_heads, 0, ratio, 2 * ratio},
      {"linear_attn.in_proj_a", kGates, num_heads, ratio, ratio, 2 * ratio},
  };
  place_interleaved(all, name, stored);
}

void place_by_part(const LinearAttention& linear, std::string& name, StoredTensor& stored) {
  constexpr std::string_view kWhole = "linear_attn.in_proj_qkv";
  const Interleaved all[] = {
      {"linear_attn.in_proj_q", kWhole, 1, 0, linear.key_dim(), linear.conv_channels()},
      {"linear_attn.in_proj_k", kWhole, 1, linear.key_dim(), linear.key_dim(),
       linear.conv_channels()},
      {"linear_attn.in_proj_v", kWhole, 1, 2 * linear.key_dim(), linear.value_dim(),
       linear.conv_channels()},
  };
  place_interleaved(all, name, stored);
}

// "mlp.experts.3.up_proj" as 3 and "up_proj".
struct ExpertPart {
  std::int64_t expert = 0;
  std::string matrix;

  bool is_down() const { return matrix == "down_proj"; }
  // Gates come before ups in the tensor that holds both.
  std::int64_t num_parts() const { return is_down() ? 1 : 2; }
  std::int64_t place() const { return matrix == "up_proj" ? 1 : 0; }
};

ExpertPart expert_part(const std::string& name) {
  const std::string of_expert = name.substr(kExperts.size());
  const std::size_t dot = of_expert.find('.');
  return {std::stoll(of_expert.substr(0, dot)), of_expert.substr(dot + 1)};
}

// An expert's matrix in a tensor of all experts: of gates and ups [n_experts, 2 * width,
// hidden_dim], or [n_experts, hidden_dim, width].
StoredTensor in_all_experts(const ModelConfig& model, const WeightSpec& spec,
                            const ExpertPart& part, const std::string& name) {
  const std::int64_t rows = part.num_parts() * spec.rows;
  return {.names = {name},
          .rows = model.n_experts * rows,
          .cols = spec.cols,
          .first_row = part.expert * rows + part.place() * spec.rows,
          .shape = {model.n_experts, rows, spec.cols}};
}

StoredTensor qwen_expert(const ModelConfig& model, const WeightSpec& spec, const NameParts& parts) {
  const ExpertPart part = expert_part(parts.name);
  return in_all_experts(
      model, spec, part,
      parts.prefix + std::string(kExperts) + (part.is_down() ? "down_proj" : "gate_up_proj"));
}

StoredTensor granite_tensor(const ModelConfig& model, const WeightSpec& spec,
                            const NameParts& parts) {
  if (parts.name.starts_with(kExperts)) {
    const ExpertPart part = expert_part(parts.name);
    return in_all_experts(model, spec, part,
                          parts.prefix + "block_sparse_moe." +
                              (part.is_down() ? "output_linear" : "input_linear") + parts.suffix);
  }
  StoredTensor stored = as_stored(model, spec);
  const std::string name = renamed_below(parts.name, kGraniteNames);
  stored.names = {parts.prefix + name + parts.suffix};
  if (name == "shared_mlp.input_linear") {
    stored.rows = 2 * spec.rows;
    if (parts.name.ends_with("up_proj")) stored.first_row = spec.rows;
  }
  return stored;
}

// gate_up_proj [n_experts, hidden_dim, 2 * width] has gates and ups by turns, and so has its bias
// [n_experts, 2 * width].
StoredTensor gpt_oss_tensor(const ModelConfig& model, const WeightSpec& spec,
                            const NameParts& parts) {
  StoredTensor stored = as_stored(model, spec);
  stored.names = {parts.prefix + renamed_below(parts.name, kGptOssNames) + parts.suffix};
  if (!parts.name.starts_with(kExperts)) return stored;
  const ExpertPart part = expert_part(parts.name);
  const bool is_bias = spec.role == WeightRole::Bias;
  stored.names = {parts.prefix + std::string(kExperts) +
                  (part.is_down() ? "down_proj" : "gate_up_proj") + (is_bias ? "_bias" : "")};
  const std::int64_t rows = part.num_parts() * stored.rows;
  stored.first_row = part.place();
  stored.row_group = part.is_down() ? 0 : 1;
  stored.row_stride = 2;
  if (is_bias) {
    stored.first_row += part.expert * rows;
    stored.rows = model.n_experts * rows;
    stored.shape = {model.n_experts, rows};
  } else {
    stored.rows = rows;
    stored.is_transposed = true;
    stored.first_element = part.expert * rows * spec.cols;
    stored.shape = {model.n_experts, spec.cols, rows};
  }
  return stored;
}

std::string mixtral_name(const NameParts& parts) {
  if (parts.suffix == kChoiceBias) return "block_sparse_moe";
  if (!parts.name.starts_with(kExperts)) return renamed(parts.name, kMixtralNames);
  const std::size_t dot = parts.name.rfind('.');
  return "block_sparse_moe.experts." +
         parts.name.substr(kExperts.size(), dot + 1 - kExperts.size()) +
         renamed(parts.name.substr(dot + 1), kMixtralNames);
}

// An expert's matrix in a tensor of all experts as Qwen3-VL publishes it: [n_experts, hidden_dim, 2
// * width] and [n_experts, width, hidden_dim].
StoredTensor with_transposed_experts(const ModelConfig& model, const WeightSpec& spec,
                                     StoredTensor stored) {
  const std::int64_t rows = stored.shape[1];
  const std::int64_t expert = stored.first_row / rows;
  stored.is_transposed = true;
  stored.first_element = expert * rows * spec.cols;
  stored.first_row -= expert * rows;
  stored.rows = rows;
  stored.shape = {model.n_experts, spec.cols, rows};
  return stored;
}

// GPT-NeoX: the query, the key and the value of a head follow each other.
void set_gpt_neox_place(const ModelConfig& model, NameParts parts, StoredTensor& stored) {
  constexpr std::string_view kWhole = "attention.query_key_value";
  const std::int64_t dim = model.head_dim;
  const Interleaved all[] = {
      {"self_attn.q_proj", kWhole, model.n_heads, 0, dim, 3 * dim},
      {"self_attn.k_proj", kWhole, model.n_heads, dim, dim, 3 * dim},
      {"self_attn.v_proj", kWhole, model.n_heads, 2 * dim, dim, 3 * dim},
  };
  place_interleaved(all, parts.name, stored);
  if (!parts.prefix.empty()) parts.prefix.replace(0, std::string_view("model").size(), "gpt_neox");
  stored.names = {parts.prefix + renamed(parts.name, kGptNeoxNames) + parts.suffix};
  // The head has another name in checkpoints of transformers before 5.
  if (parts.name == "lm_head") stored.names.push_back("embed_out" + parts.suffix);
}

// The tensor of a family whose files rename some and fuse some.
void set_place(const ModelConfig& model, NameParts parts, std::span<const Fused> fused,
               std::span<const Renames> names, StoredTensor& stored) {
  place_in_fused(model, fused, parts.name, stored);
  stored.names = {parts.prefix + renamed(parts.name, names) + parts.suffix};
}

void add_multimodal_names(const std::string& name, std::vector<std::string>& names) {
  constexpr std::string_view kBase = "model.";
  names.push_back("language_model." + name);
  if (name.starts_with(kBase)) {
    names.push_back("model.language_model." + name.substr(kBase.size()));
  }
}

// Checkpoints of the base model have no "transformer." in front.
void set_gpt2_names(const NameParts& parts, StoredTensor& stored) {
  std::string prefix = parts.prefix;
  if (!prefix.empty()) prefix = "h." + prefix.substr(std::string_view("model.layers.").size());
  const std::string name = prefix + parts.name + parts.suffix;
  stored.names = {parts.name == "lm_head" ? name : "transformer." + name, name};
}

std::vector<StoredTensor> qwen_tensors(const ModelConfig& model, const WeightSpec& spec,
                                       TensorNames names) {
  std::vector<StoredTensor> found = {as_stored(model, spec)};
  NameParts parts = split(spec.name);
  if (parts.name.starts_with(kExperts)) {
    found.push_back(qwen_expert(model, spec, parts));
    if (names == TensorNames::QwenVl) {
      found.push_back(with_transposed_experts(model, spec, found.back()));
    }
  } else if (names == TensorNames::Qwen3Next) {
    place_by_key_head(model.linear_attention, parts.name, found.front());
  } else {
    place_by_part(model.linear_attention, parts.name, found.front());
  }
  if (model.has_gated_attention) place_gated_queries(model, parts.name, found.front());
  found.front().names = {parts.prefix + parts.name + parts.suffix};
  for (StoredTensor& stored : found) {
    const std::string name = stored.names.front();
    add_multimodal_names(name, stored.names);
  }
  return found;
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const ModelConfig& model, const WeightSpec& spec) {
  StoredTensor stored = as_stored(model, spec);
  stored.names = {spec.name};
  if (spec.name.starts_with(kVisionPrefix)) {
    if (std::vector<std::int64_t> shape = stored_vision_shape(model.vision, spec); !shape.empty()) {
      stored.shape = std::move(shape);
    }
    // Checkpoints of transformers before 4.57 had no "model." in front.
    stored.names.push_back(spec.name.substr(std::string_view("model.").size()));
    return {stored};
  }
  const ModelFamily* const family = find_family(model.architecture);
  if (family == nullptr) return {stored};
  NameParts parts = split(spec.name);
  switch (family->tensors) {
    case TensorNames::Llama: break;
    case TensorNames::Gemma: add_multimodal_names(spec.name, stored.names); break;
    case TensorNames::Phi3: set_place(model, parts, kPhi3Fused, {}, stored); break;
    case TensorNames::Glm: set_place(model, parts, kGlmFused, {}, stored); break;
    case TensorNames::Glm4: set_place(model, parts, kGlmFused, kGlm4Names, stored); break;
    case TensorNames::HunYuan: set_place(model, parts, {}, kHunYuanNames, stored); break;
    case TensorNames::Apertus: set_place(model, parts, {}, kApertusNames, stored); break;
    case TensorNames::Starcoder2: set_place(model, parts, {}, kStarcoder2Names, stored); break;
    case TensorNames::Phi: set_place(model, parts, {}, kPhiNames, stored); break;
    case TensorNames::GptNeox: set_gpt_neox_place(model, parts, stored); break;
    case TensorNames::QwenVl:
    case TensorNames::Qwen3Next:
    case TensorNames::Qwen35: return qwen_tensors(model, spec, family->tensors);
    case TensorNames::Gpt2:
      place_in_fused(model, kGpt2Fused, parts.name, stored);
      stored.is_transposed = spec.role == WeightRole::Linear && parts.name != "lm_head";
      parts.name = renamed(parts.name, kGpt2Names);
      set_gpt2_names(parts, stored);
      break;
    case TensorNames::Mixtral:
      stored.names = {parts.prefix + mixtral_name(parts) + parts.suffix};
      break;
    case TensorNames::DeepSeek:
    case TensorNames::Ernie:
      parts.name = renamed_below(parts.name, kDeepSeekNames);
      if (family->tensors == TensorNames::Ernie && parts.suffix == kChoiceBias) {
        parts.name = "mlp.moe_statics";
        stored.shape = {1, spec.cols};
      }
      stored.names = {parts.prefix + parts.name + parts.suffix};
      add_multimodal_names(std::string(stored.names.front()), stored.names);
      break;
    case TensorNames::HunYuanMoe:
      stored.names = {parts.prefix + renamed_below(parts.name, kHunYuanMoeNames) + parts.suffix};
      break;
    case TensorNames::Granite: return {granite_tensor(model, spec, parts)};
    case TensorNames::GptOss: return {gpt_oss_tensor(model, spec, parts)};
  }
  return {stored};
}

}  // namespace metronome
