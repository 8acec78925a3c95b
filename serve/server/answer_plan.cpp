// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer_plan.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/python_json.h"
#include "core/base/rng.h"
#include "models/text/tokenizer.h"
#include "serve/server/answer_script.h"
#include "serve/server/pattern_text.h"
#include "serve/server/request_prompts.h"
#include "serve/server/schema_text.h"

namespace metronome {
namespace {

// The shape of all answers of a request.
struct AnswerShape {
  std::optional<Json> schema;      // JSON
  std::string field;               // that has the schema
  std::vector<std::string> texts;  // one of these; empty: any
  std::string function;            // as ApiRequest has it
  bool is_function_named = false;
  bool is_free() const { return !schema && texts.empty(); }
};

// Their tokens are kept until the answer ends.
constexpr std::int64_t kMaxScriptTokens = std::int64_t{1} << 20;
// A schema is read for each answer.
constexpr std::size_t kMaxSchemaBytesOfAll = 128 * 1024;
constexpr std::size_t kMaxTexts = 1024;
constexpr std::size_t kMaxTextBytes = 256 * 1024;

Json any_object() {
  return Json{{"type", "object"},
              {"properties", Json{{"text", Json{{"type", "string"}}}}},
              {"required", Json::array({"text"})}};
}

// ---- tools ----

struct Tool {
  std::string name;
  Json parameters;
};

std::vector<Tool> read_tools(const ApiFields& fields, const ServedModel& model) {
  const Json* list = fields.list("tools", max_prompt_tokens(model));
  if (list == nullptr) {
    if (fields.has("tools")) fields.fail("tools", "allowed: a list of objects");
    return {};
  }
  std::vector<Tool> tools;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("tools[{}]", i);
    const Json& entry = (*list)[i];
    if (!entry.is_object()) fields.fail("tools", "allowed: a list of objects");
    const ApiFields tool(entry, place + ".");
    const std::string type = tool.name("type").value_or("function");
    if (type != "function")
      tool.fail("type", shown_text(type) + " is not supported; allowed: function");
    const std::optional<ApiFields> function = tool.fields("function");
    if (!function) tool.fail("function", "is missing; allowed: a name and parameters");
    const std::optional<std::string> name = function->name("name");
    if (!name || name->empty()) function->fail("name", "is missing; allowed: a text");
    function->fields("parameters");  // an object
    const Json* parameters = function->find("parameters");
    tools.push_back({*name, parameters == nullptr ? Json::object() : *parameters});
  }
  return tools;
}

const Tool& find_tool(const std::vector<Tool>& tools, const ApiFields& place,
                      const std::string& name) {
  for (const Tool& tool : tools) {
    if (tool.name == name) return tool;
  }
  place.fail("name", shown_text(name) + " is none of tools; allowed: the name of a tool");
}

void set_call(const Tool& tool, AnswerShape& shape) {
  shape.texts.clear();
  shape.function = tool.name;
  shape.schema = tool.parameters;
  if (!shape.schema->contains("type") && !shape.schema->contains("$ref")) {
    (*shape.schema)["type"] = "object";
  }
  shape.field = "tools";
}

// {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}
std::string read_allowed_tools(const ApiFields& choice, std::vector<Tool>& tools) {
  const std::optional<ApiFields> allowed = choice.fields("allowed_tools");
  const ApiFields& from = allowed ? *allowed : choice;  // of /v1/responses
  std::vector<Tool> chosen;
  if (const Json* names = from.list("tools", tools.size())) {
    for (const Json& entry : *names) {
      if (!entry.is_object()) from.fail("tools", "allowed: a list of objects");
      const ApiFields tool(entry, "tool_choice.tools.");
      const std::optional<ApiFields> function = tool.fields("function");
      const ApiFields& named = function ? *function : tool;
      chosen.push_back(find_tool(tools, named, named.name("name").value_or("")));
    }
  }
  if (chosen.empty()) from.fail("tools", "is missing; allowed: some of the tools");
  tools = std::move(chosen);
  return from.name("mode").value_or("auto");
}

void read_tool_choice(const ApiFields& fields, const ServedModel& model, std::uint64_t drawn,
                      AnswerShape& shape) {
  std::vector<Tool> tools = read_tools(fields, model);
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == Json("none")) return;
  constexpr const char* kAllowed =
      "allowed: \"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": "
      "{\"name\": "
      "...}}";
  if (tools.empty()) fields.fail("tool_choice", "needs tools; allowed: null, or with tools");
  std::string mode;
  if (choice->is_string()) {
    mode = choice->string();
  } else if (!choice->is_object()) {
    fields.fail("tool_choice", kAllowed);
  } else {
    const ApiFields place(*choice, "tool_choice.");
    const std::string type = place.name("type").value_or("function");
    if (type == "allowed_tools") {
      mode = read_allowed_tools(place, tools);
    } else {
      const std::optional<ApiFields> function = place.fields("function");
      if (type != "function" || !function) fields.fail("tool_choice", kAllowed);
      set_call(find_tool(tools, *function, function->name("name").value_or("")), shape);
      shape.is_function_named = true;
      return;
    }
  }
  if (mode == "auto") return;
  if (mode != "required")
    fields.fail("tool_choice", shown_text(mode) + " is not supported; " + kAllowed);
  set_call(tools[drawn % tools.size()], shape);
}

