// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_tables.h"

#include <algorithm>
#include <string_view>

#include "core/base/files.h"
#include "core/base/json_place.h"
#include "sim/cost/csv_table.h"
#include "sim/operators/operator_rows.h"

namespace metronome {
namespace {

constexpr const char* kMetaFile = "operators.json";
constexpr double kMaxPeak = 1e18;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

// A list of so many sizes; empty if the file has none.
std::vector<std::int64_t> sizes_at(const JsonPlace& root, const char* key, std::size_t count,
                                   const char* names) {
  std::vector<std::int64_t> sizes;
  if (!root.has(key) || root.at(key).is_null()) return sizes;
  root.at(key).for_each(
      [&](const JsonPlace& place) { sizes.push_back(place.integer(1, kMaxSize)); });
  if (sizes.size() != count) root.at(key).fail(std::string("allowed: ") + names);
  return sizes;
}

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
  meta.states = sizes_at(root, "states", 3, "key_head_dim, value_head_dim, conv_width");
  meta.latent = sizes_at(root, "latent", 4, "kv_rank, nope_dim, rope_dim, value_dim");
  if (root.at("experts").is_null()) return meta;
  meta.experts =
      sizes_at(root, "experts", 4, "hidden_dim, expert_ffn_dim, experts a token, experts");
  meta.expert_parallel_size = root.at("expert_parallel_size").integer(1, kMaxSize);
  if (root.has("experts_kernel")) meta.experts_kernel = root.at("experts_kernel").text();
  return meta;
}

double positive(const CsvTable& csv, const char* column) {
  const double value = csv.amount(column);
  if (value <= 0) csv.fail(column, "is 0; allowed: at least 1");
  return value;
}

std::int64_t positive_count(const CsvTable& csv, const char* column) {
  return static_cast<std::int64_t>(positive(csv, column));
}

std::string text_of(const CsvTable& csv, const char* column) {
  return std::string(csv.text(column));
}

// The tables of a family, in the order of their first rows; none if the folder lacks it. The rows
// of a table have equal texts, engine and version. `begin(csv, table)` reads these texts once,
// `add(csv, table)` each row.
template <class Table, class Begin, class Add>
std::vector<Table> read_family(const std::string& folder, const char* name,
                               std::vector<std::string> texts,
                               const std::vector<std::string>& numbers, const Begin& begin,
                               const Add& add) {
  std::vector<Table> tables;
  const std::string path = folder + "/" + name;
  if (!path_exists(path)) return tables;
  std::vector<std::string> columns = texts;
  columns.insert(columns.end(), numbers.begin(), numbers.end());
  columns.insert(columns.end(), {"time_us", "engine", "version"});
  texts.insert(texts.end(), {"engine", "version"});
  CsvTable csv(path, std::move(columns));
  std::map<std::vector<std::string>, std::size_t> places;  // of tables, by their texts
  std::vector<std::string> last(texts.size());
  std::size_t place = 0;
  while (csv.next()) {
    const auto is_text = [&csv](const std::string& column, const std::string& text) {
      return csv.text(column) == text;
    };
    // Most rows are in the table of the row before.
    if (tables.empty() || !std::equal(texts.begin(), texts.end(), last.begin(), is_text)) {
      for (std::size_t i = 0; i < texts.size(); ++i) last[i] = std::string(csv.text(texts[i]));
      const auto [found, is_new] = places.emplace(last, tables.size());
      place = found->second;
      if (is_new) {
        tables.emplace_back();
        tables.back().origin = {text_of(csv, "engine"), text_of(csv, "version")};
        begin(csv, tables.back());
      }
    }
    add(csv, tables[place]);
  }
  return tables;
}

std::vector<ProductTable> read_products(const std::string& folder) {
  return read_family<ProductTable>(
      folder, "gemm.csv", {"dtype"}, {"m", "n", "k"},
      [](const CsvTable& csv, ProductTable& table) { table.dtype = text_of(csv, "dtype"); },
      [](const CsvTable& csv, ProductTable& table) {
        keep_least(positive(csv, "m"), csv.time_us("time_us"),
                   table.by_shape[{positive(csv, "n"), positive(csv, "k")}]);
      });
}

std::vector<QuantizeTable> read_quantize(const std::string& folder) {
  return read_family<QuantizeTable>(
      folder, "quantize.csv", {"kind"}, {"m", "k"},
      [](const CsvTable& csv, QuantizeTable& table) { table.kind = text_of(csv, "kind"); },
      [](const CsvTable& csv, QuantizeTable& table) {
        keep_least(positive(csv, "m"), csv.time_us("time_us"), table.by_width[positive(csv, "k")]);
      });
}

std::vector<AttentionCells> read_attention(const std::string& folder, const char* name,
                                           const char* sequences, const char* length) {
  return read_family<AttentionCells>(
      folder, name, {"dtype", "kv_dtype", "heads", "kv_heads", "window", "kernel"},
      {sequences, length},
      [](const CsvTable& csv, AttentionCells& cells) {
        cells.kernel = text_of(csv, "kernel");
        cells.dtype = text_of(csv, "dtype");
        cells.kv_dtype = text_of(csv, "kv_dtype");
        cells.heads = positive_count(csv, "heads");
        cells.kv_heads = positive_count(csv, "kv_heads");
        cells.window = static_cast<std::int64_t>(csv.amount("window"));
      },
      [=](const CsvTable& csv, AttentionCells& cells) {
        keep_least(csv.time_us("time_us"),
                   cells.us[{positive(csv, sequences), csv.amount(length)}]);
      });
}

std::vector<LatentProducts> read_latent_products(const std::string& folder) {
  return read_family<LatentProducts>(
      folder, "latent_products.csv", {"side", "dtype", "heads"}, {"tokens"},
      [](const CsvTable& csv, LatentProducts& products) {
        products.is_entry = csv.text("side") == "mla_gen_pre";
        products.dtype = text_of(csv, "dtype");
        products.heads = positive_count(csv, "heads");
      },
      [](const CsvTable& csv, LatentProducts& products) {
        keep_least(positive(csv, "tokens"), csv.time_us("time_us"), products.us);
      });
}

std::vector<StateCells> read_states(const std::string& folder, const char* name) {
  return read_family<StateCells>(
      folder, name, {"kernel", "key_heads", "value_heads"}, {"sequences", "tokens"},
      [](const CsvTable& csv, StateCells& cells) {
        cells.is_convolution = csv.text("kernel").find("conv") != std::string_view::npos;
        cells.key_heads = positive_count(csv, "key_heads");
        cells.value_heads = positive_count(csv, "value_heads");
      },
      [](const CsvTable& csv, StateCells& cells) {
        keep_least(csv.time_us("time_us"),
                   cells.us[{positive(csv, "sequences"), positive(csv, "tokens")}]);
      });
}

std::vector<ExpertsTable> read_experts(const std::string& folder) {
  return read_family<ExpertsTable>(
      folder, "moe.csv", {"dtype", "tp", "distribution"}, {"tokens"},
      [](const CsvTable& csv, ExpertsTable& table) {
        table.dtype = text_of(csv, "dtype");
        table.tensor_parallel_size = positive_count(csv, "tp");
        table.distribution = text_of(csv, "distribution");
      },
      [](const CsvTable& csv, ExpertsTable& table) {
        keep_least(positive(csv, "tokens"), csv.time_us("time_us"), table.us);
      });
}

std::vector<CollectiveTable> read_collectives(const std::string& folder) {
  return read_family<CollectiveTable>(
      folder, "collectives.csv", {"collective", "devices", "launch"}, {"bytes"},
      [](const CsvTable& csv, CollectiveTable& table) {
        table.times.is_graph = is_graph_launch(csv);
        table.times.collective = collective_of(csv);
        table.times.num_devices = positive_count(csv, "devices");
      },
      [](const CsvTable& csv, CollectiveTable& table) {
        keep_least(csv.amount("bytes"), csv.time_us("time_us"), table.times.us);
      });
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
