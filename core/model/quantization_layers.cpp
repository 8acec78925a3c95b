// SPDX-License-Identifier: Apache-2.0
// The readers of methods whose files name formats by module: compressed-tensors, ModelOpt, Quark
// and torchao.
#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/names.h"
#include "core/model/quantization_methods.h"
#include "core/model/quantization_reading.h"

namespace metronome {
namespace {

// ---- compressed-tensors ----

// Integers by the type of the activations that they are multiplied with.
WeightFormat integer_products(const JsonSection& group) {
  const std::optional<JsonSection> inputs = group.section("input_activations");
  if (!inputs || inputs->integer_or("num_bits", 8) > 8) return WeightFormat::WeightOnly;
  return inputs->text_or("type", "int") == "float" ? WeightFormat::Int4Fp8 : WeightFormat::Int8;
}

StoredFormat read_group(const JsonSection& group, const std::string& packing) {
  const JsonSection weights = group.required_section("weights");
  const std::int64_t bits = weights.required_integer("num_bits");
  const std::string type = weights.text_or("type", "int");
  const std::string strategy = weights.text_or("strategy", "");
  const auto is_packed_as = [&](std::string_view name) {
    return packing.find(name) != std::string::npos;
  };
  if (type == "float" && bits == 8) {
    if (is_packed_as("mxfp8")) return {.format = WeightFormat::Mxfp8};
    return {.format = strategy == "block" ? WeightFormat::Fp8Block : WeightFormat::Fp8};
  }
  if (type == "float" && bits == 4) {
    const bool is_mx = is_packed_as("mxfp4") || weights.integer_or("group_size", 16) == 32;
    return {.format = is_mx ? WeightFormat::Mxfp4 : WeightFormat::Nvfp4};
  }
  if (type != "int" || bits < 1 || bits > 8) {
    weights.fail(
        "num_bits",
        fmt::format(
            "{} bits of type {} are not supported; allowed: float of 8 or 4 bits, int of 1 to 8",
            bits, type));
  }
  const WeightFormat products = integer_products(group);
  const bool is_of_channel =
      strategy == "channel" || strategy == "tensor" ||
      (products == WeightFormat::Int8 && weights.find("group_size") == nullptr);
  // pack_to_int32() of compressed-tensors puts as many whole weights as fit into 32 bits.
  const double stored_bits = is_packed_as("pack-quantized") ? 32.0 / static_cast<double>(32 / bits)
                                                            : static_cast<double>(bits);
  return integers_of(stored_bits, is_of_channel ? 0 : read_group_size(weights, "group_size", 128),
                     2, products, !weights.boolean_or("symmetric", true));
}

// Two of four weights are left, each with two bits that say which. With 4 bits it is 3 bits per
// weight of the dense matrix, as vLLM stores marlin-24 (compressed_tensors_w4a16_24.py:
// weight_packed has in / 32 * out * 2 numbers of 32 bits, meta in / 32 * out * 2 of 16 bits) and
// gptq_marlin_24.
void make_sparse(StoredFormat& stored, double plain_bytes) {
  const bool is_plain = stored.format == WeightFormat::Plain;
  const double dense = stored.bytes.value_or(bytes_of(stored.format, 2, stored.int4_group_size));
  const double scales = stored.format == WeightFormat::Int4 ? dense - 0.5 : 0;
  const double values = is_plain ? plain_bytes : dense - scales;
  stored.bytes = values / 2 + 1.0 / 8 + scales;
  if (is_plain) stored.format = WeightFormat::WeightOnly;
}

// ---- ModelOpt ----

StoredFormat read_modelopt_algorithm(const JsonSection& section) {
  constexpr double kNvfp4 = 0.5 + 1.0 / 16;
  constexpr double kMxfp4 = 0.5 + 1.0 / 32;
  const NamedFormat kAlgorithms[] = {
      {"fp8", {.format = WeightFormat::Fp8}},
      {"fp8_per_channel_per_token", {.format = WeightFormat::Fp8}},
      {"fp8_pb_wo", {.format = WeightFormat::Fp8Block}},
      {"fp8_block_scales", {.format = WeightFormat::Fp8Block}},
      {"nvfp4", {.format = WeightFormat::Nvfp4}},
      {"nvfp4_awq", {.format = WeightFormat::Nvfp4}},
      {"nvfp4_svdquant", {.format = WeightFormat::Nvfp4}},
      {"w4a16_nvfp4", with_bytes(WeightFormat::WeightOnly, kNvfp4)},
      {"w4a8_nvfp4_fp8", with_bytes(WeightFormat::Int4Fp8, kNvfp4)},
      {"w4a8_mxfp4_fp8", with_bytes(WeightFormat::Int4Fp8, kMxfp4)},
      {"w4a8_mxfp4_mxfp8", with_bytes(WeightFormat::Int4Fp8, kMxfp4)},
      {"w4a16_mxfp4", with_bytes(WeightFormat::WeightOnly, kMxfp4)},
      {"mxfp4", {.format = WeightFormat::Mxfp4}},
      {"mxfp8", {.format = WeightFormat::Mxfp8}},
      {"int4_awq", {.format = WeightFormat::Int4}},
      {"w4a16_awq", {.format = WeightFormat::Int4}},
      {"w4a8_awq", {.format = WeightFormat::Int4Fp8}},
      {"w4a16", integers_of(4, 0)},
      {"w4a16_gptq", {.format = WeightFormat::Int4}},
      {"w4a8_qserve_per_group", with_bytes(WeightFormat::Int8, 0.5 + 2.0 / 128)},
      {"w4a8_qserve_per_channel", with_bytes(WeightFormat::Int8, 0.5)},
      {"w8a16", with_bytes(WeightFormat::WeightOnly, 1)},
      {"w8a16_gptq", with_bytes(WeightFormat::WeightOnly, 1 + 2.0 / 128)},
      {"int8", {.format = WeightFormat::Int8}},
      {"int8_sq", {.format = WeightFormat::Int8}},
      {"w8a8_sq_per_channel", {.format = WeightFormat::Int8}},
      {"w8a8_sq_per_channel_per_token_plugin", {.format = WeightFormat::Int8}},
      {"w8a8_sq_per_channel_per_tensor_plugin", {.format = WeightFormat::Int8}},
      {"w8a8_sq_per_tensor_per_token_plugin", {.format = WeightFormat::Int8}},
      {"w8a8_sq_per_tensor_plugin", {.format = WeightFormat::Int8}},
      {"no_quant", {.format = WeightFormat::Plain}},
  };
  constexpr const char* kKey = "quant_algo";
  const std::string name = section.text_or(kKey, "");
  const auto* const row = find_row(kAlgorithms, lower_ascii(name));
  if (row == nullptr) {
    std::string allowed = row_names(kAlgorithms) + ", mixed_precision";
    std::transform(allowed.begin(), allowed.end(), allowed.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    fail_unknown(section, kKey, name, allowed);
  }
  StoredFormat stored = row->stored;
  if (!stored.bytes) stored.int4_group_size = read_group_size(section, "group_size", 128);
  return stored;
}

// ---- Quark ----

// The types of weights; integers are "int4", "uint8" and so on.
StoredFormat read_quark_weight(const JsonSection& weight, bool has_int8_inputs) {
  const NamedFormat kTypes[] = {
      {"fp8_e4m3", {.format = WeightFormat::Fp8}},
      {"fp8_e5m2", {.format = WeightFormat::Fp8}},
      {"fp4", {.format = WeightFormat::Mxfp4}},
      {"fp6_e2m3", with_bytes(WeightFormat::WeightOnly, 0.75 + 1.0 / 32)},
      {"fp6_e3m2", with_bytes(WeightFormat::WeightOnly, 0.75 + 1.0 / 32)},
      {"mxfp4", {.format = WeightFormat::Mxfp4}},
      {"bfloat16", {.format = WeightFormat::Plain}},
      {"float16", {.format = WeightFormat::Plain}},
  };
  constexpr const char* kKey = "dtype";
  const std::string name = lower_ascii(weight.text_or(kKey, ""));
  if (const NamedFormat* const row = find_row(kTypes, name)) {
    const std::int64_t group = read_group_size(weight, "group_size", 32);
    if (name == "fp4" && group == 16) return {.format = WeightFormat::Nvfp4};
    if (name == "fp8_e4m3" && group == 32 && weight.text_or("scale_format", "") == "e8m0") {
      return {.format = WeightFormat::Mxfp8};
    }
    return row->stored;
  }
  const std::size_t digit = name.find_first_of("0123456789");
  const std::string type = name.substr(0, digit);
  const bool is_integer = (type == "int" || type == "uint") && digit + 1 == name.size();
  const int bits = is_integer ? name[digit] - '0' : 0;
  if (bits < 1 || bits > 8) {
    fail_unknown(weight, kKey, name, row_names(kTypes) + ", or int and uint of 1 to 8 bits");
  }
  const bool is_of_group = weight.text_or("qscheme", "per_group") == "per_group";
  const std::int64_t group = is_of_group ? read_group_size(weight, "group_size", 128) : 0;
  return integers_of(bits, group, 2,
                     has_int8_inputs ? WeightFormat::Int8 : WeightFormat::WeightOnly);
}

// Weights may be quantised twice, the second time to the type that is stored.
StoredFormat read_quark_config(const JsonSection& config) {
  constexpr const char* kWeight = "weight";
  const Json* const inputs = config.find("input_tensors");
  bool has_int8_inputs = false;
  if (inputs != nullptr && inputs->is_object()) {
    has_int8_inputs = config.section("input_tensors")->text_or("dtype", "") == "int8";
  }
  const Json* const list = config.find(kWeight);
  if (list == nullptr || !list->is_array() || list->empty()) {
    return read_quark_weight(config.required_section(kWeight), has_int8_inputs);
  }
  return read_quark_weight(config.element(kWeight, list->size() - 1), has_int8_inputs);
}

// ---- torchao ----

struct TorchaoType {
  std::string_view name;   // of the class, without "Config"
  std::string_view alias;  // of older files
  WeightFormat format = WeightFormat::WeightOnly;
  double bits = 8;
  std::int64_t group_size = 0;  // where the file is silent; 0: a scale of each channel
  double scale_bytes = 0;
};

constexpr TorchaoType kTorchaoTypes[] = {
    {"int4weightonly", "int4_weight_only", WeightFormat::WeightOnly, 4, 128, 4},
    {"int8weightonly", "int8_weight_only"},
    {"int8dynamicactivationint8weight", "int8_dynamic_activation_int8_weight", WeightFormat::Int8},
    {"int8dynamicactivationint4weight", "int8_dynamic_activation_int4_weight", WeightFormat::Int8,
     4, 32, 4},
    {"int4dynamicactivationint4weight", "int4_dynamic_activation_int4_weight", WeightFormat::Int8,
     4},
    {"int8dynamicactivationuint4weight", "int8_dynamic_activation_uint4_weight", WeightFormat::Int8,
     4, 32, 4},
    {"fpxweightonly", "fpx_weight_only", WeightFormat::WeightOnly, 6},
    {"float8weightonly", "float8_weight_only"},
    {"float8dynamicactivationfloat8weight", "float8_dynamic_activation_float8_weight",
     WeightFormat::Fp8},
    {"float8staticactivationfloat8weight", "float8_static_activation_float8_weight",
     WeightFormat::Fp8},
    {"float8dynamicactivationint4weight", "float8_dynamic_activation_int4_weight",
     WeightFormat::Int4Fp8, 4, 128, 2},
    {"int8staticactivationint8weight", "int8_static_activation_int8_weight", WeightFormat::Int8},
    {"intxweightonly", "intx_weight_only", WeightFormat::WeightOnly, 8, 0, 2},
    {"int8dynamicactivationintxweight", "int8_dynamic_activation_intx_weight", WeightFormat::Int8,
     8, 32, 2},
    {"uintxweightonly", "uintx_weight_only", WeightFormat::WeightOnly, 4, 64, 4},
    {"gemliteuintxweightonly", "gemlite_uintx_weight_only", WeightFormat::WeightOnly, 4, 128, 4},
    {"nvfp4dynamicactivationnvfp4weight", "nvfp4_dynamic_activation_nvfp4_weight",
     WeightFormat::Nvfp4},
    {"nvfp4inference", "nvfp4_inference", WeightFormat::Nvfp4},
    {"nvfp4weightonly", "nvfp4_weight_only", WeightFormat::WeightOnly, 4, 16, 1},
    {"mxdynamicactivationmxweight", "mx_dynamic_activation_mx_weight", WeightFormat::Mxfp8},
    {"mxfpinference", "mxfp_inference", WeightFormat::Mxfp8},
};

// Number at the end of "torch.int4", "uint7" or "float4_e2m1fn_x2"; 0: there is none.
int bits_of_type(const std::string& name) {
  const std::size_t at = name.find_first_of("0123456789");
  return at == std::string::npos ? 0 : name[at] - '0';
}

// A type is its name, or an object of it.
std::string torchao_dtype(const JsonSection& numbers, const char* key) {
  const Json* const type = numbers.find(key);
  if (type == nullptr) return "";
  if (type->is_string()) return lower_ascii(type->string());
  return lower_ascii(numbers.required_section(key).text_or("_data", ""));
}

// {"_type": "PerGroup", "_data": {"group_size": 32}}; of other types there is no group.
std::int64_t torchao_group(const JsonSection& numbers, std::int64_t otherwise) {
  for (const char* key : {"weight_granularity", "granularity"}) {
    const Json* const granularity = numbers.find(key);
    if (granularity == nullptr || !granularity->is_object()) continue;
    const std::optional<JsonSection> data = numbers.required_section(key).section("_data");
    return data ? read_group_size(*data, "group_size", 0) : 0;
  }
  return read_group_size(numbers, "group_size", otherwise);
}

// "Int4WeightOnlyConfig", or "int4_weight_only".
StoredFormat read_torchao_type(const JsonSection& section, const char* key, const std::string& name,
                               const std::optional<JsonSection>& numbers) {
  std::string wanted = lower_ascii(name);
  constexpr std::string_view kSuffix = "config";
  if (wanted.ends_with(kSuffix)) wanted.resize(wanted.size() - kSuffix.size());
  const auto row = std::find_if(
      std::begin(kTorchaoTypes), std::end(kTorchaoTypes),
      [&](const TorchaoType& type) { return type.name == wanted || type.alias == wanted; });
  if (row == std::end(kTorchaoTypes)) {
    std::string allowed;
    for (const TorchaoType& type : kTorchaoTypes) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(type.alias);
    }
    fail_unknown(section, key, name, allowed);
  }
  if (row->format == WeightFormat::Nvfp4) return {.format = row->format};
  int bits = 0;  // that the file says
  for (const char* type : {"weight_dtype", "dtype"}) {
    if (numbers && bits == 0) bits = bits_of_type(torchao_dtype(*numbers, type));
  }
  if (row->format == WeightFormat::Mxfp8) {
    return {.format = bits == 4 ? WeightFormat::Mxfp4 : WeightFormat::Mxfp8};
  }
  if (numbers && bits == 0) bits = static_cast<int>(numbers->integer_or("bit_width", 0));
  if (numbers && numbers->has("ebits")) {  // of a float: its sign, exponent and fraction
    bits = static_cast<int>(1 + numbers->integer_or("ebits", 3) + numbers->integer_or("mbits", 2));
  }
  const std::int64_t group = numbers ? torchao_group(*numbers, row->group_size) : row->group_size;
  return integers_of(bits > 0 && bits <= 8 ? bits : row->bits, group, row->scale_bytes,
                     row->format);
}

StoredFormat read_torchao_object(const JsonSection& type) {
  constexpr const char* kKey = "_type";
  return read_torchao_type(type, kKey, type.text_or(kKey, ""), type.section("_data"));
}

}  // namespace

void read_quark(const JsonSection& section, FormatRules& rules) {
  if (const auto global = section.section("global_quant_config"); global && global->has("weight")) {
    rules.otherwise = read_quark_config(*global);
  }
  read_modules(section, "layer_quant_config", rules, read_quark_config);
}

// One type for all linear modules, or ModuleFqnToConfig with one for each name.
void read_torchao(const JsonSection& section, FormatRules& rules) {
  constexpr const char* kType = "quant_type";
  const Json* const type = section.find(kType);
  if (type == nullptr || type->is_string()) {
    rules.otherwise = read_torchao_type(section, kType, section.text_or(kType, ""),
                                        section.section("quant_type_kwargs"));
    return;
  }
  const JsonSection of_type = section.required_section(kType).required_section("default");
  const std::string name = lower_ascii(of_type.text_or("_type", ""));
  if (name != "modulefqntoconfig" && name != "fqntoconfig") {
    rules.otherwise = read_torchao_object(of_type);
    return;
  }
  constexpr const char* kModules = "module_fqn_to_config";
  const JsonSection data = of_type.required_section("_data");
  const char* const key = data.has(kModules) ? kModules : "fqn_to_config";
  const JsonSection modules = data.required_section(key);
  if (modules.find("_default") != nullptr) {
    rules.otherwise = read_torchao_object(modules.required_section("_default"));
  }
  read_modules(data, key, rules, read_torchao_object);
}

// A group holds the modules that its targets name: all linear ones by their class, or some.
void read_compressed_tensors(const JsonSection& section, FormatRules& rules) {
  const JsonSection groups = section.required_section("config_groups");
  const std::string packing = lower_ascii(section.text_or("format", ""));
  const std::optional<JsonSection> sparsity = section.section("sparsity_config");
  const bool is_sparse =
      packing == "marlin-24" || (sparsity && sparsity->text_or("format", "").starts_with("sparse"));
  for (const std::string& name : groups.keys()) {
    const JsonSection group = groups.required_section(name.c_str());
    const bool has_no_weights = group.has("weights") && group.find("weights") == nullptr;
    if (has_no_weights) continue;
    const std::string own_packing = lower_ascii(group.text_or("format", packing));
    StoredFormat stored = read_group(group, own_packing);
    if (is_sparse || own_packing == "marlin-24") make_sparse(stored, 2);
    const std::vector<std::string> targets = module_names(group, "targets");
    if (targets.empty()) rules.otherwise = stored;
    for (const std::string& target : targets) {
      if (lower_ascii(target) == "linear") {
        rules.otherwise = stored;
      } else {
        store_module(group, "targets", target, stored, rules);
      }
    }
  }
  if (groups.keys().empty() && is_sparse) {
    rules.otherwise = StoredFormat{};
    make_sparse(*rules.otherwise, 2);
  }
}

void read_modelopt(const JsonSection& section, FormatRules& rules) {
  if (!section.has("quant_algo") && section.has("config_groups")) {
    return read_compressed_tensors(section, rules);
  }
  if (lower_ascii(section.text_or("quant_algo", "")) != "mixed_precision") {
    rules.otherwise = read_modelopt_algorithm(section);
    return;
  }
  constexpr const char* kLayers = "quantized_layers";
  section.required_section(kLayers);
  read_modules(section, kLayers, rules,
               [](const JsonSection& layer) { return read_modelopt_algorithm(layer); });
}

}  // namespace metronome
