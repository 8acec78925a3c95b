// SPDX-License-Identifier: Apache-2.0
// A folder of measured kernel times, as published profilers write it. Two layouts:
//
// NAME/meta.yaml and NAME/tpN/*.csv (LLMServingSim's profiler of vLLM), N devices sharing the
// model:
//   dense.csv         layer, tokens, time_us          one call of each dense layer
//   per_sequence.csv  layer, sequences, time_us       lm_head and sampler
//                     Norms and sampler, which every device computes whole, may be only in tp1.
//   attention.csv     prefill_chunk, kv_prefill, n_decode, kv_decode, time_us
//                     one layer: a chunk after kv_prefill tokens of history beside n_decode
//                     decodes of kv_decode tokens; either part may be 0. Instead of kv_prefill
//                     prefill_key = history + chunk / 2.
//   moe.csv           [ep,] tokens, activated_experts, time_us     router and experts of a layer;
//                     may be only in tp1
//   allreduce.csv     bytes, time_us                  may be absent: the hardware's link
//   skew.csv          regime, n, nb, pc, kp, kvs, kv_big, t_mean_us, t_skew_us    may be absent:
//                     nb of n decodes at kv_big, the others at kvs, against all at their mean
// NAME/attention.csv and NAME/mlp.csv (Vidur): milliseconds, medians, any number of devices per
//   file; prompts and decodes separate, no output head; duplicate rows are averaged.
//
// Other columns are ignored. An invalid table is rejected with file, line and reason: missing
// columns, times <= 0, duplicate keys, gaps in a grid, times far from the hardware's limits or from
// their neighbours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "sim/profile/profile_tables.h"

namespace metronome {

// The folder's description of itself; a field is empty if the folder lacks it.
struct ProfileMeta {
  std::string hardware;
  std::string model;
  std::string engine;                    // "vllm 0.19.0"
  std::optional<bool> corrects_lengths;  // skew_fit.enabled
  std::optional<double> chunk_factor;    // step factor of the grids it declares
  std::optional<double> kv_factor;
  std::optional<double> decodes_factor;
  bool is_vidur = false;
};

// A measurement of unequal decodes: its time over the time of as many decodes at the mean context.
struct UnequalStep {
  double num_long = 0;
  double num_short = 0;
  double long_context = 0;
  double short_context = 0;
  double chunk = 0;  // prompt chunk beside the decodes; 0 = none
  double history = 0;
  double ratio = 1;
};

// Throws ConfigError if the folder does not exist or contains no profile.
ProfileMeta read_profile_meta(const std::string& folder);

// Throws ConfigError. `model` and `hardware` give lower bounds of the times.
ProfileTables read_profile_tables(const std::string& folder, const ProfileMeta& meta,
                                  std::int64_t tensor_parallel_size, const ModelConfig& model,
                                  const HardwareSpec& hardware);

// Whether the folder has the times of experts on one device alone. Each of several devices then
// counts as taking its share of them.
bool has_whole_experts(const std::string& folder, std::int64_t tensor_parallel_size);

// Empty if the folder has no skew.csv.
std::vector<UnequalStep> read_unequal_steps(const std::string& folder,
                                            std::int64_t tensor_parallel_size);

}  // namespace metronome
