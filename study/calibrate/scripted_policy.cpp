// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/scripted_policy.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

class ScriptedPolicy final : public Policy {
 public:
  ScriptedPolicy(std::shared_ptr<const StepScript> script, std::shared_ptr<ScriptProgress> progress,
                 NextRoundFn begins_round)
      : script_(std::move(script)),
        progress_(std::move(progress)),
        begins_round_(std::move(begins_round)) {}

 private:
  // A round may have more requests than a step. The script itself limits the requests of a step.
  std::int64_t max_running(const Books&) const override { return INT64_MAX; }

  void fill(Books& books) override {
    const std::size_t next_round = progress_->num_rounds + 1;
    if (progress_->num_steps == script_->round_begins[next_round]) {
      if (!books.nothing_runs()) return;  // its last tokens are still in flight
      progress_->num_rounds = next_round;
      const bool is_over = next_round == script_->num_rounds();
      if (is_over || !begins_round_(*progress_, books.now())) {
        while (Request* request = books.waiting().front()) books.refuse(*request);
        return;
      }
    }
    if (books.waiting().empty() && books.nothing_runs()) return;  // the script was ended early
    const ScriptedStep& step = script_->steps[progress_->num_steps];
    if (!has_room(books, step)) {
      METRONOME_CHECK(!books.nothing_runs(), "the cache has room for each request of a script");
      return;  // until a request ends
    }
    for (const ScriptedChunk& chunk : step) {
      Request& request = books.requests()[static_cast<RequestId>(chunk.request)];
      if (request.state == RequestState::Waiting) {
        METRONOME_CHECK(&request == books.waiting().front(),
                        "requests begin in the script's order");
        books.start(request, {}, request.num_final_tokens);
      }
      METRONOME_CHECK(!chunk.is_decode() || request.is_decodable(), "a decode follows its prompt");
      books.add_chunk(request, chunk.is_decode() ? 1 : chunk.num_tokens);
    }
    ++progress_->num_steps;
  }

  static bool has_room(Books& books, const ScriptedStep& step) {
    std::int64_t num_blocks = 0;
    for (const ScriptedChunk& chunk : step) {
      const Request& request = books.requests()[static_cast<RequestId>(chunk.request)];
      if (request.state != RequestState::Waiting) continue;
      num_blocks += books.kv_cache().blocks_for(request.num_final_tokens);
    }
    return num_blocks <= books.kv_cache().num_free_blocks();
  }

  std::shared_ptr<const StepScript> script_;
  std::shared_ptr<ScriptProgress> progress_;
  NextRoundFn begins_round_;
};

}  // namespace

std::function<std::unique_ptr<Policy>(const PolicyContext&)> scripted_policy(
    std::shared_ptr<const StepScript> script, std::shared_ptr<ScriptProgress> progress,
    NextRoundFn begins_round) {
  return [=](const PolicyContext&) {
    return std::make_unique<ScriptedPolicy>(script, progress, begins_round);
  };
}

}  // namespace metronome
