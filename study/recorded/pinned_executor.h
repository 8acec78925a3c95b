// SPDX-License-Identifier: Apache-2.0
// A simulated device whose steps end at the instants of a measured run, as far as these are known.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/engine/executor.h"
#include "core/engine/request.h"
#include "sim/cost/cost_model.h"

namespace metronome {

// When a request received its first and its last token; kNoTime if not recorded.
struct TokenInstants {
  TimeNs first_token = kNoTime;
  TimeNs last_token = kNoTime;
};

// A simulated step and the known instants in it.
struct PinnedStep {
  StepCost predicted;
  TimeNs cost = 0;  // the predicted total, plus the visible part of the host gap
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  TimeNs started_at = 0;  // simulated
  bool is_after_idle = false;
  // For the first and last tokens that the step produces: the first and the last instant, and the
  // request of the first instant. kNoTime if the step produces none.
  TimeNs earliest = kNoTime;
  TimeNs latest = kNoTime;
  RequestId request = kNoRequest;

  bool is_pinned() const { return earliest != kNoTime; }
};

// A step that produces first or last tokens ends at their instant, or immediately if that is past.
// Any other step takes its predicted time, scaled. It ends at the nearest of `hints` if one is
// near.
class PinnedExecutor final : public Executor {
 public:
  // `instants` by RequestId. `hints`, in order, are instants at which the measured engine was
  // between steps. `scales` by step; 1 for steps beyond its end. All of them outlive the executor.
  PinnedExecutor(CostModel& cost_model, const std::vector<TokenInstants>& instants,
                 const std::vector<TimeNs>& hints, const std::vector<double>& scales);

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  const StepResult& collect() override;

  const std::vector<PinnedStep>& steps() const { return steps_; }

 private:
  void find_pin(const StepPlan& plan, const RequestTable& requests, PinnedStep& step) const;
  TimeNs near_hint(TimeNs end, TimeNs duration) const;

  CostModel& cost_model_;
  const std::vector<TokenInstants>& instants_;
  const std::vector<TimeNs>& hints_;
  const std::vector<double>& scales_;
  TimeNs device_free_at_ = 0;
  std::array<StepResult, kNumResults> results_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  std::vector<PinnedStep> steps_;
};

}  // namespace metronome
