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
  const StepResult& collect() override;
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  // A token that a step in flight samples.
  struct Sample {
    RequestId request;
    std::int32_t position;  // of the token in its request's output
  };

  Executor& executor_;
  const RequestFeed& feed_;
  std::array<std::vector<Sample>, kMaxInFlight> samples_;  // by step, in plan order
  StepResult result_;
};

}  // namespace metronome
