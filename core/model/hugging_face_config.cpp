// Reads a model from its published config.json, as written by transformers 4 or 5.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/model/json_section.h"
#include "core/model/model_catalogue.h"
#include "core/model/quantization_config.h"

namespace metronome {
namespace {

// Facts that the model code of an architecture implies and its config.json omits or may omit.
// Source of the defaults: transformers'
// configuration_{llama,mistral,mixtral,qwen3,qwen3_moe,gemma3}.py.
struct Family {
  std::string_view architecture;
  std::string_view model_type;  // identifies the family if "architectures" is missing
  bool has_qk_norm = false;
  bool has_post_norms = false;
  bool is_tied_by_default = false;
  bool is_gemma = false;
  bool is_nested = false;          // the language model is under text_config
  std::int32_t eos_token_id = -1;  // -1 = none
  std::int64_t n_kv_heads = 0;     // if the file has no value; 0 = as many as query heads
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", false, false, false, false, false, 2, 0},
    {"MistralForCausalLM", "mistral", false, false, false, false, false, 2, 8},
    {"Qwen3ForCausalLM", "qwen3", true, false, false, false, false, -1, 32},
    {"MixtralForCausalLM", "mixtral", false, false, false, false, false, 2, 8},
    {"Qwen3MoeForCausalLM", "qwen3_moe", true, false, false, false, false, -1, 4},
    {"Gemma3ForCausalLM", "gemma3_text", true, true, true, true, false, 1, 4},
    {"Gemma3ForConditionalGeneration", "gemma3", true, true, true, true, true, 1, 4},
};

std::string supported_architectures() {
  std::string list;
  for (const Family& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.architecture;
  }
  return list;
}

const Family& find_family(const JsonSection& root) {
  const Json* names = root.find("architectures");
  if (names == nullptr) {
    const std::string type = root.text_or("model_type", "");
    for (const Family& family : kFamilies) {
      if (family.model_type == type) return family;
    }
    root.fail("architectures", "is missing; allowed: " + supported_architectures());
  }
  if (!names->is_array() || names->empty() || !names->front().is_string()) {
    root.fail("architectures", "must be a list of names, got " + JsonSection::excerpt(*names) +
                                   "; allowed: " + supported_architectures());
  }
  const std::string name = names->front().get<std::string>();
  for (const Family& family : kFamilies) {
    if (family.architecture == name) return family;
  }
  root.fail("architectures", JsonSection::excerpt(names->front()) +
                                 " is not supported; allowed: " + supported_architectures());
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

// Which layers have a window, from the layer list of newer files: every n-th layer has none.
std::int64_t interval_of_layer_types(const JsonSection& text, const Json& types,
                                     std::int64_t n_layers) {
  const std::string allowed = "; allowed: " + std::to_string(n_layers) +
                              " times sliding_attention or full_attention, every n-th one full";
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != n_layers) {
    text.fail("layer_types", "is not a list with one entry per layer" + allowed);
  }
  std::int64_t interval = 0;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const Json& type = types[static_cast<std::size_t>(i)];
    const bool is_full = type == "full_attention";
    if (is_full && interval == 0) interval = i + 1;
    const bool should_be_full = interval != 0 && (i + 1) % interval == 0;
    if (is_full != should_be_full || (!is_full && type != "sliding_attention")) {
      text.fail("layer_types", "entry " + std::to_string(i) + " is " + JsonSection::excerpt(type) +
                                   " and breaks the pattern" + allowed);
    }
  }
  return interval;
}

void read_window(const JsonSection& text, const Family& family, ModelConfig& model) {
  if (family.is_gemma) {
    model.sliding_window = text.integer_or("sliding_window", 4096);
    if (model.sliding_window == 0) return;
    constexpr std::int64_t kDefaultInterval = 6;
    model.global_layer_interval = text.integer_or(
        "sliding_window_pattern", text.integer_or("_sliding_window_pattern", kDefaultInterval));
    if (const Json* types = text.find("layer_types")) {
      model.global_layer_interval = interval_of_layer_types(text, *types, model.n_layers);
    }
  } else if (family.architecture == "MistralForCausalLM") {
    // Only null turns the window off.
    model.sliding_window = text.integer_or("sliding_window", text.has("sliding_window") ? 0 : 4096);
  } else if (family.architecture == "MixtralForCausalLM") {
    model.sliding_window = text.integer_or("sliding_window", 0);
  } else if (text.boolean_or("use_sliding_window", false)) {
    text.fail("use_sliding_window", "true is not supported; allowed: false");
  }
}

// Records what an executor cannot compute; keeps the first record.
void set_unsupported(ModelConfig& model, const std::string& key, const std::string& message) {
  if (model.unsupported.empty()) model.unsupported = key + ": " + message;
}

void read_activation(const JsonSection& text, const Family& family, ModelConfig& model) {
  const char* key = family.is_gemma ? "hidden_activation" : "hidden_act";
  const std::string name = text.text_or(key, family.is_gemma ? "gelu_pytorch_tanh" : "silu");
  // transformers' activations.py has several names for one function.
  if (name == "silu" || name == "swish") {
    model.activation = Activation::Silu;
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" || name == "gelu_new") {
    model.activation = Activation::GeluTanh;
  } else {
    set_unsupported(model, text.dotted(key),
                    JsonSection::excerpt(Json(name)) +
                        " is not supported; allowed: silu, swish, gelu_pytorch_tanh, gelu_new");
  }
}

// The RoPE scaling of some layers, from `rope_scaling` or an entry of `rope_parameters`. The object
// may hold the base too.
RopeScaling read_scaling(const JsonSection& rope, std::int64_t max_positions, ModelConfig& model) {
  const char* key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = rope.text_or(key, "default");
  if (rope.number_or("partial_rotary_factor", 1) != 1) {
    set_unsupported(model, rope.dotted("partial_rotary_factor"),
                    "rotation of a part of each head is not supported; allowed: 1");
  }
  RopeScaling scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::Linear;
    scaling.factor = rope.required_number("factor");
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::Llama3;
    scaling.factor = rope.required_number("factor");
    scaling.low_freq_factor = rope.required_number("low_freq_factor");
    scaling.high_freq_factor = rope.required_number("high_freq_factor");
    scaling.original_max_positions =
        rope.integer_or("original_max_position_embeddings", max_positions);
  } else if (type != "default") {
    set_unsupported(
        model, rope.dotted(key),
        JsonSection::excerpt(Json(type)) + " is not supported; allowed: default, linear, llama3");
  }
  return scaling;
}

