// SPDX-License-Identifier: Apache-2.0
// The `cost_model` section of a scenario: what a simulation takes step times from, and how its
// machine is set up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/scenario/client_config.h"

namespace metronome {

class FieldVisitor;

enum class Batching : std::uint8_t { Ragged, Padded };
enum class StepNoise : std::uint8_t { None, Calibrated };

// A limit of graphs that covers every prompt.
constexpr std::int64_t kAllPromptsInGraphs = 1 << 20;

struct CostModelConfig {
  // A file written by `metronome calibrate`, or the name of a built-in one; empty: the roofline of
  // the hardware.
  std::string file;
  Batching batching = Batching::Ragged;
  bool gather_kv = false;  // KV is copied out of its blocks before attention
  std::int32_t tensor_parallel_size = 1;
  // The link between the devices of a host: a built-in one or the path of a table
  // (sim/link/link.h); empty: the hardware's.
  std::string link;
  double link_factor = 1;  // times collectives; a link is a fact of the host
  std::string network;     // between hosts, as `link`; empty: all devices are in one host
  std::optional<double> host_gap_us;   // overrides the values of file and hardware
  double host_gap_us_per_request = 0;  // in addition to host_gap_us, for each request of the step
  double cold_start_ms = 0;            // host time of the engine's first launch
  FrontEndConfig frontend;
  StepNoise noise = StepNoise::None;    // scatter of step times as measured in the file
  std::int32_t noise_seeds = 8;         // noise draws for the bands of a run's figures; 1: none
  double gpu_memory_utilization = 0.9;  // share of device memory for the engine
  // The part of that share for activations, CUDA graphs and the runtime. Absent: as the policy's
  // engine (PolicyInfo::reserved_gib).
  std::optional<double> reserved_memory_gib;
  // Passes up to this many tokens run as captured CUDA graphs; composed step times are padded to a
  // captured size. Absent: PolicyInfo::default_graph_requests, else vLLM's
  // min(2 max_num_seqs (1 + drafts), 512).
  std::optional<std::int64_t> max_graph_tokens;
  // Passes with prompts up to this many tokens run as captured CUDA graphs. Absent: as the policy's
  // engine (PolicyInfo::prompt_graphs).
  std::optional<std::int64_t> max_prompt_graph_tokens;
  // Host time for the launches of a layer that no graph has; a pass takes no less. Absent: that of
  // the policy's engine (PolicyInfo::eager). Files of kind fitted and replay have it already.
  std::optional<double> eager_us_per_layer;
  // Of the roofline: times the device time of a step, and times what prompts add to it.
  double step_factor = 1;
  double prompt_factor = 1;
  // Of the roofline, a layer. Absent: the hardware's.
  std::optional<double> expert_overhead_us;
  std::optional<double> tp_overhead_us;
  // Norms and all-reduces write activations in fp8 and nvfp4, so that no kernel converts them for
  // dense projections, but for blocks of fp8. Read by the roofline. Absent: as the policy's engine
  // (PolicyInfo::fuses_conversions).
  std::optional<bool> fuses_conversions;
};

// Keys, ranges and meaning.
void visit_fields(FieldVisitor& visitor, CostModelConfig& config);

}  // namespace metronome
