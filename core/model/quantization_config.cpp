// SPDX-License-Identifier: Apache-2.0
#include "core/model/quantization_config.h"

#include <fmt/core.h>
#include <optional>
#include <string>

#include "core/base/names.h"
#include "core/model/quantization_methods.h"
#include "core/model/quantization_reading.h"

namespace metronome {
namespace {

// The modules that are left alone, under the names that the methods give to the list.
void read_plain_modules(const JsonSection& section, FormatRules& rules) {
  for (const char* key :
       {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude",
        "skip_modules", "llm_int8_skip_modules", "linear_weights_not_to_quantize"}) {
    for (const std::string& module : module_names(section, key)) {
      leave_module_plain(section, key, module, rules);
    }
  }
}

void read_kv_algorithm(const JsonSection& section, const char* key, ModelConfig& model) {
  const std::string algo = section.text_or(key, "");
  const std::string name = lower_ascii(algo);
  if (name.empty() || name == "none" || name == "auto") return;
  if (name != "fp8" && name != "int8") {
    section.fail(key, JsonSection::excerpt(Json(algo)) + " is not supported; allowed: FP8, INT8");
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
  if (bits != 8) numbers->fail("num_bits", fmt::format("is {}; allowed: 8", bits));
  model.bytes_per_kv_element = 1;
}

// Files of ModelOpt, of MLX and older ones of bitsandbytes do not name their method.
std::string method_of(const JsonSection& section, bool is_modelopt) {
  std::string unnamed = is_modelopt ? "modelopt" : "";
  if (unnamed.empty() && section.has("bits") && section.has("group_size")) unnamed = "mlx";
  if (section.has("load_in_4bit") || section.has("load_in_8bit")) unnamed = "bitsandbytes";
  return section.text_or("quant_method", unnamed);
}

}  // namespace

void read_quantization(const JsonSection& file, ModelConfig& model) {
  const std::optional<JsonSection> of_modelopt = file.section("quantization");
  const JsonSection& section = of_modelopt ? *of_modelopt : file;
  const bool is_modelopt = of_modelopt || section.find("quant_algo") != nullptr;
  const std::string name = method_of(section, is_modelopt);
  const std::string methods = quantization_method_names() + ", or a model stored in bf16";
  const std::string allowed = "; allowed: " + methods;
  const QuantizationMethod* const method = find_quantization_method(lower_ascii(name));
  if (method == nullptr) {
    if (name.empty()) section.fail_absent("quant_method", methods);
    section.fail("quant_method", JsonSection::excerpt(Json(name)) + " is not supported" + allowed);
  }
  FormatRules rules(method->matching);
  read_plain_modules(section, rules);
  method->read(section, rules);
  if (name == "mxfp4" && model.n_experts == 0) {
    section.fail("quant_method", "\"mxfp4\" stores experts, and the model has none" + allowed);
  }
  rules.apply(model);
  read_kv_cache(section, model);
}

}  // namespace metronome
