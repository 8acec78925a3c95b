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
#include "serve/server/api_fields.h"
#include "serve/server/api_request.h"

namespace metronome {
namespace {

// APIs as bits.
constexpr std::uint8_t kCompletion = 1 << static_cast<int>(ApiKind::Completion);
constexpr std::uint8_t kChat = 1 << static_cast<int>(ApiKind::Chat);
constexpr std::uint8_t kGenerate = 1 << static_cast<int>(ApiKind::Generate);
constexpr std::uint8_t kNative = 1 << static_cast<int>(ApiKind::Native);
constexpr std::uint8_t kSampling = 1 << static_cast<int>(ApiKind::NativeSampling);
constexpr std::uint8_t kResponses = 1 << static_cast<int>(ApiKind::Responses);
constexpr std::uint8_t kMessages = 1 << static_cast<int>(ApiKind::Messages);
constexpr std::uint8_t kEmbeddings = 1 << static_cast<int>(ApiKind::Embeddings);
constexpr std::uint8_t kAny = 0xff;
constexpr std::uint8_t kOpenAi = kCompletion | kChat | kGenerate;

enum class Fate : std::uint8_t {
  Acts,
  Simulated,   // acts, or has no effect, where answers are simulated; elsewhere it is refused
  Written,     // acts where the template of the model's folder writes it
  WrittenToo,  // acts there, and where answers are simulated
  Ignored,
  Refused
};

struct FieldRow {
  std::string_view name;
  Fate fate = Fate::Acts;
  std::uint8_t apis = kOpenAi;
  // Values that ask for nothing, as a JSON array, beside null and empty ones.
  std::string_view neutral = "[]";
};

// An API has the first row with the name of a field.
constexpr FieldRow kFieldRows[] = {
    {"model", Fate::Acts, kAny},
    {"add_special_tokens"},
    {"temperature", Fate::Acts, kOpenAi | kSampling | kResponses | kMessages},
    {"top_p", Fate::Acts, kOpenAi | kSampling | kResponses | kMessages},
    {"top_k", Fate::Acts, kOpenAi | kSampling | kResponses | kMessages},
    {"min_p", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"seed", Fate::Acts, kOpenAi | kResponses},
    {"n", Fate::Acts, kOpenAi | kSampling},
    {"stop", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"stop_token_ids", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"include_stop_str_in_output"},
    {"skip_special_tokens", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"ignore_eos", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"max_tokens", Fate::Acts, kOpenAi | kMessages},
    {"min_tokens", Fate::Acts, kOpenAi | kResponses},
    {"stream", Fate::Acts, kOpenAi | kNative | kResponses | kMessages},
    {"stream_options"},
    {"priority", Fate::Acts, kOpenAi | kNative | kResponses},
    {"presence_penalty", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"frequency_penalty", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"repetition_penalty", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"logit_bias", Fate::Acts, kOpenAi | kSampling | kResponses},
    {"length_penalty"},
    {"best_of"},
    {"response_format"},
    {"text", Fate::Acts, kNative | kResponses},
    {"input", Fate::Acts, kResponses | kEmbeddings},
    {"encoding_format", Fate::Acts, kEmbeddings},
    {"dimensions", Fate::Acts, kEmbeddings},
    {"instructions", Fate::Acts, kResponses},
    {"max_output_tokens", Fate::Acts, kResponses},
    {"include", Fate::Acts, kResponses},
    {"reasoning", Fate::Simulated, kResponses},
    {"system", Fate::Acts, kMessages},
    {"stop_sequences", Fate::Acts, kMessages},
    {"thinking", Fate::Simulated, kMessages, R"([{"type": "disabled"}])"},
    {"output_config", Fate::Simulated, kMessages},
    {"output_format", Fate::Simulated, kMessages},
    {"input_ids", Fate::Acts, kNative},
    {"sampling_params", Fate::Acts, kNative},
    {"return_logprob", Fate::Acts, kNative},
    {"top_logprobs_num", Fate::Acts, kNative},
    {"max_new_tokens", Fate::Acts, kSampling},
    {"min_new_tokens", Fate::Acts, kSampling},
    {"sampling_seed", Fate::Acts, kSampling},
    {"no_stop_trim", Fate::Acts, kSampling},
    {"prompt", Fate::Acts, kCompletion | kGenerate},
    {"messages", Fate::Acts, kChat | kMessages},
    {"add_generation_prompt", Fate::Acts, kChat},
    {"chat_template_kwargs", Fate::Acts, kChat | kResponses},
    {"max_completion_tokens", Fate::Acts, kChat},
    {"logprobs", Fate::Acts, kCompletion | kChat},
    {"top_logprobs", Fate::Acts, kChat | kResponses},
    {"tools", Fate::WrittenToo, kChat | kResponses | kMessages},
    {"tool_choice", Fate::WrittenToo, kChat, R"(["none"])"},
    {"tool_choice", Fate::WrittenToo, kResponses, R"(["none", "auto"])"},
    {"tool_choice", Fate::WrittenToo, kMessages, R"([{"type": "auto"}, {"type": "none"}])"},
    {"documents", Fate::Written, kChat},
    {"continue_final_message", Fate::WrittenToo, kChat, "[false]"},

    // They name, store, route or account a request, or change how its work is shared out.
    {"user", Fate::Ignored, kAny},
    {"metadata", Fate::Ignored, kAny},
    {"store", Fate::Ignored},
    {"service_tier", Fate::Ignored, kAny},
    {"safety_identifier", Fate::Ignored, kAny},
    {"prompt_cache_key", Fate::Ignored, kOpenAi | kResponses},
    {"prompt_cache_retention", Fate::Ignored, kOpenAi | kResponses},
    {"parallel_tool_calls", Fate::Ignored, kOpenAi | kResponses},
    {"prediction", Fate::Ignored},
    {"request_id", Fate::Ignored, kAny},
    {"rid", Fate::Ignored, kAny},
    {"separate_reasoning", Fate::Ignored},
    {"stream_reasoning", Fate::Ignored},
    {"cache_prompt", Fate::Ignored},
    {"id_slot", Fate::Ignored},
    {"n_keep", Fate::Ignored},
    {"truncation", Fate::Ignored, kResponses},
    {"max_tool_calls", Fate::Ignored, kResponses},
    {"stream_options", Fate::Ignored, kResponses},
    {"store", Fate::Ignored, kResponses},
    {"client_metadata", Fate::Ignored, kResponses},
    {"cache_control", Fate::Ignored, kMessages},
    {"inference_geo", Fate::Ignored, kMessages},
    {"context_management", Fate::Ignored, kMessages},
    {"log_metrics", Fate::Ignored, kNative},
    {"session_id", Fate::Ignored, kNative},
    {"conversation_id", Fate::Ignored, kNative},
    {"routing_key", Fate::Ignored, kNative},
    {"return_text_in_logprobs", Fate::Ignored, kNative},
    {"spaces_between_special_tokens", Fate::Ignored, kSampling},
    {"stream_interval", Fate::Ignored, kSampling},
    // These shape a sampler that another field turns on.
    {"mirostat_tau", Fate::Ignored},
    {"mirostat_eta", Fate::Ignored},
    {"dynatemp_exponent", Fate::Ignored},
    {"xtc_threshold", Fate::Ignored},
    {"dry_base", Fate::Ignored},
    {"dry_allowed_length", Fate::Ignored},
    {"dry_penalty_last_n", Fate::Ignored},
    {"dry_sequence_breakers", Fate::Ignored},
    {"repeat_last_n", Fate::Ignored},

    // OpenAI
    {"tools", Fate::Refused},
    {"tool_choice", Fate::Refused, kOpenAi, R"(["none"])"},
    {"functions", Fate::Refused},
    {"function_call", Fate::Refused, kOpenAi, R"(["none"])"},
    {"suffix", Fate::Simulated, kCompletion},
    {"echo", Fate::Simulated, kCompletion, "[false]"},
    {"echo", Fate::Refused, kOpenAi, "[false]"},
    {"modalities", Fate::Refused, kOpenAi, R"([["text"]])"},
    {"audio", Fate::Refused},
    {"reasoning_effort", Fate::Simulated, kChat, R"(["none"])"},
    {"reasoning_effort", Fate::Refused, kOpenAi, R"(["none"])"},
    {"verbosity", Fate::Simulated, kOpenAi, R"(["medium"])"},
    {"web_search_options", Fate::Refused},
    {"previous_response_id", Fate::Refused, kResponses},
    {"conversation", Fate::Refused, kResponses},
    {"prompt", Fate::Refused, kResponses},
    {"background", Fate::Refused, kResponses, "[false]"},
    // Anthropic
    {"container", Fate::Refused, kMessages},
    {"mcp_servers", Fate::Refused, kMessages},
    // vLLM
    {"guided_json", Fate::Simulated},
    {"guided_regex", Fate::Simulated},
    {"guided_choice", Fate::Simulated},
    {"guided_grammar", Fate::Refused},
    {"guided_decoding_backend", Fate::Simulated},
    {"guided_whitespace_pattern", Fate::Simulated},
    {"structured_outputs", Fate::Simulated, kOpenAi | kResponses},
    {"structural_tag", Fate::Refused, kOpenAi | kSampling},
    {"bad_words", Fate::Refused},
    {"allowed_token_ids", Fate::Refused},
    {"prompt_logprobs", Fate::Simulated, kCompletion | kChat},
    {"prompt_logprobs", Fate::Refused},
    {"prompt_embeds", Fate::Refused},
    {"truncate_prompt_tokens", Fate::Refused},
    {"use_beam_search", Fate::Refused, kOpenAi, "[false]"},
    {"chat_template", Fate::Refused},
    {"continue_final_message", Fate::Refused, kOpenAi, "[false]"},
    {"documents", Fate::Refused},
    {"include_reasoning", Fate::Simulated, kOpenAi, "[true]"},
    {"thinking_token_budget", Fate::Simulated},
    {"spaces_between_special_tokens", Fate::Refused, kOpenAi, "[true]"},
    {"return_token_ids", Fate::Acts, kCompletion | kChat},
    {"return_token_ids", Fate::Refused, kOpenAi, "[false]"},
    {"return_tokens_as_token_ids", Fate::Refused, kOpenAi, "[false]"},
    {"logits_processors", Fate::Refused},
    {"logits_processor_args", Fate::Refused},
    {"mm_processor_kwargs", Fate::Refused},
    {"media_io_kwargs", Fate::Refused},
    {"kv_transfer_params", Fate::Refused},
    {"cache_salt", Fate::Refused},
    {"repetition_detection", Fate::Refused},
    {"vllm_xargs", Fate::Refused},
    // SGLang
    {"regex", Fate::Simulated, kOpenAi | kSampling},
    {"ebnf", Fate::Refused, kOpenAi | kSampling},
    {"json_schema", Fate::Simulated, kOpenAi | kSampling},
    {"no_stop_trim", Fate::Refused, kOpenAi, "[false]"},
    {"stop_regex", Fate::Refused, kOpenAi | kSampling},
    {"min_new_tokens", Fate::Refused, kOpenAi, "[0]"},
    {"lora_path", Fate::Refused, kOpenAi | kNative},
    {"session_params", Fate::Refused, kOpenAi | kNative},
    {"return_hidden_states", Fate::Refused, kOpenAi | kNative, "[false]"},
    {"custom_logit_processor", Fate::Refused, kOpenAi | kNative},
    {"custom_params", Fate::Refused, kOpenAi | kSampling},
    {"sampling_params", Fate::Refused},
    {"max_new_tokens", Fate::Refused},
    {"logprob_start_len", Fate::Simulated, kNative, "[-1]"},
    {"token_ids_logprob", Fate::Refused, kNative},
    {"return_routed_experts", Fate::Refused, kNative, "[false]"},
    {"input_embeds", Fate::Refused, kNative},
    {"video_data", Fate::Refused, kNative},
    {"audio_data", Fate::Refused, kNative},
    {"extra_key", Fate::Refused, kNative},
    {"data_parallel_rank", Fate::Refused, kNative},
    {"bootstrap_host", Fate::Refused, kNative},
    {"bootstrap_port", Fate::Refused, kNative},
    {"bootstrap_room", Fate::Refused, kNative},
    {"background", Fate::Refused, kNative, "[false]"},
    {"beam_width", Fate::Refused, kSampling, "[1]"},
    // llama.cpp
    {"typical_p", Fate::Refused, kOpenAi, "[1]"},
    {"tfs_z", Fate::Refused, kOpenAi, "[1]"},
    {"mirostat", Fate::Refused, kOpenAi, "[0]"},
    {"dynatemp_range", Fate::Refused, kOpenAi, "[0]"},
    {"xtc_probability", Fate::Refused, kOpenAi, "[0]"},
    {"dry_multiplier", Fate::Refused, kOpenAi, "[0]"},
    {"repeat_penalty", Fate::Refused, kOpenAi, "[1]"},
    {"top_n_sigma", Fate::Refused, kOpenAi, "[-1]"},
    {"grammar", Fate::Refused},
    {"samplers", Fate::Refused},
    {"n_predict", Fate::Refused},
    {"n_probs", Fate::Refused, kOpenAi, "[0]"},
    {"min_keep", Fate::Refused, kOpenAi, "[0]"},
    {"t_max_predict_ms", Fate::Refused, kOpenAi, "[0]"},
    {"post_sampling_probs", Fate::Refused, kOpenAi, "[false]"},
    {"return_tokens", Fate::Refused, kOpenAi, "[false]"},
    {"timings_per_token", Fate::Refused, kOpenAi, "[false]"},
    {"lora", Fate::Refused},
    {"image_data", Fate::Refused, kOpenAi | kNative},
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

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw ApiError(400, name + ": " + message, name);
}

void check_refused(const FieldRow& row, const Json& value) {
  const Json neutral = Json::parse(row.neutral);
  std::string allowed = "null";
  for (const Json& entry : neutral) {
    if (entry == value) return;
    allowed += ", " + entry.dump();
  }
  refuse(std::string(row.name), "is not supported; allowed: " + allowed);
}

std::uint8_t bit_of(ApiKind kind) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
}

bool acts(const FieldRow& row, const FieldUse& use) {
  switch (row.fate) {
    case Fate::Acts: return true;
    case Fate::Simulated: return !use.computes;
    case Fate::Written: return use.has_template;
    case Fate::WrittenToo: return use.has_template || !use.computes;
    case Fate::Ignored:
    case Fate::Refused: break;
  }
  return false;
}

[[noreturn]] void refuse_unknown(ApiKind kind, const FieldUse& use, const std::string& name) {
  std::vector<std::string_view> known;
  for (const FieldRow& row : kFieldRows) {
    if (row.name == name) refuse(name, "is a field of another endpoint; allowed: null");
    if ((row.apis & bit_of(kind)) != 0 && acts(row, use)) known.push_back(row.name);
  }
  refuse(shown_text(name), "is not a field of this API" + did_you_mean(name, known) +
                               "; allowed: fields of OpenAI's API");
}

bool is_hint(std::string_view name) {
  return std::any_of(std::begin(kFieldRows), std::end(kFieldRows), [name](const FieldRow& row) {
    return row.name == name && row.fate == Fate::Ignored;
  });
}

// The fields of a chat that the template of a model's folder reads.
bool is_written(std::string_view name) {
  return std::any_of(std::begin(kFieldRows), std::end(kFieldRows), [name](const FieldRow& row) {
    return row.name == name && (row.fate == Fate::Written || row.fate == Fate::WrittenToo);
  });
}

}  // namespace

