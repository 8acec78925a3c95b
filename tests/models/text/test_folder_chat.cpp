// SPDX-License-Identifier: Apache-2.0
// The chat template of a model folder: where it is found, what it is given, and what it gives.
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "models/text/folder_chat.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr const char* kLines =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

std::string render(const FolderChat& chat, const Conversation& conversation) {
  return chat.render(conversation, std::tm{});
}

Conversation conversation_of(const char* messages) {
  Conversation conversation;
  conversation.messages = Json::parse(messages);
  return conversation;
}

std::string prompt_of(const ScratchFolder& folder, const Conversation& conversation) {
  return render(FolderChat::read(folder.path()).value(), conversation);
}

const char* const kHi = R"([{"role": "user", "content": "Hi"}])";

}  // namespace

TEST_CASE("a folder's template comes from its files in order", "[folder_chat]") {
  const ScratchFolder folder;
  CHECK_FALSE(FolderChat::read(folder.path()).has_value());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  CHECK_FALSE(FolderChat::read(folder.path()).has_value());
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>", "lstrip": false},
      "eos_token": null, "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}"})");
  folder.write("special_tokens_map.json",
               R"({"bos_token": "<other>", "eos_token": {"content": "</s>"}})");
  CHECK(prompt_of(folder, conversation_of(kHi)) == "<s></s>");
  folder.write("chat_template.jinja", kLines);
  CHECK(prompt_of(folder, conversation_of(kHi)) == "<s>user: Hi\nassistant:");
  CHECK(FolderChat::read(folder.path())->name() == folder.path() + "/chat_template.jinja");
}

TEST_CASE("a conversation with tools has the template for tools", "[folder_chat]") {
  const ScratchFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools[0].function.name }}"}]})");
  Conversation conversation = conversation_of(kHi);
  CHECK(prompt_of(folder, conversation) == "plain");
  conversation.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  CHECK(prompt_of(folder, conversation) == "f");
}

// As apply_chat_template of transformers does.
TEST_CASE("a folder without a default template takes what it has one for", "[folder_chat]") {
  const ScratchFolder folder;
  Conversation plain = conversation_of(kHi), tools = plain;
  tools.tools = Json::parse(R"([{"name": "f"}])");
  const auto refusal = [&](const Conversation& conversation) {
    return error_of<JinjaError>([&] { prompt_of(folder, conversation); });
  };
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": [
      {"name": "tool_use", "template": "{{ bos_token }}{{ tools[0].name }}"},
      {"name": "rag", "template": "r"}]})");
  CHECK(prompt_of(folder, tools) == "<s>f");
  CHECK(refusal(plain) ==
        "the model has no default chat template, only rag, tool_use; allowed: a conversation with "
        "tools");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  CHECK(refusal(plain) == "the model has no default chat template, only rag");
  CHECK(refusal(tools) == refusal(plain));
  folder.write("tokenizer_config.json", R"({"chat_template": []})");
  CHECK(contains(error_of<ConfigError>([&] { FolderChat::read(folder.path()); }),
                 "tokenizer_config.json: chat_template: is empty; allowed: a template, or"));
}

TEST_CASE("a folder's template for tools is a file of its own", "[folder_chat]") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "{{ tools[0].name }}");
  Conversation plain = conversation_of(kHi), tools = plain;
  tools.tools = Json::parse(R"([{"name": "f"}])");
  CHECK(prompt_of(folder, tools) == "f");
  CHECK(contains(error_of<JinjaError>([&] { prompt_of(folder, plain); }), "only tool_use;"));
  folder.write("chat_template.jinja", "plain");
  CHECK(prompt_of(folder, plain) == "plain");
  CHECK(prompt_of(folder, tools) == "f");
  const FolderChat chat = FolderChat::read(folder.path()).value();
  CHECK_FALSE(chat.mentions("tools"));
  CHECK(chat.mentions("tools", true));
  folder.write("additional_chat_templates/tool_use.jinja", "{% x %}");
  CHECK(contains(error_of<ConfigError>([&] { FolderChat::read(folder.path()); }),
                 folder.path() + "/additional_chat_templates/tool_use.jinja: line 1: the tag x"));
}

TEST_CASE("a GGUF file has a template, and one for tools", "[folder_chat][gguf]") {
  const ScratchFolder folder;
  Conversation plain = conversation_of(kHi), tools = plain;
  tools.tools = Json::parse(R"([{"name": "f"}])");
  GgufBytes bytes;
  bytes.texts("tokenizer.ggml.tokens", {"<s>", "</s>"}).u32("tokenizer.ggml.bos_token_id", 1);
  const auto read = [&] { return FolderChat::read_gguf(folder.write("m.gguf", bytes.bytes())); };
  CHECK_FALSE(read().has_value());
  bytes.text("tokenizer.chat_template.tool_use", "{{ bos_token }}{{ tools[0].name if tools }}");
  CHECK(render(read().value(), tools) == "</s>f");
  CHECK(render(read().value(), plain) == "</s>");
  bytes.text("tokenizer.chat_template", "plain");
  CHECK(render(read().value(), plain) == "plain");
  CHECK(render(read().value(), tools) == "</s>f");
  const std::string own = folder.write("t.jinja", "{{ bos_token + 'x' }}");
  CHECK(render(FolderChat::read_file(own, folder.path() + "/m.gguf"), plain) == "</s>x");
}

