// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "core/engine/policies/registry.h"

namespace metronome {

Engine::Engine(const EngineSetup& setup, Executor& executor, std::span<EventSink* const> sinks,
               const PrefixHasher* hasher)
    : setup_(setup),
      executor_(executor),
      sinks_(sinks.begin(), sinks.end()),
      kv_cache_(setup.kv_cache, hasher),
      gate_(receive_interval(setup.scheduler)) {
  gate_.open();
  METRONOME_CHECK(setup.async_depth >= 1 && setup.async_depth <= kMaxInFlight,
                  "one or two steps in flight");
  const PolicyInfo* info = find_policy(setup.scheduler.policy);
  METRONOME_CHECK(info != nullptr, "the policy was validated before");
  const PolicyContext context{.config = setup_.scheduler,
                              .max_num_seqs = setup.max_num_seqs,
                              .max_model_len = setup.max_model_len,
                              .step_shape = setup.step_shape,
                              .kv_cache = kv_cache_,
                              .predictor = setup.predictor};
  scheduler_.emplace(BooksSetup{.plans_runs = executor.takes_runs(),
                                .kv_cache = kv_cache_,
                                .requests = requests_,
                                .encoder = setup.encoder},
                     context, setup.make_policy ? setup.make_policy(context) : info->make(context));
  const auto takes_runs = [](const EventSink* sink) { return sink->takes_runs(); };
  if (std::all_of(sinks_.begin(), sinks_.end(), takes_runs)) {
    repeats_.resize(static_cast<std::size_t>(RunCalendar::kHorizon));
  }
}

EndReason Engine::refusal_for(const RequestSpec& spec, std::string& message) const {
  const std::int64_t num_tokens =
      std::int64_t{spec.num_prompt_tokens} + std::int64_t{spec.max_output_tokens};
  const auto needs = [&] {
    return fmt::format("needs {} prompt + {} output tokens", spec.num_prompt_tokens,
                       spec.max_output_tokens);
  };
  if (num_tokens > setup_.max_model_len) {
    message = fmt::format("{}; max_model_len is {}", needs(), setup_.max_model_len);
    return EndReason::NeverFits;
  }
  if (spec.num_received_tokens > 0 || spec.hands_over) {
    message = handover_refusal();
    if (!message.empty()) return EndReason::NeverFits;
  }
  if (const std::string reason = scheduler_->refusal(spec); !reason.empty()) {
    message = needs() + ", " + reason;
    return EndReason::NeverFits;
  }
  const auto limit = static_cast<std::size_t>(setup_.max_waiting_requests);
  if (limit > 0 && scheduler_->num_waiting() >= limit) {
    message = fmt::format("the waiting queue holds max_waiting_requests = {}", limit);
    return EndReason::QueueFull;
  }
  return EndReason::None;
}

std::string Engine::handover_refusal() const {
  const std::string& policy = setup_.scheduler.policy;
  if (!find_policy(policy)->allows_handover) {
    return "policy " + policy + " neither hands requests over nor receives them";
  }
  if (kv_cache_.groups().size() == 1) return {};
  return "requests with windows or states beside full attention are not handed over";
}

Submission Engine::submit(const RequestSpec& spec) {
  METRONOME_CHECK(spec.num_prompt_tokens >= 1 && spec.max_output_tokens >= 1,
                  "a request has a prompt and asks for output");
  METRONOME_CHECK(
      spec.num_received_tokens >= 0 && spec.num_received_tokens < spec.num_prompt_tokens,
      "the last prompt token is computed");
  now_ = std::max(now_, spec.arrival);
  Submission submission;
  submission.refusal = refusal_for(spec, submission.message);
  Request& request = requests_.add(spec);
  request.ignores_eos = spec.ignores_eos.value_or(setup_.ignores_eos);
  submission.id = request.id;
  if (submission.accepted()) {
    is_idle_ = false;
    scheduler_->enqueue(request);
    emit(EventKind::Submitted, request);
  } else {
    request.transition_to(RequestState::Failed);
    request.end_reason = submission.refusal;
    emit_ended(request, submission.message);
  }
  return submission;
}

bool Engine::abort(RequestId id) {
  METRONOME_CHECK(index(id) < requests_.size(), "abort of an unknown request");
  if (!requests_.has(id)) return false;
  Request& request = requests_[id];
  if (request.has_ended()) return false;
  is_idle_ = false;
  scheduler_->abort(request);
  emit_ended(request, "aborted by the client");
  return true;
}

void Engine::release(RequestId id) {
  METRONOME_CHECK(index(id) < requests_.size() && requests_.has(id) &&
                      requests_[id].end_reason == EndReason::HandedOver,
                  "a request that was handed over is released");
  kv_cache_.release_ended(requests_[id]);
  is_idle_ = false;
}

TimeNs Engine::next_time() const {
  if (awaits_step()) {
    const TimeNs ready_at = executor_.ready_at();
    return ready_at == kNever ? now_ : std::max(now_, ready_at);
  }
  TimeNs next = executor_.host_free_at();
  if (is_idle_) {
    next = scheduler_->wake_time();
    if (source_ != nullptr) next = std::min(next, source_->next_time(*this));
  }
  return std::max(now_, next);
}

void Engine::take_turn(TimeNs now, TimeNs horizon, std::int64_t max_steps) {
  now_ = std::max(now_, now);
  if (awaits_step()) {
    collect_and_commit();
  } else {
    receive_and_plan();
  }
  if (awaits_step()) return;
  if (may_defer_) {
    defers_repeats_ = !is_idle_;
  } else if (!is_idle_) {
    repeat_step(horizon, max_steps);
  }
  if (source_ == nullptr || next_step_index_ < next_sweep_) return;
  next_sweep_ = next_step_index_ + RequestTable::kStepsPerSweep;
  forget_ended();
}

void Engine::receive_and_plan() {
  if (source_ != nullptr) source_->exchange(*this, now_, gate_.receives(had_prompts_));
  has_launched_ = plan_and_launch();
  is_idle_ = !has_launched_ && num_in_flight_ == 0;
  if (is_idle_) gate_.open();
}

bool Engine::plan_and_launch() {
  StepPlan& plan = plan_of(next_step_index_);
  scheduler_->plan(plan, next_step_index_, now_);
  ++num_plans_;
  had_prompts_ = plan.num_prefill_tokens > 0;
  for (const RequestId id : plan.preempted) emit(EventKind::Preempted, requests_[id]);
  for (const RequestId id : plan.refused) {
    const Request& request = requests_[id];
    emit_ended(request, request.end_reason != EndReason::NeverFits
                            ? "the KV cache has no room for the running requests"
                        : request.num_preemptions > 0
                            ? "preempted, and now too long to be served again"
                            : "the scheduler can never admit it");
  }
  for (const RequestId id : plan.admitted) emit(EventKind::Admitted, requests_[id]);
  num_unrecorded_preemptions_ += static_cast<std::int32_t>(plan.preempted.size());
  if (plan.empty()) {
    unreported_freed_.insert(unreported_freed_.end(), plan.freed_contents.begin(),
                             plan.freed_contents.end());
    return false;
  }
  plan.freed_contents.insert(plan.freed_contents.begin(), unreported_freed_.begin(),
                             unreported_freed_.end());
  unreported_freed_.clear();
  plan.num_preempted = std::exchange(num_unrecorded_preemptions_, 0);
  executor_.launch(plan, requests_, now_);
  ++next_step_index_;
  ++num_in_flight_;
  return true;
}

void Engine::collect_and_commit() {
  const StepResult& result = executor_.collect();
  StepPlan& plan = plan_of(result.step_index);
  METRONOME_CHECK(result.step_index == next_step_index_ - num_in_flight_ &&
                      plan.step_index == result.step_index,
                  "results come back in launch order");
  METRONOME_CHECK(plan.planned_at <= result.started_at && result.started_at <= result.finished_at,
                  "a step starts after it is planned and ends after it starts");
  --num_in_flight_;
  has_launched_ = true;  // whatever the last plan was, the next one may find work
  now_ = std::max(now_, result.finished_at);
  scheduler_->commit(plan, result, report_);
  emit_step(plan, result);
  for (const RequestId id : report_.first_tokens) emit(EventKind::FirstToken, requests_[id]);
  for (const RequestId id : report_.ended) emit_ended(requests_[id], result.error);
}

Engine::Repeats Engine::possible_repeats(TimeNs horizon, std::int64_t max_steps) const {
  if (repeats_.empty()) return {};
  std::int64_t most =
      std::min(max_steps - next_step_index_, std::int64_t{scheduler_->num_repeats()});
  if (most <= num_in_flight_) return {};
  const auto quiet =
      source_ != nullptr ? source_->quiet(*this) : RequestSource::Quiet{horizon, INT64_MAX};
  if (!quiet) return {};
  TimeNs until = quiet->until;
  if (until <= now_) {  // arrived, and not received yet
    most = std::min(most, gate_.num_closed());
    until = kNever;
  }
  if (most <= num_in_flight_) return {};
  return {std::clamp<std::int64_t>(quiet->num_plans, 0, most), until};
}

// Takes steps like the last one together, up to the next arrival or end.
void Engine::repeat_step(TimeNs horizon, std::int64_t max_steps) {
  const auto [most, until] = possible_repeats(horizon, max_steps);
  if (most == 0) return;
  const std::int64_t num_before = num_in_flight_;
  const StepPlan& last = plan_of(next_step_index_ - 1);
  const std::span<StepTimes> times(repeats_.data(), static_cast<std::size_t>(most));
  const auto num_steps = static_cast<std::int64_t>(
      executor_.launch_repeats(last, now_, std::min(until, horizon), horizon, times));
  if (num_steps == 0) return;
  const StepTimes& latest = times[static_cast<std::size_t>(num_steps - 1)];
  // Stay in flight, as one did or the last one does not end in time.
  const std::int64_t num_lasting =
      num_before > 0 ? num_before : (latest.finished_at >= horizon ? 1 : 0);
  scheduler_->plan_repeats(times.first(static_cast<std::size_t>(num_steps)));
  if (num_before > 0) collect_and_commit();
  next_step_index_ += num_steps;
  num_plans_ += num_steps;
  gate_.skip(num_steps);
  emit_repeats(last, times.first(static_cast<std::size_t>(num_steps - num_lasting)));
  if (num_lasting == 0) return;
  StepPlan& lasting = plan_of(next_step_index_ - 1);
  if (&lasting != &last) lasting = last;
  lasting.step_index = next_step_index_ - 1;
  lasting.planned_at = latest.planned_at;
  lasting.num_used_blocks = latest.num_used_blocks;
  METRONOME_CHECK(num_before == 0 || (!lasting.run.has_ended && lasting.run.left.empty()),
                  "the run goes on unchanged");
  lasting.run.has_ended = false;
  lasting.run.left.clear();
  lasting.run.joining.clear();
  lasting.run.attended.clear();
  lasting.num_preempted = 0;
  num_in_flight_ = num_lasting;
}

void Engine::repeat_deferred(TimeNs horizon) {
  defers_repeats_ = false;
  repeat_step(horizon, INT64_MAX);
}

// Nothing happens to a request before this time; kNoTime: not known, or there is nothing to repeat.
TimeNs Engine::end_of_deferred() {
  const auto [most, until] = possible_repeats(kNever, INT64_MAX);
  if (most == 0) return kNoTime;
  const TimeNs end =
      executor_.end_of_repeats(plan_of(next_step_index_ - 1), now_, static_cast<std::size_t>(most));
  return std::min(end, until);
}

TimeNs Engine::advance_to_change(TimeNs until) {
  while (true) {
    if (defers_repeats_) {
      if (const TimeNs end = end_of_deferred(); end >= until) return end;
      repeat_deferred(until);
    }
    const TimeNs next = next_time();
    if (next >= until) return next;
    may_defer_ = true;
    take_turn(next, until, INT64_MAX);
    may_defer_ = false;
  }
}

void Engine::forget_ended() {
  // Steps in flight may name ended requests. Each plan launches a step or lets one be collected,
  // so none is left after this many plans.
  constexpr std::int64_t kPlansInFlight = kMaxInFlight + 1;
  groups_over_at_.resize(requests_.size() / RequestTable::kGroupSize, kNever);
  const auto is_forgotten = [this](std::size_t group) { return !requests_.has_group(group); };
  while (first_kept_ < groups_over_at_.size() && is_forgotten(first_kept_)) ++first_kept_;
  for (std::size_t group = first_kept_; group < groups_over_at_.size(); ++group) {
    if (is_forgotten(group)) continue;
    std::int64_t& over_at = groups_over_at_[group];
    if (over_at == kNever) {
      const std::size_t begin = group * RequestTable::kGroupSize;
      bool is_over = true;
      for (std::size_t i = begin; is_over && i < begin + RequestTable::kGroupSize; ++i) {
        const Request& request = requests_[static_cast<RequestId>(i)];
        is_over = request.has_ended() && request.block_table.empty();
      }
      if (is_over) over_at = num_plans_;
    } else if (num_plans_ >= over_at + kPlansInFlight) {
      requests_.forget_group(group);
      kv_cache_.forget_group(group);
      executor_.forget_group(group);
    }
  }
}

void Engine::emit(EventKind kind, const Request& request, EndReason reason) {
  const Event event{now_, next_sequence_++, kind, reason, request.id};
  for (EventSink* sink : sinks_) sink->on_event(event, request);
}

void Engine::emit_ended(const Request& request, const std::string& message) {
  ++num_ended_;
  FirstFailure& first = first_failures_[static_cast<std::size_t>(request.end_reason)];
  if (first.text.empty()) first = {request.id, message};
  emit(EventKind::Ended, request, request.end_reason);
}

std::string Engine::first_message(EndReason reason) const {
  const FirstFailure& first = first_failure(reason);
  if (first.text.empty()) return {};
  return fmt::format("request {}: {}", index(first.request), first.text);
}

StepRecord Engine::record_of(const StepPlan& plan) const {
  return {.sequence = next_sequence_,
          .step_index = plan.step_index,
          .planned_at = plan.planned_at,
          .num_prefill_tokens = plan.num_prefill_tokens,
          .num_decode_tokens = plan.num_decode_tokens,
          .num_running = plan.num_running,
          .num_waiting = plan.num_waiting,
          .num_used_blocks = plan.num_used_blocks,
          .num_preempted = plan.num_preempted};
}

void Engine::emit_step(const StepPlan& plan, const StepResult& result) {
  StepRecord record = record_of(plan);
  record.started_at = result.started_at;
  record.finished_at = result.finished_at;
  record.failed = result.failed;
  record.run = {report_.run, static_cast<std::size_t>(plan.run.place), report_.left_run,
                report_.joined_run};
  record.result = &result;
  ++next_sequence_;
  bool is_listed = report_.run == nullptr;
  const std::vector<ScheduledChunk>* chunks = &plan.chunks;
  const bool all_take_runs = !repeats_.empty();
  for (EventSink* sink : sinks_) {
    if (all_take_runs || sink->takes_runs()) {
      sink->on_step(record, plan.chunks, requests_);
      continue;
    }
    if (!std::exchange(is_listed, true)) {
      report_.run->list(plan.chunks, record.run.place, true, listed_);
      chunks = &listed_;
    }
    StepRecord listed = record;
    listed.run = {};
    sink->on_step(listed, *chunks, requests_);
  }
}

void Engine::emit_repeats(const StepPlan& last, std::span<const StepTimes> times) {
  if (times.empty()) return;
  StepRecord record = record_of(last);
  --record.sequence;
  METRONOME_CHECK(report_.run != nullptr && report_.ended.empty(),
                  "the step before had nothing but its run");
  record.run.members = report_.run;
  for (EventSink* sink : sinks_) sink->on_repeats(record, times);
  scheduler_->commit_repeats(static_cast<std::int32_t>(times.size()));
  next_sequence_ += static_cast<std::int64_t>(times.size());
  now_ = std::max(now_, times.back().finished_at);
}

void Engine::check_integrity() const {
  kv_cache_.check_integrity(requests_);
  scheduler_->check_encoder();
  if (num_in_flight_ > 0) return;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (!requests_.has(static_cast<RequestId>(i))) continue;
    const Request& request = requests_[static_cast<RequestId>(i)];
    METRONOME_CHECK(
        request.has_ended() || request.num_cached_tokens() == request.num_computed_tokens(),
        "cached and computed tokens differ with nothing in flight");
  }
}

}  // namespace metronome
