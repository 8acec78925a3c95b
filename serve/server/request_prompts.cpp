// SPDX-License-Identifier: Apache-2.0
#include "serve/server/request_prompts.h"

#include <fmt/core.h>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "core/base/python_json.h"
#include "models/text/chat_template.h"
#include "models/text/folder_chat.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/chat_images.h"
#include "serve/server/template_chat.h"

namespace metronome {
namespace {

// The fields of a message without a template. As in vLLM a name is not written.
constexpr std::string_view kPlainMessage[] = {"role", "content", "name"};
// A simulated model reads no prompt: calls count by their length, other fields not at all.
constexpr std::string_view kSimulatedMessage[] = {"role",       "content",      "name",
                                                  "tool_calls", "tool_call_id", "reasoning_content",
                                                  "reasoning",  "refusal",      "function_call"};

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

// The prompt up to the end of the last message, which the answer goes on from: as transformers,
// which vLLM calls, cuts it behind the last place with the message's text.
std::string cut_behind(std::string prompt, std::string_view message, const ApiFields& fields) {
  constexpr const char* kBlanks = " \t\n\v\f\r";
  const std::size_t begin = message.find_first_not_of(kBlanks);
  const std::string_view text =
      begin == std::string_view::npos
          ? std::string_view()
          : message.substr(begin, message.find_last_not_of(kBlanks) + 1 - begin);
  const std::size_t found = prompt.rfind(text);
  if (text.empty() || found == std::string::npos) {
    fields.fail("continue_final_message",
                "needs a last message with a text, which the template writes as it is");
  }
  prompt.resize(found + text.size());
  return prompt;
}

// The text of tools or calls in a prompt whose template is not known.
std::string written(const Json* list) {
  if (list == nullptr || !list->is_array() || list->empty()) return {};
  return "\n" + python_json_line(*list);
}

}  // namespace

std::size_t max_prompt_tokens(const ServedModel& model) {
  return 2 * static_cast<std::size_t>(model.max_model_len);
}

EncodingLimits prompt_limits(const ServedModel& model, const std::atomic<bool>* has_left) {
  return {.max_tokens = max_prompt_tokens(model), .is_cancelled = has_left};
}

std::vector<TokenId> encode_text(const ServedModel& model, const EncodingLimits& limits,
                                 const char* field, std::string_view text, bool adds_special) {
  std::vector<TokenId> ids;
  try {
    ids = model.tokenizer->encode_within(limits, text, adds_special);
  } catch (const TextTooLong&) {
    throw ApiError(
        400,
        fmt::format(
            "the model's context is {} tokens; the text has more than {}; allowed: a shorter text",
            model.max_model_len, limits.max_tokens),
        field);
  } catch (const std::runtime_error& error) {
    throw ApiError(400, std::string("the text cannot be tokenized: ") + error.what());
  }
  // A tokenizer may have more tokens than the model.
  for (const TokenId id : ids) {
    if (value(id) >= model.vocab_size) {
      throw ApiError(400, fmt::format("the text has token id {}; the model has {} tokens",
                                      value(id), model.vocab_size));
    }
  }
  return ids;
}

std::vector<std::vector<TokenId>> completion_prompts(const ApiFields& fields,
                                                     const ServedModel& model,
                                                     const EncodingLimits& limits) {
  const Json* prompt = fields.find("prompt");
  constexpr const char* kAllowed =
      "allowed: a string, a list of strings, a list of token ids, or a list of such lists";
  if (prompt == nullptr) fields.fail("prompt", std::string("is missing; ") + kAllowed);
  const bool adds_special = fields.truth("add_special_tokens", true);
  // The text behind the place to fill is read, too.
  const std::string suffix = fields.text("suffix").value_or("");
  if (prompt->is_string()) {
    return {encode_text(model, limits, "prompt", prompt->string() + suffix, adds_special)};
  }
  if (!suffix.empty()) fields.fail("suffix", "needs a prompt that is one text; allowed: null");
  if (!prompt->is_array() || prompt->empty()) fields.fail("prompt", std::string(kAllowed));
  const auto read_ids = [&model](const Json& ids) {
    return read_token_ids(ids, model.vocab_size, max_prompt_tokens(model), "prompt");
  };
  if (prompt->front().is_number()) return {read_ids(*prompt)};
  std::vector<std::vector<TokenId>> prompts;
  if (static_cast<std::int64_t>(prompt->size()) > model.max_choices) {
    fields.fail("prompt", fmt::format("{} prompts are too many; allowed: {}", prompt->size(),
                                      model.max_choices));
  }
  for (const Json& entry : *prompt) {
    if (entry.is_string()) {
      prompts.push_back(encode_text(model, limits, "prompt", entry.string(), adds_special));
    } else if (entry.is_array()) {
      prompts.push_back(read_ids(entry));
    } else {
      fields.fail("prompt", std::string(kAllowed));
    }
  }
  return prompts;
}

std::vector<TokenId> chat_prompt(const ApiFields& fields, const ServedModel& model,
                                 const EncodingLimits& limits, std::vector<PromptImage>& images) {
  if (model.chat) {
    ChatImages taken(model.images.get(), limits.max_tokens);
    const std::string prompt =
        template_prompt(fields, *model.chat, max_prompt_tokens(model), taken, model.computes);
    std::vector<TokenId> tokens =
        encode_text(model, limits, "messages", prompt, fields.truth("add_special_tokens", false));
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
    const std::string name = fmt::format("messages[{}]", i);
    const Json& message = (*messages)[i];
    if (!message.is_object()) throw ApiError(400, name + ": is not an object", name);
    const std::optional<std::string> role = ApiFields(message, name + ".").name("role");
    if (!role) throw ApiError(400, name + ".role: is missing", name + ".role");
    refuse_fields_beside(message,
                         model.computes ? std::span<const std::string_view>(kPlainMessage)
                                        : std::span<const std::string_view>(kSimulatedMessage),
                         false, name + ".");
    std::string content = message_content(message, name, model);
    if (!model.computes) content += written(message.find("tool_calls"));
    // "developer" is OpenAI's newer name for the templates' role "system".
    chat.push_back({*role == "developer" ? "system" : *role, std::move(content)});
  }
  if (const std::string tools = written(fields.find("tools")); !tools.empty()) {
    if (chat.front().role != "system") chat.insert(chat.begin(), {"system", ""});
    chat.front().content += tools;
  }
  ChatOptions options;
  const bool continues = continues_final_message(fields, options.add_generation_prompt);
  if (const std::optional<ApiFields> kwargs = fields.fields("chat_template_kwargs")) {
    // Others belong to templates.
    if (model.computes) kwargs->allow_names({"enable_thinking", "date_string"});
    options.enable_thinking = kwargs->truth("enable_thinking", true);
    options.date = kwargs->name("date_string").value_or(options.date);
  }
  const ChatFamily family = model.tokenizer->chat_family();
  const bool adds_special = fields.truth("add_special_tokens", family == ChatFamily::None);
  try {
    std::string prompt = render_chat(family, chat, options);
    if (continues) prompt = cut_behind(std::move(prompt), chat.back().content, fields);
    return encode_text(model, limits, "messages", prompt, adds_special);
  } catch (const std::invalid_argument& error) {
    throw ApiError(400, std::string("messages: ") + error.what(), "messages");
  }
}

}  // namespace metronome
