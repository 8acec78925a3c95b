// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_file.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_place.h"
#include "sim/cost/curve_json.h"
#include "sim/cost/device_share.h"
#include "sim/cost/model_shape.h"

namespace metronome {
namespace {

constexpr double kMaxBandwidth = 1e18;
constexpr double kMaxFusedBytes = 1e15;

ModelShape measured_shape(const ModelConfig& model) {
  ModelShape shape = shape_of(model);
  shape.emplace_back("sliding_window", model.sliding_window);
  shape.emplace_back("bytes_per_kv_element", model.bytes_per_kv_element);
  if (model.has_gated_attention) shape.emplace_back("has_gated_attention", 1);
  if (model.shared_expert_ffn_dim > 0) {
    shape.emplace_back("shared_expert_ffn_dim", model.shared_expert_ffn_dim);
  }
  if (const LatentAttention& latent = model.latent_attention; !latent.is_empty()) {
    shape.emplace_back("latent_kv_rank", latent.kv_rank);
    shape.emplace_back("latent_q_rank", latent.q_rank);
    shape.emplace_back("latent_nope_dim", latent.nope_dim);
    shape.emplace_back("latent_rope_dim", latent.rope_dim);
    shape.emplace_back("latent_value_dim", latent.value_dim);
  }
  if (const LinearAttention& linear = model.linear_attention; !linear.is_empty()) {
    shape.emplace_back("linear_key_heads", linear.n_key_heads);
    shape.emplace_back("linear_value_heads", linear.n_value_heads);
    shape.emplace_back("linear_key_head_dim", linear.key_head_dim);
    shape.emplace_back("linear_value_head_dim", linear.value_head_dim);
    shape.emplace_back("linear_conv_width", linear.conv_width);
  }
  return shape;
}

constexpr const char* kLinear = "linear_format";
constexpr const char* kMlp = "mlp_format";  // where it is not linear_format
constexpr const char* kExperts = "expert_format";
constexpr const char* kModules = "module_formats";

// Formats by kind of module, where the model has such; they decide which times count.
std::string modules_text(const ModelConfig& model) {
  std::string text;
  for (const ModuleFormat& module : model.module_formats) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", static_cast<int>(module.kind),
                        to_string(module.format), module.num_params);
  }
  return text;
}

// The formats of weights that the model has, by their keys in a model catalogue.
Json formats_json(const ModelConfig& model) {
  Json formats = {{kLinear, std::string(to_string(model.linear_format))}};
  if (model.mlp_format) formats[kMlp] = std::string(to_string(*model.mlp_format));
  if (model.n_experts > 0) formats[kExperts] = std::string(to_string(model.expert_format));
  if (const std::string text = modules_text(model); !text.empty()) formats[kModules] = text;
  return formats;
}

void require_formats(const CostModelFile& file, const ModelConfig& model) {
  const JsonPlace formats = JsonPlace(file.name + ": body", *file.body).at("formats");
  constexpr const char* kAllowed =
      "; allowed: a model of the same precision (scenario key quantization)";
  const auto text_or = [&](const char* key, const std::string& otherwise) {
    return formats.has(key) ? formats.at(key).text() : otherwise;
  };
  const auto require = [&](const char* key, const std::string& measured, WeightFormat format) {
    if (measured == to_string(format)) return;
    throw ConfigError(file.name + ": was made for " + key + " " + measured + "; that of " +
                      model.name + " is " + std::string(to_string(format)) + kAllowed);
  };
  const std::string linear = formats.at(kLinear).text();
  require(kLinear, linear, model.linear_format);
  require(kMlp, text_or(kMlp, linear), model.mlp_format.value_or(model.linear_format));
  if (model.n_experts > 0) require(kExperts, formats.at(kExperts).text(), model.expert_format);
  if (text_or(kModules, "") == modules_text(model)) return;
  throw ConfigError(file.name + ": was made for a model with other formats of some modules than " +
                    model.name + kAllowed);
}

Json attention_json(const LayerAttention& attention, const char* prompt_columns) {
  return {{"prompts", grid_json("prompts", prompt_columns, attention.prompts)},
          {"decodes", grid_json("sequences", "context", attention.decodes)}};
}

Json collectives_json(const std::vector<CollectiveTimes>& collectives) {
  Json json = Json::array();
  for (const CollectiveTimes& times : collectives) {
    Json entry = {{"collective", std::string(to_string(times.collective))}};
    entry.update(curve_json("bytes", times.us));
    json.push_back(std::move(entry));
  }
  return json;
}

Json curve_or_null(const Curve& curve) {
  return curve.empty() ? Json() : curve_json("tokens", curve);
}

// ---- Reading ----

Curve read_rising_curve(const JsonPlace& place, const char* key) {
  Curve curve = read_curve(place, key);
  for (std::size_t i = 1; i < curve.us.size(); ++i) {
    if (curve.us[i] >= curve.us[i - 1]) continue;
    place.at("us").fail(fmt::format("falls at {} {}; allowed: times that do not fall", key,
                                    static_cast<std::int64_t>(curve.x[i])));
  }
  return curve;
}

Grid read_rising_grid(const JsonPlace& place, const char* rows, const char* columns) {
  Grid grid = read_grid(place, rows, columns);
  const std::size_t width = grid.columns.size();
  for (std::size_t i = 0; i < grid.us.size(); ++i) {
    const bool falls = (i >= width && grid.us[i] < grid.us[i - width]) ||
                       (i % width > 0 && grid.us[i] < grid.us[i - 1]);
    if (!falls) continue;
    place.at("us").fail(fmt::format("falls at entry {}; allowed: times that do not fall", i));
  }
  return grid;
}

