// SPDX-License-Identifier: Apache-2.0
// Traces in the words of many programs: units of times, names of columns, salts, spans, and texts.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/workload/workload.h"
#include "tests/catch.h"
#include "tests/core/workload/trace_helpers.h"

namespace metronome::testing::TEST_FILE {
namespace {

TEST_CASE("times of an epoch are seen by their size, others by their names", "[core][trace]") {
  TraceFile trace;
  const auto mooncake = [&](const std::string& first, const std::string& second) {
    const std::string rest = ", \"input_length\": 9, \"output_length\": 5}\n";
    return summary(
        trace.load("{\"timestamp\": " + first + rest + "{\"timestamp\": " + second + rest));
  };
  CHECK(mooncake("0", "3000") == "0/9/5 3000/9/5 ");
  CHECK(mooncake("1756800000", "1756800002") == "0/9/5 2000/9/5 ");
  CHECK(mooncake("1756800000.5", "1756800002.0") == "0/9/5 1500/9/5 ");
  CHECK(mooncake("1756800000000", "1756800002000") == "0/9/5 2000/9/5 ");
  // Bailian counts in seconds.
  const std::string bailian = ", \"chat_id\": 1, \"input_length\": 9, \"output_length\": 5}\n";
  CHECK(summary(trace.load("{\"timestamp\": 1756800000000" + bailian +
                           "{\"timestamp\": 1756800000250" + bailian)) == "0/9/5 250/9/5 ");
  for (const auto& [name, second] :
       {std::pair("arrival_time_ms", "250"), std::pair("arrival_s", "0.25"),
        std::pair("arrival_time", "0.25"), std::pair("timestamp", "0.25")}) {
    INFO(name);
    CHECK(summary(trace.load(std::string(name) + ",isl,osl\n0,9,5\n" + second + ",9,5\n")) ==
          "0/9/5 250/9/5 ");
    const std::string key = "{\"" + std::string(name) + "\": ";
    const std::string rest = ", \"isl\": 9, \"osl\": 5}\n";
    CHECK(summary(trace.load(key + "0" + rest + key + second + rest)) == "0/9/5 250/9/5 ");
  }
  // The scenario's own settings hold.
  CHECK(
      summary(trace.load("{\"timestamp\": 1756800000, \"input_length\": 9, \"output_length\": 5}\n"
                         "{\"timestamp\": 1756800002, \"input_length\": 9, \"output_length\": 5}\n",
                         ", time_unit: ms")) == "0/9/5 2/9/5 ");
}

TEST_CASE("logs and results in the words of their programs", "[core][trace]") {
  const std::string date = "\"2026-01-01T00:00:0";
  const std::pair<std::string, std::string> rows[] = {
      {"{\"start_time\": " + date + "0Z\", \"gen_ai_usage_input_tokens\": 9, ",
       "\"gen_ai_usage_output_tokens\": 5, \"response_code\": 200}"},
      {"{\"started_at\": 1756800000123, \"ai\": {\"proxy\": {\"usage\": {\"prompt_tokens\": 9, ",
       "\"completion_tokens\": 5}}}}"},
      {"{\"startTime\": " + date + "0Z\", \"usage\": {\"input\": 9, ", "\"output\": 5}}"},
      {"{\"start_time\": 1000.5, \"info\": {\"input_tokens\": 9, ", "\"output_tokens\": 5}}"},
      {"{\"start_time\": 1000.5, \"number_input_tokens\": 9, ", "\"number_output_tokens\": 5}"},
      {"{\"arrival_time\": 0.5, \"prompt_len\": 9, ", "\"output_len\": 5}"},
      {"{\"TIMESTAMP\": " + date + "0\", \"ContextTokens\": 9, ", "\"GeneratedTokens\": 5}"},
  };
  TraceFile trace;
  for (const auto& [prompt, output] : rows) {
    INFO(prompt << output);
    CHECK(summary(trace.load(prompt + output + "\n")) == "0/9/5 ");
  }
  // Lengths alone are sent by the scenario's arrivals.
  CHECK(trace.error("{\"isl\": 9, \"osl\": 5}\n").find("has no arrival times") !=
        std::string::npos);
  const Workload lengths =
      trace.load("{\"input_length\": 9, \"output_length\": 5}\n", "", ", arrivals: {rate: 1}");
  CHECK(lengths.requests.front().num_prompt_tokens == 9);
  // Rounds of a user go on from each other.
  const Workload rounds = trace.load(
      ",prompt_tokens,generation_tokens,ttft,user_id,question_id,launch_time\n"
      "0,1000,100,0.1,1,0,1737000000.5\n1,1200,90,0.1,1,1,1737000011.5\n"
      "2,1000,100,0.2,2,0,1737000001.0\n");
  CHECK(summary(rounds) == "0/1000/100 500/1000/100 11000/1200/90 ");
  const auto first = rounds.prompt_segments(RequestId{0});
  const auto second = rounds.prompt_segments(RequestId{2});
  REQUIRE(!second.empty());
  CHECK(second.front().content == first.front().content);
  // An unknown row leads to the mapping.
  CHECK(trace.error("a,b\n1,2\n").find("workload.trace.columns") != std::string::npos);
}

TEST_CASE("prompts of another salt share no blocks", "[core][trace]") {
  TraceFile trace;
  std::string text;
  for (const char* salt :
       {"", ", \"cache_salt\": \"a\"", ", \"cache_salt\": \"b\"", ", \"cache_salt\": \"a\""}) {
    text +=
        "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [1, 2]" +
        std::string(salt) + "}\n";
  }
  const Workload workload = trace.load(text);
  const auto first = [&](std::uint32_t i) {
    return workload.prompt_segments(RequestId{i}).front().content;
  };
  CHECK(first(1) == first(3));
  CHECK(first(1) != first(2));
  CHECK(first(0) != first(1));
  CHECK(workload.unused_fields.empty());
}

TEST_CASE("spans of other exporters", "[core][trace]") {
  TraceFile trace;
  const std::string openinference =
      R"({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "startTimeUnixNano": "5",
          "attributes": [{"key": "llm.token_count.prompt", "value": {"intValue": "9"}},
                         {"key": "llm.token_count.completion", "value": {"intValue": "5"}}]
          }]}]}]})";
  CHECK(summary(trace.load(openinference)) == "0/9/5 ");
  const std::string jaeger =
      R"({"data": [{"traceID": "t", "spans": [
          {"traceID": "t", "startTime": 1756800000000000, "duration": 1000000, "tags": [
            {"key": "gen_ai.usage.prompt_tokens", "value": 9},
            {"key": "gen_ai.usage.completion_tokens", "value": 5}]},
          {"traceID": "t", "startTime": 1756800003000000, "duration": 1000000, "tags": [
            {"key": "gen_ai.usage.prompt_tokens", "value": 19},
            {"key": "gen_ai.usage.completion_tokens", "value": 5}]}]}]})";
  CHECK(summary(trace.load(jaeger)) == "0/9/5 +2000/19/5 ");
  const std::string line = R"({"trace_id": "t", "attributes": {"gen_ai.usage.input_tokens": 9,
      "gen_ai.usage.output_tokens": 5}, "start_time": "2026-01-01T00:00:0)";
  std::string lines = line + R"(0Z", "end_time": "2026-01-01T00:00:01Z"})" + "\n" + line +
                      R"(4Z", "end_time": "2026-01-01T00:00:05Z"})" + "\n";
  CHECK(summary(trace.load(lines)) == "0/9/5 +3000/9/5 ");
}

