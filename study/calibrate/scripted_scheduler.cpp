// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/scripted_scheduler.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

class ScriptedScheduler final : public Scheduler {
 public:
  ScriptedScheduler(const SchedulerContext& context, std::shared_ptr<const StepScript> script,
                    std::shared_ptr<ScriptProgress> progress, NextRoundFn begins_round)
      : Scheduler(context),
        script_(std::move(script)),
        progress_(std::move(progress)),
        begins_round_(std::move(begins_round)) {}

 private:
  // A round may have more requests than a step. The script itself limits the requests of a step.
  std::int64_t max_running() const override { return INT64_MAX; }

  void fill_plan() override {
    const std::size_t next_round = progress_->num_rounds + 1;
    if (progress_->num_steps == script_->round_begins[next_round]) {
      if (!nothing_runs()) return;  // its last tokens are still in flight
      progress_->num_rounds = next_round;
      const bool is_over = next_round == script_->num_rounds();
      if (is_over || !begins_round_(*progress_, now())) {
        while (Request* request = queue().front()) refuse(*request);
        return;
      }
    }
    if (queue().empty() && nothing_runs()) return;  // the script was ended early
    const ScriptedStep& step = script_->steps[progress_->num_steps];
    if (!has_room(step)) {
      METRONOME_CHECK(!nothing_runs(), "the cache has room for each request of a script");
      return;  // until a request ends
    }
    for (const ScriptedChunk& chunk : step) {
      Request& request = requests()[static_cast<RequestId>(chunk.request)];
      if (request.state == RequestState::Waiting) {
        METRONOME_CHECK(&request == queue().front(), "requests begin in the script's order");
        start(request, {}, request.num_final_tokens);
      }
      METRONOME_CHECK(!chunk.is_decode() || request.is_decodable(), "a decode follows its prompt");
      add_chunk(request, chunk.is_decode() ? 1 : chunk.num_tokens);
    }
    ++progress_->num_steps;
  }

  bool has_room(const ScriptedStep& step) {
    std::int64_t num_blocks = 0;
    for (const ScriptedChunk& chunk : step) {
      const Request& request = requests()[static_cast<RequestId>(chunk.request)];
      if (request.state != RequestState::Waiting) continue;
      num_blocks += kv_cache().blocks_for(request.num_final_tokens);
    }
    return num_blocks <= kv_cache().num_free_blocks();
  }

  std::shared_ptr<const StepScript> script_;
  std::shared_ptr<ScriptProgress> progress_;
  NextRoundFn begins_round_;
};

}  // namespace

std::function<std::unique_ptr<Scheduler>(const SchedulerContext&)> scripted_scheduler(
    std::shared_ptr<const StepScript> script, std::shared_ptr<ScriptProgress> progress,
    NextRoundFn begins_round) {
  return [=](const SchedulerContext& context) {
    return std::make_unique<ScriptedScheduler>(context, script, progress, begins_round);
  };
}

}  // namespace metronome
