// The steps of a recorded run as they were planned, chunk by chunk with their positions: what a
// cost model needs to be fitted to them, or compared with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/engine_config.h"
#include "core/engine/step_plan.h"
#include "core/metrics/run_record.h"

namespace metronome {

class RecordedSteps {
 public:
  // Keeps the record. With StepShape::Separate decodes and prefills are two passes.
  RecordedSteps(const RunRecord& record, StepShape shape);

  // The plan of the next step of the record: decodes in the order in which their requests began to
  // give tokens, then prefill chunks as planned. False behind the last step.
  //
  // A decode that gave no token is not in it: of a failed step, or of a request that ended while
  // the step was in flight. num_decode_tokens counts those that are.
  bool next(StepPlan& plan);

  // Position in the record of the step that next() gave last.
  std::size_t position() const { return next_step_ - 1; }
  // Decodes of that step that are missing in its plan.
  std::int32_t num_missing_decodes() const { return num_missing_; }

 private:
  struct Start {
    std::int32_t first_step;
    std::int32_t last_step;
    RequestId request;
  };
  void find_prefills(const StepEntry& step);
  void add_decodes(std::int32_t step, StepPlan& plan);

  const RunRecord& record_;
  StepShape shape_;
  std::vector<Start> starts_;  // of all token runs, by first step
  std::size_t next_start_ = 0;
  std::vector<Start> active_;              // runs that the next step may go on with
  std::vector<ScheduledChunk> prefills_;   // of the step
  std::vector<std::int32_t> num_outputs_;  // of each request, before the next step
  std::size_t next_step_ = 0;
  std::int32_t num_missing_ = 0;
};

}  // namespace metronome
