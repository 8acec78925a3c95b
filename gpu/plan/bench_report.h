// SPDX-License-Identifier: Apache-2.0
// Inputs and results of the command `bench`: timed steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

// A step of `num_decodes` decodes at context `context`. With chunk_size > 0 it also has a prefill
// chunk after `prefix` tokens.
struct BenchCase {
  std::int32_t num_decodes = 0;
  std::int32_t context = 0;  // of a decode, including its own token
  std::int32_t chunk_size = 0;
  std::int32_t prefix = 0;
};

struct BenchPoint {
  BenchCase what;
  // Time from the copy of the step's arrays to its tokens, directly after another such step. If the
  // host enqueues slower than the device computes, this is the host's time.
  double median_us = 0;
  double fastest_us = 0;
  double enqueue_us = 0;  // time of the host to enqueue it; median
  double floor_us = 0;
  bool is_memory_bound = false;  // whether memory decides floor_us
};

struct SkippedCase {
  BenchCase what;
  std::string why;  // "a context has at most 2048 positions"
};

struct BenchReport {
  ModelConfig model;
  std::string device;
  MachineRates rates;  // measured in the same run
  std::int64_t kv_tokens = 0;
  std::vector<BenchPoint> points;
  std::vector<SkippedCase> skipped;
};

// Called with the report so far, now and then and after each case. An exception ends the command.
using BenchProgressFn = std::function<void(const BenchReport&)>;

}  // namespace metronome