bool is_read_by(ApiKind kind, std::string_view name) {
  return std::any_of(std::begin(kFieldRows), std::end(kFieldRows), [&](const FieldRow& row) {
    return row.name == name && (row.apis & bit_of(kind)) != 0 && row.fate != Fate::Refused;
  });
}

void refuse_fields_beside(const Json& object, std::span<const std::string_view> honoured,
                          bool has_template, const std::string& prefix) {
  for (const Json::Member& member : object.items()) {
    const bool is_honoured = has(honoured, member.key) || (has_template && is_written(member.key));
    const bool asks_nothing = says_nothing(member.value) || member.value == Json(false);
    if (is_honoured || asks_nothing || is_hint(member.key)) continue;
    refuse(prefix + shown_text(member.key), "is not supported; allowed: " + join_names(honoured));
  }
}

void refuse_ignored_fields(ApiKind kind, const Json& body, const FieldUse& use) {
  for (const Json::Member& member : body.items()) {
    const bool asks_nothing =
        says_nothing(member.value) && (member.value.is_null() || !has(kAskWhenEmpty, member.key));
    if (asks_nothing) continue;
    const auto* const row =
        std::find_if(std::begin(kFieldRows), std::end(kFieldRows), [&](const FieldRow& each) {
          return each.name == member.key && (each.apis & bit_of(kind)) != 0;
        });
    if (row == std::end(kFieldRows)) refuse_unknown(kind, use, member.key);
    if (!acts(*row, use) && row->fate != Fate::Ignored) check_refused(*row, member.value);
  }
}

}  // namespace metronome
