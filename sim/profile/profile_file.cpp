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

Json family_json(const char* first, const char* second, const CurveFamily& family) {
  Json json = Json::array();
  for (std::size_t i = 0; i < family.x.size(); ++i) {
    Json entry = {{first, numbers_json({family.x[i]}).front()}};
    entry.update(curve_json(second, family.curves[i]));
    json.push_back(std::move(entry));
  }
  return json;
}

Json attention_json(const AttentionTable& table) {
  Json mixed = Json::array();
  for (const AttentionTable::Chunk& chunk : table.mixed) {
    Json cells = Json::array();
    for (const AttentionTable::Cell& cell : chunk.cells) {
      Json entry = {{"history", numbers_json({cell.history}).front()}};
      entry.update(grid_json(kRows, kColumns, cell.beside));
      cells.push_back(std::move(entry));
    }
    mixed.push_back({{"tokens", numbers_json({chunk.tokens}).front()}, {"histories", cells}});
  }
  return {{"decode", grid_json(kRows, kColumns, table.decode)},
          {"prefill", family_json("tokens", "history", table.prefill)},
          {"mixed", mixed}};
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

void append_ascending(const JsonPlace& place, std::vector<double>& values) {
  const double value = place.number(0, 1e15);
  if (!values.empty() && value <= values.back()) {
    place.fail("is not above the previous number; allowed: ascending numbers");
  }
  values.push_back(value);
}

CurveFamily read_family(const JsonPlace& place, const char* first, const char* second) {
  CurveFamily family;
  place.for_each([&](const JsonPlace& entry) {
    append_ascending(entry.at(first), family.x);
    family.curves.push_back(read_curve(entry, second));
  });
  return family;
}

AttentionTable read_attention(const JsonPlace& place) {
  AttentionTable table;
  table.decode = read_grid(place.at("decode"), kRows, kColumns);
  table.prefill = read_family(place.at("prefill"), "tokens", "history");
  if (table.prefill.empty()) place.at("prefill").fail("is empty; allowed: times of chunks");
  std::vector<double> all_tokens;
  place.at("mixed").for_each([&](const JsonPlace& entry) {
    append_ascending(entry.at("tokens"), all_tokens);
    AttentionTable::Chunk chunk{all_tokens.back(), {}};
    std::vector<double> histories;
    entry.at("histories").for_each([&](const JsonPlace& cell) {
      append_ascending(cell.at("history"), histories);
      chunk.cells.push_back({histories.back(), read_grid(cell, kRows, kColumns)});
    });
    if (chunk.cells.empty()) entry.at("histories").fail("is empty; allowed: a list of grids");
    table.mixed.push_back(std::move(chunk));
  });
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
  body["experts"] = family_json("tokens", "activated", tables.experts);
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
  tables.experts = read_family(body.at("experts"), "tokens", "activated");
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
