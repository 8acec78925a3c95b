// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "core/base/json.h"
#include "serve/server/answer_script.h"
#include "serve/server/pattern_text.h"
#include "serve/server/schema_text.h"
#include "serve/server/simulated_logprobs.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/serve/server/api_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

// The parts of a simulated answer of so many byte tokens.
std::string json_of(const std::string& schema, std::int32_t num_tokens, std::uint64_t seed = 1) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<TokenId> tokens =
      schema_tokens(*tokenizer, Json::parse(schema), seed, num_tokens, 1000);
  return decode(*tokenizer, tokens, true);
}

std::string refused_schema(const std::string& schema) {
  try {
    json_of(schema, 10);
  } catch (const SchemaError& error) {
    return error.place + ": " + error.what();
  }
  return "accepted";
}

ApiRequest chat(const std::string& fields, const ServedModel& model = byte_model()) {
  return parse(ApiKind::Chat, R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}",
               model);
}

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters":
       {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}])";

}  // namespace

TEST_CASE("JSON of a schema has the tokens that it should", "[serve]") {
  constexpr const char* kText = R"({"type": "object", "properties": {"a": {"type": "string"}},
                                    "required": ["a"]})";
  for (const std::int32_t length : {9, 10, 30, 77}) {
    const std::string text = json_of(kText, length);
    CHECK(static_cast<std::int32_t>(text.size()) == length);  // a token is a byte
    CHECK(Json::parse(text)["a"].is_string());
    CHECK(text == json_of(kText, length));
  }
  CHECK(json_of(kText, 3) == R"({"a": ""})");
  // Members that are not required go first.
  CHECK(json_of(R"({"properties": {"long_name": {"type": "string"}}})", 3) == "{}");
  // Two texts share what there is; one that is short leaves it to the other.
  const Json two = Json::parse(json_of(
      R"({"properties": {"a": {"type": "string"}, "b": {"type": "string", "maxLength": 4}}})",
      100));
  CHECK(two["b"].string().size() == 4);
  CHECK(two["a"].string().size() > 60);
  const Json list = Json::parse(json_of(R"({"type": "array", "items": {"const": 1}})", 40));
  CHECK(list.size() > 4);
}

TEST_CASE("JSON of a schema has its tokens with tokenizers of models", "[serve]") {
  const Json schema = Json::parse(R"({"type": "object", "required": ["a", "b"], "properties": {
      "a": {"type": "string"}, "b": {"type": "string", "minLength": 3, "maxLength": 3}}})");
  // The last two begin every text with a blank.
  for (const char* name : {"llama3", "gemma3", "llama2"}) {
    INFO(name);
    const auto tokenizer =
        read_tokenizer(source_dir() + "/tests/fixtures/tokenizers/" + name + ".json");
    const std::vector<TokenId> tokens = schema_tokens(*tokenizer, schema, 2, 60, 100);
    CHECK(tokens.size() == 60);
    CHECK(Json::parse(decode(*tokenizer, tokens, true))["b"].string().size() == 3);
  }
}

TEST_CASE("JSON of a schema keeps its limits", "[serve]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Json value = Json::parse(json_of(
        R"({"type": "object", "required": ["i", "x", "s", "u", "e", "n"], "properties": {
            "i": {"type": "integer", "exclusiveMinimum": 3, "maximum": 5},
            "x": {"type": "number", "minimum": 0.1, "maximum": 0.2},
            "s": {"type": "string", "minLength": 3, "maxLength": 3},
            "u": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true,
                  "minItems": 2, "maxItems": 2},
            "e": {"enum": ["a", null]}, "n": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"anyOf": [{"type": "string", "pattern": "\\bx"}, {"const": 7}]}}})",
        90, seed));
    CHECK((value["i"] == Json(4) || value["i"] == Json(5)));
    CHECK((value["x"].get<double>() >= 0.1 && value["x"].get<double>() <= 0.2));
    CHECK(value["s"].string().size() == 3);
    CHECK(value["u"].size() == 2);
    CHECK_FALSE(value["u"][0] == value["u"][1]);
    CHECK((value["e"] == Json("a") || value["e"].is_null()));
    CHECK(value["n"] == Json(7));
  }
}

