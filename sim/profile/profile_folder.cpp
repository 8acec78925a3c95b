// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_folder.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/number_chars.h"
#include "core/base/real.h"
#include "core/config/catalogue.h"
#include "core/config/config_node.h"
#include "sim/cost/csv_table.h"
#include "sim/cost/device_share.h"
#include "sim/cost/pass_cost.h"
#include "sim/profile/profile_rows.h"

namespace metronome {
namespace {

constexpr const char* kAllowed =
    "a folder with meta.yaml and tpN/dense.csv, with Vidur's mlp.csv and attention.csv, or with "
    "aiconfigurator-core's systems/data";
constexpr double kMicrosPerMilli = 1e3;
constexpr double kBytesPerWeight = 2;

std::string place_of(const std::string& folder, std::int64_t tp) {
  return fmt::format("{}/tp{}/", folder, tp);
}

std::string text_at(const ConfigNode& root, const char* path) {
  const ConfigNode* node = root.find_path(path);
  return node != nullptr && node->kind == ConfigNode::Kind::Scalar ? node->scalar : std::string();
}

// Of a grid's steps.
std::optional<double> factor_of(std::string_view text) {
  double factor = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_number(text.data(), end, factor);
  const bool is_factor = rest == end && error == std::errc() && factor > 1;
  return is_factor ? std::optional(factor) : std::nullopt;
}

std::optional<double> factor_at(const ConfigNode& root, const char* path) {
  const std::string text = text_at(root, path);
  const std::optional<double> factor = factor_of(text);
  if (factor || text.empty()) return factor;
  fail_config(root.find_path(path)->where, path,
              "'" + text + "' is not a factor; allowed: a number above 1");
}

// The 2 of "0, 1-256 x2".
std::optional<double> step_factor(const std::string& grid) {
  const std::size_t x = grid.rfind(" x");
  return x == std::string::npos ? std::nullopt : factor_of(std::string_view(grid).substr(x + 2));
}

// The least that one device must compute and move.
class Floors {
 public:
  Floors(const ModelConfig& model, const HardwareSpec& hardware, std::int64_t tp)
      : model_(model), hardware_(hardware), tp_(real(tp)), kv_heads_(device_kv_heads(model, tp)) {}

  // Weights of a dense layer by its name; 0 for layers that are not matrix products.
  double weights(const std::string& layer) const {
    const double hidden = real(model_.hidden_dim);
    const double head = real(model_.head_dim);
    const double query = real(model_.n_heads) / tp_ * head;
    if (layer == "qkv_proj") return hidden * (query + 2 * real(kv_heads_) * head);
    if (layer == "o_proj") return hidden * query;
    if (layer == "gate_up_proj") {
      return hidden * real((model_.n_mlp_matrices() - 1) * model_.ffn_dim) / tp_;
    }
    if (layer == "down_proj") return hidden * real(model_.ffn_dim) / tp_;
    if (layer == "lm_head") return hidden * real(model_.vocab_size) / tp_;
    return 0;
  }
  FloorUs product(double rows, double num_weights) const {
    return {compute_us(2 * rows * num_weights), memory_us(num_weights * kBytesPerWeight)};
  }
  FloorUs experts(double tokens, double activated) const {
    const double expert = real(model_.n_expert_params()) / tp_;
    return {compute_us(2 * tokens * real(model_.n_experts_per_token) * expert),
            memory_us(activated * expert * kBytesPerWeight)};
  }
  FloorUs attention(double chunk, double history, double sequences, double context) const {
    const double pairs = chunk * (history + chunk / 2) + sequences * context;
    const double positions = history + chunk + sequences * context;
    return {compute_us(4 * pairs * real(model_.n_heads) / tp_ * real(model_.head_dim)),
            memory_us(positions * 2 * real(kv_heads_ * model_.head_dim) * kBytesPerWeight)};
  }

