// SPDX-License-Identifier: Apache-2.0
#include "serve/server/api_known_fields.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "serve/server/api_request.h"

namespace metronome {
namespace {

// By every endpoint that generates.
constexpr std::string_view kHonoured[] = {"model",
                                          "add_special_tokens",
                                          "temperature",
                                          "top_p",
                                          "top_k",
                                          "min_p",
                                          "seed",
                                          "n",
                                          "stop",
                                          "stop_token_ids",
                                          "include_stop_str_in_output",
                                          "skip_special_tokens",
                                          "ignore_eos",
                                          "max_tokens",
                                          "min_tokens",
                                          "stream",
                                          "stream_options",
                                          "priority",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "repetition_penalty",
                                          "logit_bias",
                                          "length_penalty",
                                          "best_of",
                                          "response_format"};

// By some of them.
constexpr std::string_view kOfCompletions[] = {"prompt", "logprobs"};
constexpr std::string_view kOfChats[] = {
    "messages", "add_generation_prompt", "chat_template_kwargs", "max_completion_tokens",
    "logprobs", "top_logprobs"};
constexpr std::string_view kOfGenerate[] = {"prompt"};

std::span<const std::string_view> honoured_only_by(ApiKind kind) {
  if (kind == ApiKind::Completion) return kOfCompletions;
  if (kind == ApiKind::Chat) return kOfChats;
  return kOfGenerate;
}

// The fields of a chat that the template of a model's folder reads.
constexpr std::string_view kOfTemplates[] = {"tools", "tool_choice", "documents",
                                             "continue_final_message"};

// They name, store, route or account a request, or change how its work is shared out.
constexpr std::string_view kHints[] = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "parallel_tool_calls", "prediction", "request_id", "rid",
    "separate_reasoning", "stream_reasoning", "cache_prompt", "id_slot", "n_keep",
    // These shape a sampler that another field turns on.
    "mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "repeat_last_n"};

// Fields that change an answer and are not supported. `neutral`: values that ask for nothing, as a
// JSON array, beside null and empty ones.
struct Unsupported {
  std::string_view name;
  std::string_view neutral = "[]";
};
constexpr Unsupported kUnsupported[] = {
    // OpenAI
    {"tools"},
    {"tool_choice", R"(["none"])"},
    {"functions"},
    {"function_call", R"(["none"])"},
    {"suffix"},
    {"echo", "[false]"},
    {"modalities", R"([["text"]])"},
    {"audio"},
    {"reasoning_effort", R"(["none"])"},
    {"verbosity", R"(["medium"])"},
    {"web_search_options"},
    // vLLM
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"guided_decoding_backend"},
    {"guided_whitespace_pattern"},
    {"structured_outputs"},
    {"structural_tag"},
    {"bad_words"},
    {"allowed_token_ids"},
    {"prompt_logprobs"},
    {"prompt_embeds"},
    {"truncate_prompt_tokens"},
    {"use_beam_search", "[false]"},
    {"chat_template"},
    {"continue_final_message", "[false]"},
    {"documents"},
    {"include_reasoning", "[true]"},
    {"thinking_token_budget"},
    {"spaces_between_special_tokens", "[true]"},
    {"return_token_ids", "[false]"},
    {"return_tokens_as_token_ids", "[false]"},
    {"logits_processors"},
    {"logits_processor_args"},
    {"mm_processor_kwargs"},
    {"media_io_kwargs"},
    {"kv_transfer_params"},
    {"cache_salt"},
    {"repetition_detection"},
    {"vllm_xargs"},
    // SGLang
    {"regex"},
    {"ebnf"},
    {"json_schema"},
    {"no_stop_trim", "[false]"},
    {"stop_regex"},
    {"min_new_tokens", "[0]"},
    {"lora_path"},
    {"session_params"},
    {"return_hidden_states", "[false]"},
    {"custom_logit_processor"},
    {"custom_params"},
    {"sampling_params"},
    {"max_new_tokens"},
    // llama.cpp
    {"typical_p", "[1]"},
    {"tfs_z", "[1]"},
    {"mirostat", "[0]"},
    {"dynatemp_range", "[0]"},
    {"xtc_probability", "[0]"},
    {"dry_multiplier", "[0]"},
    {"repeat_penalty", "[1]"},
    {"top_n_sigma", "[-1]"},
    {"grammar"},
    {"samplers"},
    {"n_predict"},
    {"n_probs", "[0]"},
    {"min_keep", "[0]"},
    {"t_max_predict_ms", "[0]"},
    {"post_sampling_probs", "[false]"},
    {"return_tokens", "[false]"},
    {"timings_per_token", "[false]"},
    {"lora"},
    {"image_data"},
};

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Fields of which an empty object asks for something: any JSON, or a search.
constexpr std::string_view kAskWhenEmpty[] = {"guided_json", "web_search_options"};

bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.string().empty());
}

// A name as messages have it.
std::string shown(const std::string& name) { return clipped(printable(name)); }

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw ApiError(400, name + ": " + message, name);
}

void check_unsupported(const Unsupported& field, const Json& value) {
  const Json neutral = Json::parse(field.neutral);
  std::string allowed = "null";
  for (const Json& entry : neutral) {
    if (entry == value) return;
    allowed += ", " + entry.dump();
  }
  refuse(std::string(field.name), "is not supported; allowed: " + allowed);
}

[[noreturn]] void refuse_unknown(ApiKind kind, const std::string& name) {
  if (has(kOfCompletions, name) || has(kOfChats, name)) {
    refuse(name, "is a field of another endpoint; allowed: null");
  }
  std::vector<std::string_view> known(std::begin(kHonoured), std::end(kHonoured));
  const std::span<const std::string_view> others = honoured_only_by(kind);
  known.insert(known.end(), others.begin(), others.end());
  refuse(shown(name), "is not a field of this API" + did_you_mean(name, known) +
                          "; allowed: fields of OpenAI's API");
}

}  // namespace

void refuse_fields_beside(const Json& object, std::span<const std::string_view> honoured,
                          bool has_template, const std::string& prefix) {
  for (const Json::Member& member : object.items()) {
    const bool is_honoured =
        has(honoured, member.key) || (has_template && has(kOfTemplates, member.key));
    const bool asks_nothing = says_nothing(member.value) || member.value == Json(false);
    if (is_honoured || asks_nothing || has(kHints, member.key)) continue;
    refuse(prefix + shown(member.key), "is not supported; allowed: " + join_names(honoured));
  }
}

void refuse_ignored_fields(ApiKind kind, const Json& body, bool has_template) {
  for (const Json::Member& member : body.items()) {
    if (has_template && has(kOfTemplates, member.key)) continue;
    const bool asks_nothing =
        says_nothing(member.value) && (member.value.is_null() || !has(kAskWhenEmpty, member.key));
    const bool is_honoured = has(kHonoured, member.key) || has(honoured_only_by(kind), member.key);
    if (asks_nothing || is_honoured || has(kHints, member.key)) continue;
    const auto* const found =
        std::find_if(std::begin(kUnsupported), std::end(kUnsupported),
                     [&member](const Unsupported& field) { return field.name == member.key; });
    if (found == std::end(kUnsupported)) refuse_unknown(kind, member.key);
    check_unsupported(*found, member.value);
  }
}

}  // namespace metronome
