// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"
#include "serve/server/answer.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/server/api_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

// Says a text, or the tokens that the request has.
void say(Answer& answer, const std::string& text) {
  for (const TokenId id : bytes(text)) answer.on_token(0, id, {}, 0);
  answer.on_end(0, EndReason::Stop);
}
void say_script(Answer& answer) {
  const auto script = answer.request().scripts.front();
  for (const TokenId id : *script) answer.on_token(0, id, {}, 0);
  answer.on_end(0, EndReason::Stop);
}

// The names of the events of a stream, each once in a row, without what all begin with.
std::string kinds_of(Answer& answer) {
  std::string stream;
  answer.write_events(stream);
  std::string kinds, last;
  for (std::size_t at = 0; (at = stream.find("event: ", at)) != std::string::npos; ++at) {
    std::string kind = stream.substr(at + 7, stream.find('\n', at) - at - 7);
    if (kind.starts_with("response.")) kind = kind.substr(9);
    if (kind != last) kinds += kind + " ";
    last = kind;
  }
  return kinds;
}

constexpr const char* kTools = R"("tool_choice": "required", "tools": [{"type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "required": ["a"],
    "properties": {"a": {"type": "integer"}}}}}])";

}  // namespace

TEST_CASE("a call of a tool in a chat's answer", "[serve]") {
  const ServedModel model = byte_model();
  const std::string body =
      std::string(R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 60, )") +
      kTools;
  Answer whole(parse(ApiKind::Chat, body + "}"), model, "1", 0);
  say_script(whole);
  const Json choice = Json::parse(whole.body().value())["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"].is_null());
  const Json function = choice["message"]["tool_calls"][0]["function"];
  CHECK(function["name"] == "f");
  CHECK(Json::parse(function["arguments"].string())["a"].is_number_integer());
  Answer parts(parse(ApiKind::Chat, body + R"(, "stream": true})"), model, "1", 0);
  say_script(parts);
  std::string stream, arguments;
  parts.write_events(stream);
  for (const std::string& event : events_of(stream)) {
    if (event == "[DONE]") continue;
    const Json call = Json::parse(event)["choices"][0]["delta"]["tool_calls"][0];
    CHECK(call["function"].contains("name") == arguments.empty());
    arguments += call["function"]["arguments"].string();
  }
  CHECK(Json::parse(arguments)["a"].is_number_integer());
}

TEST_CASE("reasoning comes before the text", "[serve]") {
  const ServedModel model = byte_model();
  ApiRequest request = parse(ApiKind::Chat, R"({"messages": [{"role": "user", "content": "a"}],
      "max_tokens": 4, "ignore_eos": true, "reasoning_effort": "medium"})");
  Answer answer(request, model, "1", 0);
  say(answer, "abcd");
  const Json body = Json::parse(answer.body().value());
  CHECK(body["choices"][0]["message"]["reasoning_content"] == "ab");
  CHECK(body["choices"][0]["message"]["content"] == "cd");
  CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2);
  request.shows_reasoning = false;
  Answer hidden(request, model, "1", 0);
  say(hidden, "abcd");
  CHECK_FALSE(
      Json::parse(hidden.body().value())["choices"][0]["message"].contains("reasoning_content"));
}

TEST_CASE("an echoed prompt has its tokens' log probabilities", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(parse(ApiKind::Completion, R"({"prompt": [65, 66], "max_tokens": 1, "echo": true,
                                               "logprobs": 1, "return_token_ids": true})"),
                model, "1", 0);
  say(answer, "c");
  const Json choice = Json::parse(answer.body().value())["choices"][0];
  CHECK(choice["text"] == "ABc");
  CHECK(choice["logprobs"]["tokens"] == Json::array({"A", "B", "c"}));
  CHECK(choice["logprobs"]["token_logprobs"][0].is_null());
  CHECK(choice["logprobs"]["token_logprobs"][1].get<double>() < 0);
  CHECK(choice["token_ids"] == Json::array({99}));
  CHECK(choice["prompt_token_ids"] == Json::array({65, 66}));
  Answer none(parse(ApiKind::Completion, R"({"prompt": "ab", "max_tokens": 0, "echo": true})"),
              model, "1", 0);
  say(none, "c");
  const Json body = Json::parse(none.body().value());
  CHECK(body["choices"][0]["text"] == "ab");
  CHECK(body["usage"]["completion_tokens"] == 0);
}

