// SPDX-License-Identifier: Apache-2.0
// Anthropic's /v1/messages as a chat.
#include <fmt/core.h>
#include <string>
#include <utility>

#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/request_prompts.h"
#include "serve/server/translated_body.h"

namespace metronome {
namespace {

// A list of blocks, or a text as one of them. `name` is a field of `fields`.
Json blocks_of(const ApiFields& fields, const char* name, std::size_t max_blocks) {
  const Json* content = fields.find(name);
  if (content == nullptr) return Json::array();
  if (content->is_string()) {
    return Json::array({Json{{"type", "text"}, {"text", *content}}});
  }
  constexpr const char* kAllowed = "allowed: a string, or a list of {\"type\": ..., ...}";
  if (fields.list(name, max_blocks) == nullptr) fields.fail(name, kAllowed);
  for (const Json& block : *content) {
    if (!block.is_object()) fields.fail(name, kAllowed);
  }
  return *content;
}

Json image_of(const ApiFields& block) {
  const std::optional<ApiFields> source = block.fields("source");
  if (!source) block.fail("source", "is missing; allowed: an image in base64");
  const std::string type = source->name("type").value_or("");
  std::string url = source->text("url").value_or("");
  if (type == "base64") {
    url = "data:" + source->name("media_type").value_or("") + ";base64," +
          source->text("data").value_or("");
  }
  return Json{{"type", "image_url"}, {"image_url", Json{{"url", url}}}};
}

// The blocks of one message, sorted into those of chats.
struct Sorted {
  Json parts = Json::array();    // texts and images
  Json calls = Json::array();    // tool_calls
  Json results = Json::array();  // messages of tools
};

void sort_block(const Json& entry, const std::string& place, std::size_t max_blocks, Sorted& all) {
  const ApiFields block(entry, place);
  const std::string type = block.name("type").value_or("text");
  if (type == "text") {
    all.parts.push_back(Json{{"type", "text"}, {"text", block.text("text").value_or("")}});
  } else if (type == "image") {
    all.parts.push_back(image_of(block));
  } else if (type == "tool_use") {
    const std::optional<std::string> name = block.name("name");
    if (!name) block.fail("name", "is missing; allowed: that of a tool");
    block.fields("input");  // an object
    const Json* input = block.find("input");
    const Json function =
        Json{{"name", *name}, {"arguments", (input == nullptr ? Json::object() : *input).dump()}};
    all.calls.push_back(
        Json{{"id", block.name("id").value_or("")}, {"type", "function"}, {"function", function}});
  } else if (type == "tool_result") {
    Sorted inner;
    for (const Json& part : blocks_of(block, "content", max_blocks)) {
      if (part.find("type") != nullptr && part["type"] == Json("tool_result")) {
        block.fail("content", "has a tool_result; allowed: texts and images");
      }
      sort_block(part, place + "content.", max_blocks, inner);
    }
    all.results.push_back(Json{{"role", "tool"},
                               {"tool_call_id", block.name("tool_use_id").value_or("")},
                               {"content", inner.parts}});
  } else if (type != "thinking" && type != "redacted_thinking") {
    block.fail("type", shown_text(type) +
                           " is not supported; allowed: text, image, tool_use, tool_result, "
                           "thinking");
  }
}

void add_turn(const Json& entry, const std::string& place, std::size_t max_blocks, Json& messages) {
  if (!entry.is_object()) throw ApiError(400, place + ": is not an object", place);
  const ApiFields fields(entry, place + ".");
  const std::optional<std::string> role = fields.name("role");
  if (!role) fields.fail("role", "is missing; allowed: user, assistant");
  if (*role != "user" && *role != "assistant" && *role != "system") {
    fields.fail("role", shown_text(*role) + " is not allowed; allowed: user, assistant");
  }
  Sorted all;
  for (const Json& block : blocks_of(fields, "content", max_blocks)) {
    sort_block(block, place + ".content.", max_blocks, all);
  }
  for (const Json& result : all.results) messages.push_back(result);
  const bool is_only_results = !all.results.empty() && all.parts.empty() && all.calls.empty();
  if (is_only_results) return;
  Json message = Json{{"role", *role}, {"content", all.parts}};
  if (!all.calls.empty()) message["tool_calls"] = all.calls;
  if (all.parts.empty()) message["content"] = nullptr;
  messages.push_back(message);
}

Json chat_of_turns(const ApiFields& fields, std::size_t most) {
  Json messages = Json::array();
  std::string system;
  for (const Json& block : blocks_of(fields, "system", most)) {
    const ApiFields text(block, "system.");
    if (!system.empty()) system += '\n';
    system += text.text("text").value_or("");
  }
  if (!system.empty()) messages.push_back(Json{{"role", "system"}, {"content", system}});
  const Json* list = fields.list("messages", most);
  if (list == nullptr || list->empty()) {
    fields.fail("messages", "allowed: a list of at least one {\"role\": ..., \"content\": ...}");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    add_turn((*list)[i], fmt::format("messages[{}]", i), most, messages);
  }
  return messages;
}

Json custom_tools_of(const ApiFields& fields, std::size_t most) {
  Json tools = Json::array();
  const Json* list = fields.list("tools", most);
  if (list == nullptr) fields.fail("tools", "allowed: a list of objects");
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) fields.fail("tools", "allowed: a list of objects");
    const ApiFields tool((*list)[i], fmt::format("tools[{}].", i));
    const std::string type = tool.name("type").value_or("custom");
    if (type != "custom")
      tool.fail("type", shown_text(type) + " is not supported; allowed: custom");
    Json function = Json::object();
    if (const Json* value = tool.find("name")) function["name"] = *value;
    if (const Json* value = tool.find("description")) function["description"] = *value;
    if (const Json* value = tool.find("input_schema")) function["parameters"] = *value;
    tools.push_back(Json{{"type", "function"}, {"function", function}});
  }
  return tools;
}

