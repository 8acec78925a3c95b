// SPDX-License-Identifier: Apache-2.0
#include "serve/server/service.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include "core/base/json_text.h"
#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "serve/server/answer_ticket.h"
#include "serve/server/model_replies.h"

namespace metronome {
namespace {

Reply empty_reply() { return {.body = "", .content_type = "text/plain"}; }

Reply version_reply(const std::string& version) {
  JsonText json;
  json.begin_object();
  json.field("version", version);
  json.end_object();
  return {.body = std::string(json.view())};
}

void reply_with(BodyReads::Result result, const std::shared_ptr<Client>& client) {
  client->forget_body();
  client->reply(std::get<Reply>(std::move(result)));
}

constexpr const char* kShuttingDown = "the server is shutting down";

}  // namespace

Service::Service(const ServedModel& model, LiveEngine& engine, ServeClock& clock,
                 const KvCacheLayout& cache, ServiceOptions options,
                 std::function<void(Work)> background, std::function<void(Task)> foreground)
    : model_(model),
      engine_(engine),
      clock_(clock),
      cache_(cache),
      options_(std::move(options)),
      metrics_(options_.num_drafts),
      bodies_(std::move(background), std::move(foreground)),
      loads_({.max_answers = options_.max_client_requests,
              .max_tokens = options_.max_client_tokens,
              .max_unsent_bytes = options_.max_unsent_bytes}),
      ends_(options_.num_recorded) {}

// ---- endpoints ----

void Service::handle(std::string_view method, std::string_view target, std::string body,
                     std::shared_ptr<Client> client) {
  Route route = route_of(method, target);
  if (!route.endpoint) return client->reply(std::move(route.reply));
  switch (*route.endpoint) {
    case Endpoint::Completions:
      return generate(ApiKind::Completion, std::move(body), std::move(client));
    case Endpoint::ChatCompletions:
      return generate(ApiKind::Chat, std::move(body), std::move(client));
    case Endpoint::Generate: return generate(ApiKind::Generate, std::move(body), std::move(client));
    // Tokenizing a long text takes time, so it may run in the background.
    case Endpoint::Tokenize:
      return bodies_.read(
          std::move(body), std::move(client),
          [this](const std::string& text, const std::atomic<bool>& has_left) {
            return tokenize_reply(model_, text, has_left);
          },
          reply_with);
    case Endpoint::Detokenize:
      return bodies_.read(
          std::move(body), std::move(client),
          [this](const std::string& text, const std::atomic<bool>&) {
            return detokenize_reply(model_, text);
          },
          reply_with);
    case Endpoint::ResetPrefixCache:
      engine_.reset_prefix_cache();
      return client->reply(empty_reply());
    case Endpoint::Index: return client->reply(index_reply(model_.name));
    case Endpoint::Models: return client->reply(models_reply(model_, route.model));
    case Endpoint::Health:
      return client->reply(failure_.empty() ? empty_reply() : error_reply(503, failure_));
    case Endpoint::Version: return client->reply(version_reply(options_.version));
    case Endpoint::Metrics: return client->reply(metrics_reply());
  }
}

Reply Service::metrics_reply() {
  metrics_.take(engine_.take_stats());
  metrics_.max_lag_s = clock_.real_seconds(clock_.take_max_lag());
  return {.body = metrics_.text(model_.name, cache_.num_blocks, cache_.block_size),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

// ---- generation ----

void Service::refuse(Client& client) {
  ++metrics_.num_refused;
  if (!failure_.empty()) return client.reply(error_reply(503, failure_));
  client.reply(
      error_reply(503, is_draining_ ? kShuttingDown : "too many requests are waiting; try again"));
}

void Service::generate(ApiKind kind, std::string body, std::shared_ptr<Client> client) {
  if (is_draining_ || !failure_.empty()) return refuse(*client);
  const std::uint64_t number = next_number_++;
  bodies_.read(
      std::move(body), std::move(client),
      [this, kind, number](const std::string& text, const std::atomic<bool>& has_left) {
        return parse_generation(kind, text, model_, number, &has_left);
      },
      [this, number](BodyReads::Result result, const std::shared_ptr<Client>& from) {
        ApiRequest* request = std::get_if<ApiRequest>(&result);
        if (request == nullptr) return reply_with(std::move(result), from);
        from->forget_body();
        if (is_draining_ || !failure_.empty()) return refuse(*from);
        start(number, std::move(*request), from);
      });
}

void Service::start(std::uint64_t number, ApiRequest request,
                    const std::shared_ptr<Client>& client) {
  ClientLoads::Share share{.num_answers = request.num_choices()};
  for (const std::vector<TokenId>& prompt : request.prompts) share.num_tokens += std::ssize(prompt);
  if (const std::string refusal = loads_.refusal(client->address(), share); !refusal.empty()) {
    ++metrics_.num_refused;
    return client->reply(error_reply(429, refusal));
  }
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
    part.min_tokens = request.min_tokens;
  }
  auto running = std::make_unique<Running>(
      Answer(std::move(request), model_, hex_digits(mix64(mix64(options_.id_salt) ^ number)),
             static_cast<std::int64_t>(std::time(nullptr))),
      client, std::chrono::steady_clock::now());
  for (const LiveRequest& part : parts) {
    running->parts.push_back({.prompt_tokens = static_cast<std::int32_t>(part.prompt->size())});
  }
  if (!engine_.submit(std::move(parts))) return refuse(*client);
  numbers_[client.get()] = number;
  running->share = share;
  loads_.add(client->address(), share);
  running_.emplace(number, std::move(running));
}

void Service::leave(const Client* client) {
  if (bodies_.leave(client)) ++metrics_.num_clients_left;
  const auto found = numbers_.find(client);
  if (found == numbers_.end()) return;
  ++metrics_.num_clients_left;
  const std::uint64_t number = found->second;
  abort_rest(number);
  finish(number);
}

void Service::abort_rest(std::uint64_t number, bool is_counted) {
  const Running& running = *running_.at(number);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(running.parts.size()); ++i) {
    if (!running.answer.has_ended(i)) {
      engine_.abort(ticket_of(number, i));
      if (is_counted) metrics_.count_end(EndReason::Aborted);
    }
  }
}

void Service::finish(std::uint64_t number) {
  const auto found = running_.find(number);
  Running& running = *found->second;
  count_unsent(running, 0);
  loads_.remove(running.client->address(), running.share);
  numbers_.erase(running.client.get());
  running_.erase(found);
}

// Writing may close the connection, and with it the request, so it comes last.
void Service::fail_one(std::uint64_t number, int status, const std::string& message,
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
  if (!has_begun) {
    if (status == 429 || status == 503) ++metrics_.num_refused;
    return client->reply(error_reply(status, message));
  }
  client->write(bytes_);
  client->end_stream();
  client->flush(false);
}

void Service::abort_all() {
  while (!running_.empty()) {
    fail_one(running_.begin()->first, 503, kShuttingDown);
  }
}

void Service::fail(const std::string& message) {
  failure_ = message;
  while (!running_.empty()) fail_one(running_.begin()->first, 500, message);
}

// ---- events of the engine ----

void Service::handle_events() {
  events_.clear();
  engine_.take_events(events_);
  metrics_.take(engine_.take_stats());  // also without scrapes, as the step counts accumulate
  const WallTime now = std::chrono::steady_clock::now();
  ends_.pass(events_, [&](const LiveEvent& event) { take_event(event, now); });
  for (const std::uint64_t number : dirty_) write_news(number);
  dirty_.clear();
  limit_unsent();
}

void Service::count_unsent(Running& running, std::size_t num_bytes) {
  const std::size_t before = std::exchange(running.num_unsent_bytes, num_bytes);
  loads_.count_unsent(running.client->address(), before, num_bytes);
}

// Ends answers until the limits hold: each time the largest of the client that holds most.
void Service::limit_unsent() {
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

void Service::take_event(const LiveEvent& event, WallTime now) {
  const std::uint64_t number = number_of(event.ticket);
  const std::int32_t choice = choice_of(event.ticket);
  const auto found = running_.find(number);
  if (found == running_.end()) return;  // the request is gone
  Running& running = *found->second;
  Part& part = running.parts[static_cast<std::size_t>(choice)];
  switch (event.kind) {
    case LiveEventKind::Accepted:
      part.arrived = event.time;
      metrics_.max_tokens.add(running.answer.request().max_tokens);
      break;
    case LiveEventKind::Admitted:
      part.admitted = event.time;
      metrics_.queue.add(clock_.real_seconds(event.time - part.arrived));
      return;
    case LiveEventKind::Token: take_token(running, choice, event, now); break;
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
      count_end(running, choice, event.reason, now);
      break;
  }
  if (!running.is_dirty) dirty_.push_back(number);
  running.is_dirty = true;
}

void Service::take_token(Running& running, std::int32_t choice, const LiveEvent& event,
                         WallTime now) {
  if (running.answer.has_ended(choice)) return;
  Part& part = running.parts[static_cast<std::size_t>(choice)];
  const auto seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  if (part.num_tokens++ == 0) {
    part.first_token = event.time;
    metrics_.ttft.add(seconds(now - running.arrived));
    metrics_.num_prompt_tokens += part.prompt_tokens;
    metrics_.prefill.add(clock_.real_seconds(event.time - part.admitted));
  } else if (event.time != part.latest_token) {  // once for the tokens of a step, as vLLM
    metrics_.itl.add(seconds(now - part.last_token));
  }
  part.last_token = now;
  part.latest_token = event.time;
  ++metrics_.num_generation_tokens;
  const bool is_stopped = running.answer.on_token(choice, event.token, event.logprobs,
                                                  event.num_prefix_hit_tokens, event.is_stop);
  if (!is_stopped) return;
  engine_.abort(event.ticket);
  count_end(running, choice, EndReason::Stop, now);
}

void Service::count_end(const Running& running, std::int32_t choice, EndReason reason,
                        WallTime now) {
  metrics_.count_end(reason);
  const Part& part = running.parts[static_cast<std::size_t>(choice)];
  if (part.num_tokens == 0) return;
  metrics_.e2e.add(std::chrono::duration<double>(now - running.arrived).count());
  const double decode_s = clock_.real_seconds(part.latest_token - part.first_token);
  metrics_.decode.add(decode_s);
  metrics_.inference.add(clock_.real_seconds(part.latest_token - part.admitted));
  metrics_.prompt_tokens.add(part.prompt_tokens);
  metrics_.generation_tokens.add(part.num_tokens);
  if (part.num_tokens > 1) metrics_.time_per_token.add(decode_s / (part.num_tokens - 1));
  if (!running.answer.is_done()) return;
  std::int32_t longest = 0;
  for (const Part& each : running.parts) longest = std::max(longest, each.num_tokens);
  metrics_.longest_generation.add(longest);
  metrics_.num_choices.add(running.answer.request().n);
}

// Whether the end of an answer may be written: a stop string may have ended it before the engine.
bool Service::is_complete(const Running& running) const {
  return running.answer.is_done() &&
         (!ends_.records() || running.num_ended == running.parts.size());
}

// The last token comes with the reason of the end, so it waits for the record.
bool Service::waits_for_record(std::uint64_t number) const {
  const Running& running = *running_.at(number);
  return ends_.holds(number) || (running.answer.is_done() && !is_complete(running));
}

void Service::write_news(std::uint64_t number) {
  const auto found = running_.find(number);
  if (found == running_.end()) return;  // the request failed
  Running& running = *found->second;
  running.is_dirty = false;
  const bool is_stream = running.answer.request().is_stream;
  if (!is_stream && is_complete(running)) {
    const std::shared_ptr<Client> client = running.client;
    std::optional<std::string> body = running.answer.body(options_.max_body_bytes);
    finish(number);
    if (body) return client->reply({.body = std::move(*body)});
    return client->reply(
        error_reply(400, "the answer has more than " + std::to_string(options_.max_body_bytes) +
                             " bytes; ask for fewer tokens or log probabilities, or for a stream"));
  }
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

void Service::resume(const Client* client) {
  const auto found = numbers_.find(client);
  if (found != numbers_.end()) write_news(found->second);
}

}  // namespace metronome