TEST_CASE("AIPerf's prompts and turns are measured as texts", "[core][trace]") {
  TraceFile trace;
  const std::string keys = ", characters_per_token: 1, output_len: 5";
  const std::string beside = ", arrivals: {rate: 1}";
  const auto lengths = [&](const std::string& text) {
    std::string all;
    for (const RequestSpec& request : trace.load(text, keys, beside).requests) {
      all += std::to_string(request.num_prompt_tokens) + " ";
    }
    return all;
  };
  CHECK(lengths("{\"text\": \"abcdef\"}\n{\"texts\": [\"abc\", \"def\"]}\n") == "6 7 ");
  CHECK(lengths("{\"text_input\": \"abcdef\"}\n") == "6 ");
  const std::string session =
      "{\"session_id\": \"s\", \"turns\": [{\"text\": \"abcdef\", \"delay\": 0}, {\"text\": "
      "\"ghi\", \"delay\": 1000}]}\n";
  CHECK(lengths(session) == "6 10 ");
  CHECK(trace.load(session, keys, beside).unused_fields == std::vector<std::string>{"delay"});
  CHECK(trace
            .load("{\"text\": \"abcdef\", \"output_length\": 7}\n", ", characters_per_token: 1",
                  beside)
            .requests.front()
            .max_output_tokens == 7);
  // genai-perf's inputs.json, and a set of instructions.
  CHECK(lengths("{\"data\": [{\"payload\": [{\"messages\": [{\"role\": \"user\", \"content\": "
                "\"abcdef\"}]}]}]}") == "6 ");
  CHECK(trace
            .load("{\"instruction\": \"abcdef\", \"input\": \"ghi\", \"output\": \"four\"}\n",
                  ", characters_per_token: 1", beside)
            .requests.front()
            .num_prompt_tokens == 10);
  CHECK(trace.error("{\"session_id\": \"s\", \"turns\": []}\n", keys)
            .find("turns: is no list of turns") != std::string::npos);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
