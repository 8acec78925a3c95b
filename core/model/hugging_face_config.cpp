// The shape of a model from the config.json it is published with.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/model/model_catalogue.h"

namespace metronome {
namespace {

using Json = nlohmann::json;

// What the model code of an architecture implies and its config.json does not say, or may leave
// out: transformers' configuration_{llama,mistral,qwen3,gemma3}.py hold these defaults.
struct Family {
  std::string_view architecture;
  std::string_view model_type;  // names the family where "architectures" is missing
  bool has_qk_norm = false;
  bool has_post_norms = false;
  bool is_tied_by_default = false;
  bool is_gemma = false;
  bool is_nested = false;  // the language model stands under text_config
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", false, false, false, false, false},
    {"MistralForCausalLM", "mistral", false, false, false, false, false},
    {"Qwen3ForCausalLM", "qwen3", true, false, false, false, false},
    {"Gemma3ForCausalLM", "gemma3_text", true, true, true, true, false},
    {"Gemma3ForConditionalGeneration", "gemma3", true, true, true, true, true},
};

// One JSON object of the file. A key that is null counts as absent, as in transformers.
class Section {
 public:
  Section(const Json& object, std::string path, std::string prefix)
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    throw ConfigError(path_ + ": " + prefix_ + std::string(key) + ": " + message);
  }

  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<std::int64_t> integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    // Kept far from overflow; the shape check knows the real limits.
    constexpr std::int64_t kMax = std::int64_t{1} << 40;
    const bool is_in_range = value->is_number_unsigned()
                                 ? value->get<std::uint64_t>() <= std::uint64_t{kMax}
                                 : value->is_number_integer() && value->get<std::int64_t>() >= 0;
    if (!is_in_range) {
      fail(key, "must be an integer, got " + excerpt(*value) + "; allowed: 0 to 2^40");
    }
    return value->get<std::int64_t>();
  }

  std::int64_t required_integer(const char* key) const {
    const std::optional<std::int64_t> value = integer(key);
    if (!value) fail(key, "is missing; allowed: an integer");
    return *value;
  }

  std::int64_t integer_or(const char* key, std::int64_t otherwise) const {
    return integer(key).value_or(otherwise);
  }

  bool boolean_or(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      fail(key, "must be true or false, got " + excerpt(*value) + "; allowed: true, false");
    }
    return value->get<bool>();
  }

  std::string text_or(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fail(key, "must be text, got " + excerpt(*value) + "; allowed: text");
    return value->get<std::string>();
  }

  Section section(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "is missing; allowed: an object");
    if (!value->is_object()) {
      fail(key, "must be an object, got " + excerpt(*value) + "; allowed: an object");
    }
    return Section(*value, path_, prefix_ + key + ".");
  }

  static std::string excerpt(const Json& value) {
    constexpr std::size_t kMaxShown = 40;
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
    return text;
  }

 private:
  const Json& object_;
  std::string path_;
  std::string prefix_;
};

std::string supported_architectures() {
  std::string list;
  for (const Family& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.architecture;
  }
  return list;
}

const Family& find_family(const Section& root) {
  const Json* names = root.find("architectures");
  if (names == nullptr) {
    const std::string type = root.text_or("model_type", "");
    for (const Family& family : kFamilies) {
      if (family.model_type == type) return family;
    }
    root.fail("architectures", "is missing; allowed: " + supported_architectures());
  }
  if (!names->is_array() || names->empty() || !names->front().is_string()) {
    root.fail("architectures", "must be a list of names, got " + Section::excerpt(*names) +
                                   "; allowed: " + supported_architectures());
  }
  const std::string name = names->front().get<std::string>();
  for (const Family& family : kFamilies) {
    if (family.architecture == name) return family;
  }
  root.fail("architectures", Section::excerpt(names->front()) +
                                 " is not supported; allowed: " + supported_architectures());
}