 private:
  double compute_us(double flops) const { return flops / hardware_.peak_flops * kMicrosPerSec; }
  double memory_us(double bytes) const { return bytes / hardware_.peak_bandwidth * kMicrosPerSec; }

  const ModelConfig& model_;
  const HardwareSpec& hardware_;
  double tp_;
  std::int64_t kv_heads_;
};

LayerTimes layer_times(MeasuredRows& table, bool averages, const Floors& floors) {
  const double weights = floors.weights(table.what);
  RowFloor floor_of;
  if (weights > 0) {
    floor_of = [&](const MeasuredRow& row) { return floors.product(row.keys[0], weights); };
  }
  check_rows(table, averages, floor_of);
  return {table.what, curve_of(table)};
}

// Times by layer and one key; every layer has the same keys.
std::vector<LayerTimes> read_layers(const std::string& file, const std::string& key,
                                    const Floors& floors) {
  CsvTable csv(file, {"layer", key, "time_us"});
  std::map<std::string, MeasuredRows> layers;
  while (csv.next()) {
    const std::string name(csv.text("layer"));
    if (name.empty()) csv.fail("layer", "is empty; allowed: the name of a layer");
    MeasuredRows& table = layers[name];
    table.rows.push_back({{csv.amount(key)}, csv.time_us("time_us"), csv.line()});
  }
  if (layers.empty()) throw ConfigError(file + ": has no rows; allowed: times of layers");
  std::vector<LayerTimes> times;
  const MeasuredRows* longest = nullptr;
  for (auto& [name, table] : layers) {
    table.file = file;
    table.what = name;
    table.names = {key};
    times.push_back(layer_times(table, false, floors));
    if (longest == nullptr || table.rows.size() > longest->rows.size()) longest = &table;
  }
  for (const auto& [name, table] : layers) {
    for (std::size_t i = 0; i < longest->rows.size(); ++i) {
      const MeasuredRow& expected = longest->rows[i];
      if (i < table.rows.size() && table.rows[i].keys == expected.keys) continue;
      const MeasuredRow& before = table.rows[std::min(i > 0 ? i - 1 : 0, table.rows.size() - 1)];
      MeasuredRow missing = before;
      missing.keys = expected.keys;
      table.fail(before, key,
                 "a gap in the grid: " + table.place(missing) + " is missing, but " +
                     longest->what + " has it; allowed: every layer at the same values");
    }
  }
  return times;
}

// Adds the layers that every device computes whole: they take as long on one device as on several.
void add_whole_layers(const std::string& file_of_one, const std::string& key, const Floors& floors,
                      std::vector<LayerTimes>& layers) {
  if (!path_exists(file_of_one)) return;
  for (LayerTimes& layer : read_layers(file_of_one, key, floors)) {
    const bool is_whole = layer.name == "layernorm" || layer.name == "final_layernorm" ||
                          layer.name == "qk_norm" || layer.name == "sampler";
    if (is_whole && find_entry(layers, layer.name) == nullptr) layers.push_back(std::move(layer));
  }
}

// Checks rows [begin, end), which share their first two keys. Makes a grid of the last two keys.
Grid checked_grid(const MeasuredRows& table, std::size_t begin, std::size_t end,
                  const ProfileMeta& meta) {
  Grid grid = grid_of(table, begin, end);
  if (meta.kv_factor) check_steps(table, 3, grid.columns, *meta.kv_factor);
  if (meta.decodes_factor) check_steps(table, 2, grid.rows, *meta.decodes_factor);
  return grid;
}

// Makes the table from rows keyed by chunk, history, decodes, context.
class AttentionBuilder {
 public:
  AttentionBuilder(std::string file, bool averages) : averages_(averages) {
    for (MeasuredRows* table : {&decode_, &prefill_, &mixed_}) table->file = file;
    for (MeasuredRows* table : {&decode_, &mixed_}) {
      table->names = {"prefill_chunk", "kv_prefill", "n_decode", "kv_decode"};
    }
    prefill_.names = {"prefill_chunk", "kv_prefill"};
  }

