// SPDX-License-Identifier: Apache-2.0
#include "serve/server/service.h"

#include <atomic>
#include <cmath>
#include <utility>
#include <variant>

#include "core/base/json_text.h"
#include "serve/server/model_replies.h"
#include "serve/server/routes.h"

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
      answers_(model, engine, clock, metrics_,
               {.id_salt = options_.id_salt,
                .limits = {.max_answers = options_.max_client_requests,
                           .max_tokens = options_.max_client_tokens,
                           .max_unsent_bytes = options_.max_unsent_bytes},
                .max_body_bytes = options_.max_body_bytes,
                .num_recorded = options_.num_recorded}) {}

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
    case Endpoint::Responses:
      return generate(ApiKind::Responses, std::move(body), std::move(client));
    case Endpoint::Messages: return generate(ApiKind::Messages, std::move(body), std::move(client));
    case Endpoint::Tokenize: return read_with(tokenize_reply, std::move(body), std::move(client));
    case Endpoint::CountTokens:
      return read_with(count_tokens_reply, std::move(body), std::move(client));
    case Endpoint::Detokenize:
      return read_with(detokenize_reply, std::move(body), std::move(client));
    case Endpoint::ResetPrefixCache:
      engine_.reset_prefix_cache();
      return client->reply(empty_reply());
    case Endpoint::Index: return client->reply(index_reply(model_.name));
    case Endpoint::Models: return client->reply(models_reply(model_, route.model));
    case Endpoint::Health:
      return client->reply(failure_.empty() ? empty_reply() : error_reply(503, failure_));
    case Endpoint::Version: return client->reply(version_reply(options_.version));
    case Endpoint::Metrics: return client->reply(metrics_reply());
    case Endpoint::ModelInfo: return client->reply(model_info_reply(model_));
    case Endpoint::ServerInfo:
      return client->reply(server_info_reply(model_, cache_, options_.version));
    case Endpoint::FlushCache:
      engine_.reset_prefix_cache();
      return client->reply({.body = "Cache flushed.\n", .content_type = "text/plain"});
    case Endpoint::AbortRequest: return abort_request(body, *client);
    case Endpoint::GetLoad: return client->reply(get_load_reply(load()));
    case Endpoint::Loads: return client->reply(loads_reply(load(), options_.version));
    case Endpoint::Embeddings:
      return generate(ApiKind::Embeddings, std::move(body), std::move(client));
  }
}

// Tokenizing a long text takes time, so it may run in the background.
void Service::read_with(Reply (*read)(const ServedModel&, std::string_view,
                                      const std::atomic<bool>&),
                        std::string body, std::shared_ptr<Client> client) {
  bodies_.read(
      std::move(body), std::move(client),
      [this, read](const std::string& text, const std::atomic<bool>& has_left) {
        return read(model_, text, has_left);
      },
      reply_with);
}

Reply Service::metrics_reply() {
  metrics_.take(engine_.drain_stats());
  metrics_.max_lag_s = clock_.real_seconds(clock_.drain_max_lag());
  return {.body = metrics_.text(model_.name, cache_.num_blocks, cache_.block_size),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

ServerLoad Service::load() {
  metrics_.take(engine_.drain_stats());
  const std::int64_t total = std::int64_t{cache_.num_blocks} * cache_.block_size;
  return {.num_running = metrics_.num_running,
          .num_waiting = metrics_.num_waiting,
          .num_used_tokens = std::llround(metrics_.kv_use * static_cast<double>(total)),
          .num_total_tokens = total};
}

void Service::abort_request(std::string_view body, Client& client) {
  try {
    const AbortedRequests aborted = parse_abort(body);
    answers_.abort(aborted.rid, aborted.is_all);
  } catch (const ApiError& error) {
    return client.reply(error_reply(error.status, error.what(), error.param));
  }
  client.reply(empty_reply());
}

// ---- generation ----

void Service::refuse(Client& client) {
  ++metrics_.num_refused;
  client.reply(error_reply(503, failure_.empty() ? kShuttingDown : failure_));
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
        answers_.start(number, std::move(*request), from);
      });
}

void Service::leave(const Client* client) {
  if (bodies_.leave(client)) ++metrics_.num_clients_left;
  if (answers_.leave(client)) ++metrics_.num_clients_left;
}

void Service::handle_events() {
  events_.clear();
  engine_.drain_events(events_);
  metrics_.take(engine_.drain_stats());  // also without scrapes, as the step counts accumulate
  answers_.handle_events(events_);
}

void Service::abort_all() { answers_.fail_all(503, kShuttingDown); }

void Service::fail(const std::string& message) {
  failure_ = message;
  answers_.fail_all(500, message);
}

}  // namespace metronome
