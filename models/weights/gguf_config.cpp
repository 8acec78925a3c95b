// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/model/model_family.h"
#include "models/weights/gguf_family.h"
#include "models/weights/gguf_formats.h"
#include "models/weights/gguf_keys.h"
#include "models/weights/gguf_rope.h"
#include "models/weights/gguf_shape.h"

namespace metronome {
namespace {

constexpr const char* kArchitecture = "general.architecture";

std::string_view architecture_of(const GgufFile& file) {
  const std::optional<std::string_view> name = file.text(kArchitecture);
  if (!name) file.fail(kArchitecture, "is missing; allowed: " + gguf_family_names());
  return *name;
}

void read_shape(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  model.n_layers = keys.required("block_count");
  model.hidden_dim = keys.required("embedding_length");
  model.ffn_dim = keys.required("feed_forward_length");
  model.max_position_embeddings = keys.required("context_length");
  model.n_heads = keys.required("attention.head_count");
  model.n_kv_heads = keys.integer("attention.head_count_kv").value_or(model.n_heads);
  if (const auto key_length = keys.integer("attention.key_length")) {
    model.head_dim = *key_length;
  } else if (model.n_heads > 0 && model.hidden_dim % model.n_heads == 0) {
    model.head_dim = model.hidden_dim / model.n_heads;
  } else {
    keys.fail("attention.head_count", "does not divide embedding_length; allowed: a divisor of it");
  }
  model.vocab_size = gguf_vocab_size(file, keys);
  model.has_tied_embeddings = file.find_tensor("output.weight") == nullptr;
}

// Experts of one width in every layer, chosen by softmax.
void read_experts(const GgufFamily& family, const GgufKeys& keys, ModelConfig& model) {
  model.n_experts = keys.integer("expert_count").value_or(0);
  if (model.n_experts == 0) return;
  model.n_experts_per_token = keys.required("expert_used_count");
  // llama.cpp's default: Mixtral's feed_forward_length is that of an expert.
  const bool has_own_key = family.of_experts == family.architecture;
  const std::int64_t share = std::max<std::int64_t>(has_own_key ? model.n_experts_per_token : 1, 1);
  model.expert_ffn_dim = keys.integer("expert_feed_forward_length").value_or(model.ffn_dim / share);
  if (family.of_experts.empty()) {
    model.refuse(keys.full("expert_count"), "experts are not supported in this family; allowed: 0");
  } else {
    model.architecture = family.of_experts;
  }
}

void read_expert_weights(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  if (model.n_experts == 0) return;
  model.has_normalised_expert_weights =
      file.boolean(keys.full("expert_weights_norm")).value_or(true);
  const double scale = keys.number("expert_weights_scale").value_or(0);
  if (scale != 0 && scale != 1) {
    model.refuse(keys.full("expert_weights_scale"), "is not supported; allowed: 1");
  }
  constexpr std::int64_t kSoftmax = 1;
  if (keys.integer("expert_gating_func").value_or(kSoftmax) != kSoftmax) {
    model.refuse(keys.full("expert_gating_func"),
                 "is not supported; allowed: 1, the softmax of the router's outputs");
  }
}

// The interval of global layers: a number, or a list that says of each layer whether it has a
// window.
std::int64_t interval_of_windows(const GgufFile& file, const GgufKeys& keys, std::int64_t n_layers,
                                 std::int64_t otherwise) {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  const GgufValue* value = file.find(keys.full(kKey));
  if (value == nullptr) return otherwise;
  if (value->type != GgufType::Array) return keys.required(kKey);
  const std::vector<bool> windows = file.booleans(keys.full(kKey));
  const auto fail = [&] {
    keys.fail(kKey,
              "does not make every n-th layer global; allowed: a truth for each layer, "
              "false for every n-th");
  };
  if (static_cast<std::int64_t>(windows.size()) != n_layers) fail();
  std::int64_t interval = 0;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const bool is_global = !windows[static_cast<std::size_t>(i)];
    if (is_global && interval == 0) interval = i + 1;
    if (is_global != (interval != 0 && (i + 1) % interval == 0)) fail();
  }
  return interval;
}

void read_window(const GgufFile& file, const GgufFamily& family, const GgufKeys& keys,
                 ModelConfig& model) {
  constexpr const char* kKey = "attention.sliding_window";
  const ModelFamily& computed = *find_family(family.architecture);
  if (family.windows == WindowRule::Alternate) {
    model.rope_local_theta = keys.number("rope.freq_base_swa").value_or(computed.local_rope_theta);
  }
  model.sliding_window = keys.integer(kKey).value_or(family.window_default);
  if (model.sliding_window == 0) return;
  if (family.windows == WindowRule::Alternate) {
    model.global_layer_interval =
        interval_of_windows(file, keys, model.n_layers, computed.window_interval);
    // Every layer is global.
    if (model.global_layer_interval == 1) model.sliding_window = model.global_layer_interval = 0;
  } else if (family.windows == WindowRule::None) {
    model.refuse(keys.full(kKey), "a window is not supported in this family; allowed: 0");
    model.sliding_window = 0;
  }
}

// The part of each head that RoPE rotates.
void read_rotated_part(const GgufKeys& keys, ModelConfig& model) {
  constexpr const char* kKey = "rope.dimension_count";
  const std::int64_t num_rotated = keys.integer(kKey).value_or(model.head_dim);
  if (num_rotated == model.head_dim || model.has_learned_positions) return;
  const ModelFamily& computed = *find_family(model.architecture);
  if (computed.has_partial_rotation && num_rotated > 0 && num_rotated % 2 == 0) {
    model.rotary_dim = num_rotated;
    return;
  }
  model.refuse(
      keys.full(kKey),
      fmt::format("rotation of such a part of each head is not supported; allowed: {}{}",
                  model.head_dim, computed.has_partial_rotation ? ", even numbers below" : ""));
}

// Factors of embeddings, residuals, scores and logits; 0 is none, as in llama.cpp.
void read_multipliers(const GgufKeys& keys, ModelConfig& model) {
  const auto multiplier = [&keys](const char* key) {
    const double value = keys.number(key).value_or(0);
    return value == 0 ? 1 : value;
  };
  model.attention_multiplier = keys.number("attention.scale").value_or(0);
  model.embedding_multiplier = multiplier("embedding_scale");
  model.residual_multiplier = multiplier("residual_scale");
  model.logit_divisor = multiplier("logit_scale");
}

void read_arithmetic(const GgufFile& file, const GgufFamily& family, const GgufKeys& keys,
                     ModelConfig& model) {
  const ModelFamily& computed = *find_family(model.architecture);
  model.norm_eps = keys.required_number(model.has_layer_norms ? "attention.layer_norm_epsilon"
                                                              : "attention.layer_norm_rms_epsilon");
  if (!model.has_learned_positions) {
    read_rotated_part(keys, model);
    read_gguf_rope(file, keys, model);
  }
  for (std::int64_t i = computed.unrotated_interval; i > 0 && i <= model.n_layers;
       i += computed.unrotated_interval) {
    model.unrotated_layers.push_back(i - 1);
  }
  model.attention_softcap =
      keys.number("attn_logit_softcapping").value_or(computed.defaults.attention_softcap);
  model.logit_softcap =
      keys.number("final_logit_softcapping").value_or(computed.defaults.logit_softcap);
  if (computed.has_multipliers) read_multipliers(keys, model);
  if (family.layers_of_27b > 0) {
    const bool is_27b = model.n_layers == family.layers_of_27b && model.n_heads > 0;
    model.query_pre_attn_scalar =
        static_cast<double>(is_27b ? model.hidden_dim / model.n_heads : model.head_dim);
  }
}

// Biases that any family may have. Sets the traits that they are for, and refuses others.
void read_biases(const GgufFile& file, ModelConfig& model) {
  for (const GgufTensor& tensor : file.tensors()) {
    constexpr std::string_view kEnding = ".bias";
    std::string_view name = tensor.name;
    if (!name.ends_with(kEnding)) continue;
    name.remove_suffix(kEnding.size());
    const std::string_view part = name.substr(name.rfind('.') + 1);
    if (part == "attn_q" || part == "attn_k" || part == "attn_v" || part == "attn_qkv") {
      model.has_qkv_biases = true;
    } else if (part == "attn_output") {
      model.has_attention_output_bias = true;
    } else if (model.n_experts == 0 &&
               (part == "ffn_gate" || part == "ffn_up" || part == "ffn_down")) {
      model.has_mlp_biases = true;
    } else if (!model.has_norm_biases || !part.ends_with("_norm")) {
      model.refuse("tensor " + gguf_shown(tensor.name),
                   "such a bias is not supported; allowed: biases of attention and MLP");
    }
  }
}

void find_unsupported(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  if (keys.integer("attention.value_length").value_or(model.head_dim) != model.head_dim) {
    model.refuse(keys.full("attention.value_length"),
                 fmt::format("values of another length than keys are not supported; allowed: {}",
                             model.head_dim));
  }
  if (!file.boolean(keys.full("attention.causal")).value_or(true)) {
    model.refuse(keys.full("attention.causal"),
                 "attention to later tokens is not supported; allowed: true");
  }
  // In Granite's files, false means that there is no RoPE.
  if (find_family(model.architecture)->has_multipliers &&
      !file.boolean(keys.full("rope.scaling.finetuned")).value_or(true)) {
    model.refuse(keys.full("rope.scaling.finetuned"),
                 "a model without RoPE is not supported; allowed: true");
  }
}

void check_shape(const GgufFile& file, const ModelConfig& model) {
  const std::string error = model.shape_error();
  if (!error.empty()) throw ConfigError(printable(file.path() + ": " + error));
}

// All but the tokens that end a text, and the formats of weights.
ModelConfig read_family(const GgufFile& file, const GgufFamily& family, const std::string& name) {
  const GgufKeys keys(file, family.name);
  ModelConfig model;
  model.name = name;
  model.architecture = family.architecture;
  read_shape(file, keys, model);
  read_experts(family, keys, model);
  const ModelTraits& traits = find_family(model.architecture)->traits;
  model.has_qk_norm = traits.has_qk_norm;
  model.has_post_norms = traits.has_post_norms;
  apply_architecture(model);
  read_expert_weights(file, keys, model);
  read_window(file, family, keys, model);
  check_shape(file, model);  // the number of layers among others
  read_arithmetic(file, family, keys, model);
  read_biases(file, model);
  find_unsupported(file, keys, model);
  return model;
}

// Tokens that end an answer, by their texts.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};
// Tokens that separate files in code, which end a completion.
constexpr std::string_view kFileTexts[] = {
    "<|fim_pad|>",   "<fim-pad>",  "<fim_pad>", "<PAD>",      "[PAD]",       "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>",    "<reponame>", "<|file_sep|>"};

template <class Texts>
bool is_one_of(std::string_view token, const Texts& texts) {
  return std::find(std::begin(texts), std::end(texts), token) != std::end(texts);
}

}  // namespace

