// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/hardware_catalogue.h"

#include <fmt/core.h>
#include <utility>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/config/catalogue.h"
#include "core/hardware/hardware_names.h"

namespace metronome {

extern const std::string_view kHardwareYaml;  // core/hardware/hardware.yaml

namespace {

constexpr double kMaxMicros = 1e9;

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

bool is_figure(std::string_view key) {
  return key.find("_efficiency") != std::string_view::npos || key.ends_with("_overhead_us") ||
         key == "crossover_loss";
}

// Shares of the peaks and overheads are those of kernels, which relatives have in common. Those of
// a format that the GPU has no units for mean nothing.
bool is_share_or_overhead(const ConfigNode& entry, std::string_view key) {
  const bool has_fp8 = entry.find("peak_flops_fp8") != nullptr;
  const bool has_fp4 = entry.find("peak_flops_fp4") != nullptr;
  if (key.ends_with("_fp8") || key == "quantised_overhead_us") return has_fp8 && is_figure(key);
  if (key.ends_with("_fp4")) return has_fp4 && is_figure(key);
  return is_figure(key);
}

Relatives relatives() {
  return {kHardwareYaml, "hardware.yaml", "a name of `metronome list hardware`", hardware_name,
          is_share_or_overhead};
}

// For a name that is neither a GPU nor a path. A wrong neighbour is worse than none, and the list
// is too long for a message.
[[noreturn]] void fail_unknown_gpu(const std::string& name, const SourceLocation& where) {
  const std::string nearest = nearest_hardware(name);
  const std::string what =
      looks_like_path(name) ? "no such file: " + name : "unknown name '" + clipped(name) + "'";
  fail_config(where, "hardware",
              what + (nearest.empty() ? "" : ", did you mean '" + nearest + "'?") +
                  "; allowed: a name of `metronome list hardware`, or the path of a YAML file with "
                  "four numbers: peak_flops, peak_bandwidth, memory_bytes and, if the GPU computes "
                  "in fp8, peak_flops_fp8 (docs/guide/gpu_file.md)");
}

}  // namespace

void visit_fields(FieldVisitor& visitor, HardwareSpec& hardware) {
  visitor.number("peak_flops", hardware.peak_flops, 1e6, 1e20, "dense bf16 FLOP/s");
  visitor.number("peak_flops_fp8", hardware.peak_flops_fp8, 0, 1e20,
                 "dense fp8 FLOP/s; 0 = none: fp8 weights are computed in bf16");
  visitor.number("peak_flops_fp4", hardware.peak_flops_fp4, 0, 1e20,
                 "dense fp4 FLOP/s; 0 = none: fp4 weights are computed in bf16");
  visitor.number("peak_bandwidth", hardware.peak_bandwidth, 1e6, 1e18, "device memory, bytes/s");
  visitor.integer("memory_bytes", hardware.memory_bytes, 1, std::int64_t{1} << 50,
                  "device memory, bytes");
  visitor.number("matmul_efficiency", hardware.matmul_efficiency, 0.001, 1,
                 "reachable share of peak_flops in projections");
  visitor.number("matmul_efficiency_fp8", hardware.matmul_efficiency_fp8, 0, 1,
                 "the same of peak_flops_fp8; 0 = as in bf16");
  visitor.number("matmul_efficiency_fp4", hardware.matmul_efficiency_fp4, 0, 1,
                 "the same of peak_flops_fp4; 0 = as in bf16");
  visitor.number("expert_efficiency", hardware.expert_efficiency, 0, 1,
                 "reachable share of peak_flops in experts; 0 = as in projections");
  visitor.number("expert_efficiency_fp8", hardware.expert_efficiency_fp8, 0, 1,
                 "the same of peak_flops_fp8; 0 = as in bf16");
  visitor.number("expert_efficiency_fp4", hardware.expert_efficiency_fp4, 0, 1,
                 "the same of peak_flops_fp4; 0 = as in bf16");
  visitor.number("attention_efficiency", hardware.attention_efficiency, 0.001, 1,
                 "reachable share of peak_flops in attention");
  visitor.number("crossover_loss", hardware.crossover_loss, 0, 1,
                 "where arithmetic and bytes of a product take equally long: the share of either "
                 "that it takes in addition");
  visitor.number("bandwidth_efficiency", hardware.bandwidth_efficiency, 0.001, 1,
                 "reachable share of peak_bandwidth for weights");
  visitor.number("kv_bandwidth_efficiency", hardware.kv_bandwidth_efficiency, 0, 1,
                 "reachable share of peak_bandwidth for KV; 0 = as for weights");
  visitor.number("activation_bandwidth_efficiency", hardware.activation_bandwidth_efficiency, 0, 1,
                 "reachable share of peak_bandwidth for activations between products; 0 = they "
                 "take no time");
  visitor.number("launch_overhead_us", hardware.launch_overhead_us, 0, kMaxMicros,
                 "per forward pass, microseconds");
  visitor.number("kernel_overhead_us", hardware.kernel_overhead_us, 0, kMaxMicros,
                 "per layer, microseconds");
  visitor.number("quantised_overhead_us", hardware.quantised_overhead_us, 0, kMaxMicros,
                 "per layer whose projections compute in fewer than 16 bits, in addition, "
                 "microseconds");
  visitor.number("expert_overhead_us", hardware.expert_overhead_us, 0, kMaxMicros,
                 "per layer of experts, in addition, microseconds");
  visitor.number("tp_overhead_us", hardware.tp_overhead_us, 0, kMaxMicros,
                 "per layer that several GPUs share, in addition to all-reduces, microseconds");
  visitor.number("sequence_overhead_us", hardware.sequence_overhead_us, 0, kMaxMicros,
                 "per decode and layer, microseconds");
  visitor.optional_number("host_gap_us", hardware.host_gap_us, 0, kMaxMicros,
                          "between dependent steps, microseconds; null: the engine's");
  visitor.text("link", hardware.link,
               "what joins GPUs: a name of `metronome list links`; empty: from link_bandwidth");
  visitor.number("link_bandwidth", hardware.link_bandwidth, 0, 1e18,
                 "GPU to GPU, bytes/s each direction; 0 = no link");
  visitor.integer("mesh_devices", hardware.mesh_devices, 0, 64,
                  "GPUs that have a link to each other, at most so many; 0 = a switch joins them");
  visitor.number("allreduce_latency_us", hardware.allreduce_latency_us, 0, kMaxMicros,
                 "per all-reduce, microseconds");
  visitor.integer("num_sms", hardware.num_sms, 0, 4096, "streaming multiprocessors; 0 = not known");
  visitor.number("compute_capability", hardware.compute_capability, 0, 100,
                 "CUDA compute capability; 0 = not known");
}

std::vector<HardwareSpec> parse_hardware(std::string_view yaml, const std::string& file) {
  return parse_entries<HardwareSpec>(parse_config_text(yaml, file), "hardware", hardware_error,
                                     relatives());
}

const std::vector<HardwareSpec>& all_hardware() {
  static const std::vector<HardwareSpec> known = parse_hardware(kHardwareYaml, "hardware.yaml");
  return known;
}

HardwareSpec find_hardware(const std::string& name_or_path, const SourceLocation& where) {
  std::string_view entry = entry_text(kHardwareYaml, name_or_path);
  if (entry.empty()) entry = entry_text(kHardwareYaml, hardware_name(name_or_path));
  if (!entry.empty()) return parse_hardware(entry, "hardware.yaml").front();
  if (!path_exists(name_or_path)) fail_unknown_gpu(name_or_path, where);
  if (is_folder(name_or_path)) {
    fail_config(where, "hardware",
                name_or_path +
                    " is a folder; allowed: a name of the catalogue, or the path of a "
                    "YAML file with one entry");
  }
  const std::vector<HardwareSpec> entries = parse_entries<HardwareSpec>(
      load_config_file(name_or_path), "hardware", hardware_error, relatives());
  if (entries.size() != 1) {
    fail_config(
        where, "hardware",
        fmt::format("{} has {} entries; allowed: a file with one", name_or_path, entries.size()));
  }
  return entries.front();
}

std::optional<HardwareSpec> known_hardware(const std::string& name_or_path) {
  if (name_or_path.empty()) return std::nullopt;
  try {
    return find_hardware(name_or_path, {});
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace metronome
