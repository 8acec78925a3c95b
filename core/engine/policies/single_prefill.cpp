// SPDX-License-Identifier: Apache-2.0
// Prefills one prompt at a time, with the budget that the running decodes leave. A request that
// completes its prompt gets its first token in the step's first forward pass. It joins the decodes
// of the second pass.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

class SinglePrefillScheduler final : public Scheduler {
 public:
  explicit SinglePrefillScheduler(const SchedulerContext& context)
      : Scheduler(context), budget_(token_budget(context.config)) {}

 private:
  // The budget is divided before the step. The request that joins the decodes adds one token.
  std::int64_t max_tokens_per_step() const override { return std::int64_t{budget_} + 1; }

  void fill_plan() override {
    const std::int32_t left = budget_ - num_decodable();
    if (left > 0) plan_one_prefill(left);
    plan_decodes();
  }

  void plan_one_prefill(std::int32_t left) {
    const auto chunk_of = [left](const Request& request) {
      return std::min(left, request.num_uncomputed_tokens());
    };
    if (num_unfinished_prefills() > 0) {
      Request& request = *unfinished_prefills().front();
      plan_prefill(request, chunk_of(request));
    } else if (Request* request = next_waiting()) {
      admit(*request, chunk_of(*request));
    }
  }

  std::int32_t budget_;
};

}  // namespace

std::unique_ptr<Scheduler> make_single_prefill(const SchedulerContext& context) {
  return std::make_unique<SinglePrefillScheduler>(context);
}

}  // namespace metronome
