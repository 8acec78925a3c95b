// SPDX-License-Identifier: Apache-2.0
// OpenAI's /v1/responses as a chat.
#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <string>
#include <utility>

#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/request_prompts.h"
#include "serve/server/translated_body.h"

namespace metronome {
namespace {

// A content as that of a chat's message.
Json chat_content_of(const Json& content, const ApiFields& item, std::size_t max_parts) {
  if (content.is_string()) return content;
  constexpr const char* kAllowed =
      "allowed: a string, or a list of {\"type\": \"input_text\", \"text\": ...}";
  if (item.list("content", max_parts) == nullptr) item.fail("content", kAllowed);
  Json parts = Json::array();
  for (const Json& part : content) {
    if (!part.is_object()) item.fail("content", kAllowed);
    const ApiFields fields(part, "input.content.");
    const std::string type = fields.name("type").value_or("input_text");
    if (type == "input_text" || type == "output_text" || type == "text") {
      parts.push_back(Json{{"type", "text"}, {"text", fields.text("text").value_or("")}});
    } else if (type == "refusal") {
      parts.push_back(Json{{"type", "text"}, {"text", fields.text("refusal").value_or("")}});
    } else if (type == "input_image") {
      const Json url = Json{{"url", fields.text("image_url").value_or("")}};
      parts.push_back(Json{{"type", "image_url"}, {"image_url", url}});
    } else {
      fields.fail("type", "parts of type " + shown_text(type) +
                              " are not supported; allowed: input_text, output_text, input_image");
    }
  }
  return parts;
}

// Appends a call to the message of calls at the end, or to a new one.
void add_called(const ApiFields& item, Json& messages) {
  const std::optional<std::string> name = item.name("name");
  if (!name) item.fail("name", "is missing; allowed: that of a function");
  const Json function = Json{{"name", *name}, {"arguments", item.text("arguments").value_or("{}")}};
  const Json call =
      Json{{"id", item.name("call_id").value_or("")}, {"type", "function"}, {"function", function}};
  if (messages.empty() || messages.back().find("tool_calls") == nullptr) {
    messages.push_back(
        Json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}});
  }
  messages.back()["tool_calls"].push_back(call);
}

void add_item(const Json& entry, const std::string& place, std::size_t max_parts, Json& messages) {
  if (!entry.is_object()) throw ApiError(400, place + ": is not an object", place);
  const ApiFields item(entry, place + ".");
  const std::string type = item.name("type").value_or("message");
  if (type == "message") {
    const std::optional<std::string> role = item.name("role");
    if (!role) item.fail("role", "is missing");
    const Json* content = item.find("content");
    if (content == nullptr) item.fail("content", "is missing");
    messages.push_back(
        Json{{"role", *role}, {"content", chat_content_of(*content, item, max_parts)}});
  } else if (type == "function_call") {
    add_called(item, messages);
  } else if (type == "function_call_output") {
    const Json* output = item.find("output");
    if (output == nullptr) item.fail("output", "is missing");
    const Json content = output->is_string() ? *output : chat_content_of(*output, item, max_parts);
    messages.push_back(Json{{"role", "tool"},
                            {"tool_call_id", item.name("call_id").value_or("")},
                            {"content", content}});
  } else if (type != "reasoning") {  // templates leave out the reasoning of earlier turns
    item.fail("type", shown_text(type) +
                          " is not supported; allowed: message, function_call, "
                          "function_call_output, reasoning");
  }
}

Json chat_of_items(const ApiFields& fields, std::size_t max_items) {
  Json messages = Json::array();
  if (const std::optional<std::string> system = fields.text("instructions")) {
    messages.push_back(Json{{"role", "system"}, {"content", *system}});
  }
  const Json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back(Json{{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (input == nullptr || fields.list("input", max_items) == nullptr || input->empty()) {
    fields.fail("input", "allowed: a string, or a list of at least one item");
  }
  for (std::size_t i = 0; i < input->size(); ++i) {
    add_item((*input)[i], fmt::format("input[{}]", i), max_items, messages);
  }
  if (messages.empty()) fields.fail("input", "has no message; allowed: at least one");
  return messages;
}

// Tools of OpenAI's servers and of its own clients. vLLM leaves them out of the prompt
// (construct_tool_dicts of its /v1/responses), so no model calls them.
constexpr std::string_view kHostedTools[] = {"web_search",
                                             "web_search_preview",
                                             "file_search",
                                             "code_interpreter",
                                             "computer_use_preview",
                                             "image_generation",
                                             "local_shell",
                                             "shell",
                                             "apply_patch",
                                             "mcp",
                                             "custom",
                                             "namespace",
                                             "tool_search"};

Json chat_tools_of(const Json& list, const ApiFields& fields, std::size_t max_tools) {
  if (fields.list("tools", max_tools) == nullptr)
    fields.fail("tools", "allowed: a list of objects");
  Json tools = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) fields.fail("tools", "allowed: a list of objects");
    const ApiFields tool(list[i], fmt::format("tools[{}].", i));
    const std::string type = tool.name("type").value_or("function");
    if (std::find(std::begin(kHostedTools), std::end(kHostedTools), type) !=
        std::end(kHostedTools)) {
      continue;
    }
    if (type != "function")
      tool.fail("type", shown_text(type) + " is not supported; allowed: function");
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters"}) {
      if (const Json* value = tool.find(name)) function[name] = *value;
    }
    tools.push_back(Json{{"type", "function"}, {"function", function}});
  }
  return tools;
}

