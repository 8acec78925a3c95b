// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_experts.h"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <set>
#include <string>

#include "core/base/json.h"

namespace metronome {
namespace {

using LayerSet = std::set<std::int64_t>;

// LayerSet of a Qwen mixture without experts: the listed layers, and all but every
// `decoder_sparse_step`-th.
LayerSet dense_layers_of_qwen(const JsonSection& text, std::int64_t n_layers) {
  const std::int64_t step = text.integer_or("decoder_sparse_step", 1);
  if (step < 1) text.fail("decoder_sparse_step", "is 0; allowed: at least 1");
  LayerSet dense;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    if ((i + 1) % step != 0) dense.insert(i);
  }
  if (const Json* layers = text.find("mlp_only_layers")) {
    const auto is_layer = [&](const Json& layer) {
      return layer.is_number_unsigned() &&
             layer.get<std::uint64_t>() < static_cast<std::uint64_t>(n_layers);
    };
    if (!layers->is_array() || !std::all_of(layers->begin(), layers->end(), is_layer)) {
      text.fail("mlp_only_layers", fmt::format("must be a list of layers, got {}; allowed: 0 to {}",
                                               JsonSection::excerpt(*layers), n_layers - 1));
    }
    for (const Json& layer : *layers) dense.insert(layer.get<std::int64_t>());
  }
  return dense;
}

// Layers that GLM's list calls dense; without it, the first ones.
LayerSet first_dense_layers(const JsonSection& text, std::int64_t otherwise,
                            std::int64_t n_layers) {
  const std::int64_t step = text.integer_or("moe_layer_freq", 1);
  if (step != 1) text.fail("moe_layer_freq", fmt::format("is {}; allowed: 1", step));
  const std::int64_t num_first =
      std::min(text.integer_or("first_k_dense_replace", otherwise), n_layers);
  LayerSet dense;
  const Json* const kinds = text.layer_list("mlp_layer_types", n_layers, "dense or sparse");
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const bool is_dense =
        kinds == nullptr ? i < num_first : (*kinds)[static_cast<std::size_t>(i)] == Json("dense");
    if (is_dense) dense.insert(i);
  }
  return dense;
}

LayerSet dense_layers_of_ernie(const JsonSection& text, std::int64_t n_layers) {
  const std::int64_t interval = text.integer_or("moe_layer_interval", 1);
  if (interval < 1) text.fail("moe_layer_interval", "is 0; allowed: at least 1");
  const std::int64_t first = text.integer_or("moe_layer_start_index", 1);
  // -1 is the last layer.
  const double end = text.number_or("moe_layer_end_index", -1);
  LayerSet dense;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const bool is_within = i >= first && (end < 0 || static_cast<double>(i) <= end);
    if (!is_within || (i + 1) % interval != 0) dense.insert(i);
  }
  return dense;
}

LayerSet dense_layers_of(const JsonSection& text, const ModelFamily& family,
                         std::int64_t n_layers) {
  switch (family.expert_keys.dense) {
    case DenseLayers::None: return {};
    case DenseLayers::Qwen: return dense_layers_of_qwen(text, n_layers);
    case DenseLayers::First:
      return first_dense_layers(text, family.defaults.n_dense_layers, n_layers);
    case DenseLayers::Ernie: return dense_layers_of_ernie(text, n_layers);
  }
  return {};
}

// A number, or a list that has the same for every layer, as Hunyuan's files do.
std::int64_t integer_of_layers(const JsonSection& text, const char* key, std::int64_t otherwise) {
  const Json* const value = text.find(key);
  if (value == nullptr || !value->is_array()) return text.integer_or(key, otherwise);
  const bool is_uniform = !value->empty() && value->front().is_number_unsigned() &&
                          std::all_of(value->begin(), value->end(), [&](const Json& of_layer) {
                            return of_layer == value->front();
                          });
  constexpr std::uint64_t kMax = 1 << 20;
  if (!is_uniform || value->front().get<std::uint64_t>() > kMax) {
    text.fail(key, "is " + JsonSection::excerpt(*value) +
                       "; allowed: a number, or a list that has the same for every layer");
  }
  return static_cast<std::int64_t>(value->front().get<std::uint64_t>());
}

// The width of the experts that compute every token, together.
std::int64_t shared_width(const JsonSection& text, const ModelFamily& family,
                          const ModelConfig& model) {
  const ExpertKeys& keys = family.expert_keys;
  if (keys.has_wide_shared_expert) return model.ffn_dim;
  if (keys.shared_width != nullptr) {
    return text.integer_or(keys.shared_width, family.defaults.shared_expert_ffn_dim);
  }
  if (keys.num_shared == nullptr) return 0;
  const std::int64_t count = text.integer_or(keys.num_shared, family.defaults.n_shared_experts);
  constexpr std::int64_t kMaxShared = 1 << 10;
  if (count > kMaxShared) {
    text.fail(keys.num_shared, fmt::format("is {}; allowed: 0 to {}", count, kMaxShared));
  }
  return count * std::min<std::int64_t>(model.expert_ffn_dim, 1 << 24);
}