void set_chosen_tool(const ApiFields& fields, Json& made) {
  const std::optional<ApiFields> choice = fields.fields("tool_choice");
  if (!choice) return;
  const std::string type = choice->name("type").value_or("");
  if (type == "tool") {
    const Json name = Json(choice->name("name").value_or(""));
    made["tool_choice"] = Json{{"type", "function"}, {"function", Json{{"name", name}}}};
  } else if (type == "auto" || type == "any" || type == "none") {
    made["tool_choice"] = type == "any" ? "required" : type;
  } else {
    choice->fail("type", shown_text(type) + " is not allowed; allowed: auto, any, tool, none");
  }
}

void set_output_format(const ApiFields& format, Json& made) {
  Json named = Json::object();
  if (const Json* schema = format.find("schema")) named["schema"] = *schema;
  made["response_format"] =
      Json{{"type", format.name("type").value_or("text")}, {"json_schema", named}};
}

void set_thinking(const ApiFields& fields, Json& made) {
  // The first name of output_config.format.
  if (const std::optional<ApiFields> format = fields.fields("output_format")) {
    set_output_format(*format, made);
  }
  if (const std::optional<ApiFields> config = fields.fields("output_config")) {
    if (const Json* effort = config->find("effort")) made["reasoning_effort"] = *effort;
    if (const std::optional<ApiFields> format = config->fields("format"))
      set_output_format(*format, made);
  }
  const std::optional<ApiFields> thinking = fields.fields("thinking");
  const std::string type = thinking ? thinking->name("type").value_or("") : "disabled";
  if (type == "disabled") {
    made.erase("reasoning_effort");
  } else if (type == "enabled" || type == "adaptive") {
    if (!made.contains("reasoning_effort")) made["reasoning_effort"] = "medium";
    const Json* budget = thinking->find("budget_tokens");
    if (budget != nullptr) made["thinking_token_budget"] = *budget;
  } else {
    thinking->fail("type",
                   shown_text(type) + " is not allowed; allowed: enabled, adaptive, disabled");
  }
}

}  // namespace

TranslatedBody chat_of_messages(const Json& body, const ServedModel& model, bool is_counted) {
  const ApiFields fields(body);
  refuse_ignored_fields(ApiKind::Messages, body,
                        {.has_template = model.chat != nullptr, .computes = model.computes});
  TranslatedBody result;
  Json& made = result.body = Json::object();
  for (const char* name : {"temperature", "top_p", "top_k", "stream", "max_tokens"}) {
    if (const Json* value = fields.find(name)) made[name] = *value;
  }
  if (!is_counted && !fields.has("max_tokens")) {
    fields.fail("max_tokens", "is missing; allowed: an integer from 1");
  }
  if (const Json* stops = fields.find("stop_sequences")) made["stop"] = *stops;
  const std::size_t most = max_prompt_tokens(model);
  made["messages"] = chat_of_turns(fields, most);
  if (fields.has("tools")) made["tools"] = custom_tools_of(fields, most);
  if (const Json* tools = made.find("tools"); tools != nullptr && tools->empty()) {
    made.erase("tools");
  }
  set_chosen_tool(fields, made);
  set_thinking(fields, made);
  result.names = {{"stop", "stop_sequences"},
                  {"thinking_token_budget", "thinking.budget_tokens"},
                  {"reasoning_effort", "output_config.effort"},
                  {"response_format", "output_config.format"}};
  return result;
}

}  // namespace metronome
