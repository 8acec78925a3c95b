// SPDX-License-Identifier: Apache-2.0
#include "serve/server/api_request.h"

#include <algorithm>
#include <utility>

#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/rng.h"
#include "models/text/chat_template.h"
#include "models/text/folder_chat.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/chat_images.h"
#include "serve/server/template_chat.h"

namespace metronome {
namespace {

constexpr std::int64_t kMaxLogprobs = 20;  // vLLM's max_logprobs
constexpr std::int32_t kDefaultCompletionTokens = 16;

// The fields that are honoured where there are few.
constexpr std::string_view kTokenizedPrompt[] = {"prompt", "model", "add_special_tokens"};
constexpr std::string_view kTokenizedChat[] = {"messages", "model", "add_special_tokens",
                                               "add_generation_prompt", "chat_template_kwargs"};
constexpr std::string_view kDetokenized[] = {"tokens", "model"};
constexpr std::string_view kPlainMessage[] = {"role", "content"};

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

// The most tokens of a prompt that are read. If they are more than the context, the client is told
// how many. Also the most messages of a chat, and parts of a message, of which each has tokens.
std::size_t max_prompt_tokens(const ServedModel& model) {
  return 2 * static_cast<std::size_t>(model.max_model_len);
}

std::size_t max_tokenized(const ServedModel& model) {
  return kTokenizedContexts * static_cast<std::size_t>(model.max_model_len);
}

EncodingLimits prompt_limits(const ServedModel& model, const std::atomic<bool>* has_left) {
  return {.max_tokens = max_prompt_tokens(model), .is_cancelled = has_left};
}

std::vector<TokenId> encode(const ServedModel& model, const EncodingLimits& limits,
                            const char* field, std::string_view text, bool adds_special) {
  std::vector<TokenId> ids;
  try {
    ids = model.tokenizer->encode_within(limits, text, adds_special);
  } catch (const TextTooLong&) {
    throw ApiError(400,
                   "the model's context is " + std::to_string(model.max_model_len) +
                       " tokens; the text has more than " + std::to_string(limits.max_tokens) +
                       "; allowed: a shorter text",
                   field);
  } catch (const std::runtime_error& error) {
    throw ApiError(400, std::string("the text cannot be tokenized: ") + error.what());
  }
  // A tokenizer may have more tokens than the model.
  for (const TokenId id : ids) {
    if (value(id) >= model.vocab_size) {
      throw ApiError(400, "the text has token id " + std::to_string(value(id)) +
                              "; the model has " + std::to_string(model.vocab_size) + " tokens");
    }
  }
  return ids;
}

// ---- prompts ----

std::vector<std::vector<TokenId>> completion_prompts(const ApiFields& fields,
                                                     const ServedModel& model,
                                                     const EncodingLimits& limits) {
  const Json* prompt = fields.find("prompt");
  constexpr const char* kAllowed =
      "allowed: a string, a list of strings, a list of token ids, or a list of such lists";
  if (prompt == nullptr) fields.fail("prompt", std::string("is missing; ") + kAllowed);
  const bool adds_special = fields.truth("add_special_tokens", true);
  if (prompt->is_string()) {
    return {encode(model, limits, "prompt", prompt->string(), adds_special)};
  }
  if (!prompt->is_array() || prompt->empty()) fields.fail("prompt", std::string(kAllowed));
  const auto read_ids = [&model](const Json& ids) {
    return read_token_ids(ids, model.vocab_size, max_prompt_tokens(model), "prompt");
  };
  if (prompt->front().is_number()) return {read_ids(*prompt)};
  std::vector<std::vector<TokenId>> prompts;
  if (static_cast<std::int64_t>(prompt->size()) > model.max_choices) {
    fields.fail("prompt", std::to_string(prompt->size()) + " prompts are too many; allowed: " +
                              std::to_string(model.max_choices));
  }
  for (const Json& entry : *prompt) {
    if (entry.is_string()) {
      prompts.push_back(encode(model, limits, "prompt", entry.string(), adds_special));
    } else if (entry.is_array()) {
      prompts.push_back(read_ids(entry));
    } else {
      fields.fail("prompt", std::string(kAllowed));
    }
  }
  return prompts;
}

// A text, or a list of parts of type text.
std::string message_content(const Json& message, const std::string& name,
                            const ServedModel& model) {
  const ApiFields fields(message, name + ".");
  const Json* content = fields.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  constexpr const char* kAllowed =
      "allowed: a string, or a list of {\"type\": \"text\", \"text\": ...}";
  if (!content->is_array()) fields.fail("content", kAllowed);
  fields.list("content", max_prompt_tokens(model));
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object()) fields.fail("content", kAllowed);
    const ApiFields part_fields(part, name + ".content.");
    const std::string type = part_fields.name("type").value_or("text");
    if (type != "text") {
      part_fields.fail("type", plain_part_refusal(type, model.images != nullptr));
    }
    const std::optional<std::string> part_text = part_fields.text("text");
    if (!part_text) part_fields.fail("text", "is missing");
    if (!text.empty()) text += '\n';
    text += *part_text;
  }
  return text;
}

