// SPDX-License-Identifier: Apache-2.0
#include "serve/server/live_engine.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

std::uint64_t number(Ticket ticket) { return static_cast<std::uint64_t>(ticket); }

bool is_stop_token(const LiveRequest& request, TokenId token) {
  const std::vector<TokenId>& stops = request.sampling.stop_token_ids;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

// Whether a token that ends a simulated answer is one of its text: the answer has its length.
bool ends_by_length(const LiveRequest& request, TokenId token) {
  return request.answer_tokens > 0 && !is_stop_token(request, token);
}

void append_stats(LiveStats& from, LiveStats& to) {
  to.num_running = from.num_running;
  to.num_waiting = from.num_waiting;
  to.kv_use = from.kv_use;
  to.num_preemptions += std::exchange(from.num_preemptions, 0);
  to.num_prefix_queries += std::exchange(from.num_prefix_queries, 0);
  to.num_prefix_hits += std::exchange(from.num_prefix_hits, 0);
  to.step_tokens.insert(to.step_tokens.end(), from.step_tokens.begin(), from.step_tokens.end());
  from.step_tokens.clear();
  to.drafts.add(std::exchange(from.drafts, {}));
}

}  // namespace

LiveEngine::LiveEngine(PreparedRun& run, ServeClock& clock, const PlausibleText& text,
                       std::int64_t max_waiting, std::function<void()> on_events)
    : run_(run),
      clock_(clock),
      text_(text),
      max_waiting_(max_waiting),
      on_events_(std::move(on_events)) {}

void LiveEngine::serve(std::span<EventSink* const> sinks) {
  std::vector<EventSink*> all(sinks.begin(), sinks.end());
  all.push_back(this);
  run_.serve(*this, clock_, all);
  publish();
}

// ---- called from other threads ----

bool LiveEngine::submit(std::vector<LiveRequest> requests) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  const auto count = static_cast<std::int64_t>(requests.size());
  // An empty queue accepts one submission of any size.
  if (num_waiting_ > 0 && num_waiting_ + count > max_waiting_) return false;
  num_waiting_ += count;
  // The time is read under the lock. So the engine, which takes the inbox at time t, gets all
  // requests submitted until then.
  const TimeNs now = clock_.start() ? 0 : clock_.stamp();
  for (LiveRequest& request : requests) inbox_.push_back({now, std::move(request)});
  has_input_.notify_one();
  return true;
}

void LiveEngine::abort(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  aborted_.push_back(ticket);
  has_input_.notify_one();
}

void LiveEngine::reset_prefix_cache() {
  const std::lock_guard lock(mutex_);
  wants_reset_ = true;
  has_input_.notify_one();
}

void LiveEngine::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  has_input_.notify_one();
  has_room_.notify_one();
}

void LiveEngine::drain_events(std::vector<LiveEvent>& events) {
  const std::lock_guard lock(mutex_);
  has_room_.notify_one();
  if (events.empty()) {
    events.swap(outbox_);
    return;
  }
  std::move(outbox_.begin(), outbox_.end(), std::back_inserter(events));
  outbox_.clear();
}

LiveStats LiveEngine::drain_stats() {
  const std::lock_guard lock(mutex_);
  LiveStats taken;
  append_stats(stats_, taken);
  return taken;
}

// ---- called from the engine's thread ----

void LiveEngine::publish() {
  bool was_empty = false;
  {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return outbox_.size() < kMaxEvents || is_closed_; });
    append_stats(fresh_stats_, stats_);
    num_waiting_ -= std::exchange(num_no_longer_waiting_, 0);
    was_empty = outbox_.empty();
    std::move(fresh_.begin(), fresh_.end(), std::back_inserter(outbox_));
  }
  const bool has_news = was_empty && !fresh_.empty();
  fresh_.clear();
  if (has_news) on_events_();
}

void LiveEngine::exchange(Engine& engine, TimeNs now, bool receives) {
  publish();
  bool wants_reset = false;
  {
    const std::lock_guard lock(mutex_);
    while (receives && !inbox_.empty() && inbox_.front().time <= now) {
      arrived_.push_back(std::move(inbox_.front()));
      inbox_.pop_front();
    }
    // Some aborted requests may not have arrived yet.
    for (const Ticket ticket : aborted_) {
      const auto is_it = [ticket](const Arrival& a) { return a.request.ticket == ticket; };
      num_waiting_ -= static_cast<std::int64_t>(std::erase_if(inbox_, is_it));
    }
    if (receives) {  // requests, aborts and resets come on one way
      left_.swap(aborted_);
      wants_reset = std::exchange(wants_reset_, false);
    }
  }
  for (Arrival& arrival : arrived_) submit_to(engine, std::move(arrival));
  arrived_.clear();
  for (const Ticket ticket : left_) {
    const auto found = open_.find(number(ticket));
    if (found != open_.end()) engine.abort(found->second);
  }
  left_.clear();
  if (wants_reset) engine.reset_prefix_cache();
  forget_groups(engine);
  // A step's statistics are from the time of its plan; these are from after it.
  fresh_stats_.kv_use = static_cast<double>(engine.kv_cache().num_used_blocks()) /
                        static_cast<double>(engine.kv_cache().num_blocks());
  if (open_.empty()) fresh_stats_.num_running = fresh_stats_.num_waiting = 0;
}

