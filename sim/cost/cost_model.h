// SPDX-License-Identifier: Apache-2.0
// Predicts the device time of a step. One interface for the roofline, measured tables, fitted forms
// and replayed times.
#pragma once

#include <cstdint>

#include "core/engine/step_plan.h"

namespace metronome {

// Device time of a step in nanoseconds, by part. The four parts add up to total_ns.
struct StepCost {
  TimeNs total_ns = 0;
  TimeNs linear_ns = 0;     // projections and head: the slower of compute and memory traffic
  TimeNs attention_ns = 0;  // prefill chunks and decodes
  TimeNs comm_ns = 0;       // all-reduces of tensor parallelism
  TimeNs overhead_ns = 0;   // launches, gather copies
  // The step's cost without its prefill chunks; 0 for a step without decodes.
  TimeNs decode_only_ns = 0;
  TimeNs decode_only_attention_ns = 0;  // parts of decode_only_ns
  TimeNs decode_only_comm_ns = 0;
  TimeNs draft_ns = 0;  // part of decode_only_ns: StepResult::draft_ns (sim/drafts/drafted_model.h)
  // A measured model was asked about a step outside its measurements, or a link about its
  // collectives.
  bool is_extrapolated = false;
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Deterministic; allocates nothing. Requires a non-empty plan. A decode of 1 + d tokens verifies
  // d drafts: its context is read once, and it has 1 + d rows of logits.
  virtual StepCost step_cost(const StepPlan& plan) = 0;
  // Host time between the end of a step and the start of `plan`, the next step that depends on it.
  // Deterministic; allocates nothing. The plan may be empty or unfinished.
  virtual TimeNs host_gap_ns(const StepPlan& plan) const = 0;
  // Blocks of `block_tokens` tokens that fit into device memory beside the weights. Throws
  // UnplacedConfigError if none fits.
  virtual std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const = 0;
};

}  // namespace metronome
