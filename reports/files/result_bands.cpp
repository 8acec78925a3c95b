// SPDX-License-Identifier: Apache-2.0
#include "reports/files/result_bands.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_text.h"
#include "core/base/types.h"
#include "core/metrics/figures.h"

namespace metronome {
namespace {

void append_pair(std::string_view key, double low, double high, JsonText& json) {
  json.key(key);
  json.begin_array();
  json.value(low);
  json.value(high);
  json.end_array();
}

void append_pairs(std::string_view key, std::span<const FigureBand> pairs, JsonText& json) {
  json.key(key);
  json.begin_object();
  for (const FigureBand& pair : pairs) append_pair(pair.key, pair.low, pair.high, json);
  json.end_object();
}

FigureBand read_pair(const JsonPlace& place, const std::string& key) {
  std::vector<double> ends;
  place.at(key).for_each(
      [&](const JsonPlace& end) { ends.push_back(end.is_null() ? std::nan("") : end.number()); });
  if (ends.size() != 2) {
    place.at(key).fail("is not a list of minimum and maximum; allowed: two numbers");
  }
  return {key, ends[0], ends[1]};
}

bool is_figure(std::string_view key) {
  return std::any_of(all_figures().begin(), all_figures().end(),
                     [key](const Figure& figure) { return figure.key == key; });
}

std::vector<FigureBand> read_pairs(const JsonPlace& place) {
  std::vector<FigureBand> pairs;
  if (!place.json().is_object()) place.fail("is not an object; allowed: an object of figures");
  for (const auto& [key, ignored] : place.json().items()) {
    if (!is_figure(key)) place.at(key).fail("is no figure; allowed: a key of a figure");
    pairs.push_back(read_pair(place, key));
  }
  return pairs;
}

}  // namespace

void append_bands(const FigureBands& bands, JsonText& json) {
  if (bands.num_seeds == 0) return;
  json.key(bands.step_scale ? "bands" : "noise");
  json.begin_object();
  json.field("seeds", bands.num_seeds);
  if (bands.step_scale) {
    append_pair("step_scale", bands.step_scale->low, bands.step_scale->high, json);
  }
  append_pairs("bands", bands.figures, json);
  if (bands.step_scale) append_pairs("steep", bands.steep, json);
  json.end_object();
}

FigureBands read_bands(const JsonPlace& result) {
  FigureBands bands;
  const bool has_scale = result.has("bands");
  if (!has_scale && !result.has("noise")) return bands;
  const JsonPlace place = result.at(has_scale ? "bands" : "noise");
  bands.num_seeds = place.at("seeds").integer(1, kNever - 1);
  bands.figures = read_pairs(place.at("bands"));
  if (!has_scale) return bands;
  bands.step_scale = read_pair(place, "step_scale");
  bands.steep = read_pairs(place.at("steep"));
  return bands;
}

void append_accuracy(const TimeAccuracy& accuracy, JsonText& json) {
  json.key("accuracy");
  json.begin_object();
  json.field("step_times", accuracy.step_times);
  json.field("kv_bits", accuracy.kv_bits);
  json.key("nearest");
  if (accuracy.nearest.empty()) {
    json.null();
  } else {
    json.value(accuracy.nearest);
  }
  json.field("num_values", accuracy.num_values);
  append_pair("tpot", accuracy.tpot.low, accuracy.tpot.high, json);
  append_pair("ttft", accuracy.ttft.low, accuracy.ttft.high, json);
  json.field("mean_tpot_error", accuracy.mean_tpot_error);
  json.end_object();
}

std::optional<TimeAccuracy> read_accuracy(const JsonPlace& result) {
  if (!result.has("accuracy")) return std::nullopt;
  const JsonPlace place = result.at("accuracy");
  const auto band = [&place](const std::string& key) {
    const FigureBand pair = read_pair(place, key);
    return ErrorBand{pair.low, pair.high};
  };
  const JsonPlace nearest = place.at("nearest");
  return TimeAccuracy{.step_times = place.at("step_times").text(),
                      .kv_bits = place.at("kv_bits").integer(0, kNever - 1),
                      .nearest = nearest.is_null() ? std::string() : nearest.text(),
                      .num_values = place.at("num_values").integer(0, kNever - 1),
                      .tpot = band("tpot"),
                      .ttft = band("ttft"),
                      .mean_tpot_error = place.at("mean_tpot_error").number()};
}

}  // namespace metronome
