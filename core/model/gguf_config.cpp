#include "core/model/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/names.h"
#include "core/model/gguf_family.h"

namespace metronome {
namespace {

constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kRopeFrequencies = "rope_freqs.weight";

// The double that is written as the float: 1e-5 for the float nearest to it.
double as_written(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(number)).ptr;
  double written = 0;
  return std::from_chars(text, end, written).ec == std::errc() ? written : number;
}

// The keys of an architecture: "block_count" means "llama.block_count".
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view family) : file_(file), prefix_(family) {
    prefix_ += '.';
  }

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }

  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    file_.fail(full(key), message);
  }

  // Also of a list with the same number for every layer.
  std::optional<std::int64_t> integer(std::string_view key) const {
    const GgufValue* value = file_.find(full(key));
    if (value == nullptr) return std::nullopt;
    if (value->type != GgufType::Array) return in_range(key, *file_.integer(full(key)));
    const std::vector<std::int64_t> numbers = file_.integers(full(key));
    const auto differs = [&](std::int64_t number) { return number != numbers.front(); };
    if (numbers.empty() || std::any_of(numbers.begin(), numbers.end(), differs)) {
      fail(key, "differs from layer to layer; allowed: one number for all");
    }
    return in_range(key, numbers.front());
  }

  std::int64_t required(std::string_view key) const {
    const std::optional<std::int64_t> value = integer(key);
    if (!value) fail(key, "is missing; allowed: an integer");
    return *value;
  }

  std::optional<double> number(std::string_view key) const {
    const std::optional<double> value = file_.number(full(key));
    if (!value) return std::nullopt;
    // shape_error() checks the limits of finite numbers.
    if (!std::isfinite(*value)) fail(key, "is not finite; allowed: a number");
    return as_written(*value);
  }

  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return std::string(file_.text(full(key)).value_or(otherwise));
  }

 private:
  std::int64_t in_range(std::string_view key, std::int64_t value) const {
    constexpr std::int64_t kMax = std::int64_t{1} << 40;  // shape_error() checks the real limits
    if (value < 0 || value > kMax) {
      fail(key, "is " + std::to_string(value) + "; allowed: 0 to 2^40");
    }
    return value;
  }

  const GgufFile& file_;
  std::string prefix_;
};

const GgufFamily& family_of(const GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  if (file.integer("split.count").value_or(1) > 1) {
    file.fail("split.count", "is " + std::to_string(*file.integer("split.count")) +
                                 ": a file in parts is not supported; allowed: one file, which "
                                 "llama-gguf-split --merge makes");
  }
  const std::optional<std::string_view> name = file.text(kKey);
  if (!name) file.fail(kKey, "is missing; allowed: " + gguf_family_names());
  const GgufFamily* family = find_gguf_family(*name);
  if (family == nullptr) {
    file.fail(kKey, gguf_shown(*name) + " is not supported" + gguf_family_hint(*name) +
                        "; allowed: " + gguf_family_names());
  }
  return *family;
}

// Records what an executor cannot compute; keeps the first record.
void note_unsupported(ModelConfig& model, const std::string& key, const std::string& message) {
  if (model.unsupported.empty()) model.unsupported = key + ": " + message;
}

std::int64_t vocab_size_of(const GgufFile& file, const GgufKeys& keys) {
  if (const GgufTensor* table = file.find_tensor(kEmbedding)) {
    if (table->shape.size() != 2) {
      file.fail(kEmbedding, "is not a matrix; allowed: a row for each token");
    }
    return table->shape.front();
  }
  if (const GgufValue* tokens = file.find("tokenizer.ggml.tokens")) {
    constexpr std::uint64_t kMax = std::uint64_t{1} << 40;
    return static_cast<std::int64_t>(std::min(tokens->count, kMax));
  }
  return keys.required("vocab_size");
}

