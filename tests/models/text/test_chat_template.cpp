// SPDX-License-Identifier: Apache-2.0
// Chat templates against what jinja2 renders of the published ones
// (tests/fixtures/tokenizers/chat.golden.json: messages of random parts, null where they raise).
#include <map>
#include <stdexcept>

#include "core/base/json.h"
#include "models/text/chat_template.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/text/tokenizer_fixtures.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Messages = std::vector<ChatMessage>;

std::string refusal(ChatFamily family, const Messages& messages) {
  return error_of<std::invalid_argument>([&] { render_chat(family, messages, {}); });
}

}  // namespace

TEST_CASE("conversations read as the published templates write them", "[chat_template]") {
  const std::map<std::string, ChatFamily> families = {
      {"llama3", ChatFamily::Llama3}, {"qwen3", ChatFamily::Qwen3}, {"gemma3", ChatFamily::Gemma3}};
  const Json golden = read_fixture_json("chat.golden.json");
  REQUIRE(golden.size() >= 60);
  for (const Json& entry : golden) {
    CAPTURE(entry.dump());
    Messages messages;
    for (const Json& message : entry.at("messages")) {
      messages.push_back({message.at("role").string(), message.at("content").string()});
    }
    const ChatOptions options{entry.at("add_generation_prompt").get<bool>(),
                              entry.at("enable_thinking").get<bool>(), entry.at("date").string()};
    const ChatFamily family = families.at(entry.at("family").string());
    if (entry.at("prompt").is_null()) {
      CHECK_FALSE(refusal(family, messages).empty());
    } else {
      CHECK(render_chat(family, messages, options) == entry.at("prompt"));
    }
  }
}

TEST_CASE("prompts in full", "[chat_template]") {
  const Messages messages = {{"system", " Be brief. "}, {"user", "Hi\n"}};
  CHECK(render_chat(ChatFamily::Llama3, messages, {}) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(render_chat(ChatFamily::Qwen3, messages, {.enable_thinking = false}) ==
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  CHECK(render_chat(ChatFamily::Gemma3, messages, {}) ==
        "<bos><start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n<start_of_turn>model\n");
  CHECK(render_chat(ChatFamily::None, messages, {}) ==
        "system:  Be brief. \nuser: Hi\n\nassistant:");
  CHECK(render_chat(ChatFamily::None, messages, {.add_generation_prompt = false}) ==
        "system:  Be brief. \nuser: Hi\n\n");
}

TEST_CASE("a prompt's first token is the one that begins texts", "[chat_template]") {
  const Messages messages = {{"user", "Hi"}};
  for (const std::string name : {"llama3", "gemma3"}) {
    const auto tokenizer = fixture_tokenizer(name);
    const std::string prompt = render_chat(tokenizer->chat_family(), messages, {});
    const std::vector<TokenId> ids = tokenizer->encode(prompt, false);
    CHECK(ids.front() == tokenizer->encode("", true).front());
    CHECK(decode(*tokenizer, ids, false) == prompt);
  }
}

TEST_CASE("messages that a template cannot write are refused", "[chat_template]") {
  for (const ChatFamily family :
       {ChatFamily::None, ChatFamily::Llama3, ChatFamily::Qwen3, ChatFamily::Gemma3}) {
    CHECK(refusal(family, {}) == "messages must have at least one message");
    CHECK(contains(
        refusal(family, {{"user", "a"}, {"wizard", "b"}}),
        "messages[1].role is \"wizard\"; this model's chat template supports system, user"));
  }
  CHECK(contains(refusal(ChatFamily::Gemma3, {{"user", "a"}, {"user", "b"}}), "must alternate"));
  CHECK(contains(refusal(ChatFamily::Gemma3, {{"assistant", "a"}}), "must alternate"));
  CHECK(contains(refusal(ChatFamily::Gemma3, {{"user", "a"}, {"tool", "b"}}), "\"tool\""));
  CHECK(contains(refusal(ChatFamily::Gemma3, {{"system", "a"}}), "must follow"));
  // A role is shown as text, whatever it is.
  CHECK(contains(refusal(ChatFamily::None, {{"\xff", "a"}}), "\"\ufffd\""));
}

}  // namespace TEST_FILE
