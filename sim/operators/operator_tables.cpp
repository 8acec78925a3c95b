// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_tables.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/base/files.h"
#include "core/base/json_place.h"
#include "sim/cost/csv_table.h"
#include "sim/operators/operator_rows.h"

namespace metronome {
namespace {

constexpr const char* kMetaFile = "operators.json";
constexpr double kMaxPeak = 1e18;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

OperatorMeta read_meta(const std::string& path) {
  const Json json = read_json_file(path, "what tools/import_tables wrote");
  const JsonPlace root(path, json);
  OperatorMeta meta;
  meta.package = root.at("package").text();
  meta.licence = root.at("licence").text();
  meta.system = root.at("system").text();
  meta.engine = root.at("engine").text();
  meta.sm_version = root.at("sm_version").number(0, 1000);
  meta.memory_bandwidth = root.at("memory_bandwidth").number(1e9, kMaxPeak);
  meta.bfloat16_flops = root.at("bfloat16_flops").number(1e9, kMaxPeak);
  meta.fp8_flops = root.at("fp8_flops").number(1e9, kMaxPeak);
  meta.fp4_flops = root.at("fp4_flops").number(1e9, kMaxPeak);
  meta.head_dim = root.at("head_dim").integer(1, kMaxSize);
  if (root.has("states") && !root.at("states").is_null()) {
    root.at("states").for_each(
        [&](const JsonPlace& place) { meta.states.push_back(place.integer(1, kMaxSize)); });
    if (meta.states.size() != 3) {
      root.at("states").fail("allowed: key_head_dim, value_head_dim, conv_width");
    }
  }
  if (root.has("latent") && !root.at("latent").is_null()) {
    root.at("latent").for_each(
        [&](const JsonPlace& place) { meta.latent.push_back(place.integer(1, kMaxSize)); });
    if (meta.latent.size() != 4) {
      root.at("latent").fail("allowed: kv_rank, nope_dim, rope_dim, value_dim");
    }
  }
  if (root.at("experts").is_null()) return meta;
  root.at("experts").for_each(
      [&](const JsonPlace& place) { meta.experts.push_back(place.integer(1, kMaxSize)); });
  if (meta.experts.size() != 4) {
    root.at("experts").fail("allowed: hidden_dim, expert_ffn_dim, experts a token, experts");
  }
  meta.expert_parallel_size = root.at("expert_parallel_size").integer(1, kMaxSize);
  if (root.has("experts_kernel")) meta.experts_kernel = root.at("experts_kernel").text();
  return meta;
}

// The rows of a family; nothing if the folder lacks it.
std::optional<CsvTable> open_family(const std::string& folder, const char* name,
                                    std::vector<std::string> columns) {
  const std::string path = folder + "/" + name;
  if (!path_exists(path)) return std::nullopt;
  for (const char* column : {"time_us", "engine", "version"}) columns.emplace_back(column);
  return std::optional<CsvTable>(std::in_place, path, std::move(columns));
}

TableOrigin origin_of(const CsvTable& csv) {
  return {std::string(csv.text("engine")), std::string(csv.text("version"))};
}

std::int64_t count_of(const CsvTable& csv, std::string_view column) {
  return static_cast<std::int64_t>(csv.amount(column));
}

double positive(const CsvTable& csv, std::string_view column) {
  const double value = csv.amount(column);
  if (value <= 0) csv.fail(column, "is 0; allowed: at least 1");
  return value;
}

// Groups of rows with equal texts, in the order of their first rows.
template <std::size_t N, class Group>
class Groups {
 public:
  Group& of(const std::array<std::string_view, N>& texts) {
    if (!groups_.empty() && std::equal(texts.begin(), texts.end(), last_.begin())) {
      return groups_[place_];  // most rows are in the group of the row before
    }
    for (std::size_t i = 0; i < N; ++i) last_[i] = std::string(texts[i]);
    const auto [found, is_new] = places_.emplace(last_, groups_.size());
    if (is_new) groups_.emplace_back();
    place_ = found->second;
    return groups_[place_];
  }
  std::vector<Group>& all() { return groups_; }

