// SPDX-License-Identifier: Apache-2.0
// Fields of a request that change its sampling, and those of messages that a template gets.
#include "core/base/json.h"
#include "models/image/image_processor.h"
#include "models/text/folder_chat.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/server/api_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("penalties and a bias are read", "[serve]") {
  const SamplingParams sampling =
      parse(ApiKind::Completion, R"({"prompt": "a", "presence_penalty": 1.5,
                "frequency_penalty": -2, "repetition_penalty": 1.05,
                "logit_bias": {"65": 100, "299": -1000, "0": 0.5}})",
            byte_model(true))
          .sampling;
  CHECK(sampling.presence_penalty == 1.5);
  CHECK(sampling.frequency_penalty == -2);
  CHECK(sampling.repetition_penalty == 1.05);
  CHECK(sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{TokenId{65}, 100.0f},
                                                                      {TokenId{299}, -100.0f},
                                                                      {TokenId{0}, 0.5f}});
  CHECK(refusal_of_field(R"("repetition_penalty": 0)") ==
        "400 [repetition_penalty] repetition_penalty: 0 is not allowed; allowed: a number above 0");
  CHECK(refusal_of_field(R"("repetition_penalty": 1000)") == "accepted");
  CHECK(refusal_of_field(R"("frequency_penalty": "1")")
            .starts_with("400 [frequency_penalty] frequency_penalty: \"1\" is not a number"));
  for (const char* id : {"300", "-1", "x", "", "1.0"}) {
    CHECK(refusal_of_field(R"("logit_bias": {")" + std::string(id) + R"(": 1})") ==
          "400 [logit_bias] logit_bias: \"" + std::string(id) +
              "\" is not a token id; allowed: integers from 0 to 299");
  }
  CHECK(refusal_of_field(R"("logit_bias": {"65": 1, "065": 2})") ==
        "400 [logit_bias] logit_bias: \"065\" names a token twice");
  CHECK(refusal_of_field(R"("logit_bias": [1])") ==
        "400 [logit_bias] logit_bias: [1] is not an object");
  CHECK(refusal_of_field(R"("logit_bias": {"1": null})") ==
        "400 [logit_bias] logit_bias: null is not a number");
}

TEST_CASE("a model's sampling defaults hold where a request says nothing", "[serve]") {
  ServedModel model = byte_model(true);
  model.sampling = {.temperature = 0.6,
                    .top_p = 0.95,
                    .min_p = 0.1,
                    .repetition_penalty = 1.05,
                    .top_k = 20,
                    .max_new_tokens = 9};
  const std::string hello = R"("messages": [{"role": "user", "content": "a"}])";
  const ApiRequest quiet = parse(ApiKind::Chat, "{" + hello + R"(, "temperature": null})", model);
  CHECK(quiet.sampling.temperature == 0.6);
  CHECK(quiet.sampling.top_p == 0.95);
  CHECK(quiet.sampling.min_p == 0.1);
  CHECK(quiet.sampling.repetition_penalty == 1.05);
  CHECK(quiet.sampling.top_k == 20);
  CHECK(quiet.max_tokens == 9);
  const ApiRequest own =
      parse(ApiKind::Chat, "{" + hello + R"(, "temperature": 0, "top_p": 1, "min_p": 0,
                                 "repetition_penalty": 1, "top_k": -1, "max_tokens": 20})",
            model);
  CHECK(own.sampling.temperature == 0);
  CHECK(own.sampling.top_p == 1);
  CHECK(own.sampling.min_p == 0);
  CHECK(own.sampling.repetition_penalty == 1);
  CHECK(own.sampling.top_k == 0);
  CHECK(own.max_tokens == 20);
  model.sampling.max_new_tokens = 100'000;  // more than the context
  CHECK(parse(ApiKind::Chat, "{" + hello + "}", model).max_tokens < 256);
  CHECK(parse(ApiKind::Completion, R"({"prompt": "a"})", model).max_tokens == 16);
}

