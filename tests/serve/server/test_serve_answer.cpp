// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "core/base/json.h"
#include "models/text/utf8.h"
#include "serve/server/answer.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/models/text/tokenizer_fixtures.h"
#include "tests/serve/server/serve_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

ApiRequest request_of(ApiKind kind, const std::string& more, const ServedModel& model) {
  const std::string what = kind == ApiKind::Chat
                               ? R"("messages": [{"role": "user", "content": "Hi"}])"
                               : R"("prompt": "Hi")";
  return parse_generation(kind, "{" + what + more + "}", model, 0);
}

void say(Answer& answer, const std::string& text, std::int32_t choice = 0) {
  for (const char c : text) {
    answer.on_token(choice, TokenId{static_cast<unsigned char>(c)}, {}, 0);
  }
}

}  // namespace

TEST_CASE("a completion's stream has an event for every token", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(request_of(ApiKind::Completion, R"(, "stream": true)", model), model, "1", 1234);
  std::string stream;
  answer.write_events(stream);
  CHECK(stream.empty());
  say(answer, "a");
  answer.write_events(stream);
  CHECK(stream ==
        "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1234,\"model\":"
        "\"tiny\",\"choices\":[{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":"
        "null}]}\n\n");
  stream.clear();
  say(answer, "b\n");
  answer.on_end(0, EndReason::Length);
  CHECK(answer.is_done());
  answer.write_events(stream);
  const std::vector<std::string> events = events_of(stream);
  REQUIRE(events.size() == 3);
  CHECK(Json::parse(events[0])["choices"][0]["text"] == "b");
  CHECK(Json::parse(events[0])["choices"][0]["finish_reason"].is_null());
  // The last token carries why there are no more.
  CHECK(Json::parse(events[1])["choices"][0]["text"] == "\n");
  CHECK(Json::parse(events[1])["choices"][0]["finish_reason"] == "length");
  CHECK(events[2] == "[DONE]");
  stream.clear();
  answer.write_events(stream);
  CHECK(stream.empty());
}

TEST_CASE("a chat's stream begins with role and first token in one event", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(request_of(ApiKind::Chat,
                           R"(, "stream": true, "stream_options": {"include_usage": true})", model),
                model, "2", 5);
  say(answer, "xy");
  answer.on_end(0, EndReason::Stop);
  std::string stream;
  answer.write_events(stream);
  const std::vector<std::string> events = events_of(stream);
  REQUIRE(events.size() == 4);
  CHECK(Json::parse(events[0]) ==
        Json::parse(R"({"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 5,
            "model": "tiny", "choices": [{"index": 0, "delta": {"role": "assistant",
            "content": "x"}, "logprobs": null, "finish_reason": null}], "usage": null})"));
  CHECK(Json::parse(events[1])["choices"][0]["delta"] == Json::parse(R"({"content": "y"})"));
  CHECK(Json::parse(events[1])["choices"][0]["finish_reason"] == "stop");
  CHECK(Json::parse(events[2])["choices"] == Json::array());
  CHECK(Json::parse(events[2])["usage"] ==
        Json::parse(R"({"prompt_tokens": 19, "completion_tokens": 2, "total_tokens": 21,
                        "prompt_tokens_details": {"cached_tokens": 0}})"));
  CHECK(events[3] == "[DONE]");
}

TEST_CASE("usage with every event, where it is asked for", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(
      request_of(ApiKind::Completion,
                 R"(, "stream": true, "stream_options": {"continuous_usage_stats": true})", model),
      model, "3", 5);
  answer.on_token(0, TokenId{'a'}, {}, 1);
  std::string stream;
  answer.write_events(stream);
  const Json usage = Json::parse(events_of(stream)[0])["usage"];
  CHECK(usage["completion_tokens"] == 1);
  CHECK(usage["prompt_tokens_details"]["cached_tokens"] == 1);
}

