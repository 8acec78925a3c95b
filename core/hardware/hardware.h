// SPDX-License-Identifier: Apache-2.0
// The figures of a GPU that a roofline needs. Figures and sources: core/hardware/hardware.yaml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/real.h"

namespace metronome {

// An estimate for vLLM, which shows where no step is planned ahead: what an earlier roofline left
// of 6.86 ms between tokens of Qwen3-8B on an H100 (vLLM 0.30, github.com/tgarg01/silybench-data).
constexpr double kDefaultHostGapUs = 400;

struct HardwareSpec {
  std::string name;
  double peak_flops = 0;          // dense bf16 matrix product, FLOP/s
  double peak_flops_fp8 = 0;      // the same in fp8; 0: no such units
  double peak_flops_fp4 = 0;      // the same in fp4; 0: no such units
  double peak_bandwidth = 0;      // device memory, bytes/s
  std::int64_t memory_bytes = 0;  // usable device memory

  // Reachable shares of the peak, each of that of its format. 0: as in bf16, and for experts as in
  // projections.
  double matmul_efficiency = 1;
  double matmul_efficiency_fp8 = 0;
  double matmul_efficiency_fp4 = 0;
  double expert_efficiency = 0;
  double expert_efficiency_fp8 = 0;
  double expert_efficiency_fp4 = 0;
  double attention_efficiency = 1;  // in attention over a chunk
  // A projection takes the longer of arithmetic and bytes, and this share of the shorter, times the
  // quotient of the shorter and the longer.
  double crossover_loss = 0;

  // Reachable shares of peak_bandwidth.
  double bandwidth_efficiency = 1;             // weights
  double kv_bandwidth_efficiency = 0;          // KV; 0: as weights
  double activation_bandwidth_efficiency = 0;  // between projections; 0: activations take no time

  double launch_overhead_us = 0;     // per forward pass: kernel launches not hidden
  double kernel_overhead_us = 0;     // per layer: starts of kernels, and gaps between them
  double quantised_overhead_us = 0;  // per layer that converts activations, in addition
  double expert_overhead_us = 0;     // per layer of experts, in addition
  double tp_overhead_us = 0;         // per layer of several devices, beside the all-reduces
  double sequence_overhead_us = 0;   // per decode and layer
  // Between steps: scheduling, sampling, detokenising. Absent: the gap of the policy's engine
  // (PolicyInfo::host_gap), else kDefaultHostGapUs.
  std::optional<double> host_gap_us;
  std::string link;           // measured link (sim/link/link.h); empty: from the next two
  double link_bandwidth = 0;  // GPU to GPU, bytes/s each direction
  // Devices of a full mesh, each pair with a link of its own: n of them reach link_bandwidth times
  // (n - 1) / (mesh_devices - 1). 0: each reaches link_bandwidth with any number of others.
  std::int64_t mesh_devices = 0;
  double allreduce_latency_us = 0;  // per all-reduce
  std::int64_t num_sms = 0;         // streaming multiprocessors; 0 = unknown
  double compute_capability = 0;    // decides which kernels run; 0 = unknown

  bool operator==(const HardwareSpec&) const = default;
};

// Blackwell GPUs of data centres, B200 and B300; not the RTX ones, whose capability is 12.
inline bool is_data_centre_blackwell(const HardwareSpec& gpu) {
  return gpu.compute_capability >= 10 && gpu.compute_capability < 11;
}

}  // namespace metronome
