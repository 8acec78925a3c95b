// SPDX-License-Identifier: Apache-2.0
// The replies that a service gives without the engine: models, tokens and metrics.
#include <ctime>
#include <optional>

#include "core/base/json_text.h"
#include "models/text/tokenizer.h"
#include "serve/server/request_reader.h"
#include "serve/server/service.h"

namespace metronome {

// `name` as in a path; empty: all models.
Reply Service::models_reply(std::string_view name) const {
  const std::optional<std::string> asked = percent_decoded(name);
  if (!name.empty() && asked != model_.name && asked != model_.root) {
    return error_reply(404, "no model '" + std::string(name) + "' here; allowed: " + model_.name,
                       "model");
  }
  JsonText json;
  const auto add_model = [&] {
    json.begin_object();
    json.field("id", model_.name);
    json.field("object", "model");
    json.field("created", static_cast<std::int64_t>(std::time(nullptr)));
    json.field("owned_by", "metronome");
    json.field("root", model_.root);
    json.key("parent").null();
    json.field("max_model_len", model_.max_model_len);
    json.end_object();
  };
  if (!name.empty()) {
    add_model();
    return {.body = std::string(json.view())};
  }
  json.begin_object();
  json.field("object", "list");
  json.key("data").begin_array();
  add_model();
  json.end_array();
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply Service::tokenize_reply(const std::string& body, const std::atomic<bool>& has_left) const {
  const std::vector<TokenId> ids = parse_tokenize(body, model_, &has_left);
  JsonText json;
  json.begin_object();
  json.field("count", static_cast<std::int64_t>(ids.size()));
  json.field("max_model_len", model_.max_model_len);
  json.key("tokens").begin_array();
  for (const TokenId id : ids) json.value(value(id));
  json.end_array();
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply Service::detokenize_reply(const std::string& body) const {
  const std::vector<TokenId> ids = parse_detokenize(body, model_);
  JsonText json;
  json.begin_object();
  json.field("prompt", decode(*model_.tokenizer, ids, false));
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply Service::metrics_reply() {
  metrics_.take(engine_.take_stats());
  metrics_.max_lag_s = clock_.real_seconds(clock_.take_max_lag());
  return {.body = metrics_.text(model_.name, cache_.num_blocks, cache_.block_size),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace metronome