TEST_CASE("a simulated prompt has log probabilities in the forms of vLLM", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(parse(ApiKind::Completion, R"({"prompt": [[65, 66], [67, 68, 69]], "n": 1,
                                               "max_tokens": 1, "prompt_logprobs": 2})"),
                model, "1", 0);
  for (const int choice : {0, 1}) {
    answer.on_token(choice, TokenId{120}, {}, 0);
    answer.on_end(choice, EndReason::Length);
  }
  const Json choices = Json::parse(answer.body().value())["choices"];
  CHECK(choices[0]["prompt_logprobs"].size() == 2);
  const Json logprobs = choices[1]["prompt_logprobs"];
  REQUIRE(logprobs.size() == 3);
  CHECK(logprobs[0].is_null());
  CHECK(logprobs[2].size() == 2);
  const Json own = logprobs[2]["69"];
  CHECK(own["decoded_token"] == "E");
  CHECK(own["rank"] == 1);
  CHECK(own["logprob"].get<double>() <= 0);

  // 0 asks for the prompt's own tokens alone. A chat has them beside its choices.
  Answer chat(parse(ApiKind::Chat, R"({"messages": [{"role": "user", "content": "a"}],
                                       "max_tokens": 1, "prompt_logprobs": 0})"),
              model, "1", 0);
  say(chat, "x");
  const Json body = Json::parse(chat.body().value());
  CHECK(static_cast<std::int64_t>(body["prompt_logprobs"].size()) ==
        body["usage"]["prompt_tokens"].get<std::int64_t>());
  CHECK(body["prompt_logprobs"][1].size() == 1);
  CHECK_FALSE(body["choices"][0].contains("prompt_logprobs"));

  CHECK(refusal_of_field(R"("prompt_logprobs": 1, "stream": true)") ==
        "400 [prompt_logprobs] prompt_logprobs: is not available with stream: true; allowed: null");
  CHECK(refusal_of_field(R"("prompt_logprobs": 21)").starts_with("400 [prompt_logprobs]"));
  CHECK(refusal_of_field(R"("prompt_logprobs": 1)", byte_model(true)) ==
        "400 [prompt_logprobs] prompt_logprobs: is not supported; allowed: null");
}

TEST_CASE("SGLang's log probabilities of a prompt begin at logprob_start_len", "[serve]") {
  const ServedModel model = byte_model();
  const auto meta_of = [&](const std::string& fields) {
    Answer answer(parse(ApiKind::Generate,
                        R"({"input_ids": [65, 66, 67], "return_logprob": true)" + fields + "}"),
                  model, "1", 0);
    say(answer, "x");
    return Json::parse(answer.body().value())["meta_info"];
  };
  const Json all = meta_of(R"(, "logprob_start_len": 0, "top_logprobs_num": 2)");
  REQUIRE(all["input_token_logprobs"].size() == 3);
  CHECK(all["input_token_logprobs"][0] == Json::parse("[null, 65, null]"));
  CHECK(all["input_token_logprobs"][2][1] == 67);
  CHECK(all["input_top_logprobs"][0].is_null());
  CHECK(all["input_top_logprobs"][2].size() == 2);
  CHECK(all["input_top_logprobs"][2][0] == all["input_token_logprobs"][2]);
  const Json last = meta_of(R"(, "logprob_start_len": 2)");
  CHECK(last["input_token_logprobs"] == Json::parse("[[null, 67, null]]"));
  CHECK_FALSE(last.contains("input_top_logprobs"));
  CHECK(meta_of("")["input_token_logprobs"].empty());
  CHECK(meta_of(R"(, "logprob_start_len": 3)")["input_token_logprobs"].empty());

  const auto refused = [](const std::string& fields, const ServedModel& by) {
    return refusal(ApiKind::Generate,
                   R"({"input_ids": [65], "return_logprob": true, )" + fields + "}", by);
  };
  CHECK(refused(R"("logprob_start_len": 2)", model) ==
        "400 [logprob_start_len] logprob_start_len: 2 is behind the prompt; allowed: -1 to 1");
  CHECK(refused(R"("logprob_start_len": 0)", byte_model(true)) ==
        "400 [logprob_start_len] logprob_start_len: is not supported; allowed: null, -1");
}