TEST_CASE("a stop string ends a choice where it begins", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(
      request_of(ApiKind::Completion, R"(, "stream": true, "stop": ["cde"], "n": 2)", model), model,
      "4", 5);
  std::string stream;
  const auto text_so_far = [&] {
    std::string text;
    for (const std::string& event : events_of(stream)) {
      if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
    }
    return text;
  };
  CHECK_FALSE(answer.on_token(0, TokenId{'b'}, {}, 0));
  CHECK_FALSE(answer.on_token(0, TokenId{'c'}, {}, 0));
  answer.write_events(stream);
  CHECK(events_of(stream).size() == 2);  // one for each token, whatever may go out
  CHECK(text_so_far() == "b");
  CHECK_FALSE(answer.on_token(0, TokenId{'d'}, {}, 0));
  CHECK(answer.on_token(0, TokenId{'e'}, {}, 0));
  CHECK(answer.has_ended(0));
  CHECK_FALSE(answer.on_token(0, TokenId{'f'}, {}, 0));  // the engine was quicker
  answer.on_end(0, EndReason::Aborted);
  answer.write_events(stream);
  CHECK(text_so_far() == "b");
  CHECK(Json::parse(events_of(stream).back())["choices"][0]["finish_reason"] == "stop");
  CHECK_FALSE(answer.is_done());
  // Text that was held back goes out when the text ends otherwise.
  stream.clear();
  say(answer, "xcd", 1);
  answer.on_end(1, EndReason::Length);
  answer.write_events(stream);
  CHECK(text_so_far() == "xcd");
  CHECK(answer.is_done());
  CHECK(answer.num_completion_tokens() == 7);
}

TEST_CASE("no stop string ends an answer within its min_tokens", "[serve]") {
  const ServedModel model = byte_model();
  const auto text_of = [&](const std::string& tokens, const char* reason) {
    Answer answer(request_of(ApiKind::Completion, R"(, "stop": ["ab"], "min_tokens": 4)", model),
                  model, "4", 5);
    say(answer, tokens);
    answer.on_end(0, EndReason::Length);
    const Json choice = Json::parse(answer.body().value())["choices"][0];
    CHECK(choice["finish_reason"] == reason);
    return choice["text"].get<std::string>();
  };
  CHECK(text_of("abab", "length") == "abab");
  CHECK(text_of("abxxyab", "stop") == "abxxy");
  CHECK(text_of("xyzab", "stop") == "xyz");  // begins within them, ends after
  CHECK(text_of("ab", "length") == "ab");    // the engine ended it
}

TEST_CASE("the token that stops an answer counts, and is no part of its text", "[serve]") {
  const ServedModel model = byte_model(true);
  const bool is_included = GENERATE(false, true);
  const std::string fields = std::string(R"(, "logprobs": 0)") +
                             (is_included ? R"(, "include_stop_str_in_output": true)" : "");
  Answer answer(request_of(ApiKind::Completion, fields, model), model, "4", 5);
  answer.on_token(0, TokenId{'a'}, {{TokenId{'a'}, -0.5F}}, 0);
  CHECK_FALSE(answer.on_token(0, TokenId{'z'}, {{TokenId{'z'}, -1.5F}}, 0, true));
  answer.on_end(0, EndReason::Stop);
  const Json body = Json::parse(answer.body().value());
  CHECK(body["choices"][0]["text"] == (is_included ? "az" : "a"));
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][0]["logprobs"]["token_logprobs"] == Json::parse("[-0.5, -1.5]"));
  CHECK(body["usage"]["completion_tokens"] == 2);
}