  void add(const MeasuredRow& row) {
    (row.keys[0] == 0 ? decode_ : row.keys[2] == 0 ? prefill_ : mixed_).rows.push_back(row);
  }

  AttentionTable build(const ProfileMeta& meta, const Floors& floors) {
    for (MeasuredRows* table : {&decode_, &prefill_, &mixed_}) {
      check_rows(*table, averages_, [&](const MeasuredRow& row) {
        return floors.attention(row.keys[0], row.keys[1], row.keys[2], row.keys[3]);
      });
    }
    require_rows(decode_, "decodes alone (prefill_chunk 0)");
    require_rows(prefill_, "chunks alone (n_decode 0)");
    AttentionTable table;
    table.decode = checked_grid(decode_, 0, decode_.rows.size(), meta);
    table.prefill = family_of(prefill_);
    if (meta.chunk_factor) check_steps(prefill_, 0, table.prefill.x, *meta.chunk_factor);
    if (meta.kv_factor) {
      for (const Curve& curve : table.prefill.parts) {
        check_steps(prefill_, 1, curve.x, *meta.kv_factor);
      }
    }
    add_mixed(meta, table);
    return table;
  }

 private:
  static void require_rows(const MeasuredRows& table, const std::string& what) {
    if (!table.rows.empty()) return;
    throw ConfigError(table.file + ": time_us: has no rows of " + what +
                      "; allowed: a complete attention table");
  }

  void add_mixed(const ProfileMeta& meta, AttentionTable& table) const {
    const std::vector<MeasuredRow>& rows = mixed_.rows;
    for (std::size_t begin = 0; begin < rows.size();) {
      const MeasuredRow& first = rows[begin];
      std::size_t end = begin;
      while (end < rows.size() && rows[end].keys[0] == first.keys[0] &&
             rows[end].keys[1] == first.keys[1]) {
        ++end;
      }
      const bool is_alone =
          std::any_of(prefill_.rows.begin(), prefill_.rows.end(), [&](const MeasuredRow& row) {
            return row.keys[0] == first.keys[0] && row.keys[1] == first.keys[1];
          });
      if (!is_alone) {
        MeasuredRow alone = first;
        alone.keys[2] = alone.keys[3] = 0;
        mixed_.fail(first, "n_decode",
                    "a gap in the grid: " + mixed_.place(alone) +
                        " is missing; allowed: every chunk also without decodes");
      }
      if (table.mixed.empty() || table.mixed.x.back() != first.keys[0]) {
        table.mixed.x.push_back(first.keys[0]);
        table.mixed.parts.emplace_back();
      }
      table.mixed.parts.back().x.push_back(first.keys[1]);
      table.mixed.parts.back().parts.push_back(checked_grid(mixed_, begin, end, meta));
      begin = end;
    }
  }

