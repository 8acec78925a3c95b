// SPDX-License-Identifier: Apache-2.0
#include "models/text/folder_chat.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "models/gguf/gguf_file.h"
#include "models/text/jinja/characters.h"

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
  const std::string path = folder + "/special_tokens_map.json";
  add_tokens(read_object_if_any(path), path, tokens);
  return tokens;
}

std::string read_template(const std::string& path) {
  return read_file(path, "a file with a Jinja template");
}

// The value of `chat_template` in a tokenizer_config.json.
ChatTemplates named_templates(const Json& value, const std::string& path) {
  constexpr const char* kAllowed =
      "; allowed: a template, or a list of {\"name\": ..., \"template\": ...}";
  const std::string name = path + ": chat_template";
  ChatTemplates result;
  if (value.is_string()) {
    result.standard = {value.string(), name};
    return result;
  }
  if (!value.is_array()) throw ConfigError(name + ": is not a text" + kAllowed);
  if (value.empty()) throw ConfigError(name + ": is empty" + kAllowed);
  std::vector<std::string> names;
  for (const Json& entry : value) {
    const Json* called = entry.find("name");
    const Json* text = entry.find("template");
    if (called == nullptr || text == nullptr || !called->is_string() || !text->is_string()) {
      throw ConfigError(name + ": has an entry without name or template" + kAllowed);
    }
    names.push_back(called->string());
    if (called->string() == "default") result.standard = {text->string(), name};
    if (called->string() == "tool_use") result.tool_use = {text->string(), name + ": tool_use"};
  }
  std::sort(names.begin(), names.end());
  if (!result.standard) {
    result.without_standard = join_names(std::vector<std::string_view>(names.begin(), names.end()));
  }
  return result;
}

// As transformers finds them: files go before the configuration.
ChatTemplates folder_templates(const std::string& folder, const Json& config,
                               const std::string& config_path) {
  ChatTemplates result;
  const std::string path = folder + "/chat_template.jinja";
  const Json* value = config.find("chat_template");
  if (path_exists(path)) {
    result.standard = {read_template(path), path};
  } else if (value != nullptr && !value->is_null()) {
    result = named_templates(*value, config_path);
  }
  const std::string tool_path = folder + "/additional_chat_templates/tool_use.jinja";
  if (path_exists(tool_path)) {
    result.tool_use = {read_template(tool_path), tool_path};
    if (!result.standard && result.without_standard.empty()) result.without_standard = "tool_use";
  }
  return result;
}

// As in llama.cpp, tool_use is for all conversations where there is no other.
ChatTemplates gguf_templates(const GgufFile& file) {
  ChatTemplates result;
  const auto read = [&file](std::optional<ChatTemplates::Named>& into, const std::string& key) {
    const std::string text(file.text(key).value_or(std::string_view()));
    if (!text.empty()) into = {text, file.path() + ": " + key};
  };
  read(result.standard, "tokenizer.chat_template");
  read(result.tool_use, "tokenizer.chat_template.tool_use");
  if (!result.standard) result.standard = result.tool_use;
  return result;
}

// The names of special tokens in templates, from the metadata of a GGUF file.
Json gguf_tokens(const GgufFile& file) {
  const std::vector<std::string_view> texts = file.texts("tokenizer.ggml.tokens");
  Json tokens = Json::object();
  for (const auto& [name, key] :
       {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
        std::pair("unk_token", "unknown_token_id"), std::pair("pad_token", "padding_token_id")}) {
    const std::optional<std::int64_t> id = file.integer(std::string("tokenizer.ggml.") + key);
    if (!id || *id < 0 || *id >= static_cast<std::int64_t>(texts.size())) continue;
    tokens[name] = std::string(texts[static_cast<std::size_t>(*id)]);
  }
  return tokens;
}

// Whether a template asks itself if `name` is defined.
bool looks_whether_defined(std::string_view source, std::string_view name) {
  for (std::size_t at = source.find(name); at != source.npos; at = source.find(name, at + 1)) {
    std::string_view rest = source.substr(at + name.size());
    const std::size_t next = rest.find_first_not_of(" \t\r\n");
    rest = rest.substr(std::min(next, rest.size()));
    if (rest.starts_with("is ") || rest.starts_with('|')) return true;
  }
  return false;
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

FolderChat::FolderChat(const ChatTemplates& templates, Json tokens)
    : names_(templates.without_standard),
      tokens_(tokens.is_null() ? Json::object() : std::move(tokens)) {
  std::string sources;
  const auto parse = [&](const std::optional<ChatTemplates::Named>& from,
                         std::optional<JinjaTemplate>& into) {
    if (!from) return;
    into = JinjaTemplate::parse(from->text, from->name);
    if (name_.empty()) name_ = from->name;
    sources += from->text + "\n";
  };
  parse(templates.standard, template_);
  parse(templates.tool_use, tool_template_);
  if (name_.empty()) name_ = "none without a name; there are " + names_;
  for (const std::string_view name : kTokenNames) {
    const bool is_used = mentions(name, false) || mentions(name, true);
    const bool is_guarded = looks_whether_defined(sources, name);
    if (!is_used || is_guarded || tokens_.contains(name)) continue;
    tokens_[name] = "";
    empty_tokens_.emplace_back(name);
  }
}

std::optional<FolderChat> FolderChat::read_gguf(const std::string& path) {
  const GgufFile file(path);
  const ChatTemplates templates = gguf_templates(file);
  if (!templates.standard) return std::nullopt;
  return FolderChat(templates, gguf_tokens(file));
}

FolderChat FolderChat::from_text(std::string_view source, const std::string& name, Json tokens) {
  ChatTemplates templates;
  templates.standard = {std::string(source), name};
  return FolderChat(templates, std::move(tokens));
}

FolderChat FolderChat::read_file(const std::string& path, const std::string& tokens_from) {
  const std::string source = read_template(path);
  Json tokens;
  if (is_folder(tokens_from)) {
    const std::string config_path = tokens_from + "/tokenizer_config.json";
    tokens = read_tokens(tokens_from, read_object_if_any(config_path), config_path);
  } else if (!tokens_from.empty()) {
    tokens = gguf_tokens(GgufFile(tokens_from));
  }
  return from_text(source, path, std::move(tokens));
}

std::optional<FolderChat> FolderChat::read(const std::string& folder) {
  const std::string config_path = folder + "/tokenizer_config.json";
  const Json config = read_object_if_any(config_path);
  const ChatTemplates templates = folder_templates(folder, config, config_path);
  if (!templates.standard && templates.without_standard.empty()) return std::nullopt;
  return FolderChat(templates, read_tokens(folder, config, config_path));
}

bool FolderChat::takes_parts(bool has_tools) const {
  const JinjaTemplate* found = template_for(has_tools);
  return found != nullptr && found->loops_over("content");
}

std::string FolderChat::render(const Conversation& conversation, const std::tm& now) const {
  const JinjaTemplate* chosen = template_for(!conversation.tools.is_null());
  if (chosen == nullptr) {
    throw JinjaError("the model has no default chat template, only " + printable(names_) +
                         (tool_template_ ? "; allowed: a conversation with tools" : ""),
                     false);
  }
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
  std::string prompt = chosen->render(variables, now);
  if (conversation.continue_final_message) {
    prompt = cut_at_mark(std::move(prompt), final_text);
  }
  return prompt;
}

}  // namespace metronome
