// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/engine/policies/registry.h"

namespace metronome {

Engine::Engine(const EngineSetup& setup, Executor& executor, Clock& clock,
               std::span<EventSink* const> sinks, const PrefixHasher* hasher)
    : setup_(setup),
      executor_(executor),
      clock_(clock),
      sinks_(sinks.begin(), sinks.end()),
      kv_cache_(setup.kv_cache, hasher),
      gate_(receive_interval(setup.scheduler)) {
  gate_.open();
  METRONOME_CHECK(setup.async_depth >= 1 && setup.async_depth <= kMaxInFlight,
                  "one or two steps in flight");
  const PolicyInfo* policy = find_policy(setup.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "the policy was validated before");
  const SchedulerContext context{.config = setup_.scheduler,
                                 .max_num_seqs = setup.max_num_seqs,
                                 .max_model_len = setup.max_model_len,
                                 .step_shape = setup.step_shape,
                                 .plans_runs = executor.takes_runs(),
                                 .kv_cache = kv_cache_,
                                 .requests = requests_,
                                 .predictor = setup.predictor,
                                 .encoder = setup.encoder};
  scheduler_ = setup.make_scheduler ? setup.make_scheduler(context) : policy->make(context);
  const auto takes_runs = [](const EventSink* sink) { return sink->takes_runs(); };
  if (std::all_of(sinks_.begin(), sinks_.end(), takes_runs)) {
    repeats_.resize(static_cast<std::size_t>(RunCalendar::kHorizon));
  }
}

EndReason Engine::refusal_for(const RequestSpec& spec, std::string& message) const {
  const std::int64_t num_tokens =
      std::int64_t{spec.num_prompt_tokens} + std::int64_t{spec.max_output_tokens};
  const auto needs = [&] {
    return "needs " + std::to_string(spec.num_prompt_tokens) + " prompt + " +
           std::to_string(spec.max_output_tokens) + " output tokens";
  };
  if (num_tokens > setup_.max_model_len) {
    message = needs() + "; max_model_len is " + std::to_string(setup_.max_model_len);
    return EndReason::NeverFits;
  }
  if (const std::string reason = scheduler_->refusal(spec); !reason.empty()) {
    message = needs() + ", " + reason;
    return EndReason::NeverFits;
  }
  const auto limit = static_cast<std::size_t>(setup_.max_waiting_requests);
  if (limit > 0 && scheduler_->num_waiting() >= limit) {
    message = "the waiting queue holds max_waiting_requests = " + std::to_string(limit);
    return EndReason::QueueFull;
  }
  return EndReason::None;
}

Submission Engine::submit(const RequestSpec& spec) {
  METRONOME_CHECK(spec.num_prompt_tokens >= 1 && spec.max_output_tokens >= 1,
                  "a request has a prompt and asks for output");
  Submission submission;
  submission.refusal = refusal_for(spec, submission.message);
  Request& request = requests_.add(spec);
  request.ignores_eos = spec.ignores_eos.value_or(setup_.ignores_eos);
  submission.id = request.id;
  if (submission.accepted()) {
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
  scheduler_->abort(request);
  emit_ended(request, "aborted by the client");
  return true;
}

bool Engine::step() {
  const bool launched = plan_and_launch();
  const bool must_collect =
      num_in_flight_ == setup_.async_depth || (num_in_flight_ > 0 && !launched);
  if (must_collect) collect_and_commit();
  const bool is_idle = !launched && !must_collect;
  if (is_idle) gate_.open();
  return !is_idle;
}

bool Engine::plan_and_launch() {
  const TimeNs now = clock_.now();
  StepPlan& plan = plan_of(next_step_index_);
  scheduler_->plan(plan, next_step_index_, now);
  ++arrival_step_;
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
  executor_.launch(plan, requests_, now);
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
  clock_.wait_until(result.finished_at);
  scheduler_->commit(plan, result, report_);
  emit_step(plan, result);
  for (const RequestId id : report_.first_tokens) emit(EventKind::FirstToken, requests_[id]);
  for (const RequestId id : report_.ended) emit_ended(requests_[id], result.error);
}

// Takes steps like the last one together, up to the next arrival or end.
void Engine::repeat_step(const ArrivalSource& arrivals, std::int64_t max_steps) {
  if (repeats_.empty()) return;
  const std::int64_t num_lasting = num_in_flight_;  // stay in flight, as one did
  max_steps = std::min(max_steps, std::int64_t{scheduler_->num_repeats()});
  TimeNs until = arrivals.next_time();
  if (until <= clock_.now()) {  // arrived, and not received yet
    max_steps = std::min(max_steps, gate_.num_closed());
    until = kNever;
  }
  if (max_steps <= num_lasting) return;
  if (const auto next_step = arrivals.next_step()) {
    max_steps = std::clamp<std::int64_t>(*next_step - arrival_step_, 0, max_steps);
  }
  const StepPlan& last = plan_of(next_step_index_ - 1);
  const std::span<StepTimes> times(repeats_.data(), static_cast<std::size_t>(max_steps));
  const auto num_steps =
      static_cast<std::int64_t>(executor_.launch_repeats(last, clock_.now(), until, times));
  if (num_steps == 0) return;
  scheduler_->plan_repeats(times.first(static_cast<std::size_t>(num_steps)));
  if (num_lasting > 0) collect_and_commit();
  next_step_index_ += num_steps;
  arrival_step_ += num_steps;
  gate_.skip(num_steps);
  emit_repeats(last, times.first(static_cast<std::size_t>(num_steps - num_lasting)));
  if (num_lasting == 0) return;
  StepPlan& lasting = plan_of(next_step_index_ - 1);
  if (&lasting != &last) lasting = last;
  lasting.step_index = next_step_index_ - 1;
  lasting.planned_at = times[static_cast<std::size_t>(num_steps - 1)].planned_at;
  lasting.num_used_blocks = times[static_cast<std::size_t>(num_steps - 1)].num_used_blocks;
  METRONOME_CHECK(!lasting.run.has_ended && lasting.run.left.empty(), "the run goes on unchanged");
  lasting.run.attended.clear();
  num_in_flight_ = num_lasting;
}

void Engine::drain() {
  while (has_work()) {
    if (step() || !has_work()) continue;  // an empty plan may end the last requests
    const TimeNs wake = scheduler_->wake_time();
    METRONOME_CHECK(wake != kNever, "some requests can never be scheduled");
    clock_.wait_until(wake);
  }
  check_integrity();
}

bool Engine::run(ArrivalSource& arrivals, const ProgressFn& progress,
                 std::int64_t steps_per_progress) {
  const std::size_t num_before = requests_.size();
  next_arrival_ = 0;
  std::int64_t next_progress = steps_per_progress;
  std::int64_t next_sweep = RequestTable::kStepsPerSweep;
  while (true) {
    submit_due(arrivals);
    if (!step() && !wait_for_work(arrivals)) break;
    repeat_step(arrivals, progress ? next_progress - next_step_index_ : INT64_MAX);
    if (next_step_index_ >= next_sweep) {
      next_sweep += RequestTable::kStepsPerSweep;
      forget_ended();
    }
    if (progress && next_step_index_ >= next_progress) {
      next_progress = next_step_index_ + steps_per_progress;
      if (!progress({num_ended_, arrivals.num_total(), clock_.now()})) return false;
    }
  }
  METRONOME_CHECK(requests_.size() - num_before == arrivals.num_total(),
                  "every request of the workload was submitted");
  METRONOME_CHECK(num_ended_ == requests_.size(), "every submitted request ended");
  check_integrity();
  return true;
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
        is_over = requests_[static_cast<RequestId>(i)].has_ended();
      }
      if (is_over) over_at = arrival_step_;
    } else if (arrival_step_ >= over_at + kPlansInFlight) {
      requests_.forget_group(group);
      kv_cache_.forget_group(group);
      executor_.forget_group(group);
    }
  }
}