TEST_CASE("tokens that were written hold no memory", "[serve]") {
  const ServedModel model = byte_model();
  for (const std::size_t most_bytes : {SIZE_MAX, std::size_t{1}}) {
    Answer answer(request_of(ApiKind::Completion, R"(, "stream": true)", model), model, "5", 6);
    std::string out;
    for (int i = 0; i < 5000; ++i) {
      say(answer, "x");
      out.clear();
      answer.write_events(out, most_bytes);
      CHECK(answer.num_unsent_bytes() < 1000);
    }
    for (int i = 0; i < 50'000; ++i) say(answer, "x");
    CHECK(answer.num_unsent_bytes() >= 50'000 * 9);
    answer.write_events(out);
    CHECK(answer.num_unsent_bytes() < 10'000);
  }
}

TEST_CASE("whole bodies", "[serve]") {
  const ServedModel model = byte_model();
  Answer completion(request_of(ApiKind::Completion, R"(, "n": 2)", model), model, "5", 6);
  say(completion, "ab", 1);
  completion.on_end(1, EndReason::Length);
  say(completion, "c", 0);
  completion.on_end(0, EndReason::Stop);
  CHECK(Json::parse(completion.body().value()) ==
        Json::parse(R"({"id": "cmpl-5", "object": "text_completion", "created": 6, "model": "tiny",
            "choices": [{"index": 0, "text": "c", "logprobs": null, "finish_reason": "stop"},
            {"index": 1, "text": "ab", "logprobs": null, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
                      "prompt_tokens_details": {"cached_tokens": 0}}})"));
  Answer chat(request_of(ApiKind::Chat, "", model), model, "6", 6);
  say(chat, "ok");
  chat.on_end(0, EndReason::Length);
  CHECK(chat.body(100) == std::nullopt);
  const Json body = Json::parse(chat.body().value());
  CHECK(body["object"] == "chat.completion");
  CHECK(body["choices"][0]["message"] == Json::parse(R"({"role": "assistant", "content": "ok"})"));
  Answer generate(request_of(ApiKind::Generate, "", model), model, "7", 6);
  say(generate, "ok");
  generate.on_end(0, EndReason::Length);
  CHECK(Json::parse(generate.body().value())["text"] == "ok");
}

TEST_CASE("a stream that fails in the middle says so and ends", "[serve]") {
  const ServedModel model = byte_model();
  Answer answer(request_of(ApiKind::Completion, R"(, "stream": true)", model), model, "8", 6);
  say(answer, "a");
  std::string stream;
  answer.write_events(stream);
  answer.write_error(500, "the step failed", stream);
  const std::vector<std::string> events = events_of(stream);
  REQUIRE(events.size() == 3);
  CHECK(Json::parse(events[1])["error"]["message"] == "the step failed");
  CHECK(Json::parse(events[1])["error"]["code"] == 500);
  CHECK(events[2] == "[DONE]");
  answer.write_error(500, "again", stream);
  CHECK(events_of(stream).size() == 3);
}

TEST_CASE("logprobs in both shapes", "[serve]") {
  const ServedModel model = byte_model(true);
  const std::vector<TokenLogprob> logprobs = {
      {TokenId{'b'}, -1.5F}, {TokenId{'a'}, -0.5F}, {TokenId{'b'}, -1.5F}};
  Answer completion(request_of(ApiKind::Completion, R"(, "logprobs": 2)", model), model, "9", 6);
  completion.on_token(0, TokenId{'b'}, logprobs, 0);
  completion.on_token(0, TokenId{'b'}, logprobs, 0);
  completion.on_end(0, EndReason::Length);
  CHECK(Json::parse(completion.body().value())["choices"][0]["logprobs"] ==
        Json::parse(R"({"tokens": ["b", "b"], "token_logprobs": [-1.5, -1.5],
            "top_logprobs": [{"a": -0.5, "b": -1.5}, {"a": -0.5, "b": -1.5}],
            "text_offset": [0, 1]})"));
  // The sampled token is there even if it is not among the likeliest.
  Answer unlikely(request_of(ApiKind::Completion, R"(, "logprobs": 1)", model), model, "9", 6);
  unlikely.on_token(0, TokenId{'c'}, {{TokenId{'c'}, -3.5F}, {TokenId{'a'}, -0.5F}}, 0);
  unlikely.on_token(0, TokenId{'a'}, {{TokenId{'a'}, -0.5F}, {TokenId{'a'}, -0.5F}}, 0);
  unlikely.on_token(0, TokenId{'c'}, {{TokenId{'c'}, -3.5F}}, 0);
  unlikely.on_end(0, EndReason::Length);
  CHECK(Json::parse(unlikely.body().value())["choices"][0]["logprobs"]["top_logprobs"] ==
        Json::parse(R"([{"c": -3.5, "a": -0.5}, {"a": -0.5}, {"c": -3.5}])"));
  Answer chat(request_of(ApiKind::Chat, R"(, "logprobs": true, "top_logprobs": 2)", model), model,
              "10", 6);
  chat.on_token(0, TokenId{'b'}, logprobs, 0);
  chat.on_end(0, EndReason::Length);
  CHECK(Json::parse(chat.body().value())["choices"][0]["logprobs"] ==
        Json::parse(R"({"content": [{"token": "b", "logprob": -1.5, "bytes": [98],
            "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]},
                             {"token": "b", "logprob": -1.5, "bytes": [98]}]}]})"));
}

TEST_CASE("streams are their bodies, whatever the tokens and stop strings", "[serve]") {
  const std::uint64_t seed = GENERATE(range(0u, 200u));
  INFO("seed " << seed);
  Rng rng(seed, "answers");
  ServedModel model = byte_model(true);
  model.tokenizer = fixture_tokenizer(kTokenizerFixtures[seed % std::size(kTokenizerFixtures)]);
  model.vocab_size = model.tokenizer->vocab_size();
  ApiRequest whole;
  whole.prompts = {{TokenId{0}}};
  whole.num_prompt_tokens = 1;
  whole.n = 2;
  whole.max_tokens = 100;
  if (chance(rng, 0.5)) {
    whole.stops = std::make_shared<const StopStrings>(
        std::vector<std::string>{random_text(rng, 2) + "e", "the"});
  }
  whole.includes_stop = chance(rng, 0.3);
  whole.skips_special_tokens = chance(rng, 0.7);
  ApiRequest parts = whole;
  parts.is_stream = true;
  Answer body(whole, model, "x", 0), stream(parts, model, "x", 0);
  std::string written;
  int num_tokens[2] = {0, 0};
  for (std::int32_t choice = 0; choice < 2; ++choice) {
    for (const TokenId id : random_ids(rng, *model.tokenizer)) {
      if (body.has_ended(choice)) break;
      CHECK(body.on_token(choice, id, {}, 0) == stream.on_token(choice, id, {}, 0));
      ++num_tokens[choice];
      if (chance(rng, 0.7)) stream.write_events(written);
    }
    body.on_end(choice, EndReason::Length);
    stream.on_end(choice, EndReason::Length);
    if (chance(rng, 0.5)) stream.write_events(written);
  }
  stream.write_events(written);
  const Json expected = Json::parse(body.body().value())["choices"];
  std::string texts[2];
  int num_events[2] = {0, 0};
  Json reasons[2];
  const std::vector<std::string> events = events_of(written);
  REQUIRE(events.back() == "[DONE]");
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    CHECK(is_utf8(events[i]));
    const Json choice = Json::parse(events[i])["choices"][0];
    const auto at = choice["index"].get<std::size_t>();
    texts[at] += choice["text"].get<std::string>();
    ++num_events[at];
    CHECK(reasons[at].is_null());
    reasons[at] = choice["finish_reason"];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(texts[i] == expected[i]["text"]);
    CHECK(reasons[i] == expected[i]["finish_reason"]);
    // One more where the end came alone: with text that was held back, or to say that it is there.
    CHECK(num_events[i] >= num_tokens[i]);
    CHECK(num_events[i] <= num_tokens[i] + 1);
  }
}

}  // namespace TEST_FILE