std::vector<std::int32_t> gguf_eos_token_ids(const GgufFile& file) {
  const std::vector<std::string_view> tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<std::int64_t> types = file.integers("tokenizer.ggml.token_type");
  constexpr std::int64_t kControl = 3;
  std::optional<std::int64_t> first;
  std::set<std::int64_t> ids;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    const std::optional<std::int64_t> id = file.integer(full);
    if (!id) continue;
    if (*id < 0 || *id > std::numeric_limits<std::int32_t>::max() ||
        (!tokens.empty() && *id >= static_cast<std::int64_t>(tokens.size()))) {
      file.fail(full, fmt::format("is {}; allowed: the id of a token", *id));
    }
    if (!first) first = *id;
    ids.insert(*id);
  }
  std::optional<std::int64_t> end;  // <|end|>, which ends a part of an answer only in some models
  bool has_return = false, has_call = false, has_flush = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    const auto id = static_cast<std::int64_t>(i);
    const bool is_control = i < types.size() && types[i] == kControl;
    if (is_one_of(token, kEndTexts) || is_one_of(token, kFileTexts) ||
        (token == "</s>" && is_control)) {
      ids.insert(id);
    }
    if (token == "<|end|>") end = id;
    has_return |= token == "<|return|>";
    has_call |= token == "<|call|>" || token == "<|calls|>";
    has_flush |= token == "<|flush|>";
  }
  if (end && has_call && (has_return || has_flush)) ids.erase(*end);
  std::vector<std::int32_t> result;
  if (first && ids.erase(*first) > 0) result.push_back(static_cast<std::int32_t>(*first));
  for (const std::int64_t id : ids) result.push_back(static_cast<std::int32_t>(id));
  return result;
}

ModelConfig read_gguf_config(const GgufFile& file, const std::string& name) {
  const std::string_view architecture = architecture_of(file);
  const GgufFamily* const family = find_gguf_family(architecture);
  if (family == nullptr && !has_gguf_shape(file, architecture)) {
    file.fail(kArchitecture, gguf_shown(architecture) + " is not supported" +
                                 gguf_family_hint(architecture) +
                                 "; allowed: " + gguf_family_names());
  }
  ModelConfig model = family == nullptr ? read_gguf_shape(file, architecture, name)
                                        : read_family(file, *family, name);
  model.eos_token_ids = gguf_eos_token_ids(file);
  check_shape(file, model);
  read_gguf_formats(file, model);
  return model;
}

}  // namespace metronome
