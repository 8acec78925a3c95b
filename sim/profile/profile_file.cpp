// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_file.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "sim/cost/curve_json.h"
#include "sim/cost/model_shape.h"

namespace metronome {
namespace {

// Of grids.
constexpr const char* kRows = "sequences";
constexpr const char* kColumns = "context";

// ---- Writing ----

Json layers_json(const char* key, const std::vector<LayerTimes>& layers) {
  Json json = Json::object();
  for (const LayerTimes& layer : layers) json[layer.name] = curve_json(key, layer.us);
  return json;
}

// `write(part)` gives what an entry has beside its `key`.
template <class Part, class Write>
Json family_json(const char* key, const TimeFamily<Part>& family, const Write& write) {
  Json json = Json::array();
  for (std::size_t i = 0; i < family.x.size(); ++i) {
    Json entry = {{key, numbers_json({family.x[i]}).front()}};
    entry.update(write(family.parts[i]));
    json.push_back(std::move(entry));
  }
  return json;
}

Json curves_json(const char* first, const char* second, const TimeFamily<Curve>& curves) {
  return family_json(first, curves, [&](const Curve& curve) { return curve_json(second, curve); });
}

Json attention_json(const AttentionTable& table) {
  const auto grid = [](const Grid& beside) { return grid_json(kRows, kColumns, beside); };
  const auto histories = [&](const TimeFamily<Grid>& of_tokens) {
    return Json{{"histories", family_json("history", of_tokens, grid)}};
  };
  return {{"decode", grid(table.decode)},
          {"prefill", curves_json("tokens", "history", table.prefill)},
          {"mixed", family_json("tokens", table.mixed, histories)}};
}

Json block_times_json(const BlockTimes& times) {
  return {{"launch_us", times.launch_us},
          {"tile_us", times.tile_us},
          {"busy_tile_us", times.busy_tile_us},
          {"block_tiles", times.block_tiles},
          {"empty_block_us", times.empty_block_us}};
}

// ---- Reading ----

std::vector<LayerTimes> read_layers(const JsonPlace& place, const char* key) {
  if (!place.json().is_object()) place.fail("is not an object; allowed: times by layer");
  std::vector<LayerTimes> layers;
  for (const auto& [name, ignored] : place.json().items()) {
    layers.push_back({name, read_curve(place.at(name), key)});
  }
  return layers;
}

// `read(entry)` gives a part.
template <class Read>
auto read_family(const JsonPlace& place, const char* key, const Read& read) {
  TimeFamily<decltype(read(place))> family;
  place.for_each([&](const JsonPlace& entry) {
    const JsonPlace x = entry.at(key);
    const double value = x.number(0, 1e15);
    if (!family.empty() && value <= family.x.back()) {
      x.fail("is not above the previous number; allowed: ascending numbers");
    }
    family.x.push_back(value);
    family.parts.push_back(read(entry));
  });
  return family;
}

TimeFamily<Curve> read_curves(const JsonPlace& place, const char* first, const char* second) {
  return read_family(place, first,
                     [&](const JsonPlace& entry) { return read_curve(entry, second); });
}

AttentionTable read_attention(const JsonPlace& place) {
  const auto grid = [](const JsonPlace& at) { return read_grid(at, kRows, kColumns); };
  const auto histories = [&](const JsonPlace& entry) {
    const JsonPlace list = entry.at("histories");
    TimeFamily<Grid> of_tokens = read_family(list, "history", grid);
    if (of_tokens.empty()) list.fail("is empty; allowed: a list of grids");
    return of_tokens;
  };
  AttentionTable table;
  table.decode = grid(place.at("decode"));
  table.prefill = read_curves(place.at("prefill"), "tokens", "history");
  if (table.prefill.empty()) place.at("prefill").fail("is empty; allowed: times of chunks");
  table.mixed = read_family(place.at("mixed"), "tokens", histories);
  return table;
}

BlockTimes read_block_times(const JsonPlace& place) {
  BlockTimes times;
  times.launch_us = place.at("launch_us").number(0, 1e6);
  times.tile_us = place.at("tile_us").number(1e-9, 1e6);
  times.busy_tile_us = place.at("busy_tile_us").number(1e-9, 1e6);
  times.block_tiles = place.at("block_tiles").number(0, 1e6);
  times.empty_block_us = place.at("empty_block_us").number(0, 1e6);
  return times;
}

}  // namespace

Json profile_body(const Profile& profile, const ModelConfig& model) {
  Json body;
  body["shape"] = shape_json(shape_of(model));
  body["corrects_lengths"] = profile.corrects_lengths;
  body["block_filling"] = nullptr;
  if (profile.filling) {
    body["block_filling"] = {{"num_sms", profile.filling->num_multiprocessors},
                             {"decode", block_times_json(profile.filling->decode)},
                             {"mixed", block_times_json(profile.filling->mixed)}};
  }
  const ProfileTables& tables = profile.tables;
  body["dense"] = layers_json("tokens", tables.dense);
  body["per_sequence"] = layers_json("sequences", tables.per_sequence);
  body["experts"] = curves_json("tokens", "activated", tables.experts);
  body["allreduce"] = nullptr;
  if (!tables.allreduce.empty()) body["allreduce"] = curve_json("bytes", tables.allreduce);
  body["attention"] = attention_json(tables.attention);
  return body;
}

Profile read_profile(const CostModelFile& file) {
  const JsonPlace body(file.name + ": body", *file.body);
  Profile profile;
  profile.corrects_lengths = body.at("corrects_lengths").truth();
  if (const JsonPlace filling = body.at("block_filling"); !filling.is_null()) {
    profile.filling = {filling.at("num_sms").integer(1, kMaxMultiprocessors),
                       read_block_times(filling.at("decode")),
                       read_block_times(filling.at("mixed"))};
  }
  ProfileTables& tables = profile.tables;
  tables.dense = read_layers(body.at("dense"), "tokens");
  tables.per_sequence = read_layers(body.at("per_sequence"), "sequences");
  tables.experts = read_curves(body.at("experts"), "tokens", "activated");
  if (const JsonPlace allreduce = body.at("allreduce"); !allreduce.is_null()) {
    tables.allreduce = read_curve(allreduce, "bytes");
  }
  tables.attention = read_attention(body.at("attention"));
  return profile;
}

std::unique_ptr<CostModel> make_profile_model(const CostModelFile& file, const ModelConfig& model,
                                              const HardwareSpec& hardware,
                                              const CostModelConfig& config) {
  require_shape(file, shape_of(model), model);
  require_ragged(file, config);
  return std::make_unique<ProfileCostModel>(read_profile(file), model, hardware, config);
}

}  // namespace metronome