// ---- JSON ----

// A schema, as an object or as its text.
void set_schema(const ApiFields& fields, const char* name, AnswerShape& shape) {
  const Json* value = fields.find(name);
  if (value == nullptr) return;
  shape.field = name;
  if (value->is_string()) {
    try {
      shape.schema = parse_python_json(value->string(), {.max_depth = 64});
    } catch (const JsonError&) {
      fields.fail(name, "is not the JSON of a schema");
    }
  } else {
    shape.schema = *value;
  }
  if (!shape.schema->is_object()) fields.fail(name, "is not a schema; allowed: an object");
}

void read_response_format(const ApiFields& fields, AnswerShape& shape) {
  const std::optional<ApiFields> format = fields.fields("response_format");
  if (!format) return;
  const std::string type = format->name("type").value_or("text");
  if (type == "text") return;
  if (type == "json_object") {
    shape.schema = any_object();
    shape.field = "response_format";
  } else if (type == "json_schema") {
    const std::optional<ApiFields> named = format->fields("json_schema");
    if (!named)
      format->fail("json_schema", "is missing; allowed: {\"name\": ..., \"schema\": ...}");
    if (named->has("schema")) {
      set_schema(*named, "schema", shape);
    } else {
      shape.schema = any_object();
    }
    shape.field = "response_format";
  } else {
    format->fail("type",
                 shown_text(type) + " is not supported; allowed: text, json_object, json_schema");
  }
}

void read_texts(const ApiFields& fields, const char* name, AnswerShape& shape) {
  if (!fields.has(name)) return;
  shape.texts = fields.texts(name, kMaxTexts, kMaxTextBytes);
  const bool has_empty = std::any_of(shape.texts.begin(), shape.texts.end(),
                                     [](const std::string& text) { return text.empty(); });
  if (shape.texts.empty() || has_empty) fields.fail(name, "allowed: a list of texts");
}

// Texts that are a regular expression as a whole.
void read_pattern(const ApiFields& fields, const char* name, std::uint64_t drawn,
                  AnswerShape& shape) {
  constexpr std::uint64_t kMostExamples = 16;  // the seed of the request chooses one
  const std::optional<std::string> pattern = fields.text(name);
  if (!pattern || pattern->empty()) return;
  try {
    const SchemaPattern known("^(?:" + *pattern + ")$");
    for (std::uint64_t i = 0; i < kMostExamples; ++i) {
      const std::optional<std::string> example = known.example(1, kMaxTextBytes, drawn + 1000 * i);
      if (example) shape.texts.push_back(*example);
    }
  } catch (const std::runtime_error& error) {
    fields.fail(
        name, std::string(error.what()) + "; allowed: a pattern without look-around, \\b and \\p");
  }
  if (shape.texts.empty()) fields.fail(name, "was found in no text of simulated answers");
  shape.field = name;
}

// vLLM's and SGLang's fields.
void read_guides(const ApiFields& fields, std::uint64_t drawn, AnswerShape& shape) {
  set_schema(fields, "guided_json", shape);
  set_schema(fields, "json_schema", shape);
  read_texts(fields, "guided_choice", shape);
  read_pattern(fields, "guided_regex", drawn, shape);
  read_pattern(fields, "regex", drawn, shape);
  const std::optional<ApiFields> outputs = fields.fields("structured_outputs");
  if (!outputs) return;
  outputs->allow_names({"json", "json_object", "choice", "regex", "disable_any_whitespace",
                        "disable_additional_properties", "whitespace_pattern"});
  set_schema(*outputs, "json", shape);
  read_texts(*outputs, "choice", shape);
  read_pattern(*outputs, "regex", drawn, shape);
  if (outputs->truth("json_object", false)) shape.schema = any_object();
  if (shape.is_free())
    fields.fail("structured_outputs", "allowed: json, json_object, choice or regex");
}

AnswerShape read_shape(const ApiFields& fields, const ServedModel& model, const ApiRequest& request,
                       std::uint64_t drawn) {
  AnswerShape shape;
  if (model.computes) return shape;
  read_response_format(fields, shape);
  read_guides(fields, drawn, shape);
  if (is_chat(request.kind)) read_tool_choice(fields, model, drawn, shape);
  return shape;
}

// ---- reasoning ----

// The share of a simulated answer that is reasoning.
double reasoning_share(const ApiFields& fields) {
  const std::optional<std::string> effort = fields.name("reasoning_effort");
  if (!effort || *effort == "none") return 0;
  constexpr std::pair<std::string_view, double> kShares[] = {{"minimal", 0.125}, {"low", 0.25},
                                                             {"medium", 0.5},    {"high", 0.75},
                                                             {"xhigh", 0.875},   {"max", 0.875}};
  for (const auto& [name, share] : kShares) {
    if (*effort == name) return share;
  }
  fields.fail("reasoning_effort",
              shown_text(*effort) +
                  " is not allowed; allowed: none, minimal, low, medium, high, xhigh, max");
}

