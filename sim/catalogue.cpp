#include "sim/catalogue.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace metronome {

extern const std::string_view kModelsYaml;    // sim/catalogue/models.yaml
extern const std::string_view kHardwareYaml;  // sim/catalogue/hardware.yaml

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxDim = 1 << 24;
constexpr double kMaxMicros = 1e9;

template <class Entry>
std::vector<Entry> parse_entries(const ConfigNode& root, const char* what,
                                 std::string (*entry_error)(const Entry&)) {
  if (root.kind != ConfigNode::Kind::Map || root.entries.empty()) {
    fail_config(root.where, "", std::string("no ") + what + "; allowed: NAME: {KEY: VALUE}");
  }
  std::vector<Entry> entries;
  for (const auto& [name, node] : root.entries) {
    Entry entry;
    entry.name = name;
    ConfigReader reader(node, name);
    visit_fields(reader, entry);
    reader.finish();
    const std::string error = entry_error(entry);
    if (!error.empty()) fail_config(node.where, "", name + "." + error);
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string model_error(const ModelConfig& model) { return model.shape_error(); }

std::string hardware_error(const HardwareSpec& hardware) {
  const std::pair<const char*, double> required[] = {
      {"peak_flops", hardware.peak_flops},
      {"peak_bandwidth", hardware.peak_bandwidth},
      {"memory_bytes", static_cast<double>(hardware.memory_bytes)},
  };
  for (const auto& [key, value] : required) {
    if (value <= 0) return std::string(key) + ": is missing; allowed: a number above 0";
  }
  return {};
}

template <class Entry>
const Entry* find_entry(const std::vector<Entry>& entries, std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

bool looks_like_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json") || name.ends_with(".yaml");
}

template <class Entry>
[[noreturn]] void fail_unknown(const std::vector<Entry>& entries, const std::string& name,
                               const char* key, const char* file_kind,
                               const SourceLocation& where) {
  if (looks_like_path(name)) {
    fail_config(where, key,
                "no such file: " + name + "; allowed: a name of the catalogue, or " + file_kind);
  }
  std::vector<std::string_view> names;
  std::string list;
  for (const Entry& entry : entries) {
    names.push_back(entry.name);
    list += entry.name + ", ";
  }
  std::string message = "unknown name '" + name + "'";
  const std::string_view nearest = nearest_name(name, names);
  if (!nearest.empty()) message += " (did you mean '" + std::string(nearest) + "'?)";
  fail_config(where, key, message + "; allowed: " + list + "or " + file_kind);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string read_text(const std::string& path, const SourceLocation& where) {
  std::ifstream in(path, std::ios::binary);
  if (!in || is_folder(path)) {
    fail_config(where, "model", "cannot read " + path + "; allowed: a readable file");
  }
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// ".../Llama-3.2-3B/config.json" is Llama-3.2-3B.
std::string model_name_of(const std::string& path) {
  const fs::path folder = fs::path(path).lexically_normal().parent_path().filename();
  const std::string name = folder.string();
  return printable(name.empty() || name == "." || name == ".." ? fs::path(path).stem().string()
                                                               : name);
}

}  // namespace

void visit_fields(FieldVisitor& visitor, ModelConfig& model) {
  visitor.text("architecture", model.architecture, "Hugging Face class name");
  visitor.integer("n_layers", model.n_layers, 1, kMaxDim, "transformer layers");
  visitor.integer("hidden_dim", model.hidden_dim, 1, kMaxDim, "width of the residual stream");
  visitor.integer("n_heads", model.n_heads, 1, kMaxDim, "query heads");
  visitor.integer("n_kv_heads", model.n_kv_heads, 1, kMaxDim, "key and value heads");
  visitor.integer("head_dim", model.head_dim, 1, kMaxDim, "elements of a head");
  visitor.integer("ffn_dim", model.ffn_dim, 1, kMaxDim, "width of gate and up projections");
  visitor.integer("vocab_size", model.vocab_size, 1, kMaxDim, "rows of the embedding table");
  visitor.integer("max_position_embeddings", model.max_position_embeddings, 1, 1 << 30,
                  "longest sequence, tokens");
  visitor.boolean("has_tied_embeddings", model.has_tied_embeddings,
                  "the head shares the embedding table");
  visitor.boolean("has_qk_norm", model.has_qk_norm, "queries and keys are normalised");
  visitor.boolean("has_post_norms", model.has_post_norms, "four norms a layer instead of two");
  visitor.integer("sliding_window", model.sliding_window, 0, 1 << 30,
                  "tokens a window layer attends to; 0 = no window");
  visitor.integer("global_layer_interval", model.global_layer_interval, 0, kMaxDim,
                  "every n-th layer attends to everything; 0 = none does");
  visitor.integer("bytes_per_weight", model.bytes_per_weight, 1, 4, "bytes");
  visitor.integer("bytes_per_kv_element", model.bytes_per_kv_element, 1, 4, "bytes");
}

void visit_fields(FieldVisitor& visitor, HardwareSpec& hardware) {
  visitor.number("peak_flops", hardware.peak_flops, 1e6, 1e20, "dense bf16 FLOP/s");
  visitor.number("peak_bandwidth", hardware.peak_bandwidth, 1e6, 1e18, "device memory, bytes/s");
  visitor.integer("memory_bytes", hardware.memory_bytes, 1, std::int64_t{1} << 50,
                  "device memory, bytes");
  visitor.number("matmul_efficiency", hardware.matmul_efficiency, 0.001, 1,
                 "reachable share of peak_flops in projections");
  visitor.number("attention_efficiency", hardware.attention_efficiency, 0.001, 1,
                 "reachable share of peak_flops in attention");
  visitor.number("bandwidth_efficiency", hardware.bandwidth_efficiency, 0.001, 1,
                 "reachable share of peak_bandwidth");
  visitor.number("launch_overhead_us", hardware.launch_overhead_us, 0, kMaxMicros,
                 "per forward pass, microseconds");
  visitor.number("kernel_overhead_us", hardware.kernel_overhead_us, 0, kMaxMicros,
                 "per layer, microseconds");
  visitor.number("host_gap_us", hardware.host_gap_us, 0, kMaxMicros,
                 "between dependent steps, microseconds");
  visitor.number("link_bandwidth", hardware.link_bandwidth, 0, 1e18,
                 "GPU to GPU, bytes/s each direction; 0 = no link");
  visitor.number("allreduce_latency_us", hardware.allreduce_latency_us, 0, kMaxMicros,
                 "per all-reduce, microseconds");
}

std::vector<ModelConfig> parse_models(std::string_view yaml, const std::string& file) {
  return parse_entries<ModelConfig>(parse_config_text(yaml, file), "models", model_error);
}

std::vector<HardwareSpec> parse_hardware(std::string_view yaml, const std::string& file) {
  return parse_entries<HardwareSpec>(parse_config_text(yaml, file), "hardware", hardware_error);
}

std::vector<ModelConfig> all_models() { return parse_models(kModelsYaml, "models.yaml"); }

std::vector<HardwareSpec> all_hardware() { return parse_hardware(kHardwareYaml, "hardware.yaml"); }

ModelConfig find_model(const std::string& name_or_path, const SourceLocation& where) {
  const std::vector<ModelConfig> models = all_models();
  if (const ModelConfig* model = find_entry(models, name_or_path)) return *model;
  if (!exists(name_or_path)) {
    fail_unknown(models, name_or_path, "model", "the path of a config.json or of its folder",
                 where);
  }
  std::string path = name_or_path;
  if (is_folder(path)) path = (fs::path(path) / "config.json").string();
  return parse_hugging_face_config(read_text(path, where), path, model_name_of(path));
}

HardwareSpec find_hardware(const std::string& name_or_path, const SourceLocation& where) {
  const std::vector<HardwareSpec> known = all_hardware();
  if (const HardwareSpec* hardware = find_entry(known, name_or_path)) return *hardware;
  if (!exists(name_or_path)) {
    fail_unknown(known, name_or_path, "hardware", "the path of a YAML file with one entry", where);
  }
  if (is_folder(name_or_path)) {
    fail_config(where, "hardware",
                name_or_path +
                    " is a folder; allowed: a name of the catalogue, or the path of a "
                    "YAML file with one entry");
  }
  const std::vector<HardwareSpec> entries =
      parse_entries<HardwareSpec>(load_config_file(name_or_path), "hardware", hardware_error);
  if (entries.size() != 1) {
    fail_config(where, "hardware",
                name_or_path + " has " + std::to_string(entries.size()) +
                    " entries; allowed: a file with one");
  }
  return entries.front();
}

}  // namespace metronome