Curve read_curve_or_null(const JsonPlace& place) {
  return place.is_null() ? Curve() : read_rising_curve(place, "tokens");
}

LayerAttention read_layer_attention(const JsonPlace& place, const char* prompt_columns) {
  return {read_rising_grid(place.at("prompts"), "prompts", prompt_columns),
          read_rising_grid(place.at("decodes"), "sequences", "context")};
}

std::vector<CollectiveTimes> read_collective_times(const JsonPlace& place, std::int64_t devices) {
  std::vector<CollectiveTimes> all;
  place.for_each([&](const JsonPlace& entry) {
    CollectiveTimes times;
    const std::string name = entry.at("collective").text();
    const auto known = {Collective::AllReduce, Collective::AllGather};
    const auto found = std::find_if(known.begin(), known.end(), [&](Collective collective) {
      return to_string(collective) == name;
    });
    if (found == known.end()) entry.at("collective").fail("allowed: all_reduce, all_gather");
    times.collective = *found;
    times.num_devices = devices;
    times.us = read_rising_curve(entry, "bytes");
    all.push_back(std::move(times));
  });
  const auto is_all_reduce = [](const CollectiveTimes& times) {
    return times.collective == Collective::AllReduce;
  };
  if (devices > 1 && std::none_of(all.begin(), all.end(), is_all_reduce)) {
    place.fail(fmt::format("has no all_reduce; allowed: times among {} devices", devices));
  }
  return all;
}

}  // namespace

Json operator_body(const OperatorTimes& times, const ModelConfig& model) {
  Json body;
  body["shape"] = shape_json(measured_shape(model));
  body["formats"] = formats_json(model);
  body["remarks"] = Json(times.remarks);
  body["memory_bandwidth"] = times.memory_bandwidth;
  body["fuses_norms"] = times.fuses_norms;
  if (times.max_fused_bytes) body["max_fused_bytes"] = *times.max_fused_bytes;
  body["projections"] = curve_json("tokens", times.projections);
  body["mlp"] = curve_or_null(times.mlp);
  body["experts"] = curve_or_null(times.experts);
  body["head"] = curve_json("rows", times.head);
  body["attention"] = attention_json(times.attention, "pairs");
  if (times.latent) {
    body["latent"] = {{"expansion", curve_json("positions", times.latent->expansion)},
                      {"absorption", curve_json("tokens", times.latent->absorption)}};
  }
  body["windowed_attention"] = times.windowed ? attention_json(*times.windowed, "tokens") : Json();
  if (!times.shared_experts.empty()) {
    body["shared_experts"] = curve_json("tokens", times.shared_experts);
  }
  if (times.states) {
    body["linear_projections"] = curve_json("tokens", times.linear_projections);
    body["states"] = {{"prompts", grid_json("prompts", "tokens", times.states->prompts)},
                      {"decodes", curve_json("sequences", times.states->decodes)}};
  }
  body["collectives"] = collectives_json(times.collectives);
  return body;
}

OperatorTimes read_operator_times(const CostModelFile& file) {
  const JsonPlace body(file.name + ": body", *file.body);
  OperatorTimes times;
  body.at("remarks").for_each(
      [&](const JsonPlace& remark) { times.remarks.push_back(remark.text()); });
  times.memory_bandwidth = body.at("memory_bandwidth").number(1e9, kMaxBandwidth);
  times.fuses_norms = body.at("fuses_norms").truth();
  if (body.has("max_fused_bytes")) {
    times.max_fused_bytes = body.at("max_fused_bytes").number(0, kMaxFusedBytes);
  }
  times.projections = read_rising_curve(body.at("projections"), "tokens");
  times.mlp = read_curve_or_null(body.at("mlp"));
  times.experts = read_curve_or_null(body.at("experts"));
  times.head = read_rising_curve(body.at("head"), "rows");
  times.attention = read_layer_attention(body.at("attention"), "pairs");
  if (body.has("latent")) {
    const JsonPlace latent = body.at("latent");
    times.latent = {read_rising_curve(latent.at("expansion"), "positions"),
                    read_rising_curve(latent.at("absorption"), "tokens")};
  }
  if (const JsonPlace windowed = body.at("windowed_attention"); !windowed.is_null()) {
    times.windowed = read_layer_attention(windowed, "tokens");
  }
  if (body.has("shared_experts")) {
    times.shared_experts = read_rising_curve(body.at("shared_experts"), "tokens");
  }
  if (body.has("states")) {
    times.linear_projections = read_rising_curve(body.at("linear_projections"), "tokens");
    const JsonPlace states = body.at("states");
    times.states = {read_rising_grid(states.at("prompts"), "prompts", "tokens"),
                    read_rising_curve(states.at("decodes"), "sequences")};
  }
  times.collectives = read_collective_times(body.at("collectives"), file.tensor_parallel_size);
  return times;
}

std::unique_ptr<CostModel> make_operator_model(const CostModelFile& file, const ModelConfig& model,
                                               const HardwareSpec& hardware,
                                               const CostModelConfig& config) {
  require_shape(file, measured_shape(model), model);
  require_formats(file, model);
  require_ragged(file, config);
  return std::make_unique<OperatorCostModel>(read_operator_times(file), model, hardware, config);
}

}  // namespace metronome
