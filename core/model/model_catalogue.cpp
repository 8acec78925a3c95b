// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_catalogue.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/number_chars.h"
#include "core/config/catalogue.h"
#include "core/model/generation_config.h"
#include "core/model/model_file.h"
#include "core/model/model_names.h"

namespace metronome {

extern const std::string_view kModelsYaml;  // core/model/models.yaml

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxDim = 1 << 24;
constexpr double kMaxNumber = 1e18;  // shape_error() checks the real limits

std::string model_error(const ModelConfig& model) { return model.shape_error(); }

// ".../Llama-3.2-3B/config.json" gives Llama-3.2-3B.
std::string model_name_of(const std::string& path) {
  const fs::path folder = fs::path(path).lexically_normal().parent_path().filename();
  const std::string name = folder.string();
  return printable(name.empty() || name == "." || name == ".." ? fs::path(path).stem().string()
                                                               : name);
}

Relatives relatives() {
  return {kModelsYaml, "models.yaml", "a name of `metronome list models`",
          [](std::string_view name) { return std::string(name); }, nullptr};
}

// The names of tools/model.
constexpr std::string_view kFetchedModels[] = {"smollm2", "gemma3-270m"};

// A model of the catalogue, and a longer context than its own.
struct KnownName {
  std::string_view model;
  std::int64_t context = 0;  // tokens; 0: the model's own
};

// "qwen3-32b-128k" has qwen3-32b's shape with scaled positions.
KnownName split_context(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  if (!entry_text(kModelsYaml, name).empty() || dash == name.npos) return {name};
  const std::int64_t context = context_of_word(name.substr(dash + 1));
  return context > 0 ? KnownName{name.substr(0, dash), context} : KnownName{name};
}

bool is_known_model(std::string_view name) {
  return !entry_text(kModelsYaml, split_context(name).model).empty();
}

std::optional<ModelConfig> known_model(std::string_view name) {
  if (!is_known_model(name)) return std::nullopt;
  const KnownName known = split_context(name);
  ModelConfig model = parse_models(entry_text(kModelsYaml, known.model), "models.yaml").front();
  if (known.context == 0) return model;
  model.name = std::string(name);
  model.max_position_embeddings = std::max(model.max_position_embeddings, known.context);
  return model;
}

std::string& models_folder() {
  static std::string folder;
  return folder;
}

// Keys of a config.json in the place of a name; `name` is the model's.
ModelConfig parse_inline_model(const std::string& json, const std::string& where) {
  const std::string place = where.empty() ? "shape" : where + ": shape";
  std::string name = "shape";
  try {
    const Json config = Json::parse(json);
    const Json* const given = config.is_object() ? config.find("name") : nullptr;
    if (given != nullptr && given->is_string()) name = printable(given->get<std::string>());
  } catch (const JsonError&) {
    // parse_hugging_face_config() says where.
  }
  return parse_hugging_face_config(json, place, name);
}

// For a name that is no catalogue model and no path. The catalogue is too long for a message.
[[noreturn]] void fail_unknown_model(const std::string& name, const SourceLocation& where) {
  for (const std::string_view fetched : kFetchedModels) {
    if (name != fetched) continue;
    fail_config(where, "model",
                "'" + name + "' is not on this machine; `tools/model " + name +
                    "` fetches it (METRONOME_MODELS, if set, must be the same)");
  }
  const bool is_file = name.ends_with(".gguf") || name.ends_with(".json");
  const bool is_path = fs::path(name).has_parent_path();
  const std::string nearest = is_file ? "" : nearest_model(name);
  const std::string what = is_file   ? "'" + name + "' does not exist"
                           : is_path ? "no such file or repository: " + name
                                     : "unknown name '" + name + "'";
  fail_config(
      where, "model",
      what + (nearest.empty() ? "" : ", did you mean '" + nearest + "'?") +
          "; allowed: a name of `metronome list models` or of `tools/model`, or the path of "
          "a GGUF file, of a config.json or of its folder");
}

// A program may be linked without what reads such files.
[[noreturn]] void fail_without_reader(const std::string& file, const SourceLocation& where) {
  fail_config(where, "model",
              file +
                  " is a GGUF file, and this program has no reader for such files "
                  "(register_models() in models/models.h registers it); allowed: a name of the "
                  "catalogue, or the path of a config.json or of its folder");
}

void visit_scaling(FieldVisitor& visitor, RopeScaling& scaling) {
  constexpr std::string_view kKinds[] = {"none", "linear", "llama3", "yarn", "longrope"};
  visitor.choice("kind", scaling.kind, kKinds, "which frequencies are divided");
  visitor.number("factor", scaling.factor, 0, kMaxNumber, "divisor of the frequencies");
  visitor.number("low_freq_factor", scaling.low_freq_factor, 0, kMaxNumber,
                 "llama3: frequencies with fewer turns in the original positions are divided");
  visitor.number("high_freq_factor", scaling.high_freq_factor, 0, kMaxNumber,
                 "llama3: frequencies with more turns are not divided");
  visitor.integer("original_max_positions", scaling.original_max_positions, 1, 1 << 30,
                  "llama3, yarn, longrope: positions before stretching");
  visitor.number("beta_fast", scaling.beta_fast, 0, kMaxNumber,
                 "yarn: frequencies with more turns in the original positions are kept");
  visitor.number("beta_slow", scaling.beta_slow, 0, kMaxNumber,
                 "yarn: frequencies with fewer turns are divided");
  visitor.boolean("truncates", scaling.truncates, "yarn: the bounds between are whole pairs");
  visitor.number("attention_factor", scaling.attention_factor, 0, kMaxNumber,
                 "yarn, longrope: multiplies cosines and sines");
  visitor.numbers("short_factors", scaling.short_factors, 0, kMaxNumber,
                  "longrope: divisor of each pair's frequency");
  visitor.numbers("long_factors", scaling.long_factors, 0, kMaxNumber,
                  "longrope: the same where requests may exceed the original positions");
}

void visit_linear_attention(FieldVisitor& visitor, LinearAttention& linear) {
  visitor.integers("layers", linear.layers, 0, kMaxDim, "the layers, ascending; the others attend");
  visitor.integer("n_key_heads", linear.n_key_heads, 0, kMaxDim, "query and key heads");
  visitor.integer("n_value_heads", linear.n_value_heads, 0, kMaxDim, "value heads, each a state");
  visitor.integer("key_head_dim", linear.key_head_dim, 0, kMaxDim, "elements of a key");
  visitor.integer("value_head_dim", linear.value_head_dim, 0, kMaxDim, "elements of a value");
  visitor.integer("conv_width", linear.conv_width, 0, kMaxDim, "tokens that the convolution sees");
  visitor.integer("bytes_per_delta_element", linear.bytes_per_delta_element, 1, 4,
                  "bytes of a number of the delta rule's state");
  visitor.integer("bytes_per_conv_element", linear.bytes_per_conv_element, 1, 4,
                  "bytes of an input that the convolution keeps");
}

void visit_latent_attention(FieldVisitor& visitor, LatentAttention& latent) {
  visitor.integer("kv_rank", latent.kv_rank, 0, kMaxDim, "elements of keys and values cached");
  visitor.integer("q_rank", latent.q_rank, 0, kMaxDim, "elements of latent queries; 0 = none");
  visitor.integer("nope_dim", latent.nope_dim, 0, kMaxDim, "elements of a query without RoPE");
  visitor.integer("rope_dim", latent.rope_dim, 0, kMaxDim, "elements of a query with RoPE");
  visitor.integer("value_dim", latent.value_dim, 0, kMaxDim, "elements of a value");
}

void visit_token(FieldVisitor& visitor, const char* key, std::int32_t& token, const char* doc) {
  std::int64_t id = token;
  visitor.integer(key, id, -1, kMaxDim, doc);
  token = static_cast<std::int32_t>(id);
}

void visit_format(FieldVisitor& visitor, const char* key, WeightFormat& format, const char* doc) {
  int chosen = static_cast<int>(format);
  visitor.choice(key, chosen, kChosenFormatNames, doc);
  format = static_cast<WeightFormat>(chosen);
}

void visit_vision(FieldVisitor& visitor, VisionTower& vision) {
  visitor.integer("depth", vision.depth, 0, kMaxDim, "layers");
  visitor.integer("hidden_dim", vision.hidden_dim, 0, kMaxDim, "width of the residual stream");
  visitor.integer("n_heads", vision.n_heads, 0, kMaxDim, "heads");
  visitor.integer("ffn_dim", vision.ffn_dim, 0, kMaxDim, "width of the MLP");
  visitor.integer("in_channels", vision.in_channels, 1, kMaxDim, "colours of a pixel");
  visitor.integer("patch_size", vision.patch_size, 0, kMaxDim, "pixels of a patch's side");
  visitor.integer("temporal_patch_size", vision.temporal_patch_size, 0, kMaxDim,
                  "frames of a patch; an image counts as that many");
  visitor.integer("merge_size", vision.merge_size, 0, kMaxDim, "patches of an embedding's side");
  visitor.integer("out_dim", vision.out_dim, 0, kMaxDim, "elements of an embedding");
  visitor.integer("num_positions", vision.num_positions, 0, kMaxDim, "learned positions");
  visitor.integers("deepstack_layers", vision.deepstack_layers, 0, kMaxDim,
                   "layers whose features the first text layers add");
  visit_token(visitor, "image_token", vision.image_token, "stands for an embedding; -1 = unknown");
  visit_token(visitor, "start_token", vision.start_token, "before an image; -1 = unknown");
  visit_token(visitor, "end_token", vision.end_token, "behind an image; -1 = unknown");
}

void visit_parts(FieldVisitor& visitor, ModelConfig& model) {
  visitor.integer("shared_expert_ffn_dim", model.shared_expert_ffn_dim, 0, kMaxDim,
                  "width of the expert that computes every token; 0 = none");
  visitor.integer("n_expert_groups", model.n_expert_groups, 1, kMaxDim,
                  "groups of experts that the router chooses from");
  visitor.integer("n_groups_per_token", model.n_groups_per_token, 1, kMaxDim,
                  "groups whose experts may compute a token");
  visitor.number("expert_scale", model.expert_scale, 0, kMaxNumber,
                 "multiplies the sum of a token's experts");
  if (visitor.open_section("linear_attention", "layers with a state of each request, no KV")) {
    visit_linear_attention(visitor, model.linear_attention);
    visitor.close_section();
  }
  if (visitor.open_section("latent_attention", "one cached vector a token for all heads")) {
    visit_latent_attention(visitor, model.latent_attention);
    visitor.close_section();
  }
  if (visitor.open_section("vision", "the vision tower")) {
    visit_vision(visitor, model.vision);
    visitor.close_section();
  }
  visitor.integers("mrope_sections", model.mrope_sections, 0, kMaxDim,
                   "rotated pairs by time, height and width");
}

}  // namespace

