// SPDX-License-Identifier: Apache-2.0
#include "core/model/quantization_methods.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/names.h"
#include "core/model/quantization_reading.h"

namespace metronome {
namespace {

using Names = ModuleList::Names;

// ---- integers of any width ----

// Keys and defaults of a method whose weights are integers that share a scale.
struct IntegerMethod {
  std::span<const char* const> bits_keys;
  std::span<const char* const> group_keys;
  std::span<const std::int64_t> widths;  // that its kernels have
  std::int64_t group_size = 128;         // where the file is silent
  double scale_bytes = 2;                // of a group: scales, and offsets of their type
  bool has_zeros = false;                // a group has an offset of as many bits as a weight
};

constexpr const char* kBits[] = {"bits", "w_bit", "wbits"};
constexpr const char* kGroups[] = {"group_size", "q_group_size"};
constexpr const char* kHqqBits[] = {"nbits"};

// GPTQ and AutoRound, AWQ: vLLM's loaders; HQQ and MLX: their own quantisers.
constexpr std::int64_t kGptqWidths[] = {2, 3, 4, 8};
constexpr std::int64_t kAwqWidths[] = {4, 8};
constexpr std::int64_t kHqqWidths[] = {1, 2, 3, 4, 8};
constexpr std::int64_t kMlxWidths[] = {2, 3, 4, 5, 6, 8};

// Files of GPTQ, AWQ and AutoRound have `qzeros` beside `scales`: GPTQ's even for symmetric
// weights, AWQ's but for zero_point false (create_weights in auto_gptq.py and auto_awq.py of vLLM
// 0.33).
constexpr IntegerMethod kGptq = {kBits, kGroups, kGptqWidths, 128, 2, true};  // and AutoRound
constexpr IntegerMethod kAwq = {kBits, kGroups, kAwqWidths, 128, 2, true};
// bitblas, RTN and Marlin: vLLM's and SGLang's loaders, of scales alone.
constexpr std::int64_t kScaledWidths[] = {1, 2, 4, 8};
constexpr IntegerMethod kScaled = {kBits, kGroups, kScaledWidths};
// DeepSpeed's fp6 and fp8: a scale of 32 bits for each 512 (deepspeedfp.py of vLLM).
constexpr std::int64_t kDeepSpeedWidths[] = {4, 6, 8, 12};
constexpr IntegerMethod kDeepSpeed = {kBits, kGroups, kDeepSpeedWidths, 512, 4};
constexpr IntegerMethod kHqq = {kHqqBits, kGroups, kHqqWidths, 64, 4};
constexpr IntegerMethod kMlx = {kBits, kGroups, kMlxWidths, 64, 4};
// transformers' MetalConfig and SinqConfig: a group has a scale and an offset of 16 bits.
constexpr std::int64_t kMetalWidths[] = {2, 4, 8};
constexpr IntegerMethod kMetal = {kBits, kGroups, kMetalWidths, 64, 4};
constexpr std::int64_t kSinqWidths[] = {2, 3, 4, 5, 6, 8};
constexpr IntegerMethod kSinq = {kHqqBits, kGroups, kSinqWidths, 64, 4};
constexpr const char* kGemmaBits[] = {"num_bits"};
constexpr IntegerMethod kGemma = {kGemmaBits, kGroups, kMetalWidths, 0, 4};

// The first key that the section has; the first of all if it has none.
const char* present_key(const JsonSection& section, std::span<const char* const> keys) {
  for (const char* key : keys) {
    if (section.find(key) != nullptr) return key;
  }
  return keys.front();
}

// One of the method's widths, or ConfigError. `otherwise`: where the section may be silent.
std::int64_t read_bits(const JsonSection& section, const IntegerMethod& method,
                       std::optional<std::int64_t> otherwise = {}) {
  const char* const key = present_key(section, method.bits_keys);
  std::string allowed;
  for (const std::int64_t width : method.widths) {
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", width);
  }
  const std::optional<std::int64_t> given = section.integer(key);
  if (!given && !otherwise) section.fail_absent(key, allowed);
  const std::int64_t bits = given ? *given : *otherwise;
  if (std::find(method.widths.begin(), method.widths.end(), bits) != method.widths.end()) {
    return bits;
  }
  section.fail(key, fmt::format("is {}; allowed: {}", bits, allowed));
}

StoredFormat read_integers(const JsonSection& section, const IntegerMethod& method,
                           std::optional<std::int64_t> bits_otherwise = {}) {
  return integers_of(
      static_cast<double>(read_bits(section, method, bits_otherwise)),
      read_group_size(section, present_key(section, method.group_keys), method.group_size),
      method.scale_bytes, WeightFormat::WeightOnly,
      method.has_zeros && section.boolean_or("zero_point", true));
}

// The entry of a pattern that is searched for in a name, as Python's re.search() does.
std::string anywhere(const std::string& pattern) { return "re:.*(?:" + pattern + ")"; }

// ---- fp8 ----

// Rows and columns of a block; ConfigError where the list is none.
double weights_of_block(const JsonSection& section, const char* key, const Json& block) {
  double weights = 1;
  for (const Json& side : block) {
    const std::int64_t length = side.is_number_integer() ? side.get<std::int64_t>() : 0;
    constexpr std::int64_t kMost = 1 << 20;
    if (length < 1 || length > kMost) {
      section.fail(key, "must be a list of two integers, got " + JsonSection::excerpt(block) +
                            "; allowed: rows and columns of a block, such as [128, 128]");
    }
    weights *= static_cast<double>(length);
  }
  return weights;
}

void read_fp8(const JsonSection& section, FormatRules& rules) {
  constexpr const char* kKey = "weight_block_size";
  const Json* const block = section.find(kKey);
  if (block != nullptr && (!block->is_array() || block->size() != 2)) {
    section.fail(kKey, "must be a list of two integers, got " + JsonSection::excerpt(*block) +
                           "; allowed: rows and columns of a block, such as [128, 128]");
  }
  WeightFormat format = block == nullptr ? WeightFormat::Fp8 : WeightFormat::Fp8Block;
  if (block != nullptr && *block == Json::array({1, 32})) format = WeightFormat::Mxfp8;
  rules.otherwise = StoredFormat{.format = format};
  if (format != WeightFormat::Fp8Block) return;
  // A scale has 32 bits, or 8 where it is a power of two.
  const double scale = section.text_or("scale_fmt", "") == "ue8m0" ? 1 : 4;
  rules.otherwise->bytes = 1 + scale / weights_of_block(section, kKey, *block);
  if (*block == Json::array({128, 128})) rules.otherwise->bytes.reset();
}

void read_mxfp8(const JsonSection&, FormatRules& rules) {
  rules.otherwise = StoredFormat{.format = WeightFormat::Mxfp8};
}

void read_int8(const JsonSection&, FormatRules& rules) { rules.otherwise = integers_of(8, 0); }

// Products in 8 bits, a scale for each channel or block.
void read_w8a8_int8(const JsonSection&, FormatRules& rules) {
  rules.otherwise = StoredFormat{.format = WeightFormat::Int8};
}

void read_plain_fp8(const JsonSection&, FormatRules& rules) {
  rules.otherwise = StoredFormat{.format = WeightFormat::Fp8};
}

// NVFP4 that is multiplied in 16 bits.
void read_petit_nvfp4(const JsonSection&, FormatRules& rules) {
  rules.otherwise = with_bytes(WeightFormat::WeightOnly, bytes_of(WeightFormat::Nvfp4, 2, 0));
}

void read_float4(const JsonSection& section, const char* key, FormatRules& rules) {
  const NamedFormat kTypes[] = {{"mxfp4", {.format = WeightFormat::Mxfp4}},
                                {"nvfp4", {.format = WeightFormat::Nvfp4}}};
  const std::string type = lower_ascii(section.text_or(key, "nvfp4"));
  const auto* const row = find_row(kTypes, type);
  if (row == nullptr) fail_unknown(section, key, type, row_names(kTypes));
  rules.otherwise = row->stored;
}

// transformers' FPQuantConfig, FourOverSixConfig and NVFP4Config.
void read_fp_quant(const JsonSection& section, FormatRules& rules) {
  read_float4(section, "forward_dtype", rules);
}

void read_four_over_six(const JsonSection& section, FormatRules& rules) {
  read_float4(section, section.has("weight_dtype") ? "weight_dtype" : "dtype", rules);
}

void read_nvfp4(const JsonSection&, FormatRules& rules) {
  rules.otherwise = StoredFormat{.format = WeightFormat::Nvfp4};
}

// transformers' GemmaQuantizationConfig: a scale of 32 bits for each channel, and widths of their
// own for modules that a pattern finds.
void read_gemma(const JsonSection& section, FormatRules& rules) {
  const auto read = [](const JsonSection& numbers, std::int64_t otherwise) {
    return integers_of(static_cast<double>(read_bits(numbers, kGemma, otherwise)), 0);
  };
  const std::int64_t bits = read_bits(section, kGemma, 4);
  rules.otherwise = integers_of(static_cast<double>(bits), 0);
  rules.stores_tables = section.boolean_or("quantize_embeddings", false);
  constexpr const char* kModules = "module_quant_configs";
  const std::optional<JsonSection> modules = section.section(kModules);
  if (!modules) return;
  for (const std::string& pattern : modules->keys()) {
    store_module(section, kModules, anywhere(pattern),
                 read(modules->required_section(pattern.c_str()), bits), rules);
  }
}

// optimum-quanto: 8 bits have a scale for each channel, fewer a scale and an offset for each 128
// (transformers' QuantoConfig; qtype and MaxOptimizer of optimum.quanto).
void read_quanto(const JsonSection& section, FormatRules& rules) {
  const NamedFormat kTypes[] = {{"int2", integers_of(2, 128, 4)},
                                {"int4", integers_of(4, 128, 4)},
                                {"int8", integers_of(8, 0)},
                                {"float8", integers_of(8, 0)}};
  constexpr const char* kKey = "weights";
  const std::string type = lower_ascii(section.text_or(kKey, "int8"));
  const auto* const row = find_row(kTypes, type);
  if (row == nullptr) fail_unknown(section, kKey, type, row_names(kTypes));
  rules.otherwise = row->stored;
}

void store_experts(const JsonSection& section, const StoredFormat& format, FormatRules& rules) {
  for (const char* experts : {"mlp.experts", "block_sparse_moe.experts"}) {
    store_module(section, "quant_method", experts, format, rules);
  }
}

// Of gpt-oss: experts alone.
void read_mxfp4(const JsonSection& section, FormatRules& rules) {
  store_experts(section, {.format = WeightFormat::Mxfp4}, rules);
}

void read_experts_int8(const JsonSection& section, FormatRules& rules) {
  store_experts(section, integers_of(8, 0), rules);
}

// SGLang's: linear modules in fp8 by blocks, experts in 4 bits (w4afp8.py).
void read_w4afp8(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = StoredFormat{.format = WeightFormat::Fp8Block};
  store_experts(
      section,
      integers_of(4, read_group_size(section, "group_size", 128), 2, WeightFormat::Int4Fp8), rules);
}

// ---- GPTQ, AWQ, AutoRound, HQQ, MLX, bitsandbytes ----

// GPTQModel's `dynamic`: patterns with "-:" in front leave modules alone, others (with or without
// "+:") have numbers of their own.
void read_dynamic(const JsonSection& section, FormatRules& rules) {
  constexpr const char* kKey = "dynamic";
  const std::optional<JsonSection> dynamic = section.section(kKey);
  if (!dynamic) return;
  const std::int64_t bits = read_bits(section, kGptq);
  for (const std::string& entry : dynamic->keys()) {
    const bool has_sign = entry.starts_with("+:") || entry.starts_with("-:");
    const std::string pattern = "re:" + entry.substr(has_sign ? 2 : 0);
    std::optional<StoredFormat> format;
    if (!entry.starts_with("-:")) {
      IntegerMethod method = kGptq;
      method.group_size = read_group_size(section, present_key(section, kGroups), 128);
      format = read_integers(dynamic->required_section(entry.c_str()), method, bits);
    }
    store_module(section, kKey, pattern, format, rules);
  }
}

void read_gptq(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kGptq);
  read_dynamic(section, rules);
  if (section.find("lm_head") != nullptr && section.boolean_or("lm_head", false)) {
    store_module(section, "lm_head", "lm_head", rules.otherwise, rules);
  }
}

void read_awq(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kAwq);
}

