// SPDX-License-Identifier: Apache-2.0
// Continuous batching: requests leave and join between steps. Decodes come first, then the whole
// prompts of all requests with room.
#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

class ContinuousScheduler final : public Scheduler {
 public:
  using Scheduler::Scheduler;

 private:
  void fill_plan() override {
    plan_decodes();
    while (Request* request = next_waiting()) {
      if (!admit(*request, request->num_uncomputed_tokens())) break;
    }
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_continuous(const SchedulerContext& context) {
  return std::make_unique<ContinuousScheduler>(context);
}

}  // namespace metronome