void visit_fields(FieldVisitor& visitor, ModelConfig& model) {
  visitor.text("architecture", model.architecture, "Hugging Face class name");
  visitor.integer("n_layers", model.n_layers, 1, kMaxDim, "transformer layers");
  visitor.integer("hidden_dim", model.hidden_dim, 1, kMaxDim, "width of the residual stream");
  visitor.integer("n_heads", model.n_heads, 1, kMaxDim, "query heads");
  visitor.integer("n_kv_heads", model.n_kv_heads, 1, kMaxDim, "key and value heads");
  visitor.integer("head_dim", model.head_dim, 1, kMaxDim, "elements of a head");
  visitor.integer("ffn_dim", model.ffn_dim, 1, kMaxDim, "width of gate and up projections");
  visitor.integer("n_experts", model.n_experts, 0, kMaxDim,
                  "experts of a layer; 0 = one dense MLP");
  visitor.integer("n_experts_per_token", model.n_experts_per_token, 0, kMaxDim,
                  "experts that compute a token");
  visitor.integer("expert_ffn_dim", model.expert_ffn_dim, 0, kMaxDim, "width of an expert");
  visitor.integer("n_dense_layers", model.n_dense_layers, 0, kMaxDim,
                  "layers without experts in a model with experts");
  visitor.integer("vocab_size", model.vocab_size, 1, kMaxDim, "rows of the embedding table");
  visitor.integer("max_position_embeddings", model.max_position_embeddings, 1, 1 << 30,
                  "longest sequence, tokens");
  visitor.boolean("has_tied_embeddings", model.has_tied_embeddings,
                  "the head shares the embedding table");
  visitor.boolean("has_qk_norm", model.has_qk_norm, "queries and keys are normalised");
  visitor.boolean("has_post_norms", model.has_post_norms, "four norms a layer instead of two");
  visitor.integer("sliding_window", model.sliding_window, 0, 1 << 30,
                  "tokens a window layer attends to; 0 = no window");
  visitor.integer("global_layer_interval", model.global_layer_interval, 0, kMaxDim,
                  "every n-th layer attends to all positions; 0 = none");
  visitor.integers("window_layers", model.window_layers, 0, kMaxDim,
                   "layers with the window, where no interval describes them");
  visitor.integers("dense_layers", model.dense_layers, 0, kMaxDim,
                   "layers without experts, where they are not the first ones");
  visit_parts(visitor, model);
  visitor.integer("tower_params", model.tower_params, 0, std::int64_t{1} << 40,
                  "weights of encoders of images that take memory");
  visitor.number("norm_eps", model.norm_eps, 0, 1, "added to the mean square under the root");
  visitor.number("rope_theta", model.rope_theta, 0, kMaxNumber, "base of the rotary frequencies");
  visitor.number("rope_local_theta", model.rope_local_theta, 0, kMaxNumber,
                 "base in window layers; 0 = rope_theta, with the same scaling");
  if (visitor.open_section("rope_scaling", "how rotary frequencies stretch")) {
    visit_scaling(visitor, model.rope_scaling);
    visitor.close_section();
  }
  visitor.integer("rotary_dim", model.rotary_dim, 0, kMaxDim,
                  "elements of a head that RoPE rotates; 0 = all");
  visitor.integers("unrotated_layers", model.unrotated_layers, 0, kMaxDim, "layers without RoPE");
  visitor.number("query_pre_attn_scalar", model.query_pre_attn_scalar, 0, kMaxNumber,
                 "scores are divided by its square root; 0 = head_dim");
  visitor.number("attention_multiplier", model.attention_multiplier, 0, kMaxNumber,
                 "scores are multiplied by it instead; 0 = they are not");
  visitor.number("attention_softcap", model.attention_softcap, 0, kMaxNumber,
                 "bound of scores by a tanh; 0 = none");
  visitor.number("logit_softcap", model.logit_softcap, 0, kMaxNumber,
                 "bound of logits by a tanh; 0 = none");
  visitor.number("embedding_multiplier", model.embedding_multiplier, 0, kMaxNumber,
                 "multiplies embeddings");
  visitor.number("residual_multiplier", model.residual_multiplier, 0, kMaxNumber,
                 "multiplies what attention and MLP add");
  visitor.number("logit_divisor", model.logit_divisor, 0, kMaxNumber, "divides logits");
  std::vector<std::int64_t> ids(model.eos_token_ids.begin(), model.eos_token_ids.end());
  visitor.integers("eos_token_ids", ids, 0, kMaxDim, "tokens that end a text");
  model.eos_token_ids.clear();
  for (const std::int64_t id : ids) model.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  visitor.integer("bytes_per_weight", model.bytes_per_weight, 1, 4, "bytes of a plain weight");
  visit_format(visitor, "linear_format", model.linear_format,
               "how attention projections and dense MLPs are stored");
  visit_format(visitor, "expert_format", model.expert_format, "how experts are stored");
  visitor.integer("int4_group_size", model.int4_group_size, 0, kMaxDim,
                  "weights that share a scale in int4; 0 = those of a channel");
  visitor.integer("bytes_per_kv_element", model.bytes_per_kv_element, 1, 4, "bytes");
}