void read_metal(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kMetal, 4);
}

void read_sinq(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kSinq, 4);
}

void read_scaled(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kScaled, 4);
}

void read_deepspeed(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_integers(section, kDeepSpeed, 8);
}

// QQQ and QoQ: 4 bits, products in 8.
void read_w4a8(const JsonSection& section, FormatRules& rules) {
  const std::int64_t bits = read_bits(section, kScaled, 4);
  rules.otherwise = integers_of(static_cast<double>(bits),
                                read_group_size(section, present_key(section, kGroups), 128), 2,
                                WeightFormat::Int8);
}

// vLLM's gptq_marlin_24: 2:4 sparse, as make_sparse says of compressed-tensors.
void read_sparse_marlin(const JsonSection& section, FormatRules& rules) {
  const auto bits = static_cast<double>(read_bits(section, kScaled, 4));
  const std::int64_t group = read_group_size(section, present_key(section, kGroups), 128);
  const double scales = group > 0 ? 2.0 / static_cast<double>(group) : 0;
  rules.otherwise = with_bytes(WeightFormat::WeightOnly, bits / 8 / 2 + 1.0 / 8 + scales);
}

StoredFormat read_auto_round_numbers(const JsonSection& section,
                                     std::optional<std::int64_t> bits_otherwise,
                                     std::int64_t group_otherwise) {
  constexpr const char* kType = "data_type";
  const std::string type = lower_ascii(section.text_or(kType, "int"));
  const std::int64_t bits = read_bits(section, kGptq, bits_otherwise);
  if (type.starts_with("mx_fp") && (bits == 4 || bits == 8)) {
    return {.format = bits == 4 ? WeightFormat::Mxfp4 : WeightFormat::Mxfp8};
  }
  if (type.starts_with("nv_fp") && bits == 4) return {.format = WeightFormat::Nvfp4};
  // "fp" of 8 bits, by tensor, by channel or, with a list of two, by block.
  const bool is_fp8 = type.starts_with("fp8") || (type == "fp" && bits == 8);
  if (is_fp8) {
    const Json* const group = section.find("group_size");
    const bool is_block = group != nullptr && group->is_array();
    return {.format = is_block ? WeightFormat::Fp8Block : WeightFormat::Fp8};
  }
  if (!type.starts_with("int")) fail_unknown(section, kType, type, "int, mx_fp, nv_fp, fp8, fp");
  return integers_of(static_cast<double>(bits),
                     read_group_size(section, "group_size", group_otherwise), 2,
                     WeightFormat::WeightOnly, true);
}

