// SPDX-License-Identifier: Apache-2.0
#include "serve/server/api_request.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/rng.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "serve/server/answer_plan.h"
#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/request_prompts.h"
#include "serve/server/translated_body.h"

namespace metronome {
namespace {

constexpr std::int64_t kMaxLogprobs = 20;  // vLLM's max_logprobs
constexpr std::int32_t kDefaultCompletionTokens = 16;

// The fields that are honoured where there are few.
constexpr std::string_view kTokenizedPrompt[] = {"prompt", "model", "add_special_tokens"};
constexpr std::string_view kTokenizedChat[] = {"messages", "model", "add_special_tokens",
                                               "add_generation_prompt", "chat_template_kwargs"};
constexpr std::string_view kDetokenized[] = {"tokens", "model"};

std::string_view error_type(int status) {
  switch (status) {
    case 400:
    case 413:
    case 431: return "BadRequestError";
    case 401: return "AuthenticationError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 408: return "RequestTimeoutError";
    case 429: return "RateLimitError";
    case 403: return "PermissionDeniedError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return "InternalServerError";
  }
}

void check_model(const ApiFields& fields, const ServedModel& model) {
  const std::optional<std::string> asked = fields.name("model");
  if (!asked || *asked == model.name || *asked == model.root) return;
  throw ApiError(404, "no model '" + clipped(*asked) + "' here; allowed: " + model.name, "model");
}

// Rejects values of honoured fields that would change the answer but are not supported.
void refuse_unsupported(const ApiFields& fields, const ServedModel& model) {
  if (!model.takes_penalties) {
    fields.allow_only("presence_penalty", 0);
    fields.allow_only("frequency_penalty", 0);
    fields.allow_only("repetition_penalty", 1);
    const Json* bias = fields.find("logit_bias");
    if (bias != nullptr && !bias->empty()) {
      fields.fail("logit_bias", "is not supported by this backend; allowed: null, {}");
    }
  }
  fields.allow_only("length_penalty", 1);
  fields.allow_only("best_of", 1);
  if (!model.computes) return;
  if (const std::optional<ApiFields> format = fields.fields("response_format")) {
    const std::string type = format->name("type").value_or("text");
    if (type != "text") format->fail("type", clipped(type) + " is not supported; allowed: text");
  }
}

std::size_t max_tokenized(const ServedModel& model) {
  return kTokenizedContexts * static_cast<std::size_t>(model.max_model_len);
}

std::int32_t num_logprobs(ApiKind kind, const ApiFields& fields) {
  std::optional<std::int64_t> count;
  if (is_chat(kind)) {
    const bool wanted = fields.truth("logprobs", false);
    count = fields.integer("top_logprobs", 0, kMaxLogprobs);
    if (count.value_or(0) > 0 && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
    if (!wanted) count.reset();
    if (wanted && !count) count = 0;
  } else {
    count = fields.integer("logprobs", 0, kMaxLogprobs);
  }
  if (!count) return -1;
  return static_cast<std::int32_t>(*count);
}

// Biases of -100 to 100: as in vLLM, larger ones count as these.
std::vector<std::pair<TokenId, float>> logit_bias_of(const ApiFields& fields,
                                                     const ServedModel& model) {
  std::vector<std::pair<TokenId, float>> bias;
  for (const auto& [id, number] :
       fields.token_numbers("logit_bias", model.vocab_size, kMaxLogitBiases)) {
    bias.emplace_back(id, static_cast<float>(std::clamp(number, -100.0, 100.0)));
  }
  return bias;
}

SamplingParams sampling_of(ApiKind kind, const ApiFields& fields, const ServedModel& model,
                           std::uint64_t number) {
  SamplingParams sampling;
  const SamplingDefaults& defaults = model.sampling;
  const auto chosen = [](const std::optional<double>& asked, const std::optional<double>& otherwise,
                         double neutral) { return asked ? *asked : otherwise.value_or(neutral); };
  sampling.temperature = chosen(fields.number("temperature", 0, 100), defaults.temperature, 1);
  sampling.top_p = chosen(fields.number("top_p", 0, 1), defaults.top_p, 1);
  if (sampling.top_p == 0) fields.fail("top_p", "0 is out of range; allowed: above 0, to 1");
  sampling.min_p = chosen(fields.number("min_p", 0, 1), defaults.min_p, 0);
  sampling.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  sampling.repetition_penalty =
      chosen(fields.number_above_0("repetition_penalty"), defaults.repetition_penalty, 1);
  sampling.logit_bias = logit_bias_of(fields, model);
  // In vLLM -1 means all tokens.
  sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(
      0, fields.integer("top_k", -1, INT32_MAX).value_or(defaults.top_k.value_or(0))));
  std::optional<std::int64_t> seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  if (seed == -1) seed.reset();  // in vLLM -1 means none
  sampling.seed =
      seed ? static_cast<std::uint64_t>(*seed) : mix64(mix64(model.seed) ^ mix64(number));
  sampling.stop_token_ids = fields.token_ids("stop_token_ids", model.vocab_size, kMaxStopTokenIds);
  sampling.ignore_eos = fields.truth("ignore_eos", false);
  sampling.num_logprobs = num_logprobs(kind, fields);
  return sampling;
}

// The requested number of tokens; 0: as many as fit, or none with `echo`.
std::int32_t asked_tokens(ApiKind kind, const ApiFields& fields) {
  const bool may_be_none = kind == ApiKind::Completion && fields.truth("echo", false);
  std::optional<std::int64_t> asked = fields.integer("max_tokens", may_be_none ? 0 : 1, INT32_MAX);
  if (is_chat(kind)) {
    const auto newer = fields.integer("max_completion_tokens", 1, INT32_MAX);
    if (newer) asked = newer;
  }
  if (asked) return static_cast<std::int32_t>(*asked);
  return is_chat(kind) ? 0 : kDefaultCompletionTokens;
}

void check_lengths(ApiRequest& request, const ServedModel& model) {
  std::size_t longest = 0;
  for (const std::vector<TokenId>& prompt : request.prompts) {
    if (prompt.empty())
      throw ApiError(400, "prompt: is empty; allowed: at least one token", "prompt");
    longest = std::max(longest, prompt.size());
    request.prompt_tokens.push_back(static_cast<std::int32_t>(prompt.size()));
    request.num_prompt_tokens += static_cast<std::int32_t>(prompt.size());
  }
  const std::int64_t room = model.max_model_len - static_cast<std::int64_t>(longest);
  if (request.max_tokens == 0 && room >= 1) {
    const std::int64_t most = model.sampling.max_new_tokens.value_or(room);
    request.max_tokens = static_cast<std::int32_t>(std::min(room, most));
  }
  if (request.max_tokens >= 1 && request.max_tokens <= room) return;
  throw ApiError(400,
                 fmt::format("the model's context is {} tokens; the prompt has {}{}; allowed: a "
                             "shorter prompt, or fewer tokens",
                             model.max_model_len, longest,
                             request.max_tokens == 0 ? ""
                                                     : fmt::format(", max_tokens asks for {} more",
                                                                   request.max_tokens)),
                 is_chat(request.kind) ? "messages" : "prompt");
}

void read_stream_options(const ApiFields& fields, ApiRequest& request) {
  request.is_stream = fields.truth("stream", false);
  const std::optional<ApiFields> options = fields.fields("stream_options");
  if (!options) return;
  if (!request.is_stream) fields.fail("stream_options", "needs stream: true");
  options->allow_names({"include_usage", "continuous_usage_stats", "include_obfuscation"});
  if (options->truth("include_obfuscation", false)) {
    options->fail("include_obfuscation", "is not supported; allowed: false");
  }
  request.wants_usage = options->truth("include_usage", false);
  request.wants_continuous_usage = options->truth("continuous_usage_stats", false);
  if (request.wants_continuous_usage && request.kind == ApiKind::Generate) {
    options->fail("continuous_usage_stats", "is not supported by /generate; allowed: false");
  }
}

std::shared_ptr<const StopStrings> stop_strings(const ApiFields& fields) {
  std::vector<std::string> stops = fields.texts("stop", kMaxStops, kMaxStopBytes);
  for (const std::string& stop : stops) {
    if (stop.empty()) fields.fail("stop", "is empty; allowed: at least one character");
  }
  return stops.empty() ? nullptr : std::make_shared<const StopStrings>(std::move(stops));
}

// The likeliest tokens to report for each of the prompts' tokens; -1: none.
std::int32_t num_prompt_logprobs(ApiKind kind, const ApiFields& fields) {
  const std::optional<std::int64_t> count = fields.integer("prompt_logprobs", 0, kMaxLogprobs);
  // As in vLLM, where a stream has no place for them.
  if (count && kind != ApiKind::Native && fields.truth("stream", false)) {
    fields.fail("prompt_logprobs", "is not available with stream: true; allowed: null");
  }
  return static_cast<std::int32_t>(count.value_or(-1));
}

// Reads a body whose fields were checked.
ApiRequest read_request(ApiKind kind, const Json& json, const ServedModel& model,
                        std::uint64_t number, const std::atomic<bool>* has_left) {
  const EncodingLimits limits = prompt_limits(model, has_left);
  const ApiFields fields(json);
  refuse_unsupported(fields, model);
  ApiRequest request;
  request.kind = kind;
  request.sampling = sampling_of(kind, fields, model, number);
  request.max_tokens = asked_tokens(kind, fields);
  request.echoes = kind == ApiKind::Completion && fields.truth("echo", false);
  request.hides_answer = (request.echoes && request.max_tokens == 0) || kind == ApiKind::Embeddings;
  if (request.hides_answer) request.max_tokens = 1;  // of the engine
  request.returns_token_ids = fields.truth("return_token_ids", false);
  request.num_prompt_logprobs = num_prompt_logprobs(kind, fields);
  request.stops = stop_strings(fields);
  request.includes_stop = fields.truth("include_stop_str_in_output", false);
  request.skips_special_tokens = fields.truth("skip_special_tokens", true);
  read_stream_options(fields, request);
  const auto priority = fields.integer("priority", INT32_MIN, INT32_MAX);
  if (priority.value_or(0) != 0 && !model.orders_by_priority) {
    fields.fail("priority", "the scheduler does not order by priority; allowed: 0");
  }
  request.priority = static_cast<std::int32_t>(priority.value_or(0));
  const Json* const rid = fields.find("rid");
  if (rid != nullptr && rid->is_string()) request.rid = rid->string();
  request.n = static_cast<std::int32_t>(fields.integer("n", 1, model.max_choices).value_or(1));
  if (is_chat(kind)) {
    request.prompts.push_back(chat_prompt(fields, model, limits, request.images));
  } else {
    request.prompts = completion_prompts(fields, model, limits);
    const Json& prompt = *fields.find("prompt");
    request.is_list = prompt.is_array() && !prompt.front().is_number();
  }
  if (static_cast<std::int64_t>(request.prompts.size()) * request.n > model.max_choices) {
    fields.fail("n",
                fmt::format("the number of prompts times n is more than {}", model.max_choices));
  }
  if (kind == ApiKind::Generate && !request.is_stream && request.num_choices() > 1) {
    fields.fail(request.n > 1 ? "n" : "prompt",
                "/generate has one answer; allowed: 1, or with stream: true");
  }
  if (request.echoes || request.returns_token_ids || request.num_prompt_logprobs >= 0 ||
      kind == ApiKind::Embeddings) {
    request.shown_prompts = request.prompts;
  }
  check_lengths(request, model);
  plan_answers(fields, model, request);
  return request;
}

// An error has the client's names.
ApiRequest read_translated(ApiKind kind, const TranslatedBody& translated, const ServedModel& model,
                           std::uint64_t number, const std::atomic<bool>* has_left) {
  try {
    ApiRequest request = read_request(kind, translated.body, model, number, has_left);
    request.repeated = translated.repeated;
    request.num_dimensions = translated.num_dimensions;
    request.is_base64 = translated.is_base64;
    request.first_prompt_logprob = translated.first_prompt_logprob;
    for (const std::int32_t num_tokens : request.prompt_tokens) {
      if (request.first_prompt_logprob <= num_tokens) continue;
      throw ApiError(400,
                     fmt::format("logprob_start_len: {} is behind the prompt; allowed: -1 to {}",
                                 request.first_prompt_logprob, num_tokens),
                     "logprob_start_len");
    }
    return request;
  } catch (const ApiError& error) {
    for (const auto& [ours, theirs] : translated.names) {
      if (!error.param.starts_with(ours)) continue;
      const auto renamed = [&, from = ours, to = theirs](const std::string& text) {
        return text.starts_with(from) ? std::string(to) + text.substr(from.size()) : text;
      };
      throw ApiError(error.status, renamed(error.what()), renamed(error.param));
    }
    throw;
  }
}

}  // namespace

std::string error_json(int status, std::string_view message, std::string_view param) {
  // Messages quote clients' texts. Invalid UTF-8 would make the body invalid JSON.
  std::string text;
  append_replaced(bounded_message(message), text);
  JsonText json;
  json.begin_object();
  json.key("error").begin_object();
  json.field("message", text);
  json.field("type", error_type(status));
  json.key("param");
  param.empty() ? json.null() : json.value(bounded_message(param));
  json.field("code", status);
  json.end_object();
  json.end_object();
  return std::string(json.view());
}

ApiRequest parse_generation(ApiKind kind, std::string_view body, const ServedModel& model,
                            std::uint64_t number, const std::atomic<bool>* has_left) {
  const Json json = parse_body(body);
  check_model(ApiFields(json), model);
  if (kind == ApiKind::Generate && is_native_generate(json)) kind = ApiKind::Native;
  if (kind == ApiKind::Native) {
    return read_translated(kind, completion_of_generate(json, model), model, number, has_left);
  }
  if (kind == ApiKind::Responses) {
    return read_translated(kind, chat_of_response(json, model), model, number, has_left);
  }
  if (kind == ApiKind::Embeddings) {
    return read_translated(kind, completion_of_embeddings(json, model), model, number, has_left);
  }
  if (kind == ApiKind::Messages) {
    return read_translated(kind, chat_of_messages(json, model), model, number, has_left);
  }
  refuse_ignored_fields(
      kind, json,
      {.has_template = is_chat(kind) && model.chat != nullptr, .computes = model.computes});
  return read_request(kind, json, model, number, has_left);
}

std::vector<TokenId> parse_tokenize(std::string_view body, const ServedModel& model,
                                    const std::atomic<bool>* has_left) {
  EncodingLimits limits = prompt_limits(model, has_left);
  limits.max_tokens = max_tokenized(model);
  const Json json = parse_body(body);
  const ApiFields fields(json);
  check_model(fields, model);
  if (fields.has("messages")) {
    refuse_fields_beside(json, kTokenizedChat, model.chat != nullptr || !model.computes);
    std::vector<PromptImage> images;
    return chat_prompt(fields, model, limits, images);
  }
  refuse_fields_beside(json, kTokenizedPrompt);
  const std::optional<std::string> prompt = fields.text("prompt");
  if (!prompt) fields.fail("prompt", "is missing; allowed: a string, or messages");
  return encode_text(model, limits, "prompt", *prompt, fields.truth("add_special_tokens", true));
}

std::vector<TokenId> parse_counted(std::string_view body, const ServedModel& model,
                                   const std::atomic<bool>* has_left) {
  EncodingLimits limits = prompt_limits(model, has_left);
  limits.max_tokens = max_tokenized(model);
  const Json json = parse_body(body);
  check_model(ApiFields(json), model);
  const TranslatedBody chat = chat_of_messages(json, model, true);
  std::vector<PromptImage> images;
  return chat_prompt(ApiFields(chat.body), model, limits, images);
}

AbortedRequests parse_abort(std::string_view body) {
  const Json json = parse_body(body);
  const ApiFields fields(json);
  return {.rid = fields.text("rid").value_or(""), .is_all = fields.truth("abort_all", false)};
}

std::vector<TokenId> parse_detokenize(std::string_view body, const ServedModel& model) {
  const Json json = parse_body(body);
  const ApiFields fields(json);
  check_model(fields, model);
  refuse_fields_beside(json, kDetokenized);
  if (!fields.has("tokens")) fields.fail("tokens", "is missing; allowed: a list of token ids");
  return fields.token_ids("tokens", model.vocab_size, max_tokenized(model));
}

}  // namespace metronome
