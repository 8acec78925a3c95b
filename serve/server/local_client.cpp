// SPDX-License-Identifier: Apache-2.0
#include "serve/server/local_client.h"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/base/number_text.h"
#include "system/progress.h"

namespace metronome {

std::string shown_ms(TimeNs time) {
  return fixed_text(static_cast<double>(time) * 1e-6, 1) + " ms";
}

std::vector<TimeNs> LocalAnswer::gaps() const {
  std::vector<TimeNs> gaps;
  for (std::size_t i = 1; i < token_times.size(); ++i) {
    gaps.push_back(token_times[i] - token_times[i - 1]);
  }
  return gaps;
}

void LocalClient::on_events() {
  const std::lock_guard lock(mutex_);
  has_events_ = true;
  has_news_.notify_one();
}

void LocalClient::fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  failure_ = error;
  has_news_.notify_one();
}

LiveRequest LocalClient::prepare(const Json& body) {
  const std::uint64_t number = next_number_++;
  ApiRequest request = parse_generation(ApiKind::Chat, body.dump(), model_, number);
  LiveRequest live;
  live.ticket = Ticket{number};
  live.prompt = std::make_shared<const std::vector<TokenId>>(std::move(request.prompts.front()));
  live.sampling = request.sampling;
  live.max_output_tokens = request.max_tokens;
  live.answer_tokens = request.answer_tokens.front();
  live.script = request.scripts.front();
  live.min_tokens = request.min_tokens;
  Open& open = open_.try_emplace(number, model_, request).first->second;
  open.answer.num_prompt_tokens = request.num_prompt_tokens;
  return live;
}

std::uint64_t LocalClient::ask(const Json& body) {
  LiveRequest request = prepare(body);
  const auto number = static_cast<std::uint64_t>(request.ticket);
  if (!engine_.submit({std::move(request)})) throw std::runtime_error("the engine has stopped");
  return number;
}

void LocalClient::wait(const OnText& on_text) {
  // A signal wakes nobody: it is looked for a few times a second.
  constexpr std::chrono::milliseconds kPatience{100};
  {
    std::unique_lock lock(mutex_);
    has_news_.wait_for(lock, kPatience, [&] { return has_events_ || !failure_.empty(); });
    has_events_ = false;
    if (!failure_.empty()) throw std::runtime_error("the engine failed: " + failure_);
  }
  events_.clear();
  engine_.drain_events(events_);
  for (const LiveEvent& event : events_) take(event, on_text);
  if (interrupting_signal() == 0) return;
  for (const auto& [number, open] : open_) {
    if (!open.answer.has_ended) engine_.abort(Ticket{number});
  }
  throw_if_interrupted();
}

LocalAnswer LocalClient::finish(std::uint64_t number, const OnText& on_text) {
  while (!answer(number).has_ended) wait(on_text);
  return std::move(open_.extract(number).mapped().answer);
}

void LocalClient::take(const LiveEvent& event, const OnText& on_text) {
  const auto number = static_cast<std::uint64_t>(event.ticket);
  const auto found = open_.find(number);
  if (found == open_.end()) return;  // a stop string ended it, and finish() returned it
  Open& open = found->second;
  LocalAnswer& answer = open.answer;
  const auto show = [&](const std::string& piece) {
    answer.text += piece;
    if (!piece.empty() && on_text) on_text(number, piece);
  };
  switch (event.kind) {
    case LiveEventKind::Accepted: answer.asked_at = event.time; return;
    case LiveEventKind::Admitted: return;
    case LiveEventKind::Token:
      if (answer.has_ended) return;  // a stop string ended it
      answer.token_times.push_back(event.time);
      answer.num_cached_tokens = event.num_prefix_hit_tokens;
      show(open.text.push(event.token, event.is_stop));
      if (!open.text.is_stopped()) return;
      answer.has_ended = true;
      answer.reason = EndReason::Stop;
      engine_.abort(event.ticket);
      return;
    case LiveEventKind::Ended:
      if (answer.has_ended) return;
      show(open.text.finish());
      answer.has_ended = true;
      answer.reason = event.reason;
      answer.error = event.message;
      return;
  }
}

}  // namespace metronome
