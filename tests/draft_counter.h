// SPDX-License-Identifier: Apache-2.0
// Counts the drafts of an executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/engine/executor.h"

namespace metronome::testing {

// A run's drafts.
struct DraftTally {
  std::int64_t num_proposed = 0;
  std::int64_t num_accepted = 0;
  std::int64_t num_rows = 0;  // of decodes, with those that were planned for padding
};

// Hands on the steps of another executor, and counts their drafts.
class DraftCounter final : public Executor {
 public:
  DraftCounter(Executor& executor, DraftTally& counts) : executor_(executor), counts_(counts) {}
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    for (const ScheduledChunk& chunk : plan.chunks) counts_.num_rows += chunk.num_drafts();
    executor_.launch(plan, requests, now);
  }
  const StepResult& collect() override {
    const StepResult& result = executor_.collect();
    for (const std::int32_t count : result.num_verified) counts_.num_proposed += count;
    for (const std::int32_t count : result.num_accepted) counts_.num_accepted += count;
    return result;
  }
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  Executor& executor_;
  DraftTally& counts_;
};

}  // namespace metronome::testing