// Closed-loop clients send the next request as soon as one has ended or was rejected.
void Engine::submit_due(ArrivalSource& arrivals) {
  const bool is_received = receives();
  if (clock_.now() < next_arrival_ && num_reported_ == num_ended_) return;
  do {
    for (; num_reported_ < num_ended_; ++num_reported_) arrivals.on_ended(clock_.now());
    while (is_received) {
      const auto spec = arrivals.take_due(clock_.now(), arrival_step_);
      if (!spec) break;
      submit(*spec);
    }
  } while (num_reported_ < num_ended_);
  next_arrival_ = arrivals.next_step() ? 0 : arrivals.next_time();
}

// Called when no step can be planned and none is in flight. Returns false when all work is done.
bool Engine::wait_for_work(ArrivalSource& arrivals) {
  if (num_reported_ < num_ended_) return true;  // a client may send its next request now
  const TimeNs wake = scheduler_->wake_time();
  const auto next_step = arrivals.next_step();
  const TimeNs next = std::min(arrivals.next_time(), wake);
  // Arrivals by step pause while the scheduler or a front end waits for a time.
  if (next_step && next == kNever) {
    arrival_step_ = std::max(arrival_step_, *next_step);
    return true;
  }
  if (next != kNever) {
    clock_.wait_until(next);
    return true;
  }
  METRONOME_CHECK(!has_work(), "some requests can never be scheduled");
  return false;
}

void Engine::emit(EventKind kind, const Request& request, EndReason reason) {
  const Event event{clock_.now(), next_sequence_++, kind, reason, request.id};
  for (EventSink* sink : sinks_) sink->on_event(event, request);
}

void Engine::emit_ended(const Request& request, const std::string& message) {
  ++num_ended_;
  std::string& first = first_messages_[static_cast<std::size_t>(request.end_reason)];
  if (first.empty() && !message.empty()) {
    first = "request " + std::to_string(index(request.id)) + ": " + message;
  }
  emit(EventKind::Ended, request, request.end_reason);
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
  record.run = {report_.run, report_.left_run, report_.joined_run};
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
      report_.run->list(plan.chunks, true, listed_);
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
  clock_.wait_until(times.back().finished_at);
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
