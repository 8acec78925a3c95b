#include "core/text/folder_chat.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_place.h"
#include "core/gguf/gguf_file.h"
#include "core/text/gguf_tokenizer.h"
#include "core/text/jinja/characters.h"

namespace metronome {
namespace {

// transformers puts this behind the last message, and cuts the prompt there.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE_TAG ";

constexpr std::array<std::string_view, 7> kTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

Json read_object(const std::string& path) {
  Json json = parse_json(read_file(path, "a readable file"), path);
  if (!json.is_object()) throw ConfigError(path + ": is not an object; allowed: a JSON object");
  return json;
}

Json read_object_if_any(const std::string& path) {
  return path_exists(path) ? read_object(path) : Json::object();
}

// A token is a text, or an object with its content.
void add_tokens(const Json& from, const std::string& path, Json& tokens) {
  for (const std::string_view name : kTokenNames) {
    const Json* token = from.find(name);
    if (token == nullptr || token->is_null() || tokens.contains(name)) continue;
    const Json* content = token->is_object() ? token->find("content") : token;
    if (content == nullptr || !content->is_string()) {
      throw ConfigError(path + ": " + std::string(name) +
                        ": is not a token; allowed: a string, or an object with content");
    }
    tokens[name] = *content;
  }
}

// The names of special tokens in templates, from the two files that may have them.
Json read_tokens(const std::string& folder, const Json& config, const std::string& config_path) {
  Json tokens = Json::object();
  add_tokens(config, config_path, tokens);
  if (folder.empty()) return tokens;
  const std::string path = folder + "/special_tokens_map.json";
  add_tokens(read_object_if_any(path), path, tokens);
  return tokens;
}

struct NamedTemplates {
  std::optional<std::string> standard, tool_use;
};

// The value of `chat_template`.
NamedTemplates named_templates(const Json& value, const std::string& path) {
  constexpr const char* kAllowed =
      "; allowed: a template, or a list of {\"name\": ..., \"template\": ...} with a default";
  if (value.is_string()) return {value.string(), std::nullopt};
  if (!value.is_array()) throw ConfigError(path + ": chat_template: is not a text" + kAllowed);
  NamedTemplates result;
  for (const Json& entry : value) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string()) {
      throw ConfigError(path + ": chat_template: has an entry without name or template" + kAllowed);
    }
    if (name->string() == "default") result.standard = text->string();
    if (name->string() == "tool_use") result.tool_use = text->string();
  }
  if (!result.standard) {
    throw ConfigError(path + ": chat_template: names no default" + kAllowed);
  }
  return result;
}

constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking",
                                                        "reasoning"};

// As transformers does. Templates read reasoning under one name, clients send it under another.
// Keys that are null are left out; clients send them, and templates take what is there for a value.
Json normalised(const Json& messages) {
  Json result = Json::array();
  for (const Json& message : messages) {
    Json copy = Json::object();
    for (const Json::Member& member : message.items()) {
      if (!member.value.is_null()) copy[member.key] = member.value;
    }
    for (const std::string_view name : kReasoning) {
      const Json* found = message.find(name);
      if (found == nullptr || found->is_null()) continue;
      const Json reasoning = *found;
      if (!copy.contains("thinking")) copy["thinking"] = reasoning;
      copy["reasoning_content"] = reasoning;
      break;
    }
    result.push_back(std::move(copy));
  }
  return result;
}

[[noreturn]] void refuse_continuation(const std::string& message) {
  throw JinjaError("continue_final_message: " + message, false);
}

// Marks the end of the last message's text; returns the text without the mark.
std::string mark_end(Json& messages) {
  if (messages.empty()) refuse_continuation("there is no message to continue");
  Json* content = messages.back().find("content");
  if (content != nullptr && content->is_array()) {
    Json* last_text = nullptr;
    for (Json& part : *content) {
      if (Json* text = part.find("text"); text != nullptr && text->is_string()) last_text = text;
    }
    content = last_text;
  }
  if (content == nullptr || !content->is_string()) {
    refuse_continuation("the last message has no text to continue");
  }
  std::string text = content->string();
  *content = text + std::string(kContinueMark);
  return text;
}

