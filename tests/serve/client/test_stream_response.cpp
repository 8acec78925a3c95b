// SPDX-License-Identifier: Apache-2.0
// Responses of streaming servers, read from bytes that are split anywhere.
#include "serve/client/stream_response.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/serve/client/scripted_server.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

// The outcome of a response; the same however its bytes are split.
struct Outcome {
  std::int32_t num_tokens = 0;
  bool is_over = false;
  bool keeps_alive = false;
  bool is_refusal = false;
  std::int32_t status = 0;
  std::string error;
  std::string finish_reason;
  std::int64_t prompt_tokens = -1;
  std::int64_t completion_tokens = -1;

  bool operator==(const Outcome&) const = default;
};

// Reads `bytes` in pieces that end at `cuts`. `closes`: the server closes behind them.
Outcome outcome_of(std::string_view bytes, const std::vector<std::size_t>& cuts, bool closes) {
  StreamResponse response;
  Outcome outcome;
  std::size_t begin = 0;
  for (std::size_t c = 0; c <= cuts.size(); ++c) {
    const std::size_t end = c < cuts.size() ? cuts[c] : bytes.size();
    outcome.num_tokens += response.read(bytes.substr(begin, end - begin));
    begin = end;
  }
  if (closes) outcome.num_tokens += response.end();
  outcome.is_over = response.is_over();
  outcome.keeps_alive = response.keeps_alive();
  outcome.is_refusal = response.is_refusal();
  outcome.status = response.status();
  outcome.error = response.error();
  outcome.finish_reason = response.finish_reason();
  outcome.prompt_tokens = response.prompt_tokens().value_or(-1);
  outcome.completion_tokens = response.completion_tokens().value_or(-1);
  return outcome;
}

// Reads `bytes` whole, cut in two anywhere, byte by byte, and cut at random; all must agree.
Outcome read_any_way(const std::string& bytes, bool closes) {
  const Outcome whole = outcome_of(bytes, {}, closes);
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    INFO("cut at " << cut);
    REQUIRE(outcome_of(bytes, {cut}, closes) == whole);
  }
  std::vector<std::size_t> every;
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) every.push_back(cut);
  CHECK(outcome_of(bytes, every, closes) == whole);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "test_stream_response");
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      if (chance(rng, 0.05)) cuts.push_back(cut);
    }
    REQUIRE(outcome_of(bytes, cuts, closes) == whole);
  }
  return whole;
}

std::string joined(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) text += event;
  return text;
}

std::string chunked(const std::vector<std::string>& events) {
  std::string text = stream_head();
  for (const std::string& event : events) text += chunk_of(event);
  return text + "0\r\n\r\n";
}

Outcome good(std::int32_t num_tokens, bool keeps_alive) {
  return {num_tokens, true, keeps_alive, false, 200, "", "length", 7, num_tokens};
}

}  // namespace

TEST_CASE("a stream is read alike however it is framed and split", "[bench_serve]") {
  const std::vector<std::string> events = stream_events(7, 5);
  const std::string body = joined(events);
  CHECK(read_any_way(chunked(events), false) == good(5, true));
  CHECK(read_any_way(chunked({body}), false) == good(5, true));
  // Chunks that end in the middle of events.
  CHECK(read_any_way(chunked({body.substr(0, 11), body.substr(11, 300), body.substr(311)}),
                     false) == good(5, true));
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  CHECK(read_any_way(stream_head(length) + body, false) == good(5, true));
  CHECK(read_any_way(stream_head(length + "Connection: close\r\n") + body, false) ==
        good(5, false));
  CHECK(read_any_way(stream_head("") + body, true) == good(5, false));
  CHECK_FALSE(outcome_of(stream_head("") + body, {}, false).is_over);
}

TEST_CASE("what server-sent events allow is read", "[bench_serve]") {
  const auto with_ends = [](std::string text, const std::string& end) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += end.size()) {
      text.replace(at, 1, end);
    }
    return text;
  };
  const std::string body = joined(stream_events(7, 3));
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    CHECK(read_any_way(chunked({with_ends(body, end)}), false) == good(3, true));
  }
  const std::string decorated = "\xef\xbb\xbf: ping\n\nevent: message\nid: 4\nretry: 10\n" +
                                token_event() + ": keep-alive\n\ndatabase: no field\n\n" +
                                token_event() + token_event("\"length\"") + usage_event(7, 3) +
                                kDoneEvent;
  CHECK(read_any_way(chunked({decorated}), false) == good(3, true));
  // No space behind the colon, data in two lines, and a last event without its empty line.
  const std::string odd = "data:{\"choices\":[{\"index\":0,\ndata: \"text\":\"\"}]}\n\n" +
                          usage_event(7, 1) +
                          "data: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n";
  CHECK(read_any_way(chunked({odd}), false) ==
        Outcome{2, true, true, false, 200, "", "length", 7, 1});
  // A last line without an end, which alone says that the stream is whole.
  const std::string unended = token_event() + usage_event(7, 1) + "data: [DONE]";
  CHECK(read_any_way(chunked({unended}), false) ==
        Outcome{1, true, true, false, 200, "", "", 7, 1});
  CHECK(read_any_way(stream_head("") + token_event() + "data: {\"choices\":[{", true).error ==
        "the stream ended in the middle of an event");
  // Nothing counts behind [DONE].
  CHECK(read_any_way(chunked({body + token_event()}), false) == good(3, true));
}