TEST_CASE("tokens that nothing defines are empty texts", "[folder_chat]") {
  const auto of = [](const char* source, Json tokens) {
    return FolderChat::from_text(source, "t", std::move(tokens));
  };
  const Conversation hi = conversation_of(kHi);
  const FolderChat plain = of("{{ bos_token + 'x' + eos_token }}", Json{{"bos_token", "<s>"}});
  CHECK(render(plain, hi) == "<s>x");
  CHECK(plain.empty_tokens() == std::vector<std::string>{"eos_token"});
  // A template that looks for itself sees what transformers shows it.
  const FolderChat asks =
      of("{{ 'y' if eos_token is defined else 'n' }}{{ bos_token|default('d') }}", {});
  CHECK(render(asks, hi) == "nd");
  CHECK(asks.empty_tokens().empty());
}

TEST_CASE("a folder with a template that is no template is refused in one line", "[folder_chat]") {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& config) {
    folder.write("tokenizer_config.json", config);
    return error_of<ConfigError>([&] { FolderChat::read(folder.path()); });
  };
  const std::string path = folder.path() + "/tokenizer_config.json: ";
  CHECK(contains(refusal("{"), path + "is not JSON"));
  CHECK(contains(refusal("[]"), path + "is not an object; allowed: "));
  CHECK(contains(refusal(R"({"chat_template": 1})"), path + "chat_template: is not a text"));
  CHECK(contains(refusal(R"({"chat_template": [{"name": "default"}]})"), "without name or templ"));
  CHECK(contains(refusal(R"({"chat_template": "a\n{{ x | urlize }}"})"),
                 path + "chat_template: line 2: the filter urlize is not supported; allowed: "));
  CHECK(contains(refusal(R"({"chat_template": "", "bos_token": 5})"),
                 path + "bos_token: is not a token; allowed: "));
}

TEST_CASE("a template gets the arguments of a request", "[folder_chat]") {
  const FolderChat chat = FolderChat::from_text(
      "{{ bos_token }}{{ enable_thinking }}{{ documents[0].text }}{{ messages[0].thinking }}"
      "{{ messages[0].reasoning_content }}{{ tools is none }}{{ add_generation_prompt }}",
      "t", Json{{"bos_token", "<s>"}});
  Conversation conversation =
      conversation_of(R"([{"role": "assistant", "content": "a", "reasoning": "b"}])");
  conversation.arguments = Json{{"enable_thinking", false}};
  conversation.documents = Json::parse(R"([{"text": "d"}])");
  conversation.add_generation_prompt = false;
  CHECK(render(chat, conversation) == "<s>FalsedbbTrueFalse");
}

TEST_CASE("keys of a message that are null are not there", "[folder_chat]") {
  const FolderChat chat = FolderChat::from_text(
      "{% for m in messages %}{{ 'tool_calls' in m }}{{ m.content }}|{% endfor %}", "t", Json());
  CHECK(render(chat, conversation_of(R"([{"role": "user", "content": "a", "tool_calls": null},
                                         {"role": "assistant", "content": null}])")) ==
        "Falsea|False|");
}

TEST_CASE("the last message is continued where the template keeps its text", "[folder_chat]") {
  const char* const messages =
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It is "}])";
  Conversation conversation = conversation_of(messages);
  conversation.continue_final_message = true;
  conversation.add_generation_prompt = false;
  const auto of = [](const char* source) { return FolderChat::from_text(source, "t", {}); };
  CHECK(render(of(kLines), conversation) == "user: Hi\nassistant: It is ");
  // A template that trims: the text ends without its space, as in transformers.
  CHECK(render(of("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}"), conversation) ==
        "<Hi><It is");
  CHECK_THROWS_AS(render(of("{{ messages[0].content }}"), conversation), JinjaError);
  conversation.messages = Json::parse(R"([{"role": "assistant", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  CHECK(render(of("{% for p in messages[0].content %}{{ p.text }},{% endfor %}"), conversation) ==
        "a,b");
  conversation.messages = Json::parse(R"([{"role": "assistant"}])");
  CHECK_THROWS_AS(render(of(kLines), conversation), JinjaError);
}

TEST_CASE("a template that loops over contents takes parts", "[folder_chat]") {
  const auto takes = [](const char* source) {
    return FolderChat::from_text(source, "t", {}).takes_parts();
  };
  CHECK_FALSE(takes(kLines));
  CHECK(takes("{% for p in message['content'] %}{% endfor %}"));
  CHECK(takes("{% if 1 %}{% for p in message.content | list %}{% endfor %}{% endif %}"));
  CHECK(takes("{% macro f(content) %}{% for p in content %}{% endfor %}{% endmacro %}"));
  CHECK(takes("{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') }}"));
  CHECK_FALSE(takes("{{ m.content | trim }}"));
}

}  // namespace TEST_FILE
