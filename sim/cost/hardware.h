// What a roofline needs to know of a GPU. Figures and their sources: sim/cost/hardware.yaml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace metronome {

// What is left of vLLM 0.30's 6.86 ms between tokens of Qwen3-8B on an H100, batch 1
// (github.com/tgarg01/silybench-data), once the roofline's other terms are taken off.
constexpr double kDefaultHostGapUs = 400;

struct HardwareSpec {
  std::string name;
  double peak_flops = 0;            // dense bf16 matrix product, FLOP/s
  double peak_bandwidth = 0;        // device memory, bytes/s
  std::int64_t memory_bytes = 0;    // usable device memory
  double matmul_efficiency = 1;     // reachable share of peak_flops in projections
  double attention_efficiency = 1;  // reachable share of peak_flops in attention over a chunk
  double bandwidth_efficiency = 1;  // reachable share of peak_bandwidth
  double launch_overhead_us = 0;    // per forward pass: kernel launches not hidden
  double kernel_overhead_us = 0;    // per layer: gaps between dependent kernels
  // Between steps: scheduling, sampling, detokenising. Absent: as the policy's engine has it
  // (PolicyInfo::host_gap), else kDefaultHostGapUs.
  std::optional<double> host_gap_us;
  double link_bandwidth = 0;        // GPU to GPU, bytes/s each direction
  double allreduce_latency_us = 0;  // per all-reduce
  std::int64_t num_sms = 0;         // streaming multiprocessors; 0 = not known
  double compute_capability = 0;    // which kernels run; 0 = not known

  bool operator==(const HardwareSpec&) const = default;
};

}  // namespace metronome
