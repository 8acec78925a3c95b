// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"
#include "models/text/folder_chat.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/serve/server/api_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a prompt is a text, token ids, or a list of either", "[serve]") {
  const auto prompts = [](const std::string& prompt) {
    return parse(ApiKind::Completion, R"({"prompt": )" + prompt + "}").prompts;
  };
  CHECK(prompts(R"("ab")") == Prompts{bytes("ab")});
  CHECK(prompts("[7, 299]") == Prompts{{TokenId{7}, TokenId{299}}});
  CHECK(prompts(R"(["a", "bc"])") == Prompts{bytes("a"), bytes("bc")});
  CHECK(prompts(R"([[1], "b", [2, 3]])") ==
        Prompts{{TokenId{1}}, bytes("b"), {TokenId{2}, TokenId{3}}});
}

TEST_CASE("a key twice in a body is refused, wherever it is", "[serve]") {
  const std::string allowed = ": appears twice; allowed: every key once";
  CHECK(refusal_of_field(R"("max_tokens": 5, "max_tokens": 2)") ==
        "400 [max_tokens] max_tokens" + allowed);
  CHECK(refusal_of_field(R"("max_tokens": 5, "max\u005ftokens": 5)") ==
        "400 [max_tokens] max_tokens" + allowed);
  CHECK(refusal_of_field(R"("stream_options": {"include_usage": true, "include_usage": false})") ==
        "400 [stream_options.include_usage] stream_options.include_usage" + allowed);
  CHECK(refusal(ApiKind::Chat,
                R"({"messages": [{"role": "user", "content": "a"},
                                 {"role": "user", "content": "a", "content": "b"}]})") ==
        "400 [messages[1].content] messages[1].content" + allowed);
  for (const std::string body :
       {R"({"prompt": "a", "prompt": "b"})", R"({"tokens": [1], "tokens": [2]})"}) {
    CHECK_THROWS_AS(parse_tokenize(body, byte_model(), nullptr), ApiError);
    CHECK_THROWS_AS(parse_detokenize(body, byte_model()), ApiError);
  }
}

TEST_CASE("an error quotes little of a body", "[serve]") {
  const std::string many(3'000'000, '1');
  const std::string words(3'000'000, 'w');
  for (const std::string& body :
       {R"({"prompt": "a", "max_tokens": 1)" + many + "}",
        R"({"prompt": "a", ")" + words + "\": 1}",
        R"({"model": ")" + words.substr(0, 16'000) + "\", \"prompt\": \"a\"}",
        R"({"prompt": "a", ")" + words + "\": 1, \"" + words + "\": 2}",
        R"({"prompt": "a", "response_format": {"type": ")" + words.substr(0, 16'000) + "\"}}",
        R"({"prompt": ")" + words, R"({"prompt": [")" + words + "\", 1" + many + "]}"}) {
    const std::string text = refusal(ApiKind::Completion, body);
    INFO(text.substr(0, 200));
    CHECK(text.size() < 3000);
    CHECK(text.find(std::string(100, '1')) == std::string::npos);
    CHECK(text.find(std::string(100, 'w')) == std::string::npos);
  }
}