  bool averages_;
  MeasuredRows decode_;
  MeasuredRows prefill_;
  MeasuredRows mixed_;
};

AttentionTable read_attention(const std::string& file, const ProfileMeta& meta,
                              const Floors& floors) {
  std::vector<std::string> columns = {"prefill_chunk", "n_decode", "kv_decode", "time_us"};
  AttentionBuilder builder(file, false);
  const bool has_key = CsvTable(file, {}).has("prefill_key");
  const std::string history = has_key ? "prefill_key" : "kv_prefill";
  columns.insert(columns.begin() + 1, history);
  CsvTable csv(file, columns);
  std::string layer;
  while (csv.next()) {
    if (csv.has("decode_q_len") && csv.amount("decode_q_len") > 1) continue;  // speculation
    if (csv.has("layer")) {
      if (layer.empty()) layer = csv.text("layer");
      if (csv.text("layer") != layer) {
        csv.fail("layer", "'" + std::string(csv.text("layer")) + "' in a table of '" + layer +
                              "'; allowed: one layer");
      }
    }
    MeasuredRow row;
    row.line = csv.line();
    row.us = csv.time_us("time_us");
    row.keys = {csv.amount("prefill_chunk"), 0, csv.amount("n_decode"), csv.amount("kv_decode")};
    if (!has_key) row.keys[1] = csv.amount(history);
    if (has_key && row.keys[0] > 0) row.keys[1] = csv.number(history) - row.keys[0] / 2;
    if (row.keys[1] < 0)
      csv.fail(history, "is less than half the chunk; allowed: at least half the chunk");
    if (row.keys[0] == 0 && row.keys[2] == 0) {
      csv.fail("n_decode", "is 0, like prefill_chunk; allowed: one of them above 0");
    }
    builder.add(row);
  }
  return builder.build(meta, floors);
}

// A token count has the same expert counts as its neighbours, up to what it can activate.
void check_experts(const MeasuredRows& table, const TimeFamily<Curve>& family) {
  for (std::size_t i = 1; i + 1 < family.x.size(); ++i) {
    const std::vector<double>& own = family.parts[i].x;
    const auto has = [&](std::size_t k, double activated) {
      const std::vector<double>& x = family.parts[k].x;
      return std::binary_search(x.begin(), x.end(), activated);
    };
    for (const double activated : family.parts[i - 1].x) {
      if (!has(i + 1, activated) || has(i, activated) || activated > own.back()) continue;
      const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                    [&](const MeasuredRow& r) { return r.keys[0] == family.x[i]; });
      MeasuredRow missing = *row;
      missing.keys[1] = activated;
      table.fail(*row, "activated_experts",
                 "a gap in the grid: " + table.place(missing) +
                     " is missing; allowed: the expert counts of the neighbouring token counts");
    }
  }
}

// Without those of experts that are distributed over devices. `lacks` says what is wrong if there
// are none.
MeasuredRows read_rows(const std::string& file, const std::vector<std::string_view>& keys,
                       const char* lacks) {
  std::vector<std::string> columns(keys.begin(), keys.end());
  columns.emplace_back("time_us");
  CsvTable csv(file, std::move(columns));
  MeasuredRows table{file, "", keys, {}};
  while (csv.next()) {
    if (csv.has("ep") && csv.amount("ep") != 1) continue;
    MeasuredRow row;
    for (std::size_t i = 0; i < keys.size(); ++i) row.keys[i] = csv.amount(keys[i]);
    row.us = csv.time_us("time_us");
    row.line = csv.line();
    table.rows.push_back(row);
  }
  if (table.rows.empty()) throw ConfigError(file + lacks);
  return table;
}

TimeFamily<Curve> read_experts(const std::string& file, const Floors& floors) {
  MeasuredRows table = read_rows(file, {"tokens", "activated_experts"},
                                 ": has no rows of one device; allowed: rows with ep 1 or without "
                                 "ep");
  check_rows(table, false,
             [&](const MeasuredRow& row) { return floors.experts(row.keys[0], row.keys[1]); });
  TimeFamily<Curve> family = family_of(table);
  check_experts(table, family);
  return family;
}

TimeFamily<Curve> read_shared_experts(const std::string& folder, std::int64_t tp,
                                      const Floors& floors) {
  const bool is_whole = has_whole_experts(folder, tp);
  TimeFamily<Curve> family = read_experts(place_of(folder, is_whole ? 1 : tp) + "moe.csv", floors);
  if (!is_whole) return family;
  for (Curve& curve : family.parts) {
    for (double& us : curve.us) us /= static_cast<double>(tp);
  }
  return family;
}

ProfileTables read_servingsim(const std::string& folder, const ProfileMeta& meta, bool has_experts,
                              std::int64_t tp, const Floors& floors) {
  const std::string place = place_of(folder, tp);
  if (!is_folder(place)) {
    throw ConfigError(place + ": does not exist; allowed: a measured tensor parallel size");
  }
  ProfileTables tables;
  tables.dense = read_layers(place + "dense.csv", "tokens", floors);
  tables.per_sequence = read_layers(place + "per_sequence.csv", "sequences", floors);
  if (tp > 1) {
    add_whole_layers(folder + "/tp1/dense.csv", "tokens", floors, tables.dense);
    add_whole_layers(folder + "/tp1/per_sequence.csv", "sequences", floors, tables.per_sequence);
  }
  tables.attention = read_attention(place + "attention.csv", meta, floors);
  if (has_experts) tables.experts = read_shared_experts(folder, tp, floors);
  if (const std::string file = place + "allreduce.csv"; path_exists(file)) {
    MeasuredRows table = read_rows(file, {"bytes"}, ": has no rows; allowed: times by bytes");
    check_rows(table, false);
    tables.allreduce = curve_of(table);
  }
  return tables;
}

// ---- Vidur ----

// Vidur's names for layers that other profiles name differently. The others are also called once
// per layer.
constexpr std::pair<const char*, const char*> kVidurLayers[] = {
    {"emb", "embedding"},
    {"input_layernorm", "input_layernorm"},
    {"attn_pre_proj", "qkv_proj"},
    {"attn_rope", "rotary_emb"},
    {"attn_post_proj", "o_proj"},
    {"post_attention_layernorm", "post_attention_layernorm"},
    {"mlp_up_proj", "gate_up_proj"},
    {"mlp_act", "act_fn"},
    {"mlp_down_proj", "down_proj"},
    {"add", "add"},
};

std::string median_of(const std::string& operation) {
  return "time_stats." + operation + ".median";
}

std::vector<LayerTimes> read_vidur_layers(const std::string& file, std::int64_t tp,
                                          const Floors& floors) {
  std::vector<std::string> columns = {"num_tokens", "num_tensor_parallel_workers"};
  for (const auto& [column, name] : kVidurLayers) columns.push_back(median_of(column));
  CsvTable csv(file, columns);
  std::vector<MeasuredRows> layers;
  for (const auto& [column, name] : kVidurLayers) {
    layers.push_back({file, name, {"num_tokens"}, {}});
  }
  while (csv.next()) {
    if (csv.amount("num_tensor_parallel_workers") != real(tp)) continue;
    const double tokens = csv.amount("num_tokens");
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const double ms = csv.time_us(median_of(kVidurLayers[i].first));
      layers[i].rows.push_back({{tokens}, ms * kMicrosPerMilli, csv.line()});
    }
  }
  std::vector<LayerTimes> times;
  for (MeasuredRows& table : layers) {
    if (table.rows.empty()) {
      throw ConfigError(fmt::format(
          "{}: num_tensor_parallel_workers: has no rows of {}; allowed: a measured size", file,
          tp));
    }
    times.push_back(layer_times(table, true, floors));
  }
  return times;
}

