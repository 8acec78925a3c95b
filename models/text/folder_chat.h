// SPDX-License-Identifier: Apache-2.0
// The chat template of a model folder, and the texts of tokens that it names.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "models/text/jinja/template.h"

namespace metronome {

// The arguments of apply_chat_template of transformers.
struct Conversation {
  Json messages = Json::array();  // objects with a role and a content
  Json tools;                     // null: none
  Json documents;                 // null: none
  Json arguments;                 // further variables of the template; null: none
  bool add_generation_prompt = true;
  // The prompt ends with the last message's content, which the answer continues.
  bool continue_final_message = false;
};

// The texts of a model's templates, each with its name for messages.
struct ChatTemplates {
  struct Named {
    std::string text, name;
  };
  std::optional<Named> standard;
  std::optional<Named> tool_use;  // of conversations with tools
  std::string without_standard;   // where nothing is standard: the names that there are
};

// Immutable: several threads may render at once.
class FolderChat {
 public:
  // The template of chat_template.jinja in the folder, else of `chat_template` in its
  // tokenizer_config.json: a text, or a list of named texts, of which "tool_use" is for
  // conversations with tools and "default" for all others. additional_chat_templates/tool_use.jinja
  // goes before that of the list. As in transformers, a folder may have no default: render() then
  // refuses what it would be for. nullopt: the folder has no template. Throws ConfigError, with the
  // file, for one that cannot be read or rendered.
  static std::optional<FolderChat> read(const std::string& folder);
  // The template of a file, with the tokens of a model folder or a GGUF file ("": none). Throws
  // ConfigError.
  static FolderChat read_file(const std::string& path, const std::string& tokens_from);
  // The template in the metadata of a GGUF file, and the one named tool_use; nullopt: it has none.
  // Throws ConfigError.
  static std::optional<FolderChat> read_gguf(const std::string& path);
  // A template's text. `name` is shown in messages; `tokens` is an object with the texts of
  // bos_token, eos_token and others. Throws ConfigError.
  static FolderChat from_text(std::string_view source, const std::string& name, Json tokens);

  // Where the template comes from.
  const std::string& name() const { return name_; }
  // Names such as eos_token that the template uses and nothing here defines. Their texts are empty,
  // as in llama.cpp, unless the template itself looks whether they are defined.
  const std::vector<std::string>& empty_tokens() const { return empty_tokens_; }
  // Of the template for conversations with or without tools. Contents that are lists of parts stay
  // lists for such a template; for others they are texts.
  bool takes_parts(bool has_tools = false) const;
  // Whether that template's text contains this word.
  bool mentions(std::string_view word, bool has_tools = false) const {
    const JinjaTemplate* found = template_for(has_tools);
    return found != nullptr && found->mentions(word);
  }

  // The prompt, to be encoded with add_special_tokens = false: what transformers'
  // apply_chat_template gives. A message's `reasoning` is also its `reasoning_content` and
  // `thinking`. `now` is the local time. Throws JinjaError for a conversation that the template
  // does not take, and one whose last message cannot be continued.
  std::string render(const Conversation& conversation, const std::tm& now) const;

 private:
  FolderChat(const ChatTemplates& templates, Json tokens);

  // Null: there is none for such conversations.
  const JinjaTemplate* template_for(bool has_tools) const {
    if (has_tools && tool_template_) return &*tool_template_;
    return template_ ? &*template_ : nullptr;
  }

  std::string name_;
  std::string names_;  // where there is no default: of the other templates
  std::optional<JinjaTemplate> template_;
  std::optional<JinjaTemplate> tool_template_;
  Json tokens_;
  std::vector<std::string> empty_tokens_;
};

}  // namespace metronome