TEST_CASE("what a request leaves out", "[serve]") {
  const ApiRequest plain = parse(ApiKind::Completion, R"({"prompt": "abc"})");
  CHECK(plain.max_tokens == 16);
  CHECK(plain.n == 1);
  CHECK_FALSE(plain.is_stream);
  CHECK(plain.sampling.temperature == 1);
  CHECK(plain.sampling.top_p == 1);
  CHECK(plain.sampling.top_k == 0);
  CHECK(plain.sampling.num_logprobs == -1);
  CHECK(plain.skips_special_tokens);
  // null is the same as nothing; the fields of other servers are no error.
  const ApiRequest nulls =
      parse(ApiKind::Completion,
            R"({"prompt": "abc", "max_tokens": null, "logprobs": null, "stop": null, "seed": null,
                "stream_options": null, "user": "x", "repetition_penalty": 1.0, "best_of": 1,
                "presence_penalty": 0, "min_tokens": 0, "logit_bias": {}, "tools": []})");
  CHECK(nulls.max_tokens == 16);
  CHECK(nulls.sampling.seed == plain.sampling.seed);
  // A chat may use what is left of the context.
  const ApiRequest chat =
      parse(ApiKind::Chat, R"({"messages": [{"role": "user", "content": "Hi"}]})");
  CHECK(chat.prompts == Prompts{bytes("user: Hi\nassistant:")});
  CHECK(chat.max_tokens == 256 - 19);
  // Seeds of requests that bring none differ.
  CHECK(
      parse_generation(ApiKind::Completion, R"({"prompt": "a"})", byte_model(), 1).sampling.seed !=
      plain.sampling.seed);
}

TEST_CASE("every field arrives", "[serve]") {
  const ApiRequest request =
      parse(ApiKind::Completion,
            R"({"model": "tiny", "prompt": ["a", "b"], "max_tokens": 20, "n": 3, "temperature": 0.5,
          "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 11, "stop": ["x", "yy"],
          "stop_token_ids": [3, 4], "ignore_eos": true, "stream": true,
          "stream_options": {"include_usage": true, "continuous_usage_stats": true},
          "include_stop_str_in_output": true, "skip_special_tokens": false, "priority": 0})");
  CHECK(request.num_choices() == 6);
  CHECK(request.max_tokens == 20);
  CHECK(request.sampling.temperature == 0.5);
  CHECK(request.sampling.top_p == 0.9);
  CHECK(request.sampling.top_k == 40);
  CHECK(request.sampling.min_p == 0.1);
  CHECK(request.sampling.seed == 11);
  CHECK(request.sampling.stop_token_ids == std::vector{TokenId{3}, TokenId{4}});
  CHECK(request.sampling.ignore_eos);
  CHECK(request.stops->all() == std::vector<std::string>{"x", "yy"});
  CHECK(request.is_stream);
  CHECK(request.wants_usage);
  CHECK(request.wants_continuous_usage);
  CHECK(request.includes_stop);
  CHECK_FALSE(request.skips_special_tokens);
  CHECK(request.answer_tokens == std::vector<std::int32_t>(6, 0));  // ignore_eos
  CHECK(parse(ApiKind::Completion, R"({"prompt": "a", "top_k": -1})").sampling.top_k == 0);
  CHECK(parse(ApiKind::Completion, R"({"prompt": "a", "model": "llama-3.2-1b"})").n == 1);

  ServedModel real = byte_model(true);
  real.orders_by_priority = true;
  const ApiRequest chat =
      parse(ApiKind::Chat,
            R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null}],
                "max_tokens": 4, "max_completion_tokens": 6, "logprobs": true, "top_logprobs": 2,
                "priority": -3, "add_generation_prompt": false})",
            real);
  CHECK(chat.prompts == Prompts{bytes("user: a\nb\nassistant: \n")});
  CHECK(chat.max_tokens == 6);
  CHECK(chat.sampling.num_logprobs == 2);
  CHECK(chat.priority == -3);
  const auto developer =
      parse(ApiKind::Chat, R"({"messages": [{"role": "developer", "content": "a"}],
                               "top_logprobs": 0})");
  CHECK(developer.prompts == Prompts{bytes("system: a\nassistant:")});
  CHECK(developer.sampling.num_logprobs == -1);
  CHECK(
      parse(ApiKind::Completion, R"({"prompt": "a", "logprobs": 0})", real).sampling.num_logprobs ==
      0);
}