std::vector<ModelConfig> parse_models(std::string_view yaml, const std::string& file) {
  std::vector<ModelConfig> models;
  ConfigNode root = parse_config_text(yaml, file);
  // One by one, to keep the order of the file.
  for (ConfigNode::Entry& entry : root.entries) {
    if (const ConfigNode* const shape = entry.value.find("shape")) {
      models.push_back(
          parse_hugging_face_config(json_of(*shape).dump(), shape->where.to_string(), entry.key));
      models.back().approximation.clear();  // the entry was written for this reader
      models.back().keys_read.clear();
      continue;
    }
    ConfigNode one;
    one.kind = ConfigNode::Kind::Map;
    one.where = root.where;
    one.entries = {entry};
    models.push_back(parse_entries<ModelConfig>(one, "models", model_error, relatives()).front());
    apply_architecture(models.back());
  }
  if (models.empty()) parse_entries<ModelConfig>(root, "models", model_error, relatives());
  return models;
}

const std::vector<ModelConfig>& all_models() {
  static const std::vector<ModelConfig> known = parse_models(kModelsYaml, "models.yaml");
  return known;
}

std::string catalogue_name(std::string_view name) { return named_model(name).model; }

std::optional<WeightFormat> named_format(std::string_view name) {
  const FoundModel named = named_model(name);
  const std::optional<ModelConfig> model = known_model(named.model);
  if (!named.format || !model) return std::nullopt;
  const bool has_experts = model->n_experts > 0;
  const WeightFormat own = has_experts ? model->expert_format : model->linear_format;
  const auto is_fp8 = [](WeightFormat format) {
    return format == WeightFormat::Fp8 || format == WeightFormat::Fp8Block;
  };
  // GGUF files of a model that is published in 4 bits have these.
  if (named.is_gguf && own != WeightFormat::Plain && !is_fp8(own)) return std::nullopt;
  // A file that is published in blocks of fp8 is "FP8", too.
  if (*named.format == own || (is_fp8(*named.format) && is_fp8(own))) return std::nullopt;
  // mxfp4 stores experts alone. Nvfp4 is nearest in size and speed.
  const bool has_none = *named.format == WeightFormat::Mxfp4 && !has_experts;
  return has_none ? WeightFormat::Nvfp4 : *named.format;
}

