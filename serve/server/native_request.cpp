// SPDX-License-Identifier: Apache-2.0
// SGLang's /generate as a completion.
#include <algorithm>
#include <string>

#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/translated_body.h"

namespace metronome {
namespace {

constexpr std::int64_t kDefaultNewTokens = 128;

// Fields of sampling_params that a completion calls otherwise.
constexpr std::pair<std::string_view, std::string_view> kSamplingNames[] = {
    {"max_tokens", "max_new_tokens"},
    {"min_tokens", "min_new_tokens"},
    {"seed", "sampling_seed"},
    {"include_stop_str_in_output", "no_stop_trim"}};
// And those that it calls the same.
constexpr std::string_view kSameNames[] = {"n",
                                           "stop",
                                           "stop_token_ids",
                                           "temperature",
                                           "top_p",
                                           "top_k",
                                           "min_p",
                                           "frequency_penalty",
                                           "presence_penalty",
                                           "repetition_penalty",
                                           "ignore_eos",
                                           "skip_special_tokens",
                                           "logit_bias",
                                           "json_schema",
                                           "regex"};

}  // namespace

bool is_native_generate(const Json& body) {
  const auto has = [&body](const char* name) {
    const Json* value = body.find(name);
    return value != nullptr && !value->is_null();
  };
  return !has("prompt") && (has("text") || has("input_ids") || has("sampling_params"));
}

TranslatedBody completion_of_generate(const Json& body, const ServedModel& model) {
  const ApiFields fields(body);
  refuse_ignored_fields(ApiKind::Native, body, {.computes = model.computes});
  TranslatedBody result;
  Json& made = result.body = Json::object();
  const Json* text = fields.find("text");
  const Json* ids = fields.find("input_ids");
  if ((text == nullptr) == (ids == nullptr)) {
    fields.fail("text", "allowed: text or input_ids, one of them");
  }
  const std::string_view source = text != nullptr ? "text" : "input_ids";
  made["prompt"] = text != nullptr ? *text : *ids;
  const bool is_empty = made["prompt"].is_array() && made["prompt"].empty();
  const bool is_text = made["prompt"].is_string() || (made["prompt"].is_array() && !is_empty &&
                                                      made["prompt"].front().is_string());
  if (is_empty || is_text != (text != nullptr)) {
    fields.fail(std::string(source), text != nullptr
                                         ? "allowed: a text, or a list of texts"
                                         : "allowed: a list of token ids, or of such lists");
  }
  result.names = {{"prompt", source}};
  made["max_tokens"] = kDefaultNewTokens;
  if (const std::optional<ApiFields> sampling = fields.fields("sampling_params")) {
    const Json& given = body.at("sampling_params");
    refuse_ignored_fields(ApiKind::NativeSampling, given, {.computes = model.computes});
    for (const std::string_view name : kSameNames) {
      if (const Json* value = given.find(name)) made[name] = *value;
    }
    for (const auto& [name, theirs] : kSamplingNames) {
      const Json* value = given.find(theirs);
      if (value != nullptr && !value->is_null()) made[name] = *value;
      result.names.emplace_back(name, theirs);
    }
  }
  for (const char* name : {"stream", "priority", "rid"}) {
    if (const Json* value = fields.find(name)) made[name] = *value;
  }
  if (fields.truth("return_logprob", false)) {
    made["logprobs"] = fields.integer("top_logprobs_num", 0, INT32_MAX).value_or(0);
    result.names.emplace_back("logprobs", "top_logprobs_num");
    const std::int64_t start = fields.integer("logprob_start_len", -1, INT32_MAX).value_or(-1);
    if (start >= 0) {
      made["prompt_logprobs"] = made["logprobs"];
      result.first_prompt_logprob = static_cast<std::int32_t>(start);
    }
  }
  return result;
}

}  // namespace metronome