TEST_CASE("schemas in schemas are joined", "[serve]") {
  const auto value_of = [](const std::string& schema, std::uint64_t seed = 1) {
    const Json parsed = Json::parse(schema);
    const Json value = Json::parse(json_of(schema, 60, seed));
    INFO(schema << " " << value);
    CHECK(satisfies(parsed, parsed, value));
    return value;
  };
  // A $ref beside an allOf keeps both.
  const Json both = value_of(R"({"$ref": "#/$defs/a", "allOf": [{"required": ["b"], "properties":
      {"b": {"type": "integer"}}}, {"properties": {"b": {"minimum": 5, "maximum": 5}}}],
      "$defs": {"a": {"required": ["a"], "properties": {"a": {"const": "x"}}}}})");
  CHECK(both["a"] == Json("x"));
  CHECK(both["b"] == Json(5));
  // Limits are narrowed, types joined.
  CHECK(value_of(R"({"allOf": [{"type": ["string", "integer"], "minimum": 2},
      {"type": ["integer", "null"], "minimum": 7, "maximum": 9}, {"maximum": 7}]})") == Json(7));
  CHECK(value_of(R"({"allOf": [{"enum": [1, "a", null]}, {"enum": ["a", 2]}]})") == Json("a"));
  CHECK(value_of(R"({"type": "number", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}],
      "minimum": 13, "maximum": 24})") == Json(24));
  // Exactly one of oneOf, any of anyOf and the rest of the schema.
  CHECK(value_of(R"({"oneOf": [{"type": "integer"}, {"type": "number", "maximum": 1.4}],
      "minimum": 1.2, "maximum": 1.9})")
            .get<double>() < 1.5);
  CHECK(value_of(R"({"anyOf": [{"type": "string", "minLength": 9}, {"type": "string"}],
      "maxLength": 4})")
            .string()
            .size() <= 4);
  CHECK(value_of(R"({"type": "object", "required": ["k"], "properties": {"k": {"enum": ["a"]}},
      "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["v"]}})")
            .contains("v"));
  CHECK(value_of(R"({"type": "array", "items": {"type": "integer"}, "contains": {"const": 3},
      "minContains": 2, "uniqueItems": false})")
            .size() >= 2);
  CHECK(value_of(R"({"additionalProperties": false, "minProperties": 2,
      "patternProperties": {"^x[0-9]{2}$": {"type": "boolean"}}})")
            .size() == 2);
  CHECK(value_of(R"({"propertyNames": {"enum": ["p", "q"]}, "additionalProperties":
      {"type": "null"}, "minProperties": 2})")
            .contains("q"));
}

TEST_CASE("patterns have texts, and are found in texts", "[serve]") {
  for (const char* pattern :
       {"^[A-Z][a-z]{2,8}$", "^\\d{5}(-\\d{4})?$", "^(foo|ba[rz])+$", "a{3}", "^\\S+@\\S+\\.\\w+$",
        "^[^\\s,]+(,[^\\s,]+)*$", "", "x|^y$", "^\\+?[1-9]\\d{1,14}$", "^#[0-9a-fA-F]{6}$",
        "^\\u0041[\\x42-\\x44]$", "^.{3,5}$", "\\[\\]", "^(?:a|b){2}c*?$", "^(?<year>\\d{4})$"}) {
    const SchemaPattern known(pattern);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::optional<std::string> text = known.example(0, 100, seed);
      INFO(pattern << ": " << text.value_or("none"));
      REQUIRE(text);
      CHECK(known.finds(*text));
      CHECK(text->size() <= 100);
    }
  }
  CHECK_FALSE(SchemaPattern("^a+$").finds("ab"));
  CHECK(SchemaPattern("b").finds("abc"));
  CHECK(SchemaPattern("^(a*)*$").finds("aaaa"));
  CHECK_FALSE(SchemaPattern("^(a+)+$").finds(std::string(40, 'a') + "b"));  // and soon
  CHECK(SchemaPattern("^a+$").example(7, 9, 1) == std::string(7, 'a'));
  CHECK_FALSE(SchemaPattern("^a{3}$").example(4, 9, 1));
  for (const char* pattern :
       {"(?=a)", "(?<!a)b", "\\1", "\\bx", "\\p{L}", "(", ")", "*", "[a", "a{9999}"}) {
    INFO(pattern);
    CHECK_THROWS_AS(SchemaPattern(pattern), std::runtime_error);
  }
}