// Gemma's window layers have their own RoPE frequencies, which are never scaled.
void read_gemma_rope(const JsonSection& text, ModelConfig& model) {
  constexpr double kGlobalTheta = 1e6;
  constexpr double kLocalTheta = 1e4;
  model.rope_theta = text.number_or("rope_theta", kGlobalTheta);
  model.rope_local_theta = text.number_or("rope_local_base_freq", kLocalTheta);
  const std::int64_t max_positions = model.max_position_embeddings;
  if (const std::optional<JsonSection> by_layer = text.section("rope_parameters")) {
    if (by_layer->find("rope_theta") != nullptr || by_layer->find("rope_type") != nullptr) {
      set_unsupported(model, text.dotted("rope_parameters"),
                      "are not given per layer type; allowed: full_attention, sliding_attention");
    }
    if (const std::optional<JsonSection> full = by_layer->section("full_attention")) {
      model.rope_theta = full->number_or("rope_theta", model.rope_theta);
      model.rope_scaling = read_scaling(*full, max_positions, model);
    }
    if (const std::optional<JsonSection> local = by_layer->section("sliding_attention")) {
      model.rope_local_theta = local->number_or("rope_theta", model.rope_local_theta);
      if (read_scaling(*local, max_positions, model).kind != RopeScaling::Kind::None) {
        set_unsupported(model, local->dotted("rope_type"),
                        "scaling in window layers is not supported; allowed: default");
      }
    }
  }
  if (const std::optional<JsonSection> scaling = text.section("rope_scaling")) {
    model.rope_scaling = read_scaling(*scaling, max_positions, model);
  }
}

