// SPDX-License-Identifier: Apache-2.0
#include "serve/server/model_replies.h"

#include <cstdint>
#include <ctime>
#include <optional>
#include <vector>

#include "core/base/json_text.h"
#include "core/engine/kv/kv_cache.h"
#include "models/text/tokenizer.h"
#include "serve/server/request_reader.h"

namespace metronome {

Reply models_reply(const ServedModel& model, std::string_view name) {
  const std::optional<std::string> asked = percent_decoded(name);
  if (!name.empty() && asked != model.name && asked != model.root) {
    return error_reply(404, "no model '" + std::string(name) + "' here; allowed: " + model.name,
                       "model");
  }
  JsonText json;
  const auto add_model = [&] {
    json.begin_object();
    json.field("id", model.name);
    json.field("object", "model");
    json.field("created", static_cast<std::int64_t>(std::time(nullptr)));
    json.field("owned_by", "metronome");
    json.field("root", model.root);
    json.key("parent").null();
    json.field("max_model_len", model.max_model_len);
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

Reply model_info_reply(const ServedModel& model) {
  JsonText json;
  json.begin_object();
  json.field("model_path", model.root);
  json.field("tokenizer_path", model.root);
  json.field("is_generation", true);
  json.key("preferred_sampling_params").null();
  json.field("weight_version", "default");
  json.field("has_image_understanding", model.images != nullptr);
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply server_info_reply(const ServedModel& model, const KvCacheLayout& cache,
                        const std::string& version) {
  JsonText json;
  json.begin_object();
  json.field("model_path", model.root);
  json.field("tokenizer_path", model.root);
  json.field("served_model_name", model.name);
  json.field("context_length", model.max_model_len);
  json.field("page_size", cache.block_size);
  json.field("max_total_num_tokens", std::int64_t{cache.num_blocks} * cache.block_size);
  json.field("random_seed", static_cast<std::int64_t>(model.seed));
  json.key("internal_states").begin_array();
  json.begin_object();
  json.end_object();
  json.end_array();
  json.field("version", version);
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply get_load_reply(const ServerLoad& load) {
  JsonText json;
  json.begin_array();
  json.begin_object();
  json.field("dp_rank", std::int64_t{0});
  json.field("num_reqs", load.num_running + load.num_waiting);
  json.field("num_waiting_reqs", load.num_waiting);
  json.field("num_tokens", load.num_used_tokens);
  json.end_object();
  json.end_array();
  return {.body = std::string(json.view())};
}

Reply loads_reply(const ServerLoad& load, const std::string& version) {
  JsonText json;
  json.begin_object();
  json.field("version", version);
  json.key("loads").begin_array();
  json.begin_object();
  json.field("dp_rank", std::int64_t{0});
  json.field("num_running_reqs", load.num_running);
  json.field("num_waiting_reqs", load.num_waiting);
  json.field("num_used_tokens", load.num_used_tokens);
  json.field("num_total_tokens", load.num_used_tokens);
  json.field("max_total_num_tokens", load.num_total_tokens);
  const auto total = static_cast<double>(load.num_total_tokens);
  json.field("token_usage", total > 0 ? static_cast<double>(load.num_used_tokens) / total : 0.0);
  json.end_object();
  json.end_array();
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply tokenize_reply(const ServedModel& model, std::string_view body,
                     const std::atomic<bool>& has_left) {
  const std::vector<TokenId> ids = parse_tokenize(body, model, &has_left);
  JsonText json;
  json.begin_object();
  json.field("count", static_cast<std::int64_t>(ids.size()));
  json.field("max_model_len", model.max_model_len);
  json.key("tokens").begin_array();
  for (const TokenId id : ids) json.value(value(id));
  json.end_array();
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply count_tokens_reply(const ServedModel& model, std::string_view body,
                         const std::atomic<bool>& has_left) {
  JsonText json;
  json.begin_object();
  json.field("input_tokens",
             static_cast<std::int64_t>(parse_counted(body, model, &has_left).size()));
  json.end_object();
  return {.body = std::string(json.view())};
}

Reply detokenize_reply(const ServedModel& model, std::string_view body, const std::atomic<bool>&) {
  const std::vector<TokenId> ids = parse_detokenize(body, model);
  JsonText json;
  json.begin_object();
  json.field("prompt", decode(*model.tokenizer, ids, false));
  json.end_object();
  return {.body = std::string(json.view())};
}

}  // namespace metronome
