// SPDX-License-Identifier: Apache-2.0
// The simulated times that were ever compared with measurements, and their errors:
// sim/catalogue/checked.csv, which tools/accuracy writes together with docs/accuracy.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/run/time_accuracy.h"

namespace metronome {

// By what measured runs are near.
struct CheckedRun {
  std::string cost_model;  // roofline, operators or profile
  std::string hardware;
  std::string model;
  bool has_experts = false;
  std::string weights;  // to_string(WeightFormat) of most of them
  std::string engine;   // the policy's name
  std::int64_t tensor_parallel_size = 1;
  double num_in_system = 0;  // requests that wait or run, on average; 0: not known
};

CheckedRun checked_run(std::string_view cost_model, const HardwareSpec& hardware,
                       const ModelConfig& model, std::string_view policy,
                       std::int64_t tensor_parallel_size);

// Says what about such a run is far from anything that was compared: the GPU, experts, the format
// of quantised weights, or the number of GPUs. Empty if nothing is. Only for roofline and
// operators; others are made of measurements of their own, and are never far.
std::string unchecked_warning(const CheckedRun& run);

// The band of the errors of compared runs by the same cost model, each with a weight: one for a run
// of the same family, and less for each thing in which it differs. nullopt: no run by this cost
// model was compared. step_times and kv_bits are left out.
std::optional<TimeAccuracy> accuracy_near(const CheckedRun& run);

// Each measured value that was compared, and whether the band of all others contains it: of other
// families (a family is a model, GPU, format and engine), or also of its own with another number of
// GPUs or clients. For tests of the weights.
enum class LeftOut : std::uint8_t { Families, Groups };
struct LeftOutValue {
  const CheckedRun& run;
  bool is_in_tpot_band = false;
  bool is_in_ttft_band = false;
};
void leave_out(LeftOut what, const std::function<void(const LeftOutValue&)>& take);

}  // namespace metronome