std::string cut_at_mark(std::string prompt, const std::string& text) {
  const std::string_view mark = kContinueMark.substr(0, kContinueMark.size() - 1);
  const std::size_t at = prompt.rfind(mark);
  const std::string_view kept = jinja::stripped(text, nullptr, true, true);
  if (at == prompt.npos || prompt.find(kept) == prompt.npos) {
    refuse_continuation("the chat template changes the last message's text");
  }
  const bool keeps_space = std::string_view(prompt).substr(at).starts_with(kContinueMark);
  prompt.resize(at);
  if (keeps_space) return prompt;
  // The template has trimmed the text, so that of the prompt is trimmed as well.
  return std::string(jinja::stripped(prompt, nullptr, false, true));
}

}  // namespace

FolderChat::FolderChat(std::string name, JinjaTemplate parsed, Json tokens)
    : name_(std::move(name)), template_(std::move(parsed)), tokens_(std::move(tokens)) {}

std::optional<FolderChat> FolderChat::read_gguf(const std::string& path) {
  const GgufFile file(path);
  const std::string source = gguf_chat_template(file);
  if (source.empty()) return std::nullopt;
  const std::vector<std::string_view> texts = file.texts("tokenizer.ggml.tokens");
  Json tokens = Json::object();
  for (const auto& [name, key] :
       {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
        std::pair("unk_token", "unknown_token_id"), std::pair("pad_token", "padding_token_id")}) {
    const std::optional<std::int64_t> id = file.integer(std::string("tokenizer.ggml.") + key);
    if (!id || *id < 0 || *id >= static_cast<std::int64_t>(texts.size())) continue;
    tokens[name] = std::string(texts[static_cast<std::size_t>(*id)]);
  }
  return from_text(source, path + ": tokenizer.chat_template", std::move(tokens));
}

FolderChat FolderChat::from_text(std::string_view source, const std::string& name, Json tokens) {
  return FolderChat(name, JinjaTemplate::parse(source, name), std::move(tokens));
}

FolderChat FolderChat::read_file(const std::string& path, const std::string& folder) {
  const std::string source = metronome::read_file(path, "a file with a Jinja template");
  const std::string config_path = folder + "/tokenizer_config.json";
  const Json config = folder.empty() ? Json::object() : read_object_if_any(config_path);
  return from_text(source, path, read_tokens(folder, config, config_path));
}

std::optional<FolderChat> FolderChat::read(const std::string& folder) {
  const std::string path = folder + "/chat_template.jinja";
  if (path_exists(path)) return read_file(path, folder);
  const std::string config_path = folder + "/tokenizer_config.json";
  const Json config = read_object_if_any(config_path);
  const Json* value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return std::nullopt;
  const NamedTemplates named = named_templates(*value, config_path);
  const std::string name = config_path + ": chat_template";
  FolderChat chat = from_text(*named.standard, name, read_tokens(folder, config, config_path));
  if (named.tool_use) {
    chat.tool_template_ = JinjaTemplate::parse(*named.tool_use, name + ": tool_use");
  }
  return chat;
}

bool FolderChat::takes_parts() const { return template_.loops_over("content"); }

const JinjaTemplate& FolderChat::template_for(const Conversation& conversation) const {
  const bool has_tools = !conversation.tools.is_null();
  return has_tools && tool_template_ ? *tool_template_ : template_;
}

std::string FolderChat::render(const Conversation& conversation, const std::tm& now) const {
  Json variables = tokens_;
  for (const Json::Member& member : conversation.arguments.items()) {
    variables[member.key] = member.value;
  }
  Json messages = normalised(conversation.messages);
  std::string final_text;
  if (conversation.continue_final_message) final_text = mark_end(messages);
  variables["messages"] = std::move(messages);
  variables["tools"] = conversation.tools;
  variables["documents"] = conversation.documents;
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  std::string prompt = template_for(conversation).render(variables, now);
  if (conversation.continue_final_message) {
    prompt = cut_at_mark(std::move(prompt), final_text);
  }
  return prompt;
}

}  // namespace metronome