void read_auto_round(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_auto_round_numbers(section, {}, 128);
  const std::int64_t bits = read_bits(section, kGptq);
  constexpr const char* kKey = "extra_config";
  const std::optional<JsonSection> modules = section.section(kKey);
  if (!modules) return;
  const Json* const size = section.find("group_size");
  const bool is_block = size != nullptr && size->is_array();
  const std::int64_t group = is_block ? 0 : read_group_size(section, "group_size", 128);
  for (const std::string& name : modules->keys()) {
    const JsonSection numbers = modules->required_section(name.c_str());
    std::optional<StoredFormat> format;
    if (numbers.integer_or("bits", bits) < 16) {
      format = read_auto_round_numbers(numbers, bits, group);
    }
    const bool is_regex = name.find_first_of("*\\[(^$|+") != std::string::npos;
    store_module(section, kKey, is_regex ? anywhere(name) : name, format, rules);
  }
}

// One set of numbers, or one for each kind of module.
void read_hqq(const JsonSection& section, FormatRules& rules) {
  const JsonSection config = section.required_section("quant_config");
  constexpr const char* kParams = "weight_quant_params";
  const auto read = [](const JsonSection& numbers) {
    return read_integers(numbers.has(kParams) ? numbers.required_section(kParams) : numbers, kHqq);
  };
  if (config.has(kParams)) {
    rules.otherwise = read(config);
  } else {
    read_modules(section, "quant_config", rules, read);
  }
}