void set_models_folder(const std::string& folder) { models_folder() = folder; }

std::string find_gguf_file(const std::string& name_or_path) {
  if (is_known_model(name_or_path)) return {};
  if (is_gguf_file(name_or_path)) return name_or_path;
  const bool is_name = name_or_path.find('/') == std::string::npos && !name_or_path.empty();
  if (!is_name || path_exists(name_or_path) || models_folder().empty()) return {};
  const std::string path = (fs::path(models_folder()) / (name_or_path + ".gguf")).string();
  return is_gguf_file(path) ? path : std::string();
}

std::string find_model_folder(const std::string& name_or_path) {
  if (is_known_model(name_or_path)) return {};
  if (!find_gguf_file(name_or_path).empty()) return {};
  if (!path_exists(name_or_path) && !catalogue_name(name_or_path).empty()) return {};
  if (is_folder(name_or_path)) return name_or_path;
  const std::string folder = fs::path(name_or_path).parent_path().string();
  return folder.empty() ? "." : folder;
}

ModelConfig find_model(const std::string& name_or_path, const SourceLocation& where) {
  if (name_or_path.starts_with('{')) return parse_inline_model(name_or_path, where.to_string());
  if (const auto model = known_model(name_or_path)) return *model;
  if (const std::string file = find_gguf_file(name_or_path); !file.empty()) {
    const ModelFileReader read = model_file_reader();
    if (read == nullptr) fail_without_reader(file, where);
    return read(file, printable(fs::path(file).stem().string()));
  }
  if (!path_exists(name_or_path)) {
    std::optional<ModelConfig> model = known_model(catalogue_name(name_or_path));
    if (!model) fail_unknown_model(name_or_path, where);
    if (const auto format = named_format(name_or_path)) model->store_as(*format);
    apply_architecture(*model);
    return *model;
  }
  std::string path = name_or_path;
  if (is_folder(path)) path = (fs::path(path) / "config.json").string();
  const std::optional<std::string> text = read_file(path);
  if (!text) {
    fail_config(where, "model", path + " " + input_problem() + "; allowed: a readable file");
  }
  std::optional<PublishedFile> quantization;
  const std::string beside = (fs::path(path).parent_path() / "hf_quant_config.json").string();
  if (path_exists(beside)) quantization = {read_file(beside, "a readable file"), beside};
  ModelConfig model = parse_hugging_face_config(*text, path, model_name_of(path), quantization);
  apply_generation_config(find_model_folder(name_or_path), model);
  return model;
}

}  // namespace metronome
