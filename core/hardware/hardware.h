// The figures of a GPU that a roofline needs. Figures and sources: core/hardware/hardware.yaml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace metronome {

// vLLM 0.30 takes 6.86 ms between tokens of Qwen3-8B on an H100 at batch 1
// (github.com/tgarg01/silybench-data). This is the remainder after the roofline's other terms.
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
  // Between steps: scheduling, sampling, detokenising. Absent: the gap of the policy's engine
  // (PolicyInfo::host_gap), else kDefaultHostGapUs.
  std::optional<double> host_gap_us;
  std::string link;                 // measured link (sim/link/link.h); empty: from the next two
  double link_bandwidth = 0;        // GPU to GPU, bytes/s each direction
  double allreduce_latency_us = 0;  // per all-reduce
  std::int64_t num_sms = 0;         // streaming multiprocessors; 0 = unknown
  double compute_capability = 0;    // decides which kernels run; 0 = unknown

  bool operator==(const HardwareSpec&) const = default;
};

}  // namespace metronome
