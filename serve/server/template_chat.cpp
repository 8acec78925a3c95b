// SPDX-License-Identifier: Apache-2.0
#include "serve/server/template_chat.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "core/base/python_json.h"
#include "serve/server/api_request.h"

namespace metronome {
namespace {

// Variables of a template that come from other fields of a request.
constexpr std::array<std::string_view, 7> kOwnFields = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

Json joined_parts(const Json& content, const ApiFields& fields, const std::string& name,
                  bool takes_parts, std::size_t max_parts, ChatImages& images) {
  constexpr const char* kAllowed =
      "allowed: a string, or a list of {\"type\": \"text\", \"text\": ...}";
  bool has_images = false;
  if (!content.is_array()) fields.fail("content", kAllowed);
  fields.list("content", max_parts);
  Json parts = Json::array();
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object()) fields.fail("content", kAllowed);
    const ApiFields part_fields(part, name + ".content.");
    const std::string type = part_fields.name("type").value_or("text");
    if (type == "image_url" && images.are_taken()) {
      images.take(part, name + ".content");
      parts.push_back(Json{{"type", "image"}});
      has_images = true;
      continue;
    }
    if (type != "text") part_fields.fail("type", images.refusal(type));
    const Json* given = part.find("text");
    if (given != nullptr && given->is_null()) continue;  // as in vLLM
    const std::optional<std::string> part_text = part_fields.text("text");
    if (!part_text) part_fields.fail("text", "is missing");
    if (!parts.empty()) text += '\n';
    text += *part_text;
    parts.push_back(Json{{"type", "text"}, {"text", *part_text}});
  }
  return takes_parts || has_images ? parts : Json(std::move(text));
}

// Python's falsehood, for which vLLM gives {}.
bool is_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json(0) || value == Json("") ||
         (value.is_structured() && value.empty());
}

// Templates write arguments as JSON, so they need the value and not its text. As in vLLM an empty
// list of calls is not there, and arguments that are empty or null are an empty object.
void parse_arguments(Json& message, const std::string& name, std::size_t max_calls) {
  Json* calls = message.find("tool_calls");
  if (calls == nullptr || calls->is_null()) return;
  const ApiFields fields(message, name + ".");
  if (fields.list("tool_calls", max_calls) == nullptr) {
    fields.fail("tool_calls", "is not a list; allowed: null, a list of calls");
  }
  if (calls->empty()) {
    message.erase("tool_calls");
    return;
  }
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string place = fmt::format("{}.tool_calls[{}]", name, i);
    Json* function = (*calls)[i].find("function");
    if (function == nullptr || !function->is_object()) {
      throw ApiError(400, place + ".function: is missing; allowed: a name and arguments", place);
    }
    Json* arguments = function->find("arguments");
    if (arguments == nullptr || is_nothing(*arguments)) {
      (*function)["arguments"] = Json::object();
      continue;
    }
    if (arguments->is_structured()) continue;
    std::optional<Json> parsed;
    try {
      if (arguments->is_string())
        parsed = parse_python_json(arguments->string(), {.max_depth = 64});
    } catch (const JsonError&) {
    }
    if (!parsed) {
      throw ApiError(
          400, place + ".function.arguments: is not JSON; allowed: an object, or its text", place);
    }
    *arguments = std::move(*parsed);
  }
}

Json read_messages(const ApiFields& fields, const FolderChat& chat, bool has_tools,
                   std::size_t max_entries, ChatImages& images) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", "allowed: a list of at least one {\"role\": ..., \"content\": ...}");
  }
  fields.list("messages", max_entries);
  const bool takes_parts = chat.takes_parts(has_tools);
  Json result = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string name = fmt::format("messages[{}]", i);
    Json message = (*messages)[i];
    if (!message.is_object()) throw ApiError(400, name + ": is not an object", name);
    const ApiFields message_fields((*messages)[i], name + ".");
    const std::optional<std::string> role = message_fields.name("role");
    if (!role) throw ApiError(400, name + ".role: is missing", name + ".role");
    // "developer" is OpenAI's newer name for the role "system".
    if (*role == "developer" && !chat.mentions("developer", has_tools)) {
      message["role"] = "system";
    }
    const Json* content = message_fields.find("content");
    if (content == nullptr) {
      message["content"] = takes_parts ? Json::array() : Json("");  // as in vLLM
    } else if (!content->is_string()) {
      message["content"] =
          joined_parts(*content, message_fields, name, takes_parts, max_entries, images);
    }
    parse_arguments(message, name, max_entries);
    result.push_back(std::move(message));
  }
  return result;
}

// A list of objects; null if it is absent or empty.
Json read_objects(const ApiFields& fields, const char* name, std::size_t max_entries) {
  const Json* list = fields.list(name, max_entries);
  if (list == nullptr || list->empty()) return nullptr;
  if (!std::all_of(list->begin(), list->end(),
                   [](const Json& entry) { return entry.is_object(); })) {
    fields.fail(name, "allowed: a list of objects");
  }
  return *list;
}

Json read_arguments(const ApiFields& fields) {
  const Json* given = fields.find("chat_template_kwargs");
  if (given == nullptr) return Json::object();
  fields.fields("chat_template_kwargs");  // an object
  for (const Json::Member& member : given->items()) {
    if (std::find(kOwnFields.begin(), kOwnFields.end(), member.key) == kOwnFields.end()) continue;
    const std::string name = "chat_template_kwargs." + clipped(member.key);
    throw ApiError(400, name + ": is a field of the request; allowed: other names", name);
  }
  return *given;
}

void check_tool_choice(const ApiFields& fields, bool has_tools) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == Json("none")) return;
  if (*choice != Json("auto")) {
    fields.fail("tool_choice", "is not supported; allowed: null, \"none\", \"auto\"");
  }
  if (!has_tools) fields.fail("tool_choice", "needs tools; allowed: null, or with tools");
}

// Objects of which the template writes something.
Json read_for_template(const ApiFields& fields, const FolderChat& chat, const char* name,
                       bool has_tools, std::size_t max_entries) {
  Json list = read_objects(fields, name, max_entries);
  if (!list.is_null() && !chat.mentions(name, has_tools)) {
    fields.fail(name, "the chat template of this model does not write them; allowed: null");
  }
  return list;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

}  // namespace

bool continues_final_message(const ApiFields& fields, bool& add_generation_prompt) {
  const bool continues = fields.truth("continue_final_message", false);
  add_generation_prompt = fields.truth("add_generation_prompt", !continues);
  if (continues && add_generation_prompt) {
    fields.fail("continue_final_message",
                "contradicts add_generation_prompt; allowed: one of them");
  }
  return continues;
}

std::string template_prompt(const ApiFields& fields, const FolderChat& chat,
                            std::size_t max_entries, ChatImages& images, bool reads) {
  Conversation conversation;
  conversation.tools = reads ? read_for_template(fields, chat, "tools", true, max_entries)
                             : read_objects(fields, "tools", max_entries);
  const bool has_tools = !conversation.tools.is_null();
  conversation.messages = read_messages(fields, chat, has_tools, max_entries, images);
  if (reads) check_tool_choice(fields, has_tools);
  conversation.documents = read_for_template(fields, chat, "documents", has_tools, max_entries);
  conversation.arguments = read_arguments(fields);
  conversation.continue_final_message =
      continues_final_message(fields, conversation.add_generation_prompt);
  try {
    return chat.render(conversation, local_time());
  } catch (const JinjaError& error) {
    throw ApiError(400, std::string("messages: ") + error.what(), "messages");
  }
}

}  // namespace metronome