// Whether no layer has its own numbers of some kind; the file's matrices decide about the bytes.
std::int64_t bytes_per_weight(const GgufFile& file) {
  double num_bytes = 0;
  double num_weights = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    double count = 1;
    for (const std::int64_t dim : tensor.shape) count *= static_cast<double>(dim);
    num_weights += count;
    num_bytes += static_cast<double>(tensor.bytes.size());
  }
  if (num_weights == 0) return 2;
  return std::clamp<std::int64_t>(std::llround(num_bytes / num_weights), 1, 4);
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
  model.vocab_size = vocab_size_of(file, keys);
  model.has_tied_embeddings = file.find_tensor("output.weight") == nullptr;
  model.bytes_per_weight = bytes_per_weight(file);
}

void read_experts(const GgufKeys& keys, ModelConfig& model) {
  model.n_experts = keys.integer("expert_count").value_or(0);
  if (model.n_experts == 0) return;
  model.n_experts_per_token = keys.required("expert_used_count");
  model.expert_ffn_dim = keys.integer("expert_feed_forward_length").value_or(model.ffn_dim);
  if (model.architecture == "LlamaForCausalLM") model.architecture = "MixtralForCausalLM";
}

// The interval of global layers: a number, or a list that says of each layer whether it has a
// window.
std::int64_t interval_of_windows(const GgufFile& file, const GgufKeys& keys,
                                 std::int64_t n_layers) {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  constexpr std::int64_t kDefault = 6;
  const GgufValue* value = file.find(keys.full(kKey));
  if (value == nullptr) return kDefault;
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
  model.sliding_window = keys.integer("attention.sliding_window").value_or(0);
  if (model.sliding_window == 0) return;
  if (family.name == "gemma3") {
    model.global_layer_interval = interval_of_windows(file, keys, model.n_layers);
    model.rope_local_theta = keys.number("rope.freq_base_swa").value_or(1e4);
  } else if (family.name != "llama") {
    note_unsupported(model, keys.full("attention.sliding_window"),
                     "a window is not supported in this family; allowed: 0");
    model.sliding_window = 0;
  }
}

// The divisors that Llama 3's rule gives each pair (conversion/llama.py of llama.cpp).
std::vector<double> llama3_divisors(const ModelConfig& model, const RopeScaling& scaling) {
  std::vector<double> divisors;
  const double positions = static_cast<double>(scaling.original_max_positions);
  for (std::int64_t i = 0; i + 1 < model.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(model.head_dim);
    const double wavelength = 2 * std::numbers::pi * pow_of(model.rope_theta, exponent);
    if (wavelength < positions / scaling.high_freq_factor) {
      divisors.push_back(1);
    } else if (wavelength > positions / scaling.low_freq_factor) {
      divisors.push_back(scaling.factor);
    } else {
      const double smooth = (positions / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      divisors.push_back(1 / ((1 - smooth) / scaling.factor + smooth));
    }
  }
  return divisors;
}

std::vector<float> rope_divisors(const GgufFile& file, const GgufTensor& tensor,
                                 const ModelConfig& model) {
  const auto num_pairs = static_cast<std::size_t>(model.head_dim / 2);
  if (tensor.type->name != "F32" || tensor.shape.size() != 1 ||
      tensor.bytes.size() != num_pairs * sizeof(float)) {
    file.fail(kRopeFrequencies, "has another type or shape; allowed: F32, one for each of " +
                                    std::to_string(num_pairs) + " pairs");
  }
  std::vector<float> divisors(num_pairs);
  if (num_pairs > 0) std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  return divisors;
}

// Every published Llama 3 has factors 1 and 4; the other two numbers are found by trying.
RopeScaling find_llama3_scaling(const std::vector<float>& divisors, const ModelConfig& model) {
  RopeScaling scaling;
  scaling.factor = as_written(*std::max_element(divisors.begin(), divisors.end()));
  scaling.kind = RopeScaling::Kind::Llama3;
  for (std::int64_t positions = 16; positions <= 1 << 20; positions *= 2) {
    scaling.original_max_positions = positions;
    const std::vector<double> expected = llama3_divisors(model, scaling);
    constexpr double kTolerance = 1e-4;  // the file's were computed in float32
    if (std::equal(divisors.begin(), divisors.end(), expected.begin(), expected.end(),
                   [](double stored, double computed) {
                     return std::abs(stored - computed) <= kTolerance * computed;
                   })) {
      return scaling;
    }
  }
  return {};
}

void read_rope(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  model.rope_theta = keys.number("rope.freq_base").value_or(1e4);
  if (keys.integer("rope.dimension_count").value_or(model.head_dim) != model.head_dim) {
    note_unsupported(model, keys.full("rope.dimension_count"),
                     "rotation of a part of each head is not supported; allowed: " +
                         std::to_string(model.head_dim));
  }
  const double factor =
      keys.number("rope.scaling.factor").value_or(keys.number("rope.scale_linear").value_or(0));
  const std::string kind = keys.text_or("rope.scaling.type", "linear");
  if (kind != "none" && kind != "linear") {
    note_unsupported(model, keys.full("rope.scaling.type"),
                     gguf_shown(kind) + " is not supported; allowed: none, linear");
  } else if (kind == "linear" && factor != 0 && factor != 1) {
    model.rope_scaling.kind = RopeScaling::Kind::Linear;
    model.rope_scaling.factor = factor;
  }
  const GgufTensor* tensor = file.find_tensor(kRopeFrequencies);
  if (tensor == nullptr || model.head_dim < 2 || model.rope_theta < 1) return;
  const std::vector<float> divisors = rope_divisors(file, *tensor, model);
  if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1; })) return;
  if (model.rope_scaling.kind == RopeScaling::Kind::None) {
    model.rope_scaling = find_llama3_scaling(divisors, model);
  }
  if (model.rope_scaling.kind != RopeScaling::Kind::Llama3) {
    note_unsupported(model, kRopeFrequencies,
                     "holds other divisors than those of Llama 3; allowed: Llama 3's rule with "
                     "factors 1 and 4");
  }
}