std::vector<TokenId> chat_prompt(const ApiFields& fields, const ServedModel& model,
                                 const EncodingLimits& limits, std::vector<PromptImage>& images) {
  if (model.chat) {
    ChatImages taken(model.images.get(), limits.max_tokens);
    const std::string prompt =
        template_prompt(fields, *model.chat, max_prompt_tokens(model), taken);
    std::vector<TokenId> tokens =
        encode(model, limits, "messages", prompt, fields.truth("add_special_tokens", false));
    images = taken.place(tokens, *model.tokenizer);
    return tokens;
  }
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", "allowed: a list of at least one {\"role\": ..., \"content\": ...}");
  }
  fields.list("messages", max_prompt_tokens(model));
  std::vector<ChatMessage> chat;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string name = "messages[" + std::to_string(i) + "]";
    const Json& message = (*messages)[i];
    if (!message.is_object()) throw ApiError(400, name + ": is not an object", name);
    const std::optional<std::string> role = ApiFields(message, name + ".").name("role");
    if (!role) throw ApiError(400, name + ".role: is missing", name + ".role");
    refuse_fields_beside(message, kPlainMessage, false, name + ".");
    // "developer" is OpenAI's newer name for the templates' role "system".
    chat.push_back(
        {*role == "developer" ? "system" : *role, message_content(message, name, model)});
  }
  ChatOptions options;
  options.add_generation_prompt = fields.truth("add_generation_prompt", true);
  if (const std::optional<ApiFields> kwargs = fields.fields("chat_template_kwargs")) {
    kwargs->allow_names({"enable_thinking", "date_string"});
    options.enable_thinking = kwargs->truth("enable_thinking", true);
    options.date = kwargs->name("date_string").value_or(options.date);
  }
  const ChatFamily family = model.tokenizer->chat_family();
  const bool adds_special = fields.truth("add_special_tokens", family == ChatFamily::None);
  try {
    return encode(model, limits, "messages", render_chat(family, chat, options), adds_special);
  } catch (const std::invalid_argument& error) {
    throw ApiError(400, std::string("messages: ") + error.what(), "messages");
  }
}

// ---- the rest ----

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
  if (const std::optional<ApiFields> format = fields.fields("response_format")) {
    const std::string type = format->name("type").value_or("text");
    if (type != "text") format->fail("type", clipped(type) + " is not supported; allowed: text");
  }
}

