// SPDX-License-Identifier: Apache-2.0
#include "study/run/saturation.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/run/prepared_variant.h"
#include "core/workload/workload_cut.h"
#include "sim/virtual_clock.h"
#include "system/progress.h"

namespace metronome {
namespace {

constexpr std::size_t kMostRequests = 1000;
// A run has more requests where the running list takes so many: it is to be filled a few times.
constexpr std::size_t kQueueTurns = 8;

// The first arrivals of the workload, all at 0, in the same order. `count` is of requests, or of
// whole sessions with at least as many requests.
Workload saturated(const Workload& workload, std::size_t count) {
  Workload result = workload;
  result.mode = ArrivalMode::Timed;
  result.concurrency = 0;
  result.think_time = 0;
  std::size_t num_kept = std::min(count, workload.requests.size());
  if (workload.has_sessions()) {
    const auto last =
        std::lower_bound(workload.session_begin.begin(), workload.session_begin.end(), num_kept);
    result.session_begin.assign(workload.session_begin.begin(), last + 1);
    num_kept = *last;
    result.delays.assign(num_kept, 0);
  }
  keep_first(num_kept, result);
  for (RequestSpec& request : result.requests) request.arrival = 0;
  return result;
}

// Counts what a saturated run serves, and notes when requests leave its queue.
class QueueWatch final : public EventSink {
 public:
  // Events of replicas come one replica after the other.
  EventSink* of_replica(const ReplicaScope&) override { return this; }
  bool takes_runs() const override { return true; }
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}
  void on_event(const Event& event, const Request& request) override {
    if (event.kind == EventKind::Admitted) {
      if (request.num_preemptions == 0) admitted_.push_back(event.time);
      most_running_ = std::max(most_running_, ++num_running_);
    } else if (event.kind == EventKind::Preempted) {
      --num_running_;
    } else if (event.kind == EventKind::Ended && request.state == RequestState::Finished) {
      --num_running_;
      ++num_completed_;
      num_prompt_tokens_ += request.num_prompt_tokens;
      num_output_tokens_ += request.num_output_tokens();
    } else if (event.kind == EventKind::Ended) {
      ++num_failed_;
    }
  }

  // Requests that leave the queue a second, while its second half does. Requests of equal lengths
  // go in waves, so whole turns of the running list count. Nothing while so many run at once that
  // few of them waited for another's end.
  std::optional<double> rate() {
    std::sort(admitted_.begin(), admitted_.end());
    const std::size_t size = admitted_.size();
    if (size < 2 || 3 * most_running_ > size) return std::nullopt;
    const std::size_t turns = std::max<std::size_t>(size / 2 / most_running_, 1);
    const std::size_t count = turns * most_running_;
    const double seconds = to_seconds(admitted_.back() - admitted_[size - 1 - count]);
    if (!(seconds > 0)) return std::nullopt;
    return static_cast<double>(count) / seconds;
  }
  Saturation served() const {
    Saturation served{.num_served = num_completed_, .num_tried = num_completed_ + num_failed_};
    if (num_completed_ == 0) return served;
    const auto count = static_cast<double>(num_completed_);
    served.prompt_tokens = static_cast<double>(num_prompt_tokens_) / count;
    served.output_tokens = static_cast<double>(num_output_tokens_) / count;
    return served;
  }

 private:
  std::vector<TimeNs> admitted_;  // once for each request
  std::size_t num_running_ = 0;
  std::size_t most_running_ = 0;
  std::int64_t num_completed_ = 0, num_failed_ = 0;
  std::int64_t num_prompt_tokens_ = 0, num_output_tokens_ = 0;  // of the completed
};

// Returns the seconds of the run.
double simulate(PreparedVariant& variant, std::size_t count, QueueWatch& watch) {
  const Workload workload = saturated(*variant.workload, count);
  EventSink* const sinks[] = {&watch};
  VirtualClock clock;
  const RunOutcome run = variant.run->run(workload, clock, sinks, [](const RunProgress&) {
    throw_if_interrupted();
    return true;
  });
  if (!run.completed) throw Interrupted();
  return to_seconds(clock.now());
}

}  // namespace

Saturation saturation_of(PreparedVariant& variant) {
  EngineSetup& setup = variant.run->setup;
  const auto most_running = static_cast<std::size_t>(setup.max_num_seqs);
  const std::size_t count = std::min(variant.workload->requests.size(),
                                     std::max(kMostRequests, kQueueTurns * most_running));
  // All requests wait at once, which the limit of the queue is not about.
  const auto limit = std::exchange(setup.max_waiting_requests, 0);
  QueueWatch whole, half;
  const double seconds = simulate(variant, count, whole);
  Saturation result = whole.served();
  if (const std::optional<double> rate = whole.rate()) {
    result.requests_per_s = *rate;
  } else {
    // Too few requests for a queue: what half of them take less. Start and end of a run cancel out.
    const double less = seconds - simulate(variant, std::max<std::size_t>(count / 2, 1), half);
    const std::int64_t more = result.num_served - half.served().num_served;
    if (more > 0 && less > 0) {
      result.requests_per_s = static_cast<double>(more) / less;
    } else if (seconds > 0) {
      result.requests_per_s = static_cast<double>(result.num_served) / seconds;
    }
  }
  setup.max_waiting_requests = limit;
  return result;
}

}  // namespace metronome
