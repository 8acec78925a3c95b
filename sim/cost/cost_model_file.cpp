// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/cost_model_file.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/config/catalogue.h"
#include "core/hardware/hardware_catalogue.h"
#include "sim/cost/device_share.h"

namespace metronome {

// The files of sim/catalogue/.
extern const std::string_view kCostModelB200DeepSeekV3Tp8;
extern const std::string_view kCostModelB200Llama70bFp8;
extern const std::string_view kCostModelH100SxmLlama70bFp8Tp2;
extern const std::string_view kCostModelH100SxmLlama8b;
extern const std::string_view kCostModelH100SxmQwen30bA3b;
extern const std::string_view kCostModelH100SxmQwen8b;
extern const std::string_view kCostModelH200DeepSeekV3Tp8;
extern const std::string_view kCostModelH200Llama70bFp8;
extern const std::string_view kCostModelRtx4090Llama8b;
extern const std::string_view kCostModelRtxPro6000Llama8b;
extern const std::string_view kCostModelRtxPro6000Qwen32bTp2;

namespace {

constexpr const char* kFormatKey = "metronome_cost_model";
constexpr const char* kAllowed = "the path of a file that `metronome calibrate` wrote";

// A file built into the program.
struct Shipped {
  std::string name;
  std::string_view text;
};

const std::vector<Shipped>& shipped() {
  static const std::vector<Shipped> files = {
      {"b200_deepseek-v3_tp8", kCostModelB200DeepSeekV3Tp8},
      {"b200_llama-3.1-70b_fp8", kCostModelB200Llama70bFp8},
      {"h100-sxm_llama-3.1-70b_fp8_tp2", kCostModelH100SxmLlama70bFp8Tp2},
      {"h100-sxm_llama-3.1-8b", kCostModelH100SxmLlama8b},
      {"h100-sxm_qwen3-30b-a3b", kCostModelH100SxmQwen30bA3b},
      {"h100-sxm_qwen3-8b", kCostModelH100SxmQwen8b},
      {"h200_deepseek-v3_tp8", kCostModelH200DeepSeekV3Tp8},
      {"h200_llama-3.1-70b_fp8", kCostModelH200Llama70bFp8},
      {"rtx-4090_llama-3.1-8b", kCostModelRtx4090Llama8b},
      {"rtx-pro-6000_llama-3.1-8b", kCostModelRtxPro6000Llama8b},
      {"rtx-pro-6000_qwen3-32b_tp2", kCostModelRtxPro6000Qwen32bTp2},
  };
  return files;
}

}  // namespace

std::string CostModelFile::to_json() const {
  Json json;
  json[kFormatKey] = kCostModelFormat;
  json["kind"] = kind;
  json["hardware"] = hardware;
  json["model"] = model;
  json["tensor_parallel_size"] = tensor_parallel_size;
  json["engine"] = engine;
  json["source"] = source;
  json["body"] = *body;
  return json.dump() + "\n";
}

CostModelFile parse_cost_model_file(std::string_view text, const std::string& name) {
  const Json json = parse_json(std::string(text), name);
  const JsonPlace root(name, json);
  if (!root.has(kFormatKey)) {
    throw ConfigError(name + ": is not a cost model; allowed: " + kAllowed);
  }
  if (json.at(kFormatKey) != kCostModelFormat) {
    root.at(kFormatKey)
        .fail(fmt::format("is {}, the format of another version; allowed: {}",
                          json.at(kFormatKey).dump(), kCostModelFormat));
  }
  CostModelFile file;
  file.name = name;
  file.kind = root.at("kind").text();
  file.hardware = root.at("hardware").text();
  file.model = root.at("model").text();
  file.tensor_parallel_size = root.at("tensor_parallel_size").integer(1, kMaxTensorParallel);
  file.engine = root.at("engine").text();
  file.source = root.at("source").text();
  if (std::find(std::begin(kCostModelKinds), std::end(kCostModelKinds), file.kind) ==
      std::end(kCostModelKinds)) {
    root.at("kind").fail("'" + file.kind + "' is unknown; allowed: " + join_names(kCostModelKinds));
  }
  if (!root.at("body").json().is_object()) root.at("body").fail("is not an object");
  file.body = std::make_shared<const Json>(root.at("body").json());
  return file;
}

std::vector<std::string> cost_model_names() {
  std::vector<std::string> names;
  for (const Shipped& file : shipped()) names.push_back(file.name);
  return names;
}

CostModelFile find_cost_model_file(const std::string& name_or_path, const SourceLocation& where,
                                   const std::string& key) {
  for (const Shipped& file : shipped()) {
    if (file.name == name_or_path) return parse_cost_model_file(file.text, file.name);
  }
  if (!path_exists(name_or_path)) {
    std::vector<std::string_view> names;
    for (const Shipped& file : shipped()) names.push_back(file.name);
    fail_unknown_entry(names, name_or_path, key.c_str(), kAllowed, where);
  }
  const std::optional<std::string> text = read_file(name_or_path);
  if (!text) {
    fail_config(where, key, name_or_path + " " + input_problem() + "; allowed: a readable file");
  }
  return parse_cost_model_file(*text, name_or_path);
}

HardwareSpec measured_hardware(const CostModelFile& file) {
  const std::vector<HardwareSpec>& known = all_hardware();
  if (const HardwareSpec* hardware = find_entry(known, file.hardware)) return *hardware;
  HardwareSpec unknown;
  unknown.name = file.hardware;
  return unknown;
}

}  // namespace metronome
