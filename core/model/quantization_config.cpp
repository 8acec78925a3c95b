#include "core/model/quantization_config.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/names.h"

namespace metronome {
namespace {

constexpr const char* kMethods =
    "fp8, compressed-tensors, modelopt, gptq, awq, mxfp4, or a model stored in bf16";

// A module name that begins so is a regular expression, matched from the name's beginning.
constexpr std::string_view kPattern = "re:";
constexpr std::size_t kMaxPattern = 1000;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A product of attention, or a part that has them. Lists of mixtures name small parts that every
// method leaves in 16 bits (norms, convolutions, gates of states), and those of vision towers.
bool names_attention(std::string_view module) {
  constexpr std::string_view kOthers[] = {"visual",  "vision",    "norm",      "conv1d", "a_log",
                                          "dt_bias", "in_proj_a", "in_proj_b", "indexer"};
  const auto is_other = [module](std::string_view part) { return contains(module, part); };
  return contains(module, "attn") && std::none_of(std::begin(kOthers), std::end(kOthers), is_other);
}

// Routers and shared experts are other modules.
bool names_experts(std::string_view module) {
  return contains(module, "experts") && !contains(module, "shared_expert");
}

// The layer in "model.layers.17.self_attn"; nullopt: a pattern of many layers.
std::optional<std::int64_t> layer_of(std::string_view module) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = module.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = module.substr(at + kLayers.size());
  std::size_t length = 0;
  while (length < rest.size() && length < 9 && rest[length] >= '0' && rest[length] <= '9') ++length;
  if (length == 0) return std::nullopt;
  return std::stoll(std::string(rest.substr(0, length)));
}

std::vector<std::string> strings_of(const JsonSection& section, const char* key) {
  const Json* list = section.find(key);
  if (list == nullptr) return {};
  std::vector<std::string> strings;
  for (const Json& entry : *list) {
    if (!entry.is_string()) continue;
    // A pattern's \D and \d differ.
    const std::string text = entry.string();
    strings.push_back(text.starts_with(kPattern) ? text : lower_ascii(text));
  }
  if (!list->is_array() || strings.size() != list->size()) {
    section.fail(key, "must be a list of names, got " + JsonSection::excerpt(*list) +
                          "; allowed: a list of module names");
  }
  return strings;
}

// The modules that are left alone, under the names that the methods give to the list.
std::vector<std::string> plain_modules(const JsonSection& section) {
  std::vector<std::string> modules;
  for (const char* key :
       {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"}) {
    for (std::string& module : strings_of(section, key)) modules.push_back(std::move(module));
  }
  return modules;
}

// Modules of a layer by their names in published models.
struct ModuleKind {
  bool (*names)(std::string_view module);
  std::vector<std::string> examples;  // below "model.layers.N."
};

const ModuleKind kAttention = {names_attention,
                               {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                "self_attn.o_proj", "self_attn.qkv_proj"}};
const ModuleKind kExperts = {
    names_experts,
    {"mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj", "mlp.experts",
     "block_sparse_moe.experts.0.w1", "block_sparse_moe.experts.0.w2"}};

// Adds the layers of which the pattern matches such a module. False: the pattern is not of the
// ECMAScript grammar.
bool add_matching(const std::string& pattern, const ModuleKind& kind, std::int64_t n_layers,
                  std::set<std::int64_t>& layers) {
  if (pattern.size() > kMaxPattern) return false;
  try {
    const std::regex regex(pattern);
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
      for (const char* root :
           {"model.layers.", "model.language_model.layers.", "language_model.model.layers."}) {
        for (const std::string& example : kind.examples) {
          const std::string module = root + std::to_string(layer) + "." + example;
          if (!std::regex_search(module, regex, std::regex_constants::match_continuous)) continue;
          layers.insert(layer);
        }
      }
    }
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

// Dense MLPs and shared experts.
bool names_mlp(std::string_view module) {
  const bool is_router = module.ends_with("mlp.gate") || contains(module, "shared_expert_gate");
  const bool is_tower = contains(module, "visual") || contains(module, "vision");
  return contains(module, "mlp") && !names_experts(module) && !is_router && !is_tower;
}
const ModuleKind kMlps = {names_mlp,
                          {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                           "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj"}};

// Whether the list holds such modules of most layers.
bool holds(const std::vector<std::string>& modules, const ModuleKind& kind, std::int64_t n_layers) {
  std::set<std::int64_t> layers;
  for (const std::string& module : modules) {
    if (module.starts_with(kPattern) &&
        add_matching(module.substr(kPattern.size()), kind, n_layers, layers)) {
      continue;
    }
    if (!kind.names(module)) continue;
    const std::optional<std::int64_t> layer = layer_of(module);
    if (!layer) return true;
    layers.insert(*layer);
  }
  return 2 * static_cast<std::int64_t>(layers.size()) > n_layers;
}

void set_formats(WeightFormat format, const std::vector<std::string>& plain, ModelConfig& model) {
  const bool has_experts = model.n_experts > 0;
  model.expert_format =
      has_experts && !holds(plain, kExperts, model.n_layers) ? format : WeightFormat::Plain;
  const bool is_attention_plain =
      model.n_moe_layers() > 0 && holds(plain, kAttention, model.n_layers);
  model.linear_format = is_attention_plain ? WeightFormat::Plain : format;
  model.mlp_format.reset();
  if (!is_attention_plain || model.n_mlp_params() == 0) return;
  if (!holds(plain, kMlps, model.n_layers)) model.mlp_format = format;
}

void read_kv_algorithm(const JsonSection& section, const char* key, ModelConfig& model) {
  const std::string algo = section.text_or(key, "");
  if (algo.empty()) return;
  if (lower_ascii(algo) != "fp8") {
    section.fail(key, JsonSection::excerpt(Json(algo)) + " is not supported; allowed: FP8");
  }
  model.bytes_per_kv_element = 1;
}

void read_kv_cache(const JsonSection& section, ModelConfig& model) {
  read_kv_algorithm(section, "kv_cache_quant_algo", model);
  constexpr const char* kScheme = "kv_cache_scheme";
  const Json* const scheme = section.find(kScheme);
  if (scheme == nullptr) return;
  if (scheme->is_string()) return read_kv_algorithm(section, kScheme, model);  // of ModelOpt
  const std::optional<JsonSection> numbers = section.section(kScheme);
  const std::int64_t bits = numbers->integer_or("num_bits", 8);
  if (bits != 8) numbers->fail("num_bits", "is " + std::to_string(bits) + "; allowed: 8");
  model.bytes_per_kv_element = 1;
}

// Weights of four-bit integers that share a scale; -1: those of an output channel.
void read_group_size(const JsonSection& section, const char* key, ModelConfig& model) {
  if (const Json* const size = section.find(key); size != nullptr && *size == Json(-1)) {
    model.int4_group_size = 0;
  } else {
    model.int4_group_size = section.integer_or(key, model.int4_group_size);
  }
}

// The weights of one group of compressed-tensors.
WeightFormat format_of_group(const JsonSection& group, const std::string& packing) {
  const JsonSection weights = group.required_section("weights");
  const std::int64_t bits = weights.required_integer("num_bits");
  const std::string type = weights.text_or("type", "int");
  const std::string strategy = weights.text_or("strategy", "");
  if (type == "float" && bits == 8) {
    return strategy == "block" ? WeightFormat::Fp8Block : WeightFormat::Fp8;
  }
  if (type == "float" && bits == 4) {
    const bool is_mx = contains(packing, "mxfp4") || weights.integer_or("group_size", 16) == 32;
    return is_mx ? WeightFormat::Mxfp4 : WeightFormat::Nvfp4;
  }
  if (type == "int" && bits == 4) return WeightFormat::Int4;
  weights.fail("num_bits", std::to_string(bits) + " bits of type " + type +
                               " are not supported; allowed: float of 8 or 4 bits, int of 4");
}

// Groups of "Linear" hold all modules; others hold those that their targets name.
void read_compressed_tensors(const JsonSection& section, ModelConfig& model) {
  const JsonSection groups = section.required_section("config_groups");
  const std::vector<std::string> plain = plain_modules(section);
  const std::string packing = lower_ascii(section.text_or("format", ""));
  for (const std::string& name : groups.keys()) {
    const JsonSection group = groups.required_section(name.c_str());
    const WeightFormat format = format_of_group(group, packing);
    if (format == WeightFormat::Int4) {
      const JsonSection weights = group.required_section("weights");
      if (weights.text_or("strategy", "") == "channel") model.int4_group_size = 0;
      read_group_size(weights, "group_size", model);
    }
    const std::vector<std::string> targets = strings_of(group, "targets");
    const auto any_is = [&targets](bool (*is)(std::string_view)) {
      return std::any_of(targets.begin(), targets.end(), is);
    };
    const bool is_all =
        targets.empty() || any_is([](std::string_view target) { return target == "linear"; });
    ModelConfig quantised = model;
    set_formats(format, plain, quantised);
    const bool holds_experts = is_all || any_is(names_experts);
    if (holds_experts) model.expert_format = quantised.expert_format;
    const bool holds_others =
        is_all || any_is([](std::string_view target) { return !names_experts(target); });
    if (holds_others) {
      model.linear_format = quantised.linear_format;
      model.mlp_format = quantised.mlp_format;
    }
  }
}

WeightFormat modelopt_format(const JsonSection& section) {
  const std::string algo = section.text_or("quant_algo", "");
  if (lower_ascii(algo) == "fp8") return WeightFormat::Fp8;
  if (lower_ascii(algo) == "nvfp4") return WeightFormat::Nvfp4;
  section.fail("quant_algo",
               JsonSection::excerpt(Json(algo)) + " is not supported; allowed: FP8, NVFP4");
}

// Of GPTQ and AWQ.
void read_four_bits(const JsonSection& section, ModelConfig& model) {
  const std::int64_t bits = section.integer_or("bits", section.integer_or("w_bit", 4));
  if (bits != 4) section.fail("bits", "is " + std::to_string(bits) + "; allowed: 4");
  read_group_size(section, section.has("q_group_size") ? "q_group_size" : "group_size", model);
}

}  // namespace

void read_quantization(const JsonSection& file, ModelConfig& model) {
  const std::optional<JsonSection> of_modelopt = file.section("quantization");
  const JsonSection& section = of_modelopt ? *of_modelopt : file;
  const bool is_modelopt = of_modelopt || section.find("quant_algo") != nullptr;
  const std::string method = section.text_or("quant_method", is_modelopt ? "modelopt" : "");
  const std::vector<std::string> plain = plain_modules(section);
  if (method == "fp8") {
    const bool has_blocks = section.find("weight_block_size") != nullptr;
    set_formats(has_blocks ? WeightFormat::Fp8Block : WeightFormat::Fp8, plain, model);
  } else if (method == "compressed-tensors") {
    read_compressed_tensors(section, model);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    set_formats(modelopt_format(section), plain, model);
  } else if (method == "gptq" || method == "awq") {
    read_four_bits(section, model);
    set_formats(WeightFormat::Int4, plain, model);
  } else if (method == "mxfp4") {
    if (model.n_experts == 0) {
      section.fail("quant_method", "\"mxfp4\" stores experts, and the model has none; allowed: " +
                                       std::string(kMethods));
    }
    model.expert_format = WeightFormat::Mxfp4;
  } else {
    section.fail("quant_method", method.empty() ? "is missing; allowed: " + std::string(kMethods)
                                                : JsonSection::excerpt(Json(method)) +
                                                      " is not supported; allowed: " + kMethods);
  }
  read_kv_cache(section, model);
}

}  // namespace metronome