void read_rope(const JsonSection& text, ModelConfig& model) {
  model.rope_theta = text.number_or("rope_theta", model.rope_theta);
  // If a file has both forms, the transformers 4 form wins, as in transformers 5.
  const bool is_old = text.find("rope_scaling") != nullptr;
  const std::optional<JsonSection> rope = text.section(is_old ? "rope_scaling" : "rope_parameters");
  if (!rope) return;
  for (const char* key : {"full_attention", "sliding_attention"}) {
    if (rope->find(key) != nullptr) {
      set_unsupported(model, rope->dotted(key),
                      "parameters per layer type are not supported; allowed: one set for all");
    }
  }
  model.rope_theta = rope->number_or("rope_theta", model.rope_theta);
  model.rope_scaling = read_scaling(
      *rope, text.integer_or("original_max_position_embeddings", model.max_position_embeddings),
      model);
}

std::vector<std::int32_t> read_eos_token_ids(const JsonSection& section) {
  const Json* value = section.find("eos_token_id");
  if (value == nullptr) return {};
  std::vector<std::int32_t> ids;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > std::uint64_t{kMax}) {
      section.fail("eos_token_id", "must be a token id or a list of them, got " +
                                       JsonSection::excerpt(*value) + "; allowed: 0 to 2^31 - 1");
    }
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

// Finds settings of any family that no executor computes.
void find_unsupported(const JsonSection& text, ModelConfig& model) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (text.boolean_or(key, false)) {
      set_unsupported(model, text.dotted(key), "biases are not supported; allowed: false");
    }
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (text.find(key) == nullptr) continue;
    text.required_number(key);
    set_unsupported(model, text.dotted(key), "softcapping is not supported; allowed: null");
  }
  if (text.boolean_or("use_bidirectional_attention", false)) {
    set_unsupported(model, text.dotted("use_bidirectional_attention"),
                    "only causal attention is supported; allowed: false");
  }
  if (text.number_or("partial_rotary_factor", 1) != 1) {
    set_unsupported(model, text.dotted("partial_rotary_factor"),
                    "rotation of a part of each head is not supported; allowed: 1");
  }
}

void read_arithmetic(const JsonSection& root, const JsonSection& text, const Family& family,
                     ModelConfig& model) {
  apply_architecture(model);
  model.norm_eps = text.number_or("rms_norm_eps", model.norm_eps);
  if (family.is_gemma) {
    model.query_pre_attn_scalar = text.number_or("query_pre_attn_scalar", 256);
    read_gemma_rope(text, model);
  } else {
    read_rope(text, model);
  }
  read_activation(text, family, model);
  if (root.find("eos_token_id") != nullptr || text.has("eos_token_id")) {
    model.eos_token_ids = read_eos_token_ids(root.find("eos_token_id") != nullptr ? root : text);
  } else if (family.eos_token_id >= 0) {
    model.eos_token_ids = {family.eos_token_id};
  }
  find_unsupported(text, model);
}

void read_shape(const JsonSection& text, const Family& family, ModelConfig& model) {
  model.hidden_dim = text.required_integer("hidden_size");
  model.n_layers = text.required_integer("num_hidden_layers");
  model.ffn_dim = text.required_integer("intermediate_size");
  if (family.is_gemma) {
    model.n_heads = text.integer_or("num_attention_heads", 8);
    model.head_dim = text.integer_or("head_dim", 256);
    model.vocab_size = text.integer_or("vocab_size", 262208);
    model.max_position_embeddings = text.integer_or("max_position_embeddings", 131072);
    model.n_kv_heads = text.integer_or("num_key_value_heads", family.n_kv_heads);
    return;
  }
  model.n_heads = text.required_integer("num_attention_heads");
  const bool is_silent = family.n_kv_heads != 0 && !text.has("num_key_value_heads");
  model.n_kv_heads =
      text.integer_or("num_key_value_heads", is_silent ? family.n_kv_heads : model.n_heads);
  model.vocab_size = text.required_integer("vocab_size");
  model.max_position_embeddings = text.required_integer("max_position_embeddings");
  if (const std::optional<std::int64_t> head_dim = text.integer("head_dim")) {
    model.head_dim = *head_dim;
  } else if (family.model_type == "qwen3") {
    model.head_dim = 128;
  } else if (model.n_heads > 0 && model.hidden_dim % model.n_heads == 0) {
    model.head_dim = model.hidden_dim / model.n_heads;
  } else {
    text.fail("num_attention_heads", "does not divide hidden_size; allowed: a divisor of it");
  }
}

