// SPDX-License-Identifier: Apache-2.0
#include "serve/server/running_answers.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "serve/server/answer_ticket.h"

namespace metronome {
namespace {

// One for each choice. The prompts and pictures of the request move to them.
std::vector<LiveRequest> engine_requests(std::uint64_t number, ApiRequest& request) {
  // The answers to a prompt share it.
  std::vector<std::shared_ptr<const std::vector<TokenId>>> prompts;
  for (std::vector<TokenId>& prompt : request.prompts) {
    prompts.push_back(std::make_shared<const std::vector<TokenId>>(std::move(prompt)));
  }
  std::shared_ptr<const std::vector<PromptImage>> images;
  if (!request.images.empty()) {
    images = std::make_shared<const std::vector<PromptImage>>(std::move(request.images));
  }
  std::vector<LiveRequest> parts;
  for (std::int32_t i = 0; i < request.num_choices(); ++i) {
    LiveRequest& part = parts.emplace_back();
    part.ticket = ticket_of(number, i);
    part.prompt = prompts[static_cast<std::size_t>(i / request.n)];
    part.images = images;
    part.sampling = request.sampling;
    part.sampling.seed += static_cast<std::uint64_t>(i);
    part.max_output_tokens = request.max_tokens;
    part.priority = request.priority;
    part.answer_tokens = request.answer_tokens[static_cast<std::size_t>(i)];
    part.script = request.scripts[static_cast<std::size_t>(i)];
    part.min_tokens = request.min_tokens;
  }
  return parts;
}

}  // namespace

RunningAnswers::RunningAnswers(const ServedModel& model, LiveEngine& engine,
                               const ServeClock& clock, ServeMetrics& metrics, Options options)
    : model_(model),
      engine_(engine),
      clock_(clock),
      metrics_(metrics),
      id_salt_(options.id_salt),
      max_body_bytes_(options.max_body_bytes),
      loads_(options.limits),
      ends_(std::move(options.num_recorded)) {}

void RunningAnswers::refuse(Client& client, int status, const std::string& message) {
  if (status == 429 || status == 503) ++metrics_.num_refused;
  client.reply(error_reply(status, message));
}

void RunningAnswers::start(std::uint64_t number, ApiRequest request,
                           const std::shared_ptr<Client>& client) {
  ClientLoads::Share share{.num_answers = request.num_choices()};
  for (const std::vector<TokenId>& prompt : request.prompts) share.num_tokens += std::ssize(prompt);
  if (const std::string refusal = loads_.refusal(client->address(), share); !refusal.empty()) {
    return refuse(*client, 429, refusal);
  }
  std::vector<LiveRequest> parts = engine_requests(number, request);
  std::vector<std::int32_t> prompt_tokens;
  for (const LiveRequest& part : parts) {
    prompt_tokens.push_back(static_cast<std::int32_t>(part.prompt->size()));
  }
  AnswerTimes times(metrics_, clock_, prompt_tokens, request.n, std::chrono::steady_clock::now());
  Answer answer(std::move(request), model_, hex_digits(mix64(mix64(id_salt_) ^ number)),
                static_cast<std::int64_t>(std::time(nullptr)));
  if (!engine_.submit(std::move(parts))) {
    return refuse(*client, 503, "too many requests are waiting; try again");
  }
  numbers_[client.get()] = number;
  loads_.add(client->address(), share);
  running_.emplace(number, std::make_unique<Running>(
                               Running{std::move(answer), std::move(times), client, share}));
}

bool RunningAnswers::leave(const Client* client) {
  const auto found = numbers_.find(client);
  if (found == numbers_.end()) return false;
  const std::uint64_t number = found->second;
  abort_rest(number);
  finish(number);
  return true;
}

// As a stop string ends them. The engine's event of their end comes later, and is passed over.
void RunningAnswers::abort(const std::string& rid, bool is_all) {
  const AnswerTimes::WallTime now = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> aborted;
  for (const auto& [number, running] : running_) {
    const ApiRequest& request = running->answer.request();
    const bool is_named = !rid.empty() && request.rid.starts_with(rid);
    if (!is_all && !is_named) continue;
    for (std::int32_t i = 0; i < request.num_choices(); ++i) {
      if (running->answer.has_ended(i)) continue;
      engine_.abort(ticket_of(number, i));
      running->answer.on_end(i, EndReason::Aborted);
      running->times.on_end(i, EndReason::Aborted, now, running->answer.is_done());
    }
    aborted.push_back(number);
  }
  std::sort(aborted.begin(), aborted.end());
  for (const std::uint64_t number : aborted) write_news(number);
}

void RunningAnswers::abort_rest(std::uint64_t number, bool is_counted) {
  const Running& running = *running_.at(number);
  for (std::int32_t i = 0; i < running.answer.request().num_choices(); ++i) {
    if (!running.answer.has_ended(i)) {
      engine_.abort(ticket_of(number, i));
      if (is_counted) metrics_.count_end(EndReason::Aborted);
    }
  }
}

void RunningAnswers::finish(std::uint64_t number) {
  const auto found = running_.find(number);
  Running& running = *found->second;
  count_unsent(running, 0);
  loads_.remove(running.client->address(), running.share);
  numbers_.erase(running.client.get());
  running_.erase(found);
}

// Writing may close the connection, and with it the request, so it comes last.
void RunningAnswers::fail_one(std::uint64_t number, int status, const std::string& message,
                              bool is_refused) {
  Running& running = *running_.at(number);
  const std::shared_ptr<Client> client = running.client;
  const bool has_begun = running.has_begun;
  bytes_.clear();
  if (has_begun) {
    // Tokens so far, as they fit.
    if (!waits_for_record(number)) running.answer.write_events(bytes_, client->room());
    running.answer.write_error(status, message, bytes_);
  }
  abort_rest(number, !is_refused);
  finish(number);
  if (!has_begun) return refuse(*client, status, message);
  client->write(bytes_);
  client->end_stream();
  client->flush(false);
}

void RunningAnswers::fail_all(int status, const std::string& message) {
  while (!running_.empty()) fail_one(running_.begin()->first, status, message);
}

// ---- events of the engine ----

void RunningAnswers::handle_events(std::vector<LiveEvent>& events) {
  const AnswerTimes::WallTime now = std::chrono::steady_clock::now();
  ends_.pass(events, [&](const LiveEvent& event) { handle_event(event, now); });
  for (const std::uint64_t number : dirty_) write_news(number);
  dirty_.clear();
  limit_unsent();
}

void RunningAnswers::count_unsent(Running& running, std::size_t num_bytes) {
  const std::size_t before = std::exchange(running.num_unsent_bytes, num_bytes);
  loads_.count_unsent(running.client->address(), before, num_bytes);
}

// Ends answers until the limits hold: each time the largest of the client that holds most.
void RunningAnswers::limit_unsent() {
  while (const std::optional<ClientLoads::Excess> excess = loads_.excess()) {
    std::pair<std::size_t, std::uint64_t> largest;
    for (const auto& [number, running] : running_) {
      if (running->client->address() != excess->client) continue;
      largest = std::max(largest, {running->num_unsent_bytes, number});
    }
    ++metrics_.num_answers_cut;
    fail_one(largest.second, excess->status, excess->message);
  }
}

void RunningAnswers::handle_event(const LiveEvent& event, AnswerTimes::WallTime now) {
  const std::uint64_t number = number_of(event.ticket);
  const std::int32_t choice = choice_of(event.ticket);
  const auto found = running_.find(number);
  if (found == running_.end()) return;  // the request is gone
  Running& running = *found->second;
  switch (event.kind) {
    case LiveEventKind::Accepted:
      running.times.on_arrival(choice, event.time);
      metrics_.max_tokens.add(running.answer.request().max_tokens);
      break;
    case LiveEventKind::Admitted: return running.times.on_admission(choice, event.time);
    case LiveEventKind::Token: handle_token(running, event, now); break;
    case LiveEventKind::Ended:
      ++running.num_ended;
      if (event.reason == EndReason::QueueFull) return fail_one(number, 503, event.message, true);
      if (event.reason == EndReason::NeverFits) return fail_one(number, 400, event.message, true);
      if (event.reason == EndReason::StepFailed) {
        metrics_.count_end(event.reason);
        running.answer.on_end(choice, event.reason);
        return fail_one(number, 500, "the step that computed the request failed: " + event.message);
      }
      if (running.answer.has_ended(choice)) break;  // a stop string ended it before
      running.answer.on_end(choice, event.reason);
      running.times.on_end(choice, event.reason, now, running.answer.is_done());
      break;
  }
  if (!running.is_dirty) dirty_.push_back(number);
  running.is_dirty = true;
}

void RunningAnswers::handle_token(Running& running, const LiveEvent& event,
                                  AnswerTimes::WallTime now) {
  const std::int32_t choice = choice_of(event.ticket);
  if (running.answer.has_ended(choice)) return;
  running.times.on_token(choice, event.time, now);
  const bool is_stopped = running.answer.on_token(choice, event.token, event.logprobs,
                                                  event.num_prefix_hit_tokens, event.is_stop);
  if (!is_stopped) return;
  engine_.abort(event.ticket);
  running.times.on_end(choice, EndReason::Stop, now, running.answer.is_done());
}

// Whether the end of an answer may be written: a stop string may have ended it before the engine.
bool RunningAnswers::is_complete(const Running& running) const {
  return running.answer.is_done() &&
         (!ends_.records() || running.num_ended == running.share.num_answers);
}

// The last token comes with the reason of the end, so it waits for the record.
bool RunningAnswers::waits_for_record(std::uint64_t number) const {
  const Running& running = *running_.at(number);
  return ends_.holds(number) || (running.answer.is_done() && !is_complete(running));
}

void RunningAnswers::write_body(std::uint64_t number) {
  Running& running = *running_.at(number);
  const std::shared_ptr<Client> client = running.client;
  std::optional<std::string> body = running.answer.body(max_body_bytes_);
  finish(number);
  if (body) return client->reply({.body = std::move(*body)});
  refuse(*client, 400,
         fmt::format("the answer has more than {} bytes; ask for fewer tokens or log "
                     "probabilities, or for a stream",
                     max_body_bytes_));
}

void RunningAnswers::write_news(std::uint64_t number) {
  const auto found = running_.find(number);
  if (found == running_.end()) return;  // the request failed
  Running& running = *found->second;
  running.is_dirty = false;
  const bool is_stream = running.answer.request().is_stream;
  if (!is_stream && is_complete(running)) return write_body(number);
  if (!is_stream || waits_for_record(number)) {
    return count_unsent(running, running.answer.num_unsent_bytes());
  }
  if (!running.has_begun) running.client->begin_stream();
  running.has_begun = true;
  bytes_.clear();
  const std::shared_ptr<Client> client = running.client;
  running.answer.write_events(bytes_, client->room());
  const bool is_done = running.answer.is_closed();
  const bool has_more = !is_done && running.answer.has_events();
  count_unsent(running, running.answer.num_unsent_bytes());
  client->write(bytes_);
  if (is_done) {
    client->end_stream();
    finish(number);
  }
  client->flush(has_more);  // may detect that the client disconnected
}

void RunningAnswers::resume(const Client* client) {
  const auto found = numbers_.find(client);
  if (found != numbers_.end()) write_news(found->second);
}

}  // namespace metronome