void read_arithmetic(const GgufFile& file, const GgufFamily& family, const GgufKeys& keys,
                     ModelConfig& model) {
  constexpr const char* kEpsilon = "attention.layer_norm_rms_epsilon";
  const std::optional<double> epsilon = keys.number(kEpsilon);
  if (!epsilon) keys.fail(kEpsilon, "is missing; allowed: a number");
  model.norm_eps = *epsilon;
  read_rope(file, keys, model);
  if (family.name == "gemma3") {
    constexpr std::int64_t kLayersOf27B = 62;
    const bool is_27b = model.n_layers == kLayersOf27B && model.n_heads > 0;
    model.query_pre_attn_scalar =
        static_cast<double>(is_27b ? model.hidden_dim / model.n_heads : model.head_dim);
  }
}

void find_unsupported(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (keys.number(key).value_or(0) == 0) continue;
    note_unsupported(model, keys.full(key), "softcapping is not supported; allowed: 0");
  }
  if (keys.integer("attention.value_length").value_or(model.head_dim) != model.head_dim) {
    note_unsupported(model, keys.full("attention.value_length"),
                     "values of another length than keys are not supported; allowed: " +
                         std::to_string(model.head_dim));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(".bias")) continue;
    note_unsupported(model, "tensor " + gguf_shown(tensor.name),
                     "biases are not supported; allowed: a model without");
  }
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
      file.fail(full, "is " + std::to_string(*id) + "; allowed: the id of a token");
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
  const GgufFamily& family = family_of(file);
  const GgufKeys keys(file, family.name);
  ModelConfig model;
  model.name = name;
  model.architecture = family.architecture;
  model.has_qk_norm = family.has_qk_norm;
  model.has_post_norms = family.has_post_norms;
  read_shape(file, keys, model);
  read_experts(keys, model);
  apply_architecture(model);
  read_window(file, family, keys, model);
  read_arithmetic(file, family, keys, model);
  find_unsupported(file, keys, model);
  model.eos_token_ids = gguf_eos_token_ids(file);
  const std::string error = model.shape_error();
  if (!error.empty()) throw ConfigError(printable(file.path() + ": " + error));
  return model;
}

}  // namespace metronome