std::int64_t bytes_per_weight(const Section& root, const Section& text) {
  std::string dtype = "bfloat16";
  for (const char* key : {"torch_dtype", "dtype"}) {
    dtype = root.text_or(key, text.text_or(key, dtype));
  }
  if (dtype == "bfloat16" || dtype == "float16") return 2;
  if (dtype == "float32") return 4;
  root.fail("torch_dtype", Section::excerpt(Json(dtype)) +
                               " is not supported; allowed: bfloat16, float16, float32");
}

// Which layers have a window, from the list that newer files carry: every n-th one has not.
std::int64_t interval_of_layer_types(const Section& text, const Json& types,
                                     std::int64_t n_layers) {
  const std::string allowed = "; allowed: " + std::to_string(n_layers) +
                              " times sliding_attention or full_attention, every n-th one full";
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != n_layers) {
    text.fail("layer_types", "is not a list with one entry a layer" + allowed);
  }
  std::int64_t interval = 0;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const Json& type = types[static_cast<std::size_t>(i)];
    const bool is_full = type == "full_attention";
    if (is_full && interval == 0) interval = i + 1;
    const bool should_be_full = interval != 0 && (i + 1) % interval == 0;
    if (is_full != should_be_full || (!is_full && type != "sliding_attention")) {
      text.fail("layer_types", "entry " + std::to_string(i) + " is " + Section::excerpt(type) +
                                   " and breaks the pattern" + allowed);
    }
  }
  return interval;
}

void read_window(const Section& text, const Family& family, ModelConfig& model) {
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
    model.sliding_window = text.integer_or("sliding_window", 0);
  } else if (text.boolean_or("use_sliding_window", false)) {
    text.fail("use_sliding_window", "true is not supported; allowed: false");
  }
}

ModelConfig read_model(const Section& root, const Family& family) {
  const Section text = family.is_nested ? root.section("text_config") : root;
  for (const Section* section : {&root, &text}) {
    if (section->find("quantization_config") != nullptr) {
      section->fail("quantization_config",
                    "quantised weights are not supported; allowed: a model stored in bf16");
    }
  }
  ModelConfig model;
  model.architecture = family.architecture;
  model.has_qk_norm = family.has_qk_norm;
  model.has_post_norms = family.has_post_norms;
  model.hidden_dim = text.required_integer("hidden_size");
  model.n_layers = text.required_integer("num_hidden_layers");
  model.ffn_dim = text.required_integer("intermediate_size");
  if (family.is_gemma) {
    model.n_heads = text.integer_or("num_attention_heads", 8);
    model.n_kv_heads = text.integer_or("num_key_value_heads", 4);
    model.head_dim = text.integer_or("head_dim", 256);
    model.vocab_size = text.integer_or("vocab_size", 262208);
    model.max_position_embeddings = text.integer_or("max_position_embeddings", 131072);
  } else {
    model.n_heads = text.required_integer("num_attention_heads");
    model.n_kv_heads = text.integer_or("num_key_value_heads", model.n_heads);
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
  const bool is_tied = text.boolean_or("tie_word_embeddings", family.is_tied_by_default);
  model.has_tied_embeddings = root.boolean_or("tie_word_embeddings", is_tied);
  model.bytes_per_weight = bytes_per_weight(root, text);
  read_window(text, family, model);
  return model;
}

Json parse_json(std::string_view text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    std::size_t line = 1;
    for (std::size_t i = 0; i + 1 < error.byte && i < text.size(); ++i) line += text[i] == '\n';
    throw ConfigError(path + ":" + std::to_string(line) +
                      ": is not JSON; allowed: the config.json of a model");
  } catch (const Json::out_of_range&) {
    throw ConfigError(path + ": has a number too large; allowed: the config.json of a model");
  }
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view json, const std::string& path,
                                      const std::string& name) {
  const Json document = parse_json(json, path);
  if (!document.is_object()) {
    throw ConfigError(path + ": must be an object; allowed: the config.json of a model");
  }
  const Section root(document, path, "");
  ModelConfig model = read_model(root, find_family(root));
  model.name = name;
  const std::string error = model.shape_error();
  if (!error.empty()) throw ConfigError(path + ": " + error);
  return model;
}

}  // namespace metronome
