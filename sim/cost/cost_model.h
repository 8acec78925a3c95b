// How long the device takes for a step. One interface for the roofline, measured tables, fitted
// forms and replayed times.
#pragma once

#include <cstdint>

#include "core/engine/step_plan.h"

namespace metronome {

// Where the time of a step goes, in nanoseconds on the device. The four parts add up to total_ns.
struct StepCost {
  TimeNs total_ns = 0;
  TimeNs linear_ns = 0;     // projections and head, whichever of compute and bytes is slower
  TimeNs attention_ns = 0;  // prefill chunks and decodes
  TimeNs comm_ns = 0;       // all-reduces of tensor parallelism
  TimeNs overhead_ns = 0;   // launches, gather copies
  // What the step would cost without its prefill chunks; 0 where it has no decode.
  TimeNs decode_only_ns = 0;
  TimeNs decode_only_attention_ns = 0;  // the attention in that
  // A measured model was asked for more than what it was measured with.
  bool is_extrapolated = false;
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Deterministic; allocates nothing. Requires a plan that is not empty.
  virtual StepCost step_cost(const StepPlan& plan) = 0;
  // Host time between the end of a step and the start of the next that depends on it, which is the
  // one of `plan`. Deterministic; allocates nothing. The plan may be empty, or unfinished.
  virtual TimeNs host_gap_ns(const StepPlan& plan) const = 0;
  // Blocks of `block_tokens` tokens that fit beside the weights in the device's memory. Throws
  // UnplacedConfigError where none does.
  virtual std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const = 0;
};

}  // namespace metronome