std::int32_t num_logprobs(ApiKind kind, const ApiFields& fields, const ServedModel& model) {
  std::optional<std::int64_t> count;
  if (kind == ApiKind::Chat) {
    const bool wanted = fields.truth("logprobs", false);
    count = fields.integer("top_logprobs", 0, kMaxLogprobs);
    if (count.value_or(0) > 0 && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
    if (!wanted) count.reset();
    if (wanted && !count) count = 0;
  } else {
    count = fields.integer("logprobs", 0, kMaxLogprobs);
  }
  if (!count) return -1;
  if (!model.computes) fields.fail("logprobs", "a simulated model has no logits");
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
  sampling.num_logprobs = num_logprobs(kind, fields, model);
  return sampling;
}

// The requested number of tokens; 0: as many as fit.
std::int32_t asked_tokens(ApiKind kind, const ApiFields& fields) {
  std::optional<std::int64_t> asked = fields.integer("max_tokens", 1, INT32_MAX);
  if (kind == ApiKind::Chat) {
    const auto newer = fields.integer("max_completion_tokens", 1, INT32_MAX);
    if (newer) asked = newer;
  }
  if (asked) return static_cast<std::int32_t>(*asked);
  return kind == ApiKind::Chat ? 0 : kDefaultCompletionTokens;
}

void check_lengths(ApiRequest& request, const ServedModel& model) {
  std::size_t longest = 0;
  for (const std::vector<TokenId>& prompt : request.prompts) {
    if (prompt.empty())
      throw ApiError(400, "prompt: is empty; allowed: at least one token", "prompt");
    longest = std::max(longest, prompt.size());
    request.num_prompt_tokens += static_cast<std::int32_t>(prompt.size());
  }
  const std::int64_t room = model.max_model_len - static_cast<std::int64_t>(longest);
  if (request.max_tokens == 0 && room >= 1) {
    const std::int64_t most = model.sampling.max_new_tokens.value_or(room);
    request.max_tokens = static_cast<std::int32_t>(std::min(room, most));
  }
  if (request.max_tokens >= 1 && request.max_tokens <= room) return;
  throw ApiError(400,
                 "the model's context is " + std::to_string(model.max_model_len) +
                     " tokens; the prompt has " + std::to_string(longest) +
                     (request.max_tokens == 0 ? ""
                                              : ", max_tokens asks for " +
                                                    std::to_string(request.max_tokens) + " more") +
                     "; allowed: a shorter prompt, or fewer tokens",
                 request.kind == ApiKind::Chat ? "messages" : "prompt");
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

// Chooses the lengths of simulated answers; at least `min_tokens`.
void choose_answer_tokens(const ApiFields& fields, const ServedModel& model, ApiRequest& request) {
  const std::int64_t least = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  if (least > request.max_tokens) {
    fields.fail("min_tokens", std::to_string(least) + " is more than max_tokens, " +
                                  std::to_string(request.max_tokens));
  }
  // The sampler cannot pass over the tokens that would end the answer.
  const bool may_stop = !request.sampling.ignore_eos || !request.sampling.stop_token_ids.empty();
  if (model.computes && least > 0 && may_stop) {
    fields.fail("min_tokens",
                "is not supported; allowed: 0, or with ignore_eos and without stop_token_ids");
  }
  request.min_tokens = static_cast<std::int32_t>(least);
  const bool ends = !model.computes && !request.sampling.ignore_eos;
  for (std::int32_t i = 0; i < request.num_choices(); ++i) {
    const std::uint64_t seed = request.sampling.seed + static_cast<std::uint64_t>(i);
    const std::uint64_t drawn = mix64(mix64(model.seed) ^ seed);
    const std::int32_t length = model.answer_lengths[drawn % model.answer_lengths.size()];
    request.answer_tokens.push_back(ends ? std::max(length, static_cast<std::int32_t>(least)) : 0);
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
  const EncodingLimits limits = prompt_limits(model, has_left);
  const Json json = parse_body(body);
  const ApiFields fields(json);
  check_model(fields, model);
  refuse_ignored_fields(kind, json, kind == ApiKind::Chat && model.chat != nullptr);
  refuse_unsupported(fields, model);
  ApiRequest request;
  request.kind = kind;
  request.sampling = sampling_of(kind, fields, model, number);
  request.max_tokens = asked_tokens(kind, fields);
  request.stops = stop_strings(fields);
  request.includes_stop = fields.truth("include_stop_str_in_output", false);
  request.skips_special_tokens = fields.truth("skip_special_tokens", true);
  read_stream_options(fields, request);
  const auto priority = fields.integer("priority", INT32_MIN, INT32_MAX);
  if (priority.value_or(0) != 0 && !model.orders_by_priority) {
    fields.fail("priority", "the scheduler does not order by priority; allowed: 0");
  }
  request.priority = static_cast<std::int32_t>(priority.value_or(0));
  request.n = static_cast<std::int32_t>(fields.integer("n", 1, model.max_choices).value_or(1));
  if (kind == ApiKind::Chat) {
    request.prompts.push_back(chat_prompt(fields, model, limits, request.images));
  } else {
    request.prompts = completion_prompts(fields, model, limits);
  }
  if (static_cast<std::int64_t>(request.prompts.size()) * request.n > model.max_choices) {
    fields.fail("n",
                "the number of prompts times n is more than " + std::to_string(model.max_choices));
  }
  if (kind == ApiKind::Generate && !request.is_stream && request.num_choices() > 1) {
    fields.fail(request.n > 1 ? "n" : "prompt",
                "/generate has one answer; allowed: 1, or with stream: true");
  }
  check_lengths(request, model);
  choose_answer_tokens(fields, model, request);
  return request;
}

std::vector<TokenId> parse_tokenize(std::string_view body, const ServedModel& model,
                                    const std::atomic<bool>* has_left) {
  EncodingLimits limits = prompt_limits(model, has_left);
  limits.max_tokens = max_tokenized(model);
  const Json json = parse_body(body);
  const ApiFields fields(json);
  check_model(fields, model);
  if (fields.has("messages")) {
    refuse_fields_beside(json, kTokenizedChat, model.chat != nullptr);
    std::vector<PromptImage> images;
    return chat_prompt(fields, model, limits, images);
  }
  refuse_fields_beside(json, kTokenizedPrompt);
  const std::optional<std::string> prompt = fields.text("prompt");
  if (!prompt) fields.fail("prompt", "is missing; allowed: a string, or messages");
  return encode(model, limits, "prompt", *prompt, fields.truth("add_special_tokens", true));
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
