// SPDX-License-Identifier: Apache-2.0
// What one engine of a fleet did, without its steps: sums over them, and each request when it ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/engine/event.h"
#include "core/engine/front_end.h"
#include "core/metrics/recent_steps.h"
#include "core/metrics/run_record.h"
#include "core/metrics/time_histogram.h"

namespace metronome {

// A request of a fleet that ended. Its record refers to no steps.
struct EndedRequest {
  std::uint32_t number = 0;   // in the run
  std::int32_t replica = -1;  // that had it last; -1: none
  RequestRecord record = {};
  TimeNs handed_over = kNoTime;        // kNoTime: at its arrival
  TimeNs longest_gap_began = kNoTime;  // of RequestRecord::max_itl_ns
  std::vector<TimeNs> preempted = {};  // in time order
};

// Sums over the steps of an engine. A step's counts hold until the next plan (see Summary).
struct StepTotals {
  double block_time = 0, running_time = 0, waiting_time = 0;
  std::int64_t num_steps = 0, num_failed = 0, num_extrapolated = 0;
  std::int64_t num_tokens = 0;
  std::int64_t peak_blocks = 0, peak_running = 0, peak_waiting = 0;
  TimeNs busy_ns = 0;
};

// Takes no runs with drafts.
class ReplicaFigures final : public EventSink {
 public:
  // Output tokens are counted by seconds since `first_arrival`.
  ReplicaFigures(const ReplicaScope& scope, const FrontEnd& front_end, TimeNs first_arrival);

  bool takes_runs() const override { return true; }
  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;
  void on_repeats(const StepRecord& last, std::span<const StepTimes> times) override;

  // The requests that ended and were not taken yet, in order.
  std::deque<EndedRequest>& ended() { return ended_; }
  // Counts the last step, too.
  void finish();
  const ReplicaScope& scope() const { return scope_; }
  const StepTotals& totals() const { return totals_; }
  // Every gap between tokens: of all requests but those that were aborted, and of those of them
  // that failed.
  const TimeHistogram& gaps() const { return gaps_; }
  const TimeHistogram& failed_gaps() const { return failed_gaps_; }
  // Tokens of completed requests.
  const std::vector<std::int64_t>& tokens_by_second() const { return tokens_by_second_; }

 private:
  static constexpr std::int64_t kNoStep = -2;  // not adjacent to any step
  struct Live {
    EndedRequest request;
    std::int64_t first_step = kNoStep;  // of the run of steps that give it tokens
    std::int64_t last_step = kNoStep;
    std::vector<std::pair<std::int64_t, std::int64_t>> closed = {};  // such runs before
    bool is_member = false;                                          // of the run of decodes
    bool has_ended = false;
    std::int64_t ended_before = 0;  // this step

    std::int64_t first_of_all() const { return closed.empty() ? first_step : closed.front().first; }
    // Calls visit(first step, last step, the last one of the run before or kNoStep).
    template <class Visit>
    void visit_runs(const Visit& visit) const {
      std::int64_t before = kNoStep;
      for (const auto& [first, last] : closed) visit(first, last, std::exchange(before, last));
      if (last_step != kNoStep) visit(first_step, last_step, before);
    }
  };
  struct OpenStep {  // whose counts hold until the next plan
    TimeNs planned_at = 0, finished_at = 0;
    std::int32_t num_used_blocks = 0, num_running = 0, num_waiting = 0;
  };

  Live& live(RequestId id) { return live_[index(id) - num_gone_]; }
  Live& mention(const Request& request);
  void end(Live& one, const Event& event);
  void count_gaps(Live& one);
  void take_out_gaps(const Live& one, TimeHistogram& out);
  void restart_run(Live& one, std::int64_t step);
  std::int64_t follow_run(const CommittedRun& run, std::int64_t step);
  void count_gap(TimeNs finished_at, std::int64_t num_continued);
  void count_tokens(TimeNs finished_at, std::int64_t count);
  void close_step(TimeNs next_plan);
  void forget();
  void drop_ended();
  void count_chunk(Live& one);

  ReplicaScope scope_;
  HandOver hand_over_;
  bool has_front_end_;
  std::deque<Live> live_;  // by RequestId, from num_gone_ on
  std::size_t num_gone_ = 0;
  std::deque<EndedRequest> ended_;
  std::vector<RequestId> members_;
  std::int64_t last_run_step_ = kNoStep;
  RecentSteps steps_;
  std::size_t num_kept_steps_ = 0;  // after the last forget()
  OpenStep open_;
  StepTotals totals_;
  TimeHistogram gaps_, failed_gaps_;
  TimeNs last_end_ = 0;
  TimeNs first_arrival_;
  std::vector<std::int64_t> tokens_by_second_;
  TimeNs second_ends_ = 0;
};

}  // namespace metronome