void read_groups(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  const ConfigDefaults& defaults = family.defaults;
  model.expert_scale = text.number_or("routed_scaling_factor", defaults.expert_scale);
  // DeepSeek-V2's "greedy" looks at no groups.
  if (!family.traits.has_paired_groups && text.text_or("topk_method", "greedy") == "greedy") return;
  model.n_expert_groups = text.integer_or("n_group", defaults.n_expert_groups);
  model.n_groups_per_token = text.integer_or("topk_group", defaults.n_groups_per_token);
}

// A key whose other values change what is computed.
void refuse_others(const JsonSection& text, const char* key, double allowed, ModelConfig& model) {
  if (text.number_or(key, allowed) == allowed) return;
  model.refuse(text.dotted(key),
               "is " + JsonSection::excerpt(*text.find(key)) +
                   ", which is only simulated; allowed: " + JsonSection::excerpt(Json(allowed)));
}

void refuse_true(const JsonSection& text, const char* key, ModelConfig& model) {
  if (!text.boolean_or(key, false)) return;
  model.refuse(text.dotted(key), "true is only simulated; allowed: false");
}

}  // namespace

bool has_dense_mlps(const ModelFamily& family) {
  if (!family.has_experts) return true;
  const ExpertKeys& keys = family.expert_keys;
  return keys.dense != DenseLayers::None || keys.width == nullptr || keys.has_wide_shared_expert;
}

void read_experts(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (!family.has_experts) return;
  const ExpertKeys& keys = family.expert_keys;
  const ConfigDefaults& defaults = family.defaults;
  // transformers knows the second name in every family.
  model.n_experts =
      integer_of_layers(text, keys.count, text.integer_or("num_local_experts", defaults.n_experts));
  if (model.n_experts == 0 && keys.dense == DenseLayers::None && keys.width == nullptr) {
    text.fail(keys.count, "is 0; allowed: at least 1");
  }
  const LayerSet dense = dense_layers_of(text, family, model.n_layers);
  const auto num_dense = static_cast<std::int64_t>(dense.size());
  if (model.n_experts == 0 || num_dense == model.n_layers) {  // no layer has experts
    model.n_experts = 0;
    return;
  }
  model.n_dense_layers = num_dense;
  const bool are_first = dense.empty() || *dense.rbegin() + 1 == num_dense;
  if (!are_first) model.dense_layers.assign(dense.begin(), dense.end());
  model.n_experts_per_token = integer_of_layers(
      text, keys.per_token, text.integer_or("experts_per_token", defaults.n_experts_per_token));
  model.expert_ffn_dim =
      keys.width == nullptr ? model.ffn_dim : text.integer_or(keys.width, defaults.expert_ffn_dim);
  model.shared_expert_ffn_dim = shared_width(text, family, model);
  if (keys.has_groups) read_groups(text, family, model);
}

void read_expert_traits(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (model.shared_expert_ffn_dim == 0) model.has_shared_expert_gate = false;
  if (family.keys == ConfigKeys::DeepSeek) {
    model.has_interleaved_rope = text.boolean_or("rope_interleave", model.has_interleaved_rope);
  }
  if (!family.has_experts) return;
  const ExpertKeys& keys = family.expert_keys;
  if (keys.normalises != nullptr) {
    model.has_normalised_expert_weights =
        text.boolean_or(keys.normalises, family.defaults.has_normalised_expert_weights);
  } else if (!model.has_normalised_expert_weights) {
    // transformers' DeepSeek-V2 never looks at the key; DeepSeek's own code does.
    refuse_true(text, "norm_topk_prob", model);
  }
  model.has_head_bias = text.boolean_or("lm_head_bias", model.has_head_bias);
  if (model.has_sparse_mixer) refuse_others(text, "router_jitter_noise", 0.01, model);
  if (model.activation == Activation::ClampedSwiglu) {
    refuse_others(text, "swiglu_alpha", 1.702, model);
    refuse_others(text, "swiglu_limit", 7, model);
  }
  if (family.tensors == TensorNames::Ernie) refuse_true(text, "use_bias", model);
  if (text.find("clip_qkv") != nullptr) {
    model.refuse(text.dotted("clip_qkv"), "is only simulated; allowed: null");
  }
  const std::string method = text.text_or("topk_method", "greedy");
  if (keys.has_groups && !model.has_choice_bias && method != "greedy" &&
      method != "group_limited_greedy") {
    model.refuse(text.dotted("topk_method"),
                 method + " is only simulated; allowed: greedy, group_limited_greedy");
  }
  const std::string scores = model.has_sigmoid_router ? "sigmoid" : "softmax";
  if (text.text_or("scoring_func", scores) != scores) {
    model.refuse(text.dotted("scoring_func"),
                 text.text_or("scoring_func", "") + " is only simulated; allowed: " + scores);
  }
}

}  // namespace metronome
