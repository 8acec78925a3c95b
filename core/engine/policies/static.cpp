// SPDX-License-Identifier: Apache-2.0
// Static batching: a batch forms once and prefills whole. New requests wait until all have ended.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

class StaticScheduler final : public Scheduler {
 public:
  explicit StaticScheduler(const SchedulerContext& context)
      : Scheduler(context),
        batch_wait_(static_cast<TimeNs>(context.config.batch_wait_ms * double{kNsPerMs})) {}

  TimeNs wake_time() const override {
    return nothing_runs() && !waiting().empty() ? batch_deadline() : kNever;
  }

 private:
  // A partial batch waits this long for more requests, counted from its oldest request.
  TimeNs batch_deadline() const { return waiting().front()->arrival + batch_wait_; }

  void fill_plan() override {
    if (!nothing_runs()) {
      plan_decodes();
      return;
    }
    if (waiting().empty()) return;
    const bool is_full = waiting().size() >= static_cast<std::size_t>(max_num_seqs());
    if (!is_full && now() < batch_deadline()) return;
    while (Request* request = next_waiting()) {
      if (!admit(*request, request->num_uncomputed_tokens())) break;
    }
  }

  TimeNs batch_wait_;
};

}  // namespace

std::unique_ptr<Scheduler> make_static(const SchedulerContext& context) {
  return std::make_unique<StaticScheduler>(context);
}

}  // namespace metronome