// An affine group has a scale and an offset; other modes are those of micro-scaled floats.
StoredFormat read_mlx_numbers(const JsonSection& section) {
  const NamedFormat kModes[] = {{"mxfp4", {.format = WeightFormat::Mxfp4}},
                                {"mxfp8", {.format = WeightFormat::Mxfp8}},
                                {"nvfp4", {.format = WeightFormat::Nvfp4}}};
  const std::string mode = lower_ascii(section.text_or("mode", "affine"));
  if (mode == "affine") return read_integers(section, kMlx);
  const auto* const row = find_row(kModes, mode);
  if (row == nullptr) fail_unknown(section, "mode", mode, "affine, " + row_names(kModes));
  // No engine of the simulator has such products for it.
  StoredFormat stored = row->stored;
  stored.bytes = bytes_of(stored.format, 2, 0);
  stored.format = WeightFormat::WeightOnly;
  return stored;
}

// Every linear module and embedding; keys beside the numbers are modules with their own.
void read_mlx(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = read_mlx_numbers(section);
  rules.stores_tables = true;
  for (const std::string& name : section.keys()) {
    const Json* const value = section.find(name.c_str());
    const bool is_module = name == "lm_head" || name.find('.') != std::string::npos;
    if (value == nullptr || !is_module) continue;
    std::string module = name;
    constexpr std::string_view kExperts = "switch_mlp";
    if (const std::size_t at = module.find(kExperts); at != std::string::npos) {
      module.replace(at, kExperts.size(), "experts.0");
    }
    if (value->is_boolean()) {
      store_module(section, name.c_str(), module,
                   value->get<bool>() ? rules.otherwise : std::nullopt, rules);
    } else {
      store_module(section, name.c_str(), module,
                   read_mlx_numbers(section.required_section(name.c_str())), rules);
    }
  }
}

