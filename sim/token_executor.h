// SPDX-License-Identifier: Apache-2.0
// Adds output token ids to the steps of an executor that only computes their times.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/engine/executor.h"
#include "core/engine/request_feed.h"

namespace metronome {

class TokenExecutor final : public Executor {
 public:
  // `executor` and `feed` outlive this object.
  TokenExecutor(Executor& executor, const RequestFeed& feed) : executor_(executor), feed_(feed) {}

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  TimeNs ready_at() const override { return executor_.ready_at(); }
  const StepResult& collect() override;
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  Executor& executor_;
  const RequestFeed& feed_;
  const RequestTable* requests_ = nullptr;  // the engine's
  // By step: the requests of the chunks that sample, in plan order.
  std::array<std::vector<RequestId>, kMaxInFlight> samples_;
  StepResult result_;
};

}  // namespace metronome