TEST_CASE("numbers without a fraction are integers, and the seed -1 is none", "[serve]") {
  const ApiRequest request =
      parse(ApiKind::Completion,
            R"({"prompt": [7.0, 8e0], "max_tokens": 8.0, "n": 1.0, "top_k": -1.0, "seed": 3e0})");
  CHECK(request.prompts == Prompts{{TokenId{7}, TokenId{8}}});
  CHECK(request.max_tokens == 8);
  CHECK(request.n == 1);
  CHECK(request.sampling.top_k == 0);
  CHECK(request.sampling.seed == 3);
  for (const char* value : {"8.5", "1e300", "-9223372036854775809", "true", R"("8")"}) {
    CHECK(refusal_of_field(R"("seed": )" + std::string(value))
              .starts_with("400 [seed] seed: " + std::string(value).substr(0, 2)));
  }
  const auto seed = [](std::uint64_t number, const std::string& value) {
    const std::string body = R"({"prompt": "a", "seed": )" + value + "}";
    return parse_generation(ApiKind::Completion, body, byte_model(), number).sampling.seed;
  };
  CHECK(seed(1, "-1") == seed(1, "null"));
  CHECK(seed(1, "-1") != seed(2, "-1"));
  CHECK(seed(1, "-2") == seed(2, "-2"));
}

TEST_CASE("obfuscation may be declined", "[serve]") {
  const std::string options = R"("stream": true, "stream_options": {"include_obfuscation": )";
  CHECK(refusal_of_field(options + "false}") == "accepted");
  CHECK(refusal_of_field(options + "true}") ==
        "400 [stream_options.include_obfuscation] stream_options.include_obfuscation: is not "
        "supported; allowed: false");
}