AttentionTable read_vidur_attention(const std::string& file, const ProfileMeta& meta,
                                    std::int64_t tp, const Floors& floors) {
  const std::string prefill = median_of("attn_prefill");
  const std::string decode = median_of("attn_decode");
  const std::string save = median_of("attn_kv_cache_save");
  CsvTable csv(file, {prefill, decode, save, "num_tensor_parallel_workers", "batch_size",
                      "prefill_chunk_size", "kv_cache_size", "is_prefill"});
  AttentionBuilder builder(file, true);
  while (csv.next()) {
    if (csv.amount("num_tensor_parallel_workers") != real(tp)) continue;
    const bool is_prefill = csv.truth("is_prefill");
    MeasuredRow row;
    row.line = csv.line();
    const double saved_ms = csv.number(save);
    if (saved_ms < 0) csv.fail(save, "is below 0; allowed: milliseconds");
    row.us = kMicrosPerMilli * (saved_ms + csv.time_us(is_prefill ? prefill : decode));
    const double history = csv.amount("kv_cache_size");
    if (is_prefill) {
      if (csv.amount("batch_size") != 1) continue;  // several at once: not part of this table
      row.keys = {csv.amount("prefill_chunk_size"), history, 0, 0};
    } else {
      row.keys = {0, 0, csv.amount("batch_size"), history};
    }
    builder.add(row);
  }
  return builder.build(meta, floors);
}

}  // namespace