TEST_CASE("a template gets the fields of a message as vLLM gives them", "[serve]") {
  ServedModel model = byte_model();
  const auto prompt = [&](const std::string& message, const char* source) {
    model.chat =
        std::make_shared<const FolderChat>(FolderChat::from_text(source, "t", Json::object()));
    const std::string body = R"({"messages": [)" + message + "]}";
    return parse(ApiKind::Chat, body, model).prompts.front();
  };
  constexpr const char* kAll =
      "{% for m in messages %}{{ m.content | tojson }}{{ m.name is defined }}"
      "{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
      "{{ c.function.arguments | tojson }}{% endfor %}{% else %}-{% endif %};{% endfor %}";
  const auto call = [&](const std::string& arguments) {
    return prompt(R"({"role": "assistant", "content": null, "name": null, "tool_calls": [
                      {"function": {"name": "f")" +
                      arguments + "}}]}",
                  kAll);
  };
  for (const char* empty : {"", R"(, "arguments": null)", R"(, "arguments": "")",
                            R"(, "arguments": {})", R"(, "arguments": "{}")"}) {
    INFO(empty);
    CHECK(call(empty) == bytes("\"\"False{};"));
  }
  CHECK(call(R"(, "arguments": "{\"a\": [1]}")") == bytes(R"(""False{"a": [1]};)"));
  CHECK(call(R"(, "arguments": {"a": 1})") == bytes(R"(""False{"a": 1};)"));
  CHECK(call(R"(, "arguments": "[1]")") == bytes(R"(""False[1];)"));
  const std::string no_text = R"({"role": "assistant", "tool_calls": [{"function": {}}]})";
  CHECK(prompt(no_text, kAll) == bytes("\"\"False{};"));
  CHECK(prompt(R"({"role": "assistant", "content": null, "tool_calls": []})", kAll) ==
        bytes("\"\"False-;"));
  CHECK(prompt(R"({"role": "user", "content": [{"type": "text", "text": null},
                    {"type": "text", "text": "b"}]})",
               kAll) == bytes("\"b\"False-;"));
  // A template for lists of parts gets an empty list.
  constexpr const char* kParts =
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}"
      "{{ m.content | tojson }}{% endfor %}";
  CHECK(prompt(no_text, kParts) == bytes("[]"));
  const auto refused = [&](const std::string& calls) {
    return refusal(ApiKind::Chat,
                   R"({"messages": [{"role": "assistant", "tool_calls": )" + calls + "}]}", model);
  };
  CHECK(refused("5").starts_with("400 [messages[0].tool_calls]"));
  CHECK(refused("[5]").starts_with("400 [messages[0].tool_calls[0]]"));
  CHECK(refused(R"([{"function": {"arguments": "{"}}])")
            .ends_with("function.arguments: is not JSON; allowed: an object, or its text"));
}