TEST_CASE("lists and texts of a request have limits", "[serve]") {
  const auto error = [](ApiKind kind, const std::string& body) {
    return error_of<ApiError>([&] { parse(kind, body); });
  };
  const auto list = [](std::size_t count, const std::string& entry) {
    std::string text = "[" + entry;
    for (std::size_t i = 1; i < count; ++i) text += "," + entry;
    return text + "]";
  };
  const auto stops = [&](const std::string& text) {
    return error(ApiKind::Completion, R"({"prompt": "a", "stop": )" + text + "}");
  };
  const auto quoted = [](std::size_t count) { return '"' + std::string(count, 'x') + '"'; };
  CHECK(stops(list(64, R"("x")")).empty());
  CHECK(stops(list(65, R"("x")")) == "stop: 65 entries are too many; allowed: up to 64");
  CHECK(stops(quoted(4096)).empty());
  CHECK(stops(quoted(4097)) == "stop: has more than 4096 bytes; allowed: up to these");
  CHECK(stops(list(2, quoted(2049))) == "stop: has more than 4096 bytes; allowed: up to these");
  CHECK(
      error(ApiKind::Completion, R"({"prompt": "a", "stop_token_ids": )" + list(129, "1") + "}") ==
      "stop_token_ids: 129 token ids are too many; allowed: up to 128");
  CHECK(error(ApiKind::Completion, R"({"prompt": )" + list(513, "1") + "}") ==
        "prompt: 513 token ids are too many; allowed: up to 512");
  CHECK(error(ApiKind::Completion, R"({"prompt": "a", "model": )" + quoted(16385) + "}") ==
        "model: 16385 bytes are too many; allowed: up to 16384");
  CHECK(error(ApiKind::Chat, R"({"messages": )" + list(513, R"({"role": "user", "content": ""})") +
                                 "}") == "messages: 513 entries are too many; allowed: up to 512");
  CHECK(error(ApiKind::Chat, R"({"messages": [{"role": "user", "content": )" +
                                 list(513, R"({"text": ""})") + "}]}") ==
        "messages[0].content: 513 entries are too many; allowed: up to 512");
  CHECK(error(ApiKind::Completion, R"({"prompt": "a", "x": )" + list(262'144, "[]") + "}") ==
        "the body has more than 262144 strings, lists and objects");
  const std::string brackets =
      R"({"prompt": "a", "user": "\\\"[)" + std::string(300'000, '[') + "\"}";
  CHECK(error(ApiKind::Completion, brackets).empty());
  CHECK(error_of<ApiError>([&] {
          parse_detokenize(R"({"tokens": )" + list(4097, "1") + "}", byte_model());
        }) == "tokens: 4097 token ids are too many; allowed: up to 4096");
}

TEST_CASE("simulated answers have lengths of the scenario's, by their seeds", "[serve]") {
  const ServedModel model = byte_model();
  std::vector<bool> was_seen(31);
  for (int seed = 0; seed < 50; ++seed) {
    const std::string body = R"({"prompt": "a", "n": 4, "seed": )" + std::to_string(seed) + "}";
    const ApiRequest request = parse(ApiKind::Completion, body);
    CHECK(request.answer_tokens == parse(ApiKind::Completion, body).answer_tokens);
    REQUIRE(request.answer_tokens.size() == 4);
    for (const std::int32_t length : request.answer_tokens) {
      was_seen[static_cast<std::size_t>(length)] = true;
    }
    // An answer is that of its seed alone.
    const std::string next = R"({"prompt": "a", "seed": )" + std::to_string(seed + 1) + "}";
    CHECK(parse(ApiKind::Completion, next).answer_tokens[0] == request.answer_tokens[1]);
  }
  CHECK((was_seen[5] && was_seen[9] && was_seen[30]));
  CHECK(std::count(was_seen.begin(), was_seen.end(), true) == 3);
}

TEST_CASE("a simulated answer has at least min_tokens", "[serve]") {
  for (int seed = 0; seed < 20; ++seed) {
    const auto request = parse(ApiKind::Completion, R"({"prompt": "a", "max_tokens": 30,
        "min_tokens": 12, "seed": )" + std::to_string(seed) +
                                                        "}");
    CHECK((request.answer_tokens[0] == 12 || request.answer_tokens[0] == 30));
  }
  CHECK(refusal_of_field(R"("max_tokens": 5, "min_tokens": 6)") ==
        "400 [min_tokens] min_tokens: 6 is more than max_tokens, 5");
  const std::string least = R"({"prompt": "a", "min_tokens": 2)";
  CHECK(refusal(ApiKind::Completion, least + "}", byte_model(true)) ==
        "400 [min_tokens] min_tokens: is not supported; allowed: 0, or with ignore_eos and without "
        "stop_token_ids");
  CHECK(refusal(ApiKind::Completion, least + R"(, "ignore_eos": true})", byte_model(true)) ==
        "accepted");
  const std::string stops = R"(, "ignore_eos": true, "stop_token_ids": [1]})";
  CHECK(refusal(ApiKind::Completion, least + stops, byte_model(true))
            .starts_with("400 [min_tokens] min_tokens: is not supported"));
  CHECK(refusal(ApiKind::Completion, least + stops) == "accepted");
}

TEST_CASE("what changes logits changes nothing where there are none", "[serve]") {
  const std::string penalty = R"({"prompt": "a", "presence_penalty": 0.5})";
  CHECK(refusal(ApiKind::Completion, penalty) == "accepted");
  CHECK(refusal_of_field(R"("presence_penalty": 2.5)") ==
        "400 [presence_penalty] presence_penalty: 2.5 is out of range; allowed: a number from -2 "
        "to 2");
  CHECK(refusal(ApiKind::Completion, penalty, byte_model(true)) == "accepted");
  ServedModel model = byte_model(true);
  model.takes_penalties = false;
  CHECK(refusal(ApiKind::Completion, penalty, model) ==
        "400 [presence_penalty] presence_penalty: 0.5 is not supported; allowed: 0");
  CHECK(refusal(ApiKind::Completion, R"({"prompt": "a", "logit_bias": {"5": 1}})", model) ==
        "400 [logit_bias] logit_bias: is not supported by this backend; allowed: null, {}");
  CHECK(refusal(ApiKind::Completion, R"({"prompt": "a", "logit_bias": {},
            "repetition_penalty": 1})",
                model) == "accepted");
}

TEST_CASE("refusals name the field and what is allowed", "[serve]") {
  CHECK(refusal(ApiKind::Completion, "{").starts_with("400 [] the body is not JSON: parse error"));
  CHECK(refusal(ApiKind::Completion, "{\"prompt\": \"\xff\"}")
            .starts_with("400 [] the body is not JSON: parse error"));
  Answers answers("serve_api/refusals.txt");
  for (const char* body :
       {"[1]", "{}", R"({"prompt": ""})", R"({"prompt": []})", R"({"prompt": {}})",
        R"({"prompt": [[]]})", R"({"prompt": [1, "a"]})", R"({"prompt": [300]})",
        R"({"prompt": [18446744073709551615]})", R"({"prompt": "a", "model": "gpt"})",
        R"({"prompt": ["a", "b"], "n": 128})"}) {
    answers.add(body, refusal(ApiKind::Completion, body));
  }
  for (const char* field : {R"("max_tokens": 0)",
                            R"("max_tokens": 1.5)",
                            R"("max_tokens": 99999999999999999999)",
                            R"("temperature": -0.1)",
                            R"("temperature": "hot")",
                            R"("top_p": 0)",
                            R"("stream": 1)",
                            R"("stop": [1])",
                            R"("stop": "")",
                            R"("stream_options": {"include_usage": true})",
                            R"("stream": true, "stream_options": {"include_usage": 1})",
                            R"("stream": true, "stream_options": {"usage": true})",
                            R"("priority": 2)",
                            R"("n": 129)",
                            R"("echo": true)",
                            R"("guided_json": {"type": "object"})",
                            R"("guided_json": {})",
                            R"("web_search_options": {})",
                            R"("prompt_logprobs": 1)",
                            R"("response_format": {"type": "json_object"})",
                            R"("tools": [{}])",
                            R"("chat_template": "{{ x }}")",
                            R"("continue_final_message": true)",
                            R"("documents": [{"text": "a"}])",
                            R"("tool_choice": "auto")",
                            R"("tool_choice": "none")",
                            R"("reasoning_effort": "high")",
                            R"("modalities": ["text", "audio"])",
                            R"("modalities": ["text"])",
                            R"("typical_p": 0.9)",
                            R"("typical_p": 1.0)",
                            R"("mirostat": 2)",
                            R"("mirostat": 0, "mirostat_tau": 5)",
                            R"("n_predict": 5)",
                            R"("temprature": 0)",
                            R"("temprature": null)",
                            R"("user": "me", "metadata": {"a": "b"}, "store": true)"}) {
    answers.add(field, refusal_of_field(field, byte_model(true)));
  }
}

TEST_CASE("fields that only another endpoint honours are refused", "[serve]") {
  const auto refused = [](ApiKind kind, const std::string& field, const std::string& value) {
    const std::string input = kind == ApiKind::Chat
                                  ? R"("messages": [{"role": "user", "content": "a"}])"
                                  : R"("prompt": "a")";
    const std::string body = "{" + input + ", \"" + field + "\": " + value + "}";
    return refusal(kind, body, byte_model(true));
  };
  const std::pair<const char*, const char*> of_chats[] = {
      {"messages", R"([{"role": "user", "content": "b"}])"},
      {"add_generation_prompt", "false"},
      {"chat_template_kwargs", R"({"enable_thinking": false})"},
      {"max_completion_tokens", "5"},
      {"top_logprobs", "2"}};
  for (const auto& [name, value] : of_chats) {
    const std::string field = name;
    const std::string expected =
        "400 [" + field + "] " + field + ": is a field of another endpoint; allowed: null";
    CHECK(refused(ApiKind::Completion, field, value) == expected);
    CHECK(refused(ApiKind::Generate, field, value) == expected);
    CHECK(refused(ApiKind::Completion, field, "null") == "accepted");
  }
  CHECK(refused(ApiKind::Chat, "prompt", R"("b")").starts_with("400 [prompt]"));
  CHECK(refused(ApiKind::Chat, "prompt", "null") == "accepted");
  CHECK(refused(ApiKind::Generate, "logprobs", "2").starts_with("400 [logprobs]"));
  CHECK(refused(ApiKind::Completion, "logprobs", "2") == "accepted");
  CHECK(refused(ApiKind::Completion, "max_completion_token", "2") ==
        "400 [max_completion_token] max_completion_token: is not a field of this API; allowed: "
        "fields of OpenAI's API");
}

TEST_CASE("/generate has one answer, or is a stream", "[serve]") {
  const auto refused = [](const std::string& fields) {
    return refusal(ApiKind::Generate, "{" + fields + "}");
  };
  CHECK(refused(R"("prompt": "a", "n": 2)") ==
        "400 [n] n: /generate has one answer; allowed: 1, or with stream: true");
  CHECK(refused(R"("prompt": ["a", "b"])") ==
        "400 [prompt] prompt: /generate has one answer; allowed: 1, or with stream: true");
  CHECK(refused(R"("prompt": ["a"])") == "accepted");
  CHECK(refused(R"("prompt": ["a", "b"], "n": 2, "stream": true)") == "accepted");
  CHECK(refused(R"("prompt": "a", "stream": true, "stream_options": {"include_usage": true})") ==
        "accepted");
  CHECK(refused(R"("prompt": "a", "stream": true,
                   "stream_options": {"continuous_usage_stats": true})")
            .starts_with("400 [stream_options.continuous_usage_stats]"));
}

TEST_CASE("fields of a chat that are not honoured", "[serve]") {
  const auto of_chat = [](const std::string& message, const std::string& more = "") {
    return refusal(ApiKind::Chat,
                   R"({"messages": [{"role": "user", "content": "a")" + message + "}]" + more + "}",
                   byte_model(true));
  };
  CHECK(of_chat("") == "accepted");
  CHECK(of_chat(R"(, "tool_calls": [{}])") ==
        "400 [messages[0].tool_calls] messages[0].tool_calls: is not supported; allowed: role, "
        "content, name");
  CHECK(of_chat(R"(, "tool_calls": [], "refusal": null)") == "accepted");
  CHECK(of_chat(R"(, "name": "me")") == "accepted");  // as in vLLM
  CHECK(of_chat("", R"(, "chat_template_kwargs": {"enable_thinking": false})") == "accepted");
  CHECK(of_chat("", R"(, "chat_template_kwargs": {"thinking": true})") ==
        "400 [chat_template_kwargs.thinking] chat_template_kwargs.thinking: is not supported; "
        "allowed: enable_thinking, date_string");
}

TEST_CASE("a chat is written by the template of the model's folder", "[serve]") {
  ServedModel model = byte_model(true);
  const auto use = [&model](const char* source) {
    model.chat = std::make_shared<const FolderChat>(
        FolderChat::from_text(source, "t", Json{{"bos_token", "<s>"}}));
  };
  const auto prompt = [&](const std::string& fields) {
    return parse(ApiKind::Chat, "{" + fields + "}", model).prompts.front();
  };
  const auto refused = [&](const std::string& fields) {
    return refusal(ApiKind::Chat, "{" + fields + "}", model);
  };
  const std::string hi = R"("messages": [{"role": "developer", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  use("{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
      "{{ tools | map(attribute='function.name') | join(',') if tools }}{{ x }}"
      "{{ documents | length if documents }}{{ '>' if add_generation_prompt }}");
  CHECK(prompt(hi) == bytes("<s>system=a\nb;>"));
  CHECK(prompt(hi + R"(, "tools": [{"type": "function", "function": {"name": "f"}}],
                        "tool_choice": "auto", "documents": [{"text": "d"}],
                        "chat_template_kwargs": {"x": 5}, "add_generation_prompt": false)") ==
        bytes("<s>system=a\nb;f51"));
  CHECK(prompt(R"("continue_final_message": true,
                  "messages": [{"role": "assistant", "content": "It"}])") ==
        bytes("<s>assistant=It"));
  CHECK(refused(hi + R"(, "continue_final_message": true, "add_generation_prompt": true)")
            .starts_with("400 [continue_final_message]"));
  CHECK(refused(hi + R"(, "tool_choice": "required")").starts_with("400 [tool_choice]"));
  CHECK(refused(hi + R"(, "tool_choice": "auto")") ==
        "400 [tool_choice] tool_choice: needs tools; allowed: null, or with tools");
  CHECK(refused(hi + R"(, "tools": [], "tool_choice": "auto")").starts_with("400 [tool_choice]"));
  CHECK(refused(hi + R"(, "tools": [1])").starts_with("400 [tools]"));
  CHECK(refused(hi + R"(, "chat_template_kwargs": {"messages": []})")
            .starts_with("400 [chat_template_kwargs.messages]"));
  CHECK(refused(R"("messages": [])").starts_with("400 [messages]"));
  CHECK(refusal(ApiKind::Completion, R"({"prompt": "a", "tools": [{}]})", model)
            .starts_with("400 [tools] tools: is not supported"));
  use("{{ messages[0].tool_calls[0].function.arguments.city }}"
      "{{ messages[0].content is defined }}");
  const auto call = [](const std::string& arguments) {
    return R"("messages": [{"role": "assistant", "tool_calls": [{"type": "function",
        "function": {"name": "f", "arguments": )" +
           arguments + "}}]}]";
  };
  CHECK(prompt(call(R"("{\"city\": \"Bonn\"}")")) == bytes("BonnTrue"));
  CHECK(prompt(call(R"({"city": "Köln"})")) == bytes("KölnTrue"));
  CHECK(refused(call("\"[\"")).starts_with("400 [messages[0].tool_calls[0]]"));
  use("{{ messages[0].content }}");
  CHECK(refused(hi + R"(, "documents": [{"text": "d"}])") ==
        "400 [documents] documents: the chat template of this model does not write them; allowed: "
        "null");
  CHECK(refused(hi + R"(, "tools": [{"type": "function"}])").starts_with("400 [tools]"));
  use("{{ raise_exception('No tools: ' ~ n) }}");
  CHECK(refused(hi) == "400 [messages] messages: No tools: ");
  use("{{ messages[0].content.x.y }}");
  CHECK(refused(hi) ==
        "400 [messages] messages: the chat template, line 1: 'str object' has no "
        "attribute 'x'");
}

TEST_CASE("a body that is nested without end does no harm", "[serve]") {
  for (const std::size_t depth : {std::size_t{65}, std::size_t{100'000}}) {
    for (const char* open : {"[", "{\"a\":"}) {
      std::string body = R"({"prompt": "a", "max_tokens": )";
      for (std::size_t i = 0; i < depth; ++i) body += open;
      CHECK(refusal(ApiKind::Completion, body) ==
            "400 [] the body is nested more than 64 levels deep");
    }
  }
  CHECK(refusal_of_field(R"("stop": [[[["a"]]]])")
            .starts_with("400 [stop] stop: [[[\"a\"]]] is not allowed"));
}

TEST_CASE("a request that is too long for the context says by how much", "[serve]") {
  const std::string long_text(250, 'a');
  CHECK(refusal(ApiKind::Completion, R"({"prompt": ")" + long_text + R"(", "max_tokens": 6})") ==
        "accepted");
  CHECK(refusal(ApiKind::Completion, R"({"prompt": ")" + long_text + R"(", "max_tokens": 7})") ==
        "400 [prompt] the model's context is 256 tokens; the prompt has 250, max_tokens asks for 7 "
        "more; allowed: a shorter prompt, or fewer tokens");
  const std::string longer(300, 'a');
  CHECK(refusal(ApiKind::Chat,
                R"({"messages": [{"role": "user", "content": ")" + longer + R"("}]})") ==
        "400 [messages] the model's context is 256 tokens; the prompt has 317; allowed: a shorter "
        "prompt, or fewer tokens");
}

TEST_CASE("malformed messages of a chat", "[serve]") {
  Answers answers("serve_api/messages.txt");
  for (const char* body :
       {"{}", R"({"messages": []})", R"({"messages": "a"})", R"({"messages": [1]})",
        R"({"messages": [{"content": "a"}]})", R"({"messages": [{"role": "user", "content": 3}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"}) {
    answers.add(body, refusal(ApiKind::Chat, body));
  }
}

TEST_CASE("texts become tokens and back", "[serve]") {
  const ServedModel model = byte_model();
  CHECK(parse_tokenize(R"({"prompt": "ab"})", model) == bytes("ab"));
  CHECK(parse_tokenize(R"({"messages": [{"role": "user", "content": "a"}]})", model) ==
        bytes("user: a\nassistant:"));
  CHECK(parse_detokenize(R"({"tokens": [97, 98]})", model) == bytes("ab"));
  const auto error = [&](const auto& parse_one, const std::string& body) {
    return error_of<ApiError>([&] { parse_one(body, model); });
  };
  const auto tokenized = [](std::string_view text, const ServedModel& of) {
    return parse_tokenize(text, of);
  };
  CHECK(error(tokenized, "{}") == "prompt: is missing; allowed: a string, or messages");
  CHECK(error(parse_detokenize, "{}") == "tokens: is missing; allowed: a list of token ids");
  CHECK(error(tokenized, R"({"prompt": "a", "return_token_strs": true})") ==
        "return_token_strs: is not supported; allowed: prompt, model, add_special_tokens");
  CHECK(parse_tokenize(R"({"prompt": "a", "return_token_strs": false})", model) == bytes("a"));
  CHECK(error_of<ApiError>([] {
          parse_tokenize(R"({"messages": [{"role": "user"}], "tools": [{}]})", byte_model(true));
        }).starts_with("tools: is not supported"));
  CHECK(error(parse_detokenize, R"({"tokens": [1], "foo": 2})") ==
        "foo: is not supported; allowed: tokens, model");
  CHECK(error(parse_detokenize, R"({"tokens": [-1]})") ==
        "tokens: -1 is not a token id; allowed: integers from 0 to 299");
}

TEST_CASE("texts far beyond the model's context are not tokenized", "[serve]") {
  const ServedModel model = byte_model();
  const auto text = [](const std::string& kind, std::size_t count) {
    return "{\"" + kind + "\": \"" + std::string(count, 'x') + "\"}";
  };
  CHECK(error_of<ApiError>([&] { parse(ApiKind::Completion, text("prompt", 513)); }) ==
        "the model's context is 256 tokens; the text has more than 512; allowed: a shorter text");
  CHECK(parse_tokenize(text("prompt", 4096), model).size() == 4096);
  CHECK(error_of<ApiError>([&] { parse_tokenize(text("prompt", 4097), model); }) ==
        "the model's context is 256 tokens; the text has more than 4096; allowed: a shorter text");
}

TEST_CASE("errors have the shape of OpenAI's, as vLLM writes them", "[serve]") {
  const auto json = Json::parse(error_json(404, "say \"what\"", "model"));
  CHECK(json == Json::parse(R"({"error": {"message": "say \"what\"",
      "type": "NotFoundError", "param": "model", "code": 404}})"));
  CHECK(Json::parse(error_json(503, "x"))["error"]["param"].is_null());
}

}  // namespace TEST_FILE