void LiveEngine::submit_to(Engine& engine, Arrival arrival) {
  const auto id = static_cast<RequestId>(engine.requests().size());
  const RequestSpec spec{
      .arrival = arrival.time,
      .num_prompt_tokens = static_cast<std::int32_t>(arrival.request.prompt->size()),
      .max_output_tokens = arrival.request.max_output_tokens,
      .priority = arrival.request.priority,
      .ignores_eos = arrival.request.sampling.ignore_eos};
  METRONOME_CHECK(live_.size() == index(id), "requests are submitted by the feed alone");
  Live& live = live_.emplace_back();
  live.request = std::move(arrival.request);
  if (live.request.images) {
    for (const PromptImage& image : *live.request.images) {
      const auto num_tokens = static_cast<std::int32_t>(image.grid.num_tokens);
      live.items.push_back({.content = image.content,
                            .begin = image.first_token,
                            .num_tokens = num_tokens,
                            .num_embeddings = num_tokens});
    }
  }
  open_.emplace(number(live_.back().request.ticket), id);
  const Submission submission = engine.submit(spec);
  if (!submission.accepted()) fresh_.back().message = submission.message;  // its Ended
}

// Forgets the requests that the engine has forgotten.
void LiveEngine::forget_groups(const Engine& engine) {
  const std::size_t num_full = live_.size() / RequestTable::kGroupSize;
  for (std::size_t group = first_group_; group < num_full; ++group) {
    if (live_.has_chunk(group) && !engine.requests().has_group(group)) live_.forget_chunk(group);
  }
  while (first_group_ < num_full && !live_.has_chunk(first_group_)) ++first_group_;
}

std::optional<TimeNs> LiveEngine::wait_for_input(TimeNs wake) {
  publish();
  std::unique_lock lock(mutex_);
  const auto has_input = [this] {
    return !inbox_.empty() || !aborted_.empty() || wants_reset_ || (is_closed_ && open_.empty());
  };
  if (wake == kNever) {
    has_input_.wait(lock, has_input);
  } else {
    has_input_.wait_until(lock, clock_.when(wake), has_input);
  }
  if (!inbox_.empty()) return std::min(inbox_.front().time, wake);
  if (!aborted_.empty() || wants_reset_) return 0;  // at once
  if (is_closed_ && open_.empty()) return std::nullopt;
  return wake;
}

RequestFeed::OutputToken LiveEngine::output_token(RequestId request, std::int32_t i) const {
  const LiveRequest& live = live_[index(request)].request;
  const auto place = static_cast<std::size_t>(i);
  const bool has_script = live.script && place < live.script->size();
  const TokenId token = has_script ? (*live.script)[place] : text_.token(live.sampling.seed, i);
  const bool is_stop = i >= live.min_tokens && is_stop_token(live, token);
  return {token, is_stop || i + 1 == live.answer_tokens};
}

SamplingParams LiveEngine::sampling(RequestId request) const {
  return live_[index(request)].request.sampling;
}

std::span<const TokenId> LiveEngine::prompt_ids(RequestId request) const {
  return *live_[index(request)].request.prompt;
}

std::span<const PromptImage> LiveEngine::images(RequestId request) const {
  const LiveRequest& live = live_[index(request)].request;
  return live.images ? std::span(*live.images) : std::span<const PromptImage>();
}

std::span<const EncoderItem> LiveEngine::encoder_items(RequestId request) const {
  return live_[index(request)].items;
}

void LiveEngine::note_admission(const Event& event, const Request& request) {
  Live& live = live_[index(event.request)];
  if (std::exchange(live.was_admitted, true)) return;
  ++num_no_longer_waiting_;
  fresh_.push_back(
      {.ticket = live.request.ticket, .kind = LiveEventKind::Admitted, .time = event.time});
  fresh_stats_.num_prefix_queries += request.num_prompt_tokens;
  fresh_stats_.num_prefix_hits += request.num_prefix_hit_tokens;
}

void LiveEngine::on_event(const Event& event, const Request& request) {
  Live& live = live_[index(event.request)];
  const Ticket ticket = live.request.ticket;
  switch (event.kind) {
    case EventKind::Submitted:
      fresh_.push_back({.ticket = ticket, .kind = LiveEventKind::Accepted, .time = event.time});
      break;
    case EventKind::Admitted: note_admission(event, request); break;
    case EventKind::FirstToken: break;  // handled like other tokens
    case EventKind::Preempted: ++fresh_stats_.num_preemptions; break;
    case EventKind::Ended:
      if (!std::exchange(live.was_admitted, true)) ++num_no_longer_waiting_;
      open_.erase(number(ticket));
      fresh_.push_back({.ticket = ticket,
                        .kind = LiveEventKind::Ended,
                        .reason = event.reason,
                        .time = event.time,
                        .message = event.reason == EndReason::StepFailed ? step_error_ : ""});
      break;
  }
}

void LiveEngine::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                         const RequestTable& requests) {
  const StepResult& result = *step.result;
  fresh_stats_.num_running = step.num_running;
  fresh_stats_.num_waiting = step.num_waiting;
  fresh_stats_.step_tokens.push_back(step.num_prefill_tokens + step.num_decode_tokens);
  fresh_stats_.drafts.add_step(chunks, result);
  step_error_ = result.failed ? result.error : "";
  for_each_token(chunks, result, [&](const ScheduledChunk& chunk, std::size_t i) {
    LiveEvent& event = fresh_.emplace_back();
    const LiveRequest& live = live_[index(chunk.request)].request;
    event.ticket = live.ticket;
    event.kind = LiveEventKind::Token;
    event.time = step.finished_at;
    event.token = result.sampled_tokens[i];
    event.is_stop = !result.ends_request.empty() && result.ends_request[i] != 0 &&
                    !ends_by_length(live, event.token);
    event.num_prefix_hit_tokens = requests[chunk.request].num_prefix_hit_tokens;
    if (!result.logprobs.empty()) event.logprobs = result.logprobs[i];
  });
}

}  // namespace metronome