TEST_CASE("numbers may be Python's words", "[serve]") {
  const ScratchFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template":
      "{{ messages[0].tool_calls[0].function.arguments | tojson }}"})");
  ServedModel model = byte_model();
  model.chat = std::make_shared<const FolderChat>(FolderChat::read(folder.path()).value());
  const auto prompt = [&](const std::string& arguments) {
    const std::string call = R"([{"function": {"name": "f", "arguments": )" + arguments + "}}]";
    return parse(ApiKind::Chat,
                 R"({"messages": [{"role": "assistant", "tool_calls": )" + call + "}]}", model)
        .prompts.front();
  };
  const std::vector<TokenId> expected = bytes(R"({"x": NaN, "y": -Infinity})");
  CHECK(prompt(R"("{\"x\": NaN, \"y\": -Infinity}")") == expected);
  CHECK(prompt(R"({"x": NaN, "y": -Infinity})") == expected);
  // As Python reads the text of arguments, the last of several values counts.
  CHECK(prompt(R"("{\"x\": 1, \"x\": 2}")") == bytes(R"({"x": 2})"));
  const auto refused = [&](const std::string& field) {
    return refusal(ApiKind::Completion, R"({"prompt": "a", )" + field + "}", byte_model());
  };
  CHECK(contains(refused(R"("temperature": NaN)"), "temperature: NaN is out of range"));
  CHECK(contains(refused(R"("max_tokens": Infinity)"), "max_tokens: Infinity is not allowed"));
  CHECK(contains(refused(R"("logit_bias": {"5": NaN})"), "logit_bias: NaN is not a finite number"));
}

TEST_CASE("tools have the template for them", "[serve]") {
  const ScratchFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools[0].function.name }}"}]})");
  ServedModel model = byte_model();
  model.chat = std::make_shared<const FolderChat>(FolderChat::read(folder.path()).value());
  const std::string hi = R"({"messages": [{"role": "user", "content": "a"}])";
  CHECK(parse(ApiKind::Chat, hi + "}", model).prompts.front() == bytes("plain"));
  CHECK(parse(ApiKind::Chat, hi + R"(, "tools": [{"function": {"name": "f"}}]})", model)
            .prompts.front() == bytes("f"));
  CHECK(refusal(ApiKind::Chat, hi + R"(, "documents": [{"text": "d"}]})", model)
            .starts_with("400 [documents]"));
}

TEST_CASE("an image without a template is refused with the reason", "[serve]") {
  ServedModel model = byte_model();
  const std::string body = R"({"messages": [{"role": "user", "content": [{"type": "image_url",
      "image_url": {"url": "data:image/png;base64,AAAA"}}]}]})";
  CHECK(refusal(ApiKind::Chat, body, model)
            .ends_with("parts of type image_url are not supported: the model has no vision tower; "
                       "allowed: text"));
  model.images = std::make_shared<const ImageProcessor>(ImageProcessor{});
  CHECK(contains(refusal(ApiKind::Chat, body, model),
                 "parts of type image_url are not supported: the model has no chat template here, "
                 "which writes the place of an image; allowed: text, or a model folder"));
  CHECK(refusal(ApiKind::Chat, R"({"messages": [{"role": "user", "content": [{"type": "x"}]}]})",
                model)
            .ends_with("parts of type x are not supported; allowed: text"));
}

TEST_CASE("a simulated chat goes on from its last message", "[serve]") {
  const ServedModel model = byte_model();
  const auto chat = [&](const std::string& fields) {
    return parse(ApiKind::Chat,
                 R"({"messages": [{"role": "user", "content": "a"},
                     {"role": "assistant", "content": " It is "}])" +
                     fields + "}",
                 model)
        .prompts.front();
  };
  CHECK(chat("") == bytes("user: a\nassistant:  It is \nassistant:"));
  CHECK(chat(R"(, "add_generation_prompt": false)") == bytes("user: a\nassistant:  It is \n"));
  CHECK(chat(R"(, "continue_final_message": true)") == bytes("user: a\nassistant:  It is"));
  CHECK(chat(R"(, "continue_final_message": true, "add_generation_prompt": false)") ==
        bytes("user: a\nassistant:  It is"));
  const auto refused = [](const std::string& fields, const ServedModel& by) {
    return refusal(ApiKind::Chat, "{" + fields + R"(, "continue_final_message": true})", by);
  };
  const std::string hi = R"("messages": [{"role": "assistant", "content": "a"}])";
  CHECK(refused(hi + R"(, "add_generation_prompt": true)", model) ==
        "400 [continue_final_message] continue_final_message: contradicts add_generation_prompt; "
        "allowed: one of them");
  CHECK(refused(R"("messages": [{"role": "assistant", "content": ""}])", model) ==
        "400 [continue_final_message] continue_final_message: needs a last message with a text, "
        "which the template writes as it is");
  CHECK(refused(hi, byte_model(true)) ==
        "400 [continue_final_message] continue_final_message: is not supported; allowed: null, "
        "false");
}

}  // namespace TEST_FILE