 private:
  std::map<std::array<std::string, N>, std::size_t> places_;
  std::array<std::string, N> last_;
  std::size_t place_ = 0;
  std::vector<Group> groups_;
};

std::vector<ProductTable> read_products(const std::string& folder) {
  struct Group {
    ProductTable table;
    std::map<std::pair<double, double>, Points> by_shape;
  };
  auto csv = open_family(folder, "gemm.csv", {"dtype", "m", "n", "k"});
  if (!csv) return {};
  Groups<3, Group> groups;
  while (csv->next()) {
    Group& group = groups.of({csv->text("engine"), csv->text("version"), csv->text("dtype")});
    group.table.origin = origin_of(*csv);
    group.table.dtype = std::string(csv->text("dtype"));
    const std::pair shape(positive(*csv, "n"), positive(*csv, "k"));
    keep_least(csv->time_us("time_us"), group.by_shape[shape][positive(*csv, "m")]);
  }
  std::vector<ProductTable> tables;
  for (Group& group : groups.all()) {
    for (const auto& [shape, points] : group.by_shape) {
      group.table.by_shape.emplace(shape, curve_of(points));
    }
    tables.push_back(std::move(group.table));
  }
  return tables;
}

std::vector<QuantizeTable> read_quantize(const std::string& folder) {
  struct Group {
    QuantizeTable table;
    std::map<double, Points> by_width;
  };
  auto csv = open_family(folder, "quantize.csv", {"kind", "m", "k"});
  if (!csv) return {};
  Groups<3, Group> groups;
  while (csv->next()) {
    Group& group = groups.of({csv->text("engine"), csv->text("version"), csv->text("kind")});
    group.table.origin = origin_of(*csv);
    group.table.kind = std::string(csv->text("kind"));
    keep_least(csv->time_us("time_us"), group.by_width[positive(*csv, "k")][positive(*csv, "m")]);
  }
  std::vector<QuantizeTable> tables;
  for (Group& group : groups.all()) {
    for (const auto& [width, points] : group.by_width) {
      group.table.by_width.emplace(width, curve_of(points));
    }
    tables.push_back(std::move(group.table));
  }
  return tables;
}

std::vector<AttentionCells> read_attention(const std::string& folder, const char* name,
                                           const std::string& sequences,
                                           const std::string& length) {
  auto csv = open_family(
      folder, name,
      {"dtype", "kv_dtype", "heads", "kv_heads", "window", "kernel", sequences, length});
  if (!csv) return {};
  Groups<8, AttentionCells> groups;
  while (csv->next()) {
    AttentionCells& cells = groups.of(
        {csv->text("engine"), csv->text("version"), csv->text("kernel"), csv->text("dtype"),
         csv->text("kv_dtype"), csv->text("heads"), csv->text("kv_heads"), csv->text("window")});
    if (cells.us.empty()) {
      cells = {origin_of(*csv),
               std::string(csv->text("kernel")),
               std::string(csv->text("dtype")),
               std::string(csv->text("kv_dtype")),
               static_cast<std::int64_t>(positive(*csv, "heads")),
               static_cast<std::int64_t>(positive(*csv, "kv_heads")),
               count_of(*csv, "window"),
               {}};
    }
    keep_least(csv->time_us("time_us"), cells.us[{positive(*csv, sequences), csv->amount(length)}]);
  }
  return std::move(groups.all());
}

std::vector<LatentProducts> read_latent_products(const std::string& folder) {
  struct Group {
    LatentProducts products;
    Points points;
  };
  auto csv = open_family(folder, "latent_products.csv", {"side", "dtype", "heads", "tokens"});
  if (!csv) return {};
  Groups<5, Group> groups;
  while (csv->next()) {
    Group& group = groups.of({csv->text("engine"), csv->text("version"), csv->text("side"),
                              csv->text("dtype"), csv->text("heads")});
    group.products = {origin_of(*csv),
                      csv->text("side") == "mla_gen_pre",
                      std::string(csv->text("dtype")),
                      static_cast<std::int64_t>(positive(*csv, "heads")),
                      {}};
    keep_least(csv->time_us("time_us"), group.points[positive(*csv, "tokens")]);
  }
  std::vector<LatentProducts> all;
  for (Group& group : groups.all()) {
    group.products.us = curve_of(group.points);
    all.push_back(std::move(group.products));
  }
  return all;
}

std::vector<StateCells> read_states(const std::string& folder, const char* name) {
  auto csv =
      open_family(folder, name, {"kernel", "key_heads", "value_heads", "sequences", "tokens"});
  if (!csv) return {};
  Groups<5, StateCells> groups;
  while (csv->next()) {
    StateCells& cells = groups.of({csv->text("engine"), csv->text("version"), csv->text("kernel"),
                                   csv->text("key_heads"), csv->text("value_heads")});
    cells.origin = origin_of(*csv);
    cells.is_convolution = csv->text("kernel").find("conv") != std::string_view::npos;
    cells.key_heads = static_cast<std::int64_t>(positive(*csv, "key_heads"));
    cells.value_heads = static_cast<std::int64_t>(positive(*csv, "value_heads"));
    keep_least(csv->time_us("time_us"),
               cells.us[{positive(*csv, "sequences"), positive(*csv, "tokens")}]);
  }
  return std::move(groups.all());
}

std::vector<ExpertsTable> read_experts(const std::string& folder) {
  struct Group {
    ExpertsTable table;
    Points points;
  };
  auto csv = open_family(folder, "moe.csv", {"dtype", "tp", "distribution", "tokens"});
  if (!csv) return {};
  Groups<5, Group> groups;
  while (csv->next()) {
    Group& group = groups.of({csv->text("engine"), csv->text("version"), csv->text("dtype"),
                              csv->text("tp"), csv->text("distribution")});
    group.table = {origin_of(*csv),
                   std::string(csv->text("dtype")),
                   static_cast<std::int64_t>(positive(*csv, "tp")),
                   std::string(csv->text("distribution")),
                   {}};
    keep_least(csv->time_us("time_us"), group.points[positive(*csv, "tokens")]);
  }
  std::vector<ExpertsTable> tables;
  for (Group& group : groups.all()) {
    group.table.us = curve_of(group.points);
    tables.push_back(std::move(group.table));
  }
  return tables;
}

std::vector<CollectiveTable> read_collectives(const std::string& folder) {
  struct Group {
    CollectiveTable table;
    Points points;
  };
  auto csv = open_family(folder, "collectives.csv", {"collective", "devices", "launch", "bytes"});
  if (!csv) return {};
  Groups<5, Group> groups;
  while (csv->next()) {
    Group& group = groups.of({csv->text("engine"), csv->text("version"), csv->text("collective"),
                              csv->text("devices"), csv->text("launch")});
    const bool is_graph = is_graph_launch(*csv);
    group.table = {
        origin_of(*csv),
        {collective_of(*csv), static_cast<std::int64_t>(positive(*csv, "devices")), is_graph, {}}};
    keep_least(csv->time_us("time_us"), group.points[csv->amount("bytes")]);
  }
  std::vector<CollectiveTable> tables;
  for (Group& group : groups.all()) {
    group.table.times.us = curve_of(group.points);
    tables.push_back(std::move(group.table));
  }
  return tables;
}

}  // namespace

bool is_operator_folder(const std::string& folder) { return path_exists(folder + "/" + kMetaFile); }

OperatorTables read_operator_tables(const std::string& folder) {
  OperatorTables tables;
  tables.meta = read_meta(folder + "/" + kMetaFile);
  tables.products = read_products(folder);
  tables.quantize = read_quantize(folder);
  tables.context = read_attention(folder, "context_attention.csv", "prompts", "tokens");
  tables.decode = read_attention(folder, "decode_attention.csv", "sequences", "context");
  tables.latent_products = read_latent_products(folder);
  tables.context_states = read_states(folder, "context_states.csv");
  tables.decode_states = read_states(folder, "decode_states.csv");
  tables.experts = read_experts(folder);
  tables.collectives = read_collectives(folder);
  return tables;
}

}  // namespace metronome
