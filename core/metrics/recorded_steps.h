// SPDX-License-Identifier: Apache-2.0
// Rebuilds the step plans of a recorded run: chunks with their positions. Cost models are fitted to
// them and compared with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/engine_choices.h"
#include "core/engine/step_plan.h"
#include "core/metrics/run_record.h"

namespace metronome {

class RecordedSteps {
 public:
  // Keeps a reference to the record. With StepShape::Separate, decodes and prefills are two passes.
  RecordedSteps(const RunRecord& record, StepShape shape);

  // Gives the plan of the record's next step. Decodes are in the order in which their requests'
  // token runs began, then come prefill chunks as planned. Returns false after the last step.
  //
  // A step's draft tokens are shared evenly among its decodes, as the record does not have each's.
  // The plan omits decodes that gave no token. Those belong to a failed step, or to a request that
  // ended while the step was in flight. num_decode_tokens counts the decodes in the plan.
  bool next(StepPlan& plan);

  // Index in the record of the step that next() gave last.
  std::size_t position() const { return next_step_ - 1; }
  // Decodes of that step that its plan omits.
  std::int32_t num_missing_decodes() const { return num_missing_; }

 private:
  struct Start {
    std::int32_t first_step;
    std::int32_t last_step;
    RequestId request;
  };
  void find_prefills(const StepEntry& step);
  void add_decodes(std::int32_t step, StepPlan& plan);
  static void add_drafts(std::int32_t num_drafts, std::int32_t num_decodes, StepPlan& plan);
  std::uint8_t next_count(std::size_t request);

  const RunRecord& record_;
  StepShape shape_;
  std::vector<Start> starts_;  // of all token runs, by first step
  std::size_t next_start_ = 0;
  std::vector<Start> active_;              // runs that may continue in the next step
  std::vector<ScheduledChunk> prefills_;   // of the current step
  std::vector<std::int32_t> num_outputs_;  // of each request, before the next step
  std::vector<std::size_t> num_counts_;    // entries of counts_of() taken of each request
  std::size_t next_step_ = 0;
  std::int32_t num_missing_ = 0;
};

}  // namespace metronome