TEST_CASE("chunks with choices are tokens, and no others", "[bench_serve]") {
  const auto facts = [](const char* json) { return parse_stream_event(json); };
  CHECK(facts(R"({"choices":[{"delta":{"role":"assistant"}}]})").has_choices);
  CHECK(facts(R"({"choices":[{"text":""}],"usage":null})").has_choices);
  CHECK_FALSE(facts(R"({"choices":[],"usage":{"prompt_tokens":4}})").has_choices);
  CHECK_FALSE(facts(R"({"model":"choices","usage":{"choices":[1]}})").has_choices);
  CHECK(facts(R"({"choices":[],"usage":{"prompt_tokens":4}})").prompt_tokens == 4);
  CHECK(
      facts(R"({"usage":{"completion_tokens":5,"a":{"completion_tokens":9}}})").completion_tokens ==
      5);
  CHECK_FALSE(facts(R"({"completion_tokens":5})").completion_tokens);
  CHECK(facts(R"({"choices":[{"finish_reason":"stop","logprobs":{"finish_reason":"x"}}]})")
            .finish_reason == "stop");
  CHECK(facts(R"({"choices":[{"finish_reason":null}]})").finish_reason.empty());
  CHECK(facts(R"({"error":{"message":"no room","type":"x"}})").error == "no room");
  CHECK(facts(R"({"error":"no room"})").error == "no room");
  CHECK(facts(R"({"error":{"code":3}})").error == "an error without a message");
  CHECK(facts(R"({"error":null,"choices":[]})").error.empty());
  CHECK(facts("[1,2]").error == "the server sent an event that is not a JSON object: [1,2]");
  CHECK(facts("{\"choices\":").error ==
        "the server sent an event that is not a JSON object: {\"choices\":");
}

TEST_CASE("errors of servers are told in one line", "[bench_serve]") {
  const auto refused = [](int status, const std::string& body, const std::string& headers = "") {
    return read_any_way(plain_answer(status, body, headers), false);
  };
  const Outcome bad = refused(400, R"({"error":{"message":"too\nlong","code":400}})");
  CHECK(bad.error == "HTTP 400: too\\nlong");
  CHECK(bad.is_over);
  CHECK(bad.keeps_alive);
  CHECK_FALSE(bad.is_refusal);
  CHECK(refused(404, R"({"object":"error","message":"no model"})").error == "HTTP 404: no model");
  CHECK(refused(422, R"({"detail":[{"msg":"x"}]})").error == R"(HTTP 422: [{"msg":"x"}])");
  CHECK(refused(500, "oops").error == "HTTP 500: oops");
  CHECK(refused(500, "").error == "HTTP 500");
  CHECK(refused(503, "{}", "Retry-After: 1\r\n").is_refusal);
  CHECK(refused(429, "{}", "retry-after: 1\r\n").is_refusal);
  CHECK_FALSE(refused(503, "{}").is_refusal);
  CHECK_FALSE(refused(500, "{}", "Retry-After: 1\r\n").is_refusal);
  CHECK(refused(200, R"({"choices":[{"text":"all at once"}]})").error ==
        "the server answered with application/json, not with text/event-stream: it does not "
        "stream");
  CHECK(refused(500, std::string(100'000, 'x')).error.size() < 500);
}

TEST_CASE("streams that break off are failures", "[bench_serve]") {
  const std::string broken =
      chunked({token_event(), "data: {\"error\":{\"message\":\"engine died\"}}\n\n", kDoneEvent});
  CHECK(read_any_way(broken, false).error == "engine died");
  CHECK(read_any_way(broken, false).num_tokens == 1);
  const std::string whole = chunked(stream_events(7, 3));
  const std::size_t body_at = stream_head().size();
  CHECK(outcome_of("", {}, true).error == "the server closed the connection without an answer");
  for (std::size_t size = 1; size < whole.size() - 5; ++size) {
    INFO("cut off behind " << size << " bytes");
    const Outcome cut = outcome_of(whole.substr(0, size), {}, true);
    REQUIRE(cut.is_over);
    REQUIRE_FALSE(cut.keeps_alive);
    const bool has_done = whole.substr(0, size).find("[DONE]\n\n") != std::string::npos;
    if (has_done) {  // it had said everything
      REQUIRE(cut.error.empty());
      REQUIRE(cut.num_tokens == 3);
      continue;
    }
    REQUIRE(cut.error == "the server closed the connection in the middle of its answer");
    if (size < body_at) REQUIRE(cut.num_tokens == 0);
  }
  CHECK(read_any_way(chunked({token_event(), token_event()}), false).error ==
        "the stream ended without [DONE] or a finish reason");
  CHECK(read_any_way("SSH-2.0-OpenSSH_9.2\r\n\r\n", false)
            .error.starts_with("the server's answer is not HTTP/1.1"));
  // A second response that nobody asked for.
  CHECK_FALSE(outcome_of(whole + "HTTP/1.1 200 OK\r\n", {}, false).keeps_alive);
}

TEST_CASE("a line without end is given up", "[bench_serve]") {
  StreamResponse response;
  response.read(stream_head(""));
  const std::string much(std::size_t{1} << 20, 'x');
  for (int i = 0; i < 5 && !response.is_over(); ++i) response.read(much);
  CHECK(response.is_over());
  CHECK(response.error() == "the server sent an event of more than 4 MiB");
  CHECK_FALSE(response.keeps_alive());
}

}  // namespace metronome::TEST_FILE
