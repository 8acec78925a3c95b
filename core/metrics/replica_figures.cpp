// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/replica_figures.h"

#include <algorithm>
#include <utility>

#include "core/base/erase.h"
#include "core/base/error.h"
#include "core/engine/decode_run.h"

namespace metronome {

ReplicaFigures::ReplicaFigures(const ReplicaScope& scope, const FrontEnd& front_end,
                               TimeNs first_arrival)
    : scope_(scope),
      hand_over_(front_end),
      has_front_end_(!front_end.is_off()),
      first_arrival_(first_arrival) {}

ReplicaFigures::Live& ReplicaFigures::mention(const Request& request) {
  const std::size_t place = index(request.id);
  METRONOME_CHECK(place >= num_gone_, "a request has no event after its end");
  while (live_.size() <= place - num_gone_) {
    const std::size_t next = num_gone_ + live_.size();
    Live& added = live_.emplace_back();
    added.request.number = (*scope_.requests)[next];
    added.request.replica = scope_.replica;
    if (scope_.handed_over != nullptr) added.request.handed_over = (*scope_.handed_over)[next];
  }
  Live& one = live_[place - num_gone_];
  RequestRecord& record = one.request.record;
  if (record.num_prompt_tokens > 0) return one;
  record.arrival = request.arrival;
  record.num_prompt_tokens = request.num_prompt_tokens;
  record.max_output_tokens = request.max_output_tokens;
  record.priority = request.priority;
  record.class_number = request.class_number;
  if (scope_.handed_over == nullptr && has_front_end_) {
    one.request.handed_over = hand_over_.time_of(record.arrival, record.num_prompt_tokens);
  }
  return one;
}

void ReplicaFigures::on_event(const Event& event, const Request& request) {
  Live& one = mention(request);
  RequestRecord& record = one.request.record;
  switch (event.kind) {
    case EventKind::Submitted:
    case EventKind::FirstToken: break;
    case EventKind::Admitted:
      if (record.first_scheduled == kNoTime) record.first_scheduled = event.time;
      record.num_prefix_hit_tokens = request.num_prefix_hit_tokens;
      record.last_scheduled = event.time;
      break;
    case EventKind::Preempted:
      ++record.num_preemptions;
      one.request.preempted.push_back(event.time);
      break;
    case EventKind::Ended: end(one, event); break;
  }
}

void ReplicaFigures::end(Live& one, const Event& event) {
  RequestRecord& record = one.request.record;
  record.ended = event.time;
  record.reason = event.reason;
  if (one.is_member) one.last_step = std::max(one.last_step, last_run_step_);
  if (one.last_step != kNoStep) count_gaps(one);
  if (!record.completed()) {
    // The tokens of a request that was aborted come again elsewhere.
    take_out_gaps(one, record.reason == EndReason::Aborted ? gaps_ : failed_gaps_);
  }
  one.has_ended = true;
  ended_.push_back(std::move(one.request));  // its number stays
  one.closed = {};
  one.ended_before = steps_.size();
}

// Drops requests that no step names any more.
void ReplicaFigures::drop_ended() {
  constexpr std::int64_t kStepsInFlight = 4;  // at least as many as an engine has
  const auto is_gone = [this](const Live& one) {
    return one.has_ended && !one.is_member && steps_.size() > one.ended_before + kStepsInFlight;
  };
  while (!live_.empty() && is_gone(live_.front())) {
    live_.pop_front();
    ++num_gone_;
  }
}

void ReplicaFigures::count_chunk(Live& one) {
  if (!one.has_ended) {
    ++one.request.record.num_prefill_chunks;
    return;
  }
  // It was aborted while this step ran.
  const auto same = std::find_if(
      ended_.rbegin(), ended_.rend(),
      [&one](const EndedRequest& ended) { return ended.number == one.request.number; });
  if (same != ended_.rend()) ++same->record.num_prefill_chunks;
}

void ReplicaFigures::count_gaps(Live& one) {
  RequestRecord& record = one.request.record;
  record.first_token = steps_.finished_at(one.first_of_all());
  record.last_token = steps_.finished_at(one.last_step);
  RecentSteps::Extremes extremes;
  one.visit_runs([&](std::int64_t first, std::int64_t last, std::int64_t before) {
    if (before != kNoStep) {
      const TimeNs gap = steps_.finished_at(first) - steps_.finished_at(before);
      extremes.fold(gap, gap, first);
    }
    steps_.fold(first + 1, last + 1, extremes);
    record.num_output_tokens += static_cast<std::int32_t>(last - first + 1);
  });
  if (extremes.max_step < 0) return;
  record.min_itl_ns = extremes.min_ns;
  record.max_itl_ns = extremes.max_ns;
  record.max_itl_step = 0;  // there is one, whose number has no use
  one.request.longest_gap_began = steps_.finished_at(extremes.max_step) - extremes.max_ns;
}

void ReplicaFigures::take_out_gaps(const Live& one, TimeHistogram& out) {
  TimeHistogram own;
  one.visit_runs([&](std::int64_t first, std::int64_t last, std::int64_t before) {
    if (before != kNoStep) own.add(steps_.finished_at(first) - steps_.finished_at(before));
    for (std::int64_t s = first; s <= last; ++s) {
      const TimeNs now = steps_.finished_at(s);
      if (s > first) own.add(now - steps_.finished_at(s - 1));
      const TimeNs second = std::max<TimeNs>((now - first_arrival_) / kNsPerSecond, 0);
      --tokens_by_second_[static_cast<std::size_t>(second)];
    }
  });
  if (&out == &gaps_) {
    gaps_.subtract(own);
  } else {
    out.add(own);
  }
}

void ReplicaFigures::restart_run(Live& one, std::int64_t step) {
  if (one.last_step != kNoStep) {
    one.closed.emplace_back(one.first_step, one.last_step);
    gaps_.add(steps_.finished_at(step) - steps_.finished_at(one.last_step));
  }
  one.first_step = one.last_step = step;
}

// Returns how many members got a token in the step before, too.
std::int64_t ReplicaFigures::follow_run(const CommittedRun& run, std::int64_t step) {
  for (const RequestId id : run.left) {
    Live& one = live(id);
    one.last_step = std::max(one.last_step, last_run_step_);
    one.is_member = false;
  }
  erase_each(members_, run.left, [](std::size_t) {});
  if (run.members == nullptr) return 0;
  std::int64_t num_continued = std::ssize(members_);
  if (last_run_step_ != step - 1) {  // other steps came between
    for (const RequestId id : members_) {
      Live& one = live(id);
      one.last_step = std::max(one.last_step, last_run_step_);
      if (one.last_step == step - 1) continue;
      restart_run(one, step);
      --num_continued;
    }
  }
  last_run_step_ = step;
  return num_continued;
}

void ReplicaFigures::count_gap(TimeNs finished_at, std::int64_t num_continued) {
  const TimeNs gap = finished_at - std::exchange(last_end_, finished_at);
  if (num_continued > 0) gaps_.add(gap, num_continued);
}

void ReplicaFigures::count_tokens(TimeNs finished_at, std::int64_t count) {
  if (finished_at >= second_ends_) {
    const TimeNs second = std::max<TimeNs>((finished_at - first_arrival_) / kNsPerSecond, 0);
    tokens_by_second_.resize(static_cast<std::size_t>(second) + 1);
    second_ends_ = first_arrival_ + (second + 1) * kNsPerSecond;
  }
  tokens_by_second_.back() += count;
}

void ReplicaFigures::close_step(TimeNs next_plan) {
  const TimeNs until = std::min(next_plan, open_.finished_at);
  const auto held = static_cast<double>(std::max<TimeNs>(until - open_.planned_at, 0));
  totals_.block_time += held * open_.num_used_blocks;
  totals_.running_time += held * open_.num_running;
  totals_.waiting_time += held * open_.num_waiting;
}

// Forgets steps in which no request began that has not ended.
void ReplicaFigures::forget() {
  constexpr std::size_t kWorthwhile = 1024;
  if (steps_.num_kept() < 2 * num_kept_steps_ + kWorthwhile) [[likely]]
    return;
  std::int64_t needed = steps_.size() - 1;
  for (const Live& one : live_) {
    if (!one.has_ended && one.first_step != kNoStep) needed = std::min(needed, one.first_of_all());
  }
  steps_.drop_before(needed);
  num_kept_steps_ = steps_.num_kept();
}

void ReplicaFigures::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                             const RequestTable&) {
  close_step(step.planned_at);
  forget();
  drop_ended();
  const std::int64_t position = steps_.size();
  steps_.push(step.finished_at);
  std::int64_t num_continued = follow_run(step.run, position);
  std::int64_t num_emitted = step.run.members != nullptr ? step.run.members->size() : 0;
  for (const ScheduledChunk& chunk : chunks) {
    Live& one = live(chunk.request);
    METRONOME_CHECK(chunk.num_emitted <= 1, "figures are of runs without drafts");
    if (chunk.kind != ChunkKind::Decode) count_chunk(one);
    if (chunk.num_emitted == 0) continue;
    ++num_emitted;
    if (one.last_step == position - 1) {
      one.last_step = position;
      ++num_continued;
    } else {
      restart_run(one, position);
    }
  }
  for (const RequestId id : step.run.joined) live(id).is_member = true;
  members_.insert(members_.end(), step.run.joined.begin(), step.run.joined.end());
  count_gap(step.finished_at, num_continued);
  if (num_emitted > 0) count_tokens(step.finished_at, num_emitted);
  ++totals_.num_steps;
  totals_.num_failed += step.failed ? 1 : 0;
  totals_.num_extrapolated += step.result != nullptr && step.result->is_extrapolated ? 1 : 0;
  totals_.num_tokens += step.num_prefill_tokens + step.num_decode_tokens;
  totals_.peak_blocks = std::max<std::int64_t>(totals_.peak_blocks, step.num_used_blocks);
  totals_.peak_running = std::max<std::int64_t>(totals_.peak_running, step.num_running);
  totals_.peak_waiting = std::max<std::int64_t>(totals_.peak_waiting, step.num_waiting);
  totals_.busy_ns += step.finished_at - step.started_at;
  open_ = {step.planned_at, step.finished_at, step.num_used_blocks, step.num_running,
           step.num_waiting};
}

void ReplicaFigures::on_repeats(const StepRecord& last, std::span<const StepTimes> times) {
  forget();
  const std::int64_t num_decodes = last.num_decode_tokens;
  for (const StepTimes& time : times) {
    close_step(time.planned_at);
    steps_.push(time.finished_at);
    count_gap(time.finished_at, num_decodes);
    count_tokens(time.finished_at, num_decodes);
    totals_.busy_ns += time.finished_at - time.started_at;
    totals_.num_extrapolated += time.is_extrapolated ? 1 : 0;
    open_.planned_at = time.planned_at;
    open_.finished_at = time.finished_at;
    open_.num_used_blocks = time.num_used_blocks;
    totals_.peak_blocks = std::max<std::int64_t>(totals_.peak_blocks, time.num_used_blocks);
  }
  open_.num_running = last.num_running;
  open_.num_waiting = last.num_waiting;
  const auto num_steps = static_cast<std::int64_t>(times.size());
  last_run_step_ += num_steps;
  totals_.num_steps += num_steps;
  totals_.num_tokens += num_steps * (last.num_prefill_tokens + num_decodes);
}

void ReplicaFigures::finish() { close_step(INT64_MAX); }

}  // namespace metronome