TEST_CASE("a schema that cannot be satisfied is refused where that is", "[serve]") {
  CHECK(refused_schema(R"x({"required": ["a"], "properties": {"a": {"pattern": "(?=x)"}}})x") ==
        "properties.a.pattern: looks ahead, or has flags; allowed: a pattern without look-around, "
        "\\b and \\p");
  CHECK(refused_schema(R"({"allOf": [{"type": "string"}, {"type": "integer"}]})") ==
        "type: is of two schemas that have none in common");
  CHECK(refused_schema(R"({"enum": [1, 2], "minimum": 3})") ==
        "enum: has no value that the schema allows");
  CHECK(refused_schema(R"({"not": {}})") == "not: excludes the answers that are simulated");
  CHECK(refused_schema(R"({"type": "what"})").starts_with("type: what is no type"));
  CHECK(refused_schema(R"({"$ref": "#/x"})") == "$ref: names nothing in the schema");
  CHECK(refused_schema(R"({"type": "integer", "minimum": 5, "maximum": 4})") ==
        ": no number is within its limits");
  // No end, and too many schemas: refused soon.
  CHECK(refused_schema(R"({"$ref": "#"})") != "accepted");
  CHECK(contains(refused_schema(R"({"required": ["a"], "properties": {"a": {"$ref": "#"}}})"),
                 "contains itself without an end"));
  CHECK(refused_schema(R"({"type": "array", "minItems": 1000000000})") != "accepted");
  std::string wide = R"({"$defs": {"0": {"type": "string"})";
  for (int i = 1; i < 20; ++i) {
    const std::string below = R"({"$ref": "#/$defs/)" + std::to_string(i - 1) + "\"}";
    wide += ", \"" + std::to_string(i) + R"(": {"required": ["a", "b"], "properties": {"a": )" +
            below + ", \"b\": " + below + "}}";
  }
  CHECK(refused_schema(wide + R"(}, "$ref": "#/$defs/19"})") != "accepted");
}

TEST_CASE("a tool that has to be called is called", "[serve]") {
  for (const char* choice :
       {R"("required")", R"({"type": "function", "function": {"name": "f"}})"}) {
    const ApiRequest request =
        chat(std::string(kTools) + R"(, "max_tokens": 60, "tool_choice": )" + choice);
    CHECK(request.function == "f");
    REQUIRE(request.scripts.front());
    CHECK(request.answer_tokens.front() == std::ssize(*request.scripts.front()));
    CHECK(Json::parse(decode(*byte_tokenizer(), *request.scripts.front(), true)).contains("a"));
  }
  for (const char* choice : {"null", R"("none")", R"("auto")"}) {
    const ApiRequest request = chat(std::string(kTools) + R"(, "tool_choice": )" + choice);
    CHECK(request.function.empty());
    CHECK_FALSE(request.scripts.front());
  }
  const auto refused = [](const std::string& fields, bool computes = false) {
    return refusal(ApiKind::Chat,
                   R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}",
                   byte_model(computes));
  };
  CHECK(refused(R"("tool_choice": "required")") ==
        "400 [tool_choice] tool_choice: needs tools; allowed: null, or with tools");
  CHECK(
      refused(std::string(kTools) + R"(, "tool_choice": {"function": {"name": "g"}})")
          .starts_with("400 [tool_choice.function.name] tool_choice.function.name: g is none of"));
  CHECK(refused(R"("tools": [{"type": "x"}])").starts_with("400 [tools[0].type]"));
  // A model that computes calls what it wants.
  CHECK(refused(std::string(kTools), true).starts_with("400 [tools]"));
}

TEST_CASE("JSON, choices and reasoning of simulated answers", "[serve]") {
  const ApiRequest json =
      chat(R"("response_format": {"type": "json_object"}, "ignore_eos": true, "max_tokens": 50)");
  CHECK(json.answer_tokens.front() == 50);
  CHECK(json.scripts.front()->size() == 50);
  const ApiRequest one = chat(R"("guided_choice": ["yes", "no"], "n": 8, "seed": 1)");
  for (const auto& script : one.scripts) CHECK((script->size() == 3 || script->size() == 2));
  CHECK(chat(R"("reasoning_effort": "high", "ignore_eos": true, "max_tokens": 40)")
            .reasoning_tokens.front() == 30);
  CHECK(chat(R"("reasoning_effort": "none")").reasoning_tokens.front() == 0);
  CHECK(error_of<ApiError>([] {
          chat(R"("guided_json": {"type": "what"})");
        }).starts_with("guided_json: schema type: what is no type"));
  CHECK(error_of<ApiError>([] {
          ServedModel model = byte_model();
          model.max_model_len = 1 << 20;
          chat(R"("n": 128, "ignore_eos": true, "max_tokens": 100000,
                  "response_format": {"type": "json_object"})",
               model);
        }).starts_with("n: answers with a form have more than 1048576 tokens"));
}

TEST_CASE("a regular expression is the whole answer", "[serve]") {
  for (const char* field : {R"("guided_regex": "(yes|no){2}")", R"("regex": "(yes|no){2}")",
                            R"("structured_outputs": {"regex": "(yes|no){2}"})"}) {
    const ApiRequest request = chat(std::string(field) + R"(, "max_tokens": 50)");
    REQUIRE(request.scripts.size() == 1);
    const std::string text = decode(*byte_tokenizer(), *request.scripts[0], true);
    INFO(field << " " << text);
    CHECK((text == "yesyes" || text == "yesno" || text == "noyes" || text == "nono"));
  }
}

TEST_CASE("simulated log probabilities have the form of real ones", "[serve]") {
  const ServedModel model = byte_model();
  const auto logprobs = simulated_logprobs(model, 3, 5, TokenId{65}, 4);
  REQUIRE(logprobs.size() == 5);
  CHECK(logprobs[0] == logprobs[1]);
  CHECK(logprobs[0].token == TokenId{65});
  for (std::size_t i = 2; i < 5; ++i) {
    CHECK(logprobs[i].logprob < logprobs[i - 1].logprob);
    CHECK_FALSE(logprobs[i].token == TokenId{65});
  }
  CHECK(logprobs == simulated_logprobs(model, 3, 5, TokenId{65}, 4));
  CHECK(simulated_logprobs(model, 3, 5, TokenId{65}, 0).size() == 1);
}

}  // namespace TEST_FILE