// Blocks of 64 with a scale of 32 bits; double quantisation stores scales in 8 bits, in blocks of
// 256.
void read_bitsandbytes(const JsonSection& section, FormatRules& rules) {
  if (section.boolean_or("load_in_8bit", false)) {
    rules.otherwise = integers_of(8, 0);
  } else if (section.boolean_or("load_in_4bit", false)) {
    const bool is_double = section.boolean_or("bnb_4bit_use_double_quant", false);
    rules.otherwise = integers_of(4, 64, is_double ? 1 + 4.0 / 256 : 4);
  } else {
    section.fail("load_in_4bit", "is not true, nor is load_in_8bit; allowed: one of them");
  }
}

const QuantizationMethod kMethods[] = {
    {{"fp8", "fbgemm_fp8", "deepseek_v4_fp8"}, Names::Parts, read_fp8},
    {{"compressed-tensors", "compressed_tensors"}, Names::Whole, read_compressed_tensors},
    {{"modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"},
     Names::Parts,
     read_modelopt},
    {{"gptq", "gptq_marlin", "auto_gptq", "moe_wna16"}, Names::Parts, read_gptq},
    {{"awq", "awq_marlin", "auto_awq"}, Names::Parts, read_awq},
    {{"auto-round", "auto_round", "intel/auto-round", "inc"}, Names::Parts, read_auto_round},
    {{"bitsandbytes"}, Names::Parts, read_bitsandbytes},
    {{"hqq"}, Names::Parts, read_hqq},
    {{"quark"}, Names::Parts, read_quark},
    {{"torchao"}, Names::Parts, read_torchao},
    {{"mlx"}, Names::Parts, read_mlx},
    {{"mxfp4", "gpt_oss_mxfp4"}, Names::Parts, read_mxfp4},
    {{"mxfp8"}, Names::Parts, read_mxfp8},
    {{"nvfp4"}, Names::Parts, read_nvfp4},
    {{"fouroversix"}, Names::Parts, read_four_over_six},
    {{"gemma"}, Names::Parts, read_gemma},
    {{"metal"}, Names::Parts, read_metal},
    {{"sinq"}, Names::Parts, read_sinq},
    {{"spqr"}, Names::Parts, read_spqr},
    {{"eetq"}, Names::Parts, read_int8},
    {{"ptpc_fp8", "w8a8_fp8"}, Names::Parts, read_plain_fp8},
    {{"w8a8_int8", "blockwise_int8", "tpu_int8"}, Names::Parts, read_w8a8_int8},
    {{"petit_nvfp4"}, Names::Parts, read_petit_nvfp4},
    {{"fp_quant"}, Names::Parts, read_fp_quant},
    {{"experts_int8"}, Names::Parts, read_experts_int8},
    {{"w4afp8"}, Names::Parts, read_w4afp8},
    {{"quanto"}, Names::Parts, read_quanto},
    {{"bitblas", "gptq_bitblas", "rtn", "marlin"}, Names::Parts, read_scaled},
    {{"gptq_marlin_24"}, Names::Parts, read_sparse_marlin},
    {{"qqq", "qoq"}, Names::Parts, read_w4a8},
    {{"deepspeedfp"}, Names::Parts, read_deepspeed},
    {{"aqlm"}, Names::Parts, read_aqlm},
    {{"vptq"}, Names::Parts, read_vptq},
    {{"higgs"}, Names::Parts, read_higgs},
    {{"exl2", "exl3"}, Names::Parts, read_exl},
    {{"bitnet"}, Names::Parts, read_bitnet},
};

}  // namespace

const QuantizationMethod* find_quantization_method(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const QuantizationMethod& method) {
        return std::find(method.names.begin(), method.names.end(), name) != method.names.end();
      });
  return found == std::end(kMethods) ? nullptr : &*found;
}

std::string quantization_method_names() {
  std::string all;
  for (const QuantizationMethod& method : kMethods) {
    all += (all.empty() ? "" : ", ") + std::string(method.names.front());
  }
  return all;
}

}  // namespace metronome
