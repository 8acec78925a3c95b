// SPDX-License-Identifier: Apache-2.0
// Reads a model from its published config.json, as written by transformers 4 or 5.
#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "core/base/python_json.h"
#include "core/model/any_config.h"
#include "core/model/any_towers.h"
#include "core/model/config_keys.h"
#include "core/model/hugging_face_experts.h"
#include "core/model/hugging_face_latent.h"
#include "core/model/hugging_face_layers.h"
#include "core/model/hugging_face_parts.h"
#include "core/model/hugging_face_vision.h"
#include "core/model/json_section.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_family.h"
#include "core/model/quantization_config.h"

namespace metronome {
namespace {

// The file's architecture; its "model_type" if that is missing.
std::string architecture_of(const JsonSection& root) {
  const Json* names = root.find("architectures");
  // A configuration without a model saves [null].
  const bool is_unnamed =
      names == nullptr || (names->is_array() && !names->empty() && names->front().is_null());
  if (is_unnamed) {
    const std::string type = root.text_or("model_type", "");
    if (type.empty() && root.find("name") != nullptr) return kShapeArchitecture;
    if (type.empty()) root.fail_absent("architectures", computed_architectures());
    for (const ModelFamily& family : model_families()) {
      if (family.model_type == type) return std::string(family.architecture);
    }
    return printable(type);
  }
  if (!names->is_array() || names->empty() || !names->front().is_string()) {
    root.fail("architectures", "must be a list of names, got " + JsonSection::excerpt(*names) +
                                   "; allowed: " + computed_architectures());
  }
  return printable(names->front().get<std::string>());
}

// The row of a file around the language model of another family; nothing if that has no row.
std::optional<ModelFamily> wrapped_family(const JsonSection& root, const ModelFamily& wrapper) {
  const std::string type = root.required_section("text_config").text_or("model_type", "");
  for (const ModelFamily& family : model_families()) {
    if (family.model_type != type || family.traits != wrapper.traits) continue;
    ModelFamily wrapped = family;
    wrapped.architecture = wrapper.architecture;
    wrapped.tensors = wrapper.tensors;
    wrapped.is_nested = true;
    return wrapped;
  }
  return std::nullopt;
}

std::optional<ModelFamily> family_of(const JsonSection& root, const std::string& architecture) {
  const ModelFamily* const family = find_family(architecture);
  if (family == nullptr) return std::nullopt;
  return family->is_wrapper ? wrapped_family(root, *family) : *family;
}

std::int64_t bytes_per_weight(const JsonSection& root, const JsonSection& text) {
  std::string dtype = "bfloat16";
  for (const char* key : {"torch_dtype", "dtype"}) {
    dtype = root.text_or(key, text.text_or(key, dtype));
  }
  if (dtype == "bfloat16" || dtype == "float16") return 2;
  if (dtype == "float32") return 4;
  root.fail("torch_dtype", JsonSection::excerpt(Json(dtype)) +
                               " is not supported; allowed: bfloat16, float16, float32");
}

// A number that transformers' class may supply; -1 = it does not.
std::int64_t integer_of(const JsonSection& text, const char* key, std::int64_t otherwise) {
  return otherwise < 0 ? text.required_integer(key) : text.integer_or(key, otherwise);
}

void read_gpt2_shape(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  model.hidden_dim = text.required_integer("n_embd");
  model.n_layers = text.required_integer("n_layer");
  model.n_heads = model.n_kv_heads = integer_of(text, "n_head", family.defaults.n_heads);
  model.ffn_dim = text.integer_or("n_inner", 4 * model.hidden_dim);
  model.vocab_size = integer_of(text, "vocab_size", family.defaults.vocab_size);
  model.max_position_embeddings =
      integer_of(text, "n_positions", family.defaults.max_position_embeddings);
  if (model.n_heads == 0) return;  // shape_error() names the heads
  if (model.hidden_dim % model.n_heads != 0) {
    text.fail("n_head", "does not divide n_embd; allowed: a divisor of it");
  }
  model.head_dim = model.hidden_dim / model.n_heads;
}

void read_shape(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (family.keys == ConfigKeys::Gpt2) return read_gpt2_shape(text, family, model);
  const ConfigDefaults& defaults = family.defaults;
  model.hidden_dim = text.required_integer("hidden_size");
  model.n_layers = text.required_integer("num_hidden_layers");
  model.ffn_dim = has_dense_mlps(family)
                      ? text.required_integer("intermediate_size")
                      : text.integer_or("moe_intermediate_size", defaults.expert_ffn_dim);
  model.n_heads = integer_of(text, "num_attention_heads", defaults.n_heads);
  const bool is_silent = defaults.n_kv_heads != 0 && !text.has("num_key_value_heads");
  model.n_kv_heads =
      text.integer_or("num_key_value_heads", is_silent ? defaults.n_kv_heads : model.n_heads);
  model.vocab_size = integer_of(text, "vocab_size", defaults.vocab_size);
  model.max_position_embeddings =
      integer_of(text, "max_position_embeddings", defaults.max_position_embeddings);
  if (family.keys == ConfigKeys::DeepSeek) {
    read_latent_attention(text, model);
  } else if (const std::optional<std::int64_t> head_dim = text.integer("head_dim")) {
    model.head_dim = *head_dim;
  } else if (defaults.head_dim > 0) {
    model.head_dim = defaults.head_dim;
  } else if (model.n_heads == 0) {
    model.head_dim = 1;  // shape_error() names the heads
  } else if (model.hidden_dim % model.n_heads == 0 || family.floors_head_dim) {
    model.head_dim = model.hidden_dim / model.n_heads;
  } else {
    text.fail("num_attention_heads", "does not divide hidden_size; allowed: a divisor of it");
  }
}

// Fills `states`, the layers that keep a state, and `windows`: those listed, or all but every n-th
// have a state.
void read_hybrid_layers(const JsonSection& text, std::int64_t n_layers,
                        std::vector<std::int64_t>& states, std::vector<std::int64_t>& windows) {
  const std::int64_t interval = text.integer_or("full_attention_interval", 4);
  if (interval == 0) text.fail("full_attention_interval", "is 0; allowed: at least 1");
  constexpr const char* kAllowed = "linear_attention, sliding_attention or full_attention";
  const Json* const types = text.layer_list("layer_types", n_layers, kAllowed);
  for (std::int64_t i = 0; i < n_layers; ++i) {
    if (types == nullptr) {
      if ((i + 1) % interval != 0) states.push_back(i);
      continue;
    }
    const Json& type = (*types)[static_cast<std::size_t>(i)];
    if (type == "linear_attention") {
      states.push_back(i);
    } else if (type == "sliding_attention") {
      windows.push_back(i);
    } else if (type != "full_attention") {
      text.fail("layer_types", fmt::format("entry {} is {}; allowed: {} times {}", i,
                                           JsonSection::excerpt(type), n_layers, kAllowed));
    }
  }
}

// Of Qwen3.5; without the key, states have the model's type.
std::int64_t state_bytes_of(const JsonSection& text) {
  constexpr const char* kKey = "mamba_ssm_dtype";
  const std::string type = text.text_or(kKey, "bfloat16");
  if (type == "float32") return 4;
  if (type == "bfloat16" || type == "float16") return 2;
  text.fail(kKey, "is " + type + "; allowed: float32, bfloat16, float16");
}

void read_linear_attention(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (!family.has_linear_attention) return;
  LinearAttention linear;
  read_hybrid_layers(text, model.n_layers, linear.layers, model.window_layers);
  if (!model.window_layers.empty()) {
    model.sliding_window = text.required_integer("sliding_window");
    if (model.sliding_window < 1) {
      text.fail("sliding_window",
                fmt::format("is {}, but layer_types has sliding_attention; allowed: at least 1",
                            model.sliding_window));
    }
  }
  if (linear.layers.empty()) return;
  linear.n_key_heads = text.integer_or("linear_num_key_heads", 16);
  linear.n_value_heads = text.integer_or("linear_num_value_heads", 32);
  linear.key_head_dim = text.integer_or("linear_key_head_dim", 128);
  linear.value_head_dim = text.integer_or("linear_value_head_dim", 128);
  linear.conv_width = text.integer_or("linear_conv_kernel_dim", 4);
  linear.bytes_per_delta_element = state_bytes_of(text);
  model.linear_attention = linear;
}

// The object in a published file. `what` names the file's kind.
Json parse_object(std::string_view text, const std::string& path, const std::string& what) {
  const std::string allowed = "; allowed: " + what;
  try {
    Json document = parse_python_json(text);
    if (!document.is_object()) throw ConfigError(path + ": must be an object" + allowed);
    return document;
  } catch (const JsonError& error) {
    refuse_key_twice(error, path);
    if (error.reason() == JsonError::Reason::NumberTooLarge) {
      throw ConfigError(path + ": contains a number that is too large" + allowed);
    }
    std::size_t line = 1;
    for (std::size_t i = 0; i + 1 < error.byte() && i < text.size(); ++i) line += text[i] == '\n';
    throw ConfigError(fmt::format("{}:{}: is not JSON{}", path, line, allowed));
  }
}

JsonSection text_section(const JsonSection& root, const ModelFamily& family) {
  return family.is_nested ? root.required_section("text_config") : root;
}

// `more`: ModelOpt's file, for a model whose config.json says nothing.
void read_weight_formats(const JsonSection& root, const JsonSection& text,
                         const std::optional<PublishedFile>& more, ModelConfig& model) {
  if (const auto of_file = root.section("quantization_config")) {
    read_quantization(*of_file, model);
  } else if (const auto of_text = text.section("quantization_config")) {
    read_quantization(*of_text, model);
  } else if (const auto of_mlx = root.section("quantization")) {
    read_quantization(*of_mlx, model);
  } else if (more) {
    const Json document = parse_object(more->text, more->path, "ModelOpt's hf_quant_config.json");
    read_quantization(JsonSection(document, more->path, ""), model);
  }
}

// All but the formats of weights.
ModelConfig read_model(const JsonSection& root, const ModelFamily& family) {
  const JsonSection text = text_section(root, family);
  ModelConfig model;
  model.architecture = family.architecture;
  model.has_qk_norm = family.traits.has_qk_norm;
  model.has_post_norms = family.traits.has_post_norms;
  read_shape(text, family, model);
  read_experts(text, family, model);
  read_linear_attention(text, family, model);
  const bool is_tied = text.boolean_or("tie_word_embeddings", family.defaults.has_tied_embeddings);
  model.has_tied_embeddings = root.boolean_or("tie_word_embeddings", is_tied);
  model.bytes_per_weight = bytes_per_weight(root, text);
  read_layer_kinds(text, family, model);
  read_parts(root, text, family, model);
  if (family.has_vision) {
    read_vision(root, text, model);
  } else if (family.is_nested) {
    model.tower_params = tower_params(root, text, model.hidden_dim);
  }
  read_expert_traits(text, family, model);
  if (model.has_gated_attention && !text.boolean_or("attn_output_gate", true)) {
    model.refuse(text.dotted("attn_output_gate"), "false is not supported; allowed: true");
  }
  const std::string activation = text.text_or("hidden_act", "silu");
  if (!model.linear_attention.is_empty() && model.activation != Activation::Silu) {
    model.refuse(text.dotted("hidden_act"),
                 activation + " is not supported in linear attention; allowed: silu");
  }
  return model;
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view json, const std::string& path,
                                      const std::string& name,
                                      const std::optional<PublishedFile>& quantization) {
  const Json document = parse_object(json, path, "the config.json of a model");
  const JsonSection root(document, path, "");
  const std::string architecture = architecture_of(root);
  const std::optional<ModelFamily> family = family_of(root, architecture);
  const JsonSection text = family ? text_section(root, *family) : any_text_section(root);
  ModelConfig model = family ? read_model(root, *family) : read_any_model(root, architecture);
  model.name = name;
  if (!family) {
    model.bytes_per_weight = bytes_per_weight(root, text);
    model.unsupported = "architectures: " + JsonSection::excerpt(Json(architecture)) +
                        " is only simulated; allowed: " + computed_architectures();
  }
  const auto check_shape = [&] {
    const std::string error = model.shape_error();
    if (!error.empty()) throw ConfigError(path + ": " + in_keys_of(document, error));
  };
  check_shape();
  read_weight_formats(root, text, quantization, model);
  // DeepSeek-V4 says it beside the format of the other weights.
  if (text.text_or("expert_dtype", "") == "fp4" && model.n_experts > 0) {
    model.expert_format = WeightFormat::Mxfp4;
  }
  check_shape();
  if (model.is_quantised()) {
    model.refuse("quantization_config", "quantised weights are only simulated; allowed: plain");
  }
  model.unsupported = in_keys_of(document, model.unsupported);
  return model;
}

}  // namespace metronome