// ---- answers ----

std::vector<TokenId> shaped_tokens(const AnswerShape& shape, const ApiFields& fields,
                                   const Tokenizer& tokenizer, std::uint64_t seed,
                                   std::int32_t num_tokens, std::int32_t most_tokens) {
  if (!shape.texts.empty()) {
    return tokenizer.encode(shape.texts[mix64(seed) % shape.texts.size()], false);
  }
  std::vector<TokenId> tokens;
  try {
    tokens = schema_tokens(tokenizer, *shape.schema, seed, num_tokens, most_tokens);
  } catch (const SchemaError& error) {
    fields.fail(shape.field,
                "schema" + (error.place.empty() ? "" : " " + error.place) + ": " + error.what());
  }
  const std::string text = decode(tokenizer, tokens, true);
  if (Json::try_parse(text)) return tokens;
  fields.fail(shape.field, "has texts that the model's tokenizer does not write; allowed: others");
}

// `drawn`: the length of the answer that the workload has, with min_tokens and max_tokens.
void write_script(const AnswerShape& shape, const ApiFields& fields, const ServedModel& model,
                  std::uint64_t seed, std::int32_t drawn, ApiRequest& request) {
  std::int32_t& num_reasoning = request.reasoning_tokens.back();
  std::vector<TokenId> shaped = shaped_tokens(shape, fields, *model.tokenizer, seed,
                                              drawn - num_reasoning, request.max_tokens);
  // The shortest form may be longer than its share.
  num_reasoning = std::clamp(drawn - static_cast<std::int32_t>(shaped.size()), 0, num_reasoning);
  std::vector<TokenId> tokens = text_tokens(*model.tokenizer, seed, num_reasoning);
  tokens.insert(tokens.end(), shaped.begin(), shaped.end());
  request.answer_tokens.back() = static_cast<std::int32_t>(tokens.size());
  request.scripts.back() = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
}

std::int32_t read_min_tokens(const ApiFields& fields, const ServedModel& model,
                             const ApiRequest& request) {
  const std::int64_t least = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  if (least > request.max_tokens) {
    fields.fail("min_tokens",
                fmt::format("{} is more than max_tokens, {}", least, request.max_tokens));
  }
  // The sampler cannot pass over the tokens that would end the answer.
  const bool may_stop = !request.sampling.ignore_eos || !request.sampling.stop_token_ids.empty();
  if (model.computes && least > 0 && may_stop) {
    fields.fail("min_tokens",
                "is not supported; allowed: 0, or with ignore_eos and without stop_token_ids");
  }
  return static_cast<std::int32_t>(least);
}

}  // namespace

void plan_answers(const ApiFields& fields, const ServedModel& model, ApiRequest& request) {
  const std::int32_t least = request.min_tokens = read_min_tokens(fields, model, request);
  const auto drawn_of = [&](std::int32_t i) {
    return mix64(mix64(model.seed) ^ (request.sampling.seed + static_cast<std::uint64_t>(i)));
  };
  const AnswerShape shape = read_shape(fields, model, request, drawn_of(0));
  if (shape.schema && shape.schema->dump(JsonStyle{.replaces_bad_utf8 = true}).size() *
                              static_cast<std::size_t>(request.num_choices()) >
                          kMaxSchemaBytesOfAll) {
    fields.fail(
        shape.field,
        fmt::format("the schema, once for each answer, has more than {} bytes; allowed: fewer",
                    kMaxSchemaBytesOfAll));
  }
  request.function = shape.function;
  request.is_function_named = shape.is_function_named;
  const double share = model.computes ? 0 : reasoning_share(fields);
  const std::int64_t budget =
      fields.integer("thinking_token_budget", 0, INT32_MAX).value_or(INT32_MAX);
  request.shows_reasoning = fields.truth("include_reasoning", true);
  const bool ends = !model.computes && !request.sampling.ignore_eos;
  for (std::int32_t i = 0; i < request.num_choices(); ++i) {
    const std::int32_t length =
        std::max(model.answer_lengths[drawn_of(i) % model.answer_lengths.size()], least);
    request.answer_tokens.push_back(ends ? length : 0);
    const std::int32_t drawn = ends ? std::min(length, request.max_tokens) : request.max_tokens;
    request.reasoning_tokens.push_back(static_cast<std::int32_t>(
        std::min<std::int64_t>(static_cast<std::int64_t>(share * drawn), budget)));
    request.scripts.emplace_back();
    if (shape.is_free()) continue;
    if (std::int64_t{drawn} * request.num_choices() > kMaxScriptTokens) {
      fields.fail(
          fields.has("n") ? "n" : "max_tokens",
          fmt::format("answers with a form have more than {} tokens together; allowed: fewer",
                      kMaxScriptTokens));
    }
    write_script(shape, fields, model, drawn_of(i), drawn, request);
  }
}

}  // namespace metronome