TEST_CASE("SGLang's answers have the text so far", "[serve]") {
  const ServedModel model = byte_model();
  const std::string body = R"({"text": "a", "sampling_params": {"max_new_tokens": 2})";
  Answer parts(parse(ApiKind::Generate, body + R"(, "stream": true})"), model, "1", 0);
  say(parts, "xy");
  std::string stream;
  parts.write_events(stream);
  const std::vector<std::string> events = events_of(stream);
  REQUIRE(events.size() == 3);
  CHECK(Json::parse(events[0])["text"] == "x");
  CHECK(Json::parse(events[0])["meta_info"]["finish_reason"].is_null());
  CHECK(Json::parse(events[1])["text"] == "xy");
  CHECK(Json::parse(events[1])["output_ids"] == Json::array({120, 121}));
  CHECK(Json::parse(events[1])["meta_info"]["completion_tokens"] == 2);
  CHECK(events[2] == "[DONE]");
  Answer list(parse(ApiKind::Generate, R"({"input_ids": [[1, 2]]})"), model, "1", 0);
  say(list, "z");
  CHECK(Json::parse(list.body().value())[0]["meta_info"]["prompt_tokens"] == 2);
  CHECK(refusal(ApiKind::Generate, R"({"text": "a", "sampling_params": {"max_new_tokens": 0}})")
            .starts_with("400 [max_new_tokens] max_new_tokens: 0 is out of range"));
  CHECK(refusal(ApiKind::Generate, R"({"text": "a", "sampling_params": {"ebnf": "a"}})") ==
        "400 [ebnf] ebnf: is not supported; allowed: null");
}

TEST_CASE("events of responses and of messages have their order", "[serve]") {
  const ServedModel model = byte_model();
  Answer text(parse(ApiKind::Responses, R"({"input": "a", "stream": true})"), model, "1", 0);
  say(text, "xy");
  CHECK(kinds_of(text) ==
        "created in_progress output_item.added content_part.added output_text.delta "
        "output_text.done content_part.done output_item.done completed ");
  Answer call(parse(ApiKind::Responses, R"({"input": "a", "stream": true, "max_output_tokens": 50,
                  "tool_choice": {"type": "function", "name": "f"},
                  "tools": [{"type": "function", "name": "f"}]})"),
              model, "1", 0);
  say_script(call);
  CHECK(kinds_of(call) ==
        "created in_progress output_item.added function_call_arguments.delta "
        "function_call_arguments.done output_item.done completed ");
  const std::string message = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 9)";
  Answer said(parse(ApiKind::Messages, message + R"(, "stream": true, "thinking":
                  {"type": "enabled", "budget_tokens": 1}})"),
              model, "1", 0);
  say(said, "xyz");
  CHECK(kinds_of(said) ==
        "message_start content_block_start content_block_delta content_block_stop "
        "content_block_start content_block_delta content_block_stop message_delta message_stop ");
  Answer used(parse(ApiKind::Messages, message + R"(, "tool_choice": {"type": "any"},
                  "tools": [{"name": "f", "input_schema": {"type": "object"}}]})"),
              model, "1", 0);
  say_script(used);
  const Json body = Json::parse(used.body().value());
  CHECK(body["stop_reason"] == "tool_use");
  CHECK(body["content"][0]["name"] == "f");
  CHECK(refusal(ApiKind::Messages, message + R"(, "stop_sequences": [""]})")
            .starts_with("400 [stop_sequences] stop_sequences: is empty"));
  CHECK(refusal(ApiKind::Responses, R"({"input": "a", "max_output_tokens": 0})")
            .starts_with("400 [max_output_tokens] max_output_tokens: 0 is out of range"));
}

TEST_CASE("a simulated embedding is a prompt that is read", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(parse(ApiKind::Embeddings, R"({"input": "ab", "dimensions": 3})"), model, "1", 0);
  say(answer, "x");
  const Json body = Json::parse(answer.body().value());
  CHECK(body["data"][0]["embedding"].size() == 3);
  CHECK(body["usage"]["total_tokens"] == 2);
  CHECK(refusal(ApiKind::Embeddings, R"({"input": ""})") ==
        "400 [input] input: is empty; allowed: at least one token");
  CHECK(refusal(ApiKind::Embeddings, R"({"input": "a"})", byte_model(true)).starts_with("404 []"));
}

TEST_CASE("conversations of agents become prompts", "[serve]") {
  const auto prompt = [](ApiKind kind, const std::string& body) {
    return parse(kind, body).prompts.front();
  };
  CHECK(prompt(ApiKind::Responses, R"({"input": [{"role": "user", "content":
            [{"type": "input_text", "text": "a"}]}], "instructions": "s"})") ==
        bytes("system: s\nuser: a\nassistant:"));
  CHECK(prompt(ApiKind::Messages, R"({"max_tokens": 1, "system": "s", "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "c"}]}]})") ==
        bytes("system: s\nuser: a\nassistant: b\ntool: c\nassistant:"));
}

}  // namespace TEST_FILE