Json tool_choice_of(const Json& choice) {
  const Json* type = choice.find("type");
  const Json* name = choice.find("name");
  if (type == nullptr || !(*type == Json("function")) || name == nullptr) return choice;
  return Json{{"type", "function"}, {"function", Json{{"name", *name}}}};
}

void set_format(const ApiFields& fields, Json& made) {
  const std::optional<ApiFields> text = fields.fields("text");
  if (!text) return;
  const std::optional<ApiFields> format = text->fields("format");
  if (!format) return;
  const std::string type = format->name("type").value_or("text");
  Json response_format = Json{{"type", type}};
  if (type == "json_schema") {
    Json named = Json::object();
    for (const char* name : {"name", "schema"}) {
      if (const Json* value = format->find(name)) named[name] = *value;
    }
    response_format["json_schema"] = named;
  }
  made["response_format"] = response_format;
}

// The fields of its request that an answer repeats, with defaults for absent ones.
Json repeated(const Json& body) {
  Json fields = Json{{"instructions", nullptr},
                     {"max_output_tokens", nullptr},
                     {"metadata", Json::object()},
                     {"parallel_tool_calls", true},
                     {"previous_response_id", nullptr},
                     {"reasoning", Json{{"effort", nullptr}, {"summary", nullptr}}},
                     {"store", false},
                     {"temperature", 1.0},
                     {"text", Json{{"format", Json{{"type", "text"}}}}},
                     {"tool_choice", "auto"},
                     {"tools", Json::array()},
                     {"top_p", 1.0},
                     {"truncation", "disabled"},
                     {"user", nullptr}};
  for (const Json::Member& member : fields.items()) {
    const Json* given = body.find(member.key);
    if (given == nullptr || given->is_null() || member.key == "store") continue;
    fields[member.key] = *given;
  }
  return fields;
}

}  // namespace

TranslatedBody chat_of_response(const Json& body, const ServedModel& model) {
  const ApiFields fields(body);
  refuse_ignored_fields(ApiKind::Responses, body,
                        {.has_template = model.chat != nullptr, .computes = model.computes});
  TranslatedBody result;
  Json& made = result.body = Json::object();
  for (const Json::Member& member : body.items()) {
    if (is_read_by(ApiKind::Chat, member.key)) made[member.key] = member.value;
  }
  const std::size_t most = max_prompt_tokens(model);
  made["messages"] = chat_of_items(fields, most);
  if (const Json* tools = fields.find("tools")) {
    made["tools"] = chat_tools_of(*tools, fields, most);
    if (made["tools"].empty()) made.erase("tools");
  }
  if (const Json* choice = fields.find("tool_choice")) {
    made["tool_choice"] = tool_choice_of(*choice);
    // As agents send it beside no tools.
    if (*choice == Json("auto") && !made.contains("tools")) made.erase("tool_choice");
  }
  if (const Json* most_tokens = fields.find("max_output_tokens")) made["max_tokens"] = *most_tokens;
  set_format(fields, made);
  if (const std::optional<ApiFields> reasoning = fields.fields("reasoning")) {
    if (const Json* effort = reasoning->find("effort")) made["reasoning_effort"] = *effort;
  }
  made.erase("stream_options");
  made.erase("top_logprobs");
  const Json* include = fields.list("include", 64);
  for (const Json& name : include == nullptr ? Json::array() : *include) {
    if (name == Json("message.output_text.logprobs")) made["logprobs"] = true;
  }
  if (const Json* top = fields.find("top_logprobs"); top != nullptr && !(*top == Json(0))) {
    made["logprobs"] = true;
    made["top_logprobs"] = *top;
  }
  result.names = {{"messages", "input"},
                  {"max_tokens", "max_output_tokens"},
                  {"response_format.json_schema", "text.format"},
                  {"response_format", "text.format"},
                  {"reasoning_effort", "reasoning.effort"},
                  {"tool_choice.function", "tool_choice"}};
  result.repeated = std::make_shared<const Json>(repeated(body));
  return result;
}

}  // namespace metronome