ProfileMeta read_profile_meta(const std::string& folder) {
  if (!is_folder(folder)) {
    throw ConfigError(folder + ": is not a folder; allowed: " + std::string(kAllowed));
  }
  ProfileMeta meta;
  const std::string file = folder + "/meta.yaml";
  if (path_exists(file)) {
    const ConfigNode root = load_config_file(file);
    meta.hardware = text_at(root, "hardware");
    meta.model = text_at(root, "model");
    const std::string version = text_at(root, "vllm_version");
    if (!version.empty()) meta.engine = "vllm " + version;
    const std::string enabled = text_at(root, "skew_fit.enabled");
    if (!enabled.empty()) meta.corrects_lengths = enabled == "true";
    meta.chunk_factor = factor_at(root, "attention_grid.chunk_factor");
    meta.kv_factor = factor_at(root, "attention_grid.kv_factor");
    meta.decodes_factor = step_factor(text_at(root, "attention_grid.n_decode"));
    return meta;
  }
  meta.is_vidur = path_exists(folder + "/mlp.csv") && path_exists(folder + "/attention.csv");
  if (meta.is_vidur) {
    meta.engine = "vidur";
    return meta;
  }
  for (int tp = 1; tp <= 64; ++tp) {
    if (path_exists(place_of(folder, tp) + "dense.csv")) return meta;
  }
  throw ConfigError(folder + ": contains no profile; allowed: " + std::string(kAllowed));
}

bool has_whole_experts(const std::string& folder, std::int64_t tp) {
  return tp > 1 && !path_exists(place_of(folder, tp) + "moe.csv") &&
         path_exists(place_of(folder, 1) + "moe.csv");
}

ProfileTables read_profile_tables(const std::string& folder, const ProfileMeta& meta,
                                  std::int64_t tp, const ModelConfig& model,
                                  const HardwareSpec& hardware) {
  METRONOME_CHECK(hardware.peak_flops > 0 && hardware.peak_bandwidth > 0, "the hardware has peaks");
  const Floors floors(model, hardware, tp);
  if (!meta.is_vidur) return read_servingsim(folder, meta, model.n_moe_layers() > 0, tp, floors);
  ProfileTables tables;
  tables.dense = read_vidur_layers(folder + "/mlp.csv", tp, floors);
  tables.attention = read_vidur_attention(folder + "/attention.csv", meta, tp, floors);
  return tables;
}

std::vector<UnequalStep> read_unequal_steps(const std::string& folder, std::int64_t tp) {
  const std::string file = place_of(folder, tp) + "skew.csv";
  std::vector<UnequalStep> steps;
  if (!path_exists(file)) return steps;
  CsvTable csv(file, {"n", "nb", "pc", "kp", "kvs", "kv_big", "t_mean_us", "t_skew_us"});
  while (csv.next()) {
    UnequalStep step;
    step.num_long = csv.amount("nb");
    const double num = csv.amount("n");
    if (num < 1) csv.fail("n", "is 0; allowed: at least 1");
    if (step.num_long > num) csv.fail("nb", "is more than n; allowed: at most n");
    step.num_short = num - step.num_long;
    step.long_context = csv.number("kv_big");
    step.short_context = csv.number("kvs");
    step.chunk = csv.amount("pc");
    step.history = csv.amount("kp");
    step.ratio = csv.time_us("t_skew_us") / csv.time_us("t_mean_us");
    steps.push_back(step);
  }
  return steps;
}

}  // namespace metronome