// Layers of a Qwen 3 mixture without experts: the listed layers, and all but every
// `decoder_sparse_step`-th.
std::int64_t num_dense_layers(const JsonSection& text, const ModelConfig& model) {
  const std::int64_t step = text.integer_or("decoder_sparse_step", 1);
  if (step < 1) text.fail("decoder_sparse_step", "is 0; allowed: at least 1");
  std::set<std::int64_t> listed;
  if (const Json* layers = text.find("mlp_only_layers")) {
    const auto is_layer = [&](const Json& layer) {
      return layer.is_number_unsigned() &&
             layer.get<std::uint64_t>() < static_cast<std::uint64_t>(model.n_layers);
    };
    if (!layers->is_array() || !std::all_of(layers->begin(), layers->end(), is_layer)) {
      text.fail("mlp_only_layers", "must be a list of layers, got " +
                                       JsonSection::excerpt(*layers) + "; allowed: 0 to " +
                                       std::to_string(model.n_layers - 1));
    }
    for (const Json& layer : *layers) listed.insert(layer.get<std::int64_t>());
  }
  std::int64_t count = model.n_layers - model.n_layers / step;
  for (const std::int64_t layer : listed) count += (layer + 1) % step == 0 ? 1 : 0;
  return count;
}

void read_experts(const JsonSection& text, const Family& family, ModelConfig& model) {
  if (family.model_type == "mixtral") {
    model.n_experts = text.integer_or("num_local_experts", 8);
    model.n_experts_per_token = text.integer_or("num_experts_per_tok", 2);
    model.expert_ffn_dim = model.ffn_dim;
  } else if (family.model_type == "qwen3_moe") {
    model.n_experts = text.integer_or("num_experts", 128);
    if (model.n_experts == 0) return;
    model.n_experts_per_token = text.integer_or("num_experts_per_tok", 8);
    model.expert_ffn_dim = text.integer_or("moe_intermediate_size", 768);
    model.n_dense_layers = num_dense_layers(text, model);
  }
}

ModelConfig read_model(const JsonSection& root, const Family& family) {
  const JsonSection text = family.is_nested ? root.required_section("text_config") : root;
  ModelConfig model;
  model.architecture = family.architecture;
  model.has_qk_norm = family.has_qk_norm;
  model.has_post_norms = family.has_post_norms;
  read_shape(text, family, model);
  read_experts(text, family, model);
  const bool is_tied = text.boolean_or("tie_word_embeddings", family.is_tied_by_default);
  model.has_tied_embeddings = root.boolean_or("tie_word_embeddings", is_tied);
  model.bytes_per_weight = bytes_per_weight(root, text);
  if (const auto of_file = root.section("quantization_config")) {
    read_quantization(*of_file, model);
  } else if (const auto of_text = text.section("quantization_config")) {
    read_quantization(*of_text, model);
  }
  read_window(text, family, model);
  read_arithmetic(root, text, family, model);
  return model;
}

Json parse_json(std::string_view text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    if (error.reason() == JsonError::Reason::NumberTooLarge) {
      throw ConfigError(
          path + ": contains a number that is too large; allowed: the config.json of a model");
    }
    std::size_t line = 1;
    for (std::size_t i = 0; i + 1 < error.byte() && i < text.size(); ++i) line += text[i] == '\n';
    throw ConfigError(path + ":" + std::to_string(line) +
                      ": is not JSON; allowed: the config.json of a model");
  }
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view json, const std::string& path,
                                      const std::string& name) {
  const Json document = parse_json(json, path);
  if (!document.is_object()) {
    throw ConfigError(path + ": must be an object; allowed: the config.json of a model");
  }
  const JsonSection root(document, path, "");
  ModelConfig model = read_model(root, find_family(root));
  model.name = name;
  const std::string error = model.shape_error();
  if (!error.empty()) throw ConfigError(path + ": " + error);
  return model;
}

}  // namespace metronome
