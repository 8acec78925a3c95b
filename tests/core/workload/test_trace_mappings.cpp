// SPDX-License-Identifier: Apache-2.0
// Traces by mapping: the layouts of public traces, columns that a scenario names, sessions, and
// what is written is read.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/workload/trace_writer.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/trace_helpers.h"
#include "tests/places.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::string ids(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(i);
  return text + "]";
}

TEST_CASE("mooncake's layout without hash ids has no shared prefixes", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 50}\n"
      "{\"timestamp\": 100, \"input_length\": 1200, \"output_length\": 50}\n");
  CHECK(summary(workload) == "0/1000/50 100/1200/50 ");
  CHECK(workload.segments.empty());
}

TEST_CASE("bailian: seconds, blocks of 16 tokens, classes", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "{\"chat_id\": 159, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 521, "
      "\"output_length\": 132, \"type\": \"text\", \"turn\": 1, \"hash_ids\": " +
      ids(33) +
      "}\n{\"chat_id\": 160, \"parent_chat_id\": 159, \"timestamp\": 65.0, \"input_length\": 700, "
      "\"output_length\": 100, \"type\": \"file\", \"turn\": 2, \"hash_ids\": " +
      ids(44) + "}\n");
  CHECK(summary(workload) == "0/521/132 3886/700/100 ");
  CHECK(workload.segment_begin == std::vector<std::uint32_t>{0, 33, 77});
  CHECK(workload.segments[0].num_tokens == 16);
  CHECK(workload.segments[32].num_tokens == 9);
  CHECK(workload.class_names == std::vector<std::string>{"text", "file"});
  CHECK(workload.requests[1].class_number == 2);
  CHECK(workload.unused_fields.empty());
}

TEST_CASE("aiperf: a turn waits for the one before and carries its tokens", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "{\"session_id\":\"s1\",\"timestamp\":0,\"input_length\":512,\"output_length\":8,"
      "\"hash_ids\":[0]}\n"
      "{\"session_id\":\"s1\",\"delay\":200,\"input_length\":512,\"output_length\":8,"
      "\"hash_ids\":[1]}\n"
      "{\"session_id\":\"s2\",\"timestamp\":500,\"input_length\":1024,\"output_length\":8,"
      "\"hash_ids\":[0,7]}\n");
  CHECK(summary(workload) == "0/512/8 +200/1032/8 500/1024/8 ");
  CHECK(workload.num_sessions() == 2);
  CHECK(workload.segments[0].content == workload.segments[2].content);
  CHECK(trace.error("{\"session_id\":\"a\",\"timestamp\":0,\"input_length\":5,"
                    "\"output_length\":8}\n{\"session_id\":\"b\",\"input_length\":5,"
                    "\"output_length\":8}\n") ==
        "t:2: timestamp: missing; allowed: an arrival in the first row of each session, or in "
        "none");
}

TEST_CASE("tables and logs of other tools", "[core][trace]") {
  TraceFile trace;
  CHECK(summary(trace.load(
            "[{\"request_id\": 0, \"timestamp\": 0.12, \"data\": {\"input_tokens\": 300, "
            "\"output_tokens\": 20}}, {\"request_id\": 1, \"timestamp\": 0.5, \"data\": "
            "{\"input_tokens\": 400, \"output_tokens\": 30}}]")) == "0/300/20 380/400/30 ");
  CHECK(summary(
            trace.load("{\"timestamp\": 0.5, \"prompt_tokens\": 300, \"output_tokens\": 20}\n"
                       "{\"timestamp\": 0.9, \"prompt_tokens\": 301, \"output_tokens\": 20}\n")) ==
        "0/300/20 400/301/20 ");
  CHECK(summary(trace.load("request_id,request_type,application_id,arrival_timestamp,batch_size,"
                           "prompt_size,token_size\n0,2,0,0.5,1,155,694\n1,2,0,1,1,66,9\n")) ==
        "0/155/694 500/66/9 ");
  // A gateway's log; the second request failed.
  const Workload log = trace.load(
      "{\"time\": \"2026-03-01T10:00:00Z\", \"status\": 200, \"usage\": {\"prompt_tokens\": 10, "
      "\"completion_tokens\": 5}}\n{\"time\": \"2026-03-01T10:00:01Z\", \"status\": 429, "
      "\"usage\": {\"prompt_tokens\": 0, \"completion_tokens\": 0}}\n{\"time\": "
      "\"2026-03-01T10:00:02.5Z\", \"status\": 200, \"usage\": {\"prompt_tokens\": 12, "
      "\"completion_tokens\": 6}, \"path\": \"/v1\"}\n");
  CHECK(summary(log) == "0/10/5 2500/12/6 ");
  CHECK(log.num_skipped == 1);
  CHECK(log.unused_fields == std::vector<std::string>{"path"});
  CHECK(summary(trace.load("time,prompt_tokens,completion_tokens,model\n"
                           "1772359200123,7,3,\"a, b\"\n1772359200223,8,4,c\n")) ==
        "0/7/3 100/8/4 ");
}

TEST_CASE("exports of other gateways", "[core][trace]") {
  TraceFile trace;
  CHECK(summary(trace.load("generation_id,created_at,tokens_prompt,tokens_completion,cancelled\n"
                           "a,2026-01-05 10:00:00.1,1200,250,false\n"
                           "b,2026-01-05 10:00:02.5,800,150,false\n")) ==
        "0/1200/250 2400/800/150 ");
  CHECK(summary(trace.load("request_created_at,status,prompt_tokens,completion_tokens\n"
                           "2026-01-05 10:00:00.1,429,0,0\n2026-01-05 10:00:00.2,200,100,20\n"
                           "2026-01-05 10:00:00.3,200,200,30\n")) == "0/100/20 100/200/30 ");
  CHECK(summary(trace.load(
            "{\"timestamp\": \"2026-01-05T10:00:00Z\", \"operation\": \"InvokeModel\", \"input\": "
            "{\"inputTokenCount\": 120}, \"output\": {\"outputTokenCount\": 44}}\n"
            "{\"timestamp\": \"2026-01-05T10:00:03Z\", \"operation\": \"InvokeModel\", \"input\": "
            "{\"inputTokenCount\": 220}, \"output\": {\"outputTokenCount\": 54}}\n")) ==
        "0/120/44 3000/220/54 ");
  CHECK(summary(trace.load("{\"timestamp_ms\": 0, \"prompt_len\": 1000, \"gen_len\": 100}\n"
                           "{\"timestamp_ms\": 500, \"prompt_len\": 1500, \"gen_len\": 90}\n")) ==
        "0/1000/100 500/1500/90 ");
}

TEST_CASE("a log may begin with failed requests", "[core][trace]") {
  TraceFile trace;
  for (const char* failed : {"\"error\": \"x\"", "\"usage\": null", "\"usage\": {}"}) {
    INFO(failed);
    const std::string text =
        "{\"timestamp\": \"2026-01-05T10:00:00Z\", \"status\": 500, " + std::string(failed) +
        "}\n{\"timestamp\": \"2026-01-05T10:00:01Z\", \"status\": 200, \"usage\": "
        "{\"prompt_tokens\": 10, \"completion_tokens\": 5}}\n";
    const Workload workload = trace.load(text);
    CHECK(summary(workload) == "0/10/5 ");
    CHECK(workload.num_skipped == 1);
  }
}

TEST_CASE("the first row of a table says the unit of an epoch, and a date", "[core][trace]") {
  TraceFile trace;
  const auto read = [&](const std::string& header, const char* first, const char* second) {
    return summary(trace.load(header + "\n" + first + ",100,20\n" + second + ",200,30\n"));
  };
  const std::string vidur = "arrived_at,num_prefill_tokens,num_decode_tokens";
  const std::string burst = "Timestamp,Request tokens,Response tokens";
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens";
  for (const std::string& header : {vidur, burst, azure}) {
    INFO(header);
    CHECK(read(header, "1730000000.25", "1730000001.5") == "0/100/20 1250/200/30 ");
    CHECK(read(header, "1730000000250", "1730000001500") == "0/100/20 1250/200/30 ");
    CHECK(read(header, "1730000000250000000", "1730000001500000000") == "0/100/20 1250/200/30 ");
    CHECK(read(header, "2026-01-05 10:00:00.25", "2026-01-05 10:00:01.5") ==
          "0/100/20 1250/200/30 ");
  }
  CHECK(read(vidur, "0.25", "1.5") == "0/100/20 1250/200/30 ");
}

TEST_CASE("prompts of token ids have their number as length", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "{\"task_id\": 0, \"input_ids\": [5, 6, 7], \"output_tokens\": 12}\n"
      "{\"task_id\": 1, \"input_ids\": [5, 6], \"output_tokens\": 22}\n",
      "", ", arrivals: {rate: 1}");
  CHECK(workload.requests[0].num_prompt_tokens == 3);
  CHECK(workload.requests[1].num_prompt_tokens == 2);
  CHECK(workload.requests[1].max_output_tokens == 22);
  CHECK(workload.token_ids.size() == 5);
}

TEST_CASE("texts alone are refused with what is missing", "[core][trace]") {
  TraceFile trace;
  const std::string allowed =
      "begins texts without lengths of answers; allowed: JSON lines {\"prompt\": TEXT, "
      "\"output_tokens\": N}, or lengths in columns";
  CHECK(trace.error("Tell me a story\n").ends_with(allowed));
  CHECK(trace.error("prompt\n\"Tell me, a story\"\n").ends_with(allowed));
}

TEST_CASE("the router's request traces", "[core][trace]") {
  TraceFile trace;
  const auto row = [](const char* kind, int ms, const std::string& hashes) {
    return std::string("{\"schema\": \"x\", \"event_type\": \"") + kind +
           "\", \"event_time_unix_ms\": " + std::to_string(1'000'000 + ms) +
           ", \"agent_context\": {\"session_id\": \"P\"}, \"request\": {\"input_tokens\": 37, "
           "\"output_tokens\": 3, \"request_received_ms\": " +
           std::to_string(999'000 + ms) +
           ", \"replay\": {\"trace_block_size\": 16, \"input_length\": 37, "
           "\"input_sequence_hashes\": " +
           hashes + "}}}\n";
  };
  const Workload workload =
      trace.load(row("request_end", 0, "[101, 102, 900001]") + row("tool_end", 3, "[]") +
                 row("request_end", 250, "[101, 18446744073709551615]"));
  CHECK(summary(workload) == "0/37/3 250/37/3 ");
  REQUIRE(workload.segments.size() == 6);
  CHECK(workload.segments[0].content == workload.segments[3].content);
  CHECK(workload.segments[5].num_tokens == 5);  // the last block has no id
}

TEST_CASE("agents: recorded sessions of coding", "[core][trace]") {
  TraceFile trace;
  const std::string text = R"({
  "id": "c1", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
  "requests": [
    {"t": 1.0, "type": "n", "model": "m", "in": 100, "out": 20, "hash_ids": [1, 2],
     "api_time": 2.0},
    {"t": 3.5, "type": "subagent", "agent_id": "a1", "subagent_type": "Explore",
     "status": "completed", "models": [], "requests": [
       {"t": 0.5, "type": "s", "model": "m", "in": 64, "out": 4, "hash_ids": [9], "api_time": 1}]},
    {"t": 9.0, "type": "s", "model": "m", "in": 150, "out": 0, "hash_ids": [1, 2, 3],
     "api_time": 1.0, "think_time": 0.25}
  ]})";
  const Workload workload = trace.load(text);
  CHECK(summary(workload) == "0/100/20 +250/150/1 3000/64/4 ");
  CHECK(workload.segments[0].content == workload.segments[2].content);
  CHECK(workload.has_whole_prompt == std::vector<bool>{false, true, false});
  CHECK(
      trace.error("{\"id\": \"a\", \"block_size\": 0, \"requests\": [{\"in\": 1, \"out\": 1}]}") ==
      "t:1: block_size: is 0; allowed: at least 1");
}

TEST_CASE("agents: spans of OpenTelemetry", "[core][trace]") {
  TraceFile trace;
  const auto span = [](const char* start, const char* end, int prompt) {
    return std::string("{\"traceId\": \"t1\", \"name\": \"chat\", \"startTimeUnixNano\": \"") +
           start + "\", \"endTimeUnixNano\": \"" + end +
           "\", \"attributes\": [{\"key\": \"gen_ai.usage.input_tokens\", \"value\": "
           "{\"intValue\": \"" +
           std::to_string(prompt) +
           "\"}}, {\"key\": \"gen_ai.usage.output_tokens\", \"value\": {\"intValue\": 9}}]}";
  };
  const std::string text = "{\"resourceSpans\": [{\"scopeSpans\": [{\"spans\": [" +
                           span("1711600000000000000", "1711600001000000000", 50) + ", " +
                           span("1711600001500000000", "1711600002000000000", 80) + ", " +
                           span("1711600001600000000", "1711600003000000000", 30) +
                           ", {\"traceId\": \"t1\", \"name\": \"tool\"}]}]}]}";
  CHECK(summary(trace.load(text)) == "0/50/9 +500/80/9 1600/30/9 ");
  CHECK(summary(trace.load(
            "{\"spans\": [{\"trace_id\": \"a\", \"start_time\": \"2026-01-01T00:00:00Z\", "
            "\"end_time\": \"2026-01-01T00:00:01Z\", \"attributes\": "
            "{\"gen_ai.usage.prompt_tokens\": 7, \"gen_ai.usage.completion_tokens\": 2}}]}")) ==
        "0/7/2 ");
}

TEST_CASE("columns of a scenario", "[core][trace]") {
  TraceFile trace;
  const std::string own = "when,in,out,who,urgency\n10,5,6,rag,3\n11.5,7,8,chat,-1\n";
  const std::string keys =
      ", columns: {arrival: when, prompt: in, output: out}, time_unit: ms, "
      "class: who, priority: urgency";
  const Workload workload = trace.load(own, keys);
  CHECK(summary(workload) == "0/5/6 1/7/8 ");
  CHECK(workload.requests[0].priority == 3);
  CHECK(workload.class_names == std::vector<std::string>{"rag", "chat"});
  CHECK(trace.load(own, ", columns: {arrival: when, prompt: in, output: out}").unused_fields ==
        std::vector<std::string>{"who", "urgency"});
  CHECK(trace.error(own, ", columns: {arrival: then, prompt: in, output: out}") ==
        "t:1: then: missing column; a mapped trace has in, out");
  CHECK(trace.error(own, ", columns: {arrival: when, prompt: in}")
            .ends_with(
                "workload.trace.columns.output: missing; allowed: the name of a column or field, "
                "which a trace of no known format needs"));
  // JSON by paths, sessions by blocks.
  const std::string rows =
      "{\"at\": 1, \"n\": {\"in\": 33, \"out\": 4}, \"chat\": 1, \"hash_ids\": [1, 2, 3]}\n"
      "{\"at\": 2, \"n\": {\"in\": 40, \"out\": 4}, \"chat\": 1, \"hash_ids\": [1, 2, 4]}\n";
  const Workload blocks =
      trace.load(rows,
                 ", columns: {arrival: at, prompt: n.in, output: n.out}, time_unit: s, "
                 "block_size: 16, session: chat");
  CHECK(summary(blocks) == "0/33/4 1000/40/4 ");
  CHECK(blocks.segments[0].content == blocks.segments[3].content);
  const std::string unseen =
      trace.error(rows,
                  ", columns: {arrival: at, prompt: n.in, output: n.out}, turn: none, "
                  "block_size: 16");
  INFO(unseen);
  CHECK(unseen.ends_with(
      "none: is in no row; allowed in workload.trace.columns: a field of the trace"));
  CHECK(trace.error("{\"timestamp\": 0, \"input_length\": 521, \"output_length\": 2, "
                    "\"hash_ids\": " +
                    ids(33) + "}") ==
        "t:1: hash_ids: 33 ids for 521 prompt tokens; allowed: one per 512 tokens, 2; "
        "workload.trace.block_size: 16 fits");
}

TEST_CASE("timed turns of a session share its prompts", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "arrival_s,prompt_tokens,output_tokens,chat\n0,100,10,a\n1,130,10,a\n2,50,5,b\n3,120,9,a\n",
      ", session: chat");
  CHECK(summary(workload) == "0/100/10 1000/130/10 2000/50/5 3000/120/9 ");
  // The last prompt of `a` is shorter than its session: it begins anew.
  CHECK(workload.segment_begin == std::vector<std::uint32_t>{0, 1, 4, 5, 6});
  CHECK(workload.segments[1].content == workload.segments[0].content);
  CHECK(workload.segments[2].content == content_id(ContentKind::Output, 0));
  CHECK(workload.segments[3].num_tokens == 20);
}

TEST_CASE("a priority of a trace is used", "[core][trace]") {
  TraceFile trace;
  const Workload workload = trace.load(
      "arrival_s,prompt_tokens,output_tokens,priority,max_tokens\n0,100,400,10,512\n3,200,8,0,\n");
  CHECK(workload.requests[0].priority == 10);
  CHECK(workload.requests[0].output_limit == 512);
  CHECK(workload.requests[1].priority == 0);
  CHECK(trace.error("arrival_s,prompt_tokens,output_tokens,max_tokens\n0,100,400,300\n") ==
        "t:2: max_tokens: 300, below the 400 output tokens; allowed: as many or more");
}

// The workload as it is written and read.
Workload round_trip(const Workload& workload, TraceFormat format, const std::string& name) {
  TraceFile trace;
  const bool has_arrivals = workload.has_arrivals;
  return trace.load(trace_text(workload, format), ", format: " + name,
                    has_arrivals ? "" : ", arrivals: {rate: 1}");
}

TEST_CASE("a trace of each format that is written is read", "[core][trace]") {
  const Workload single = make(
      "{num_requests: 40, arrivals: {rate: 3}, prompt_tokens: {distribution: uniform, min: 1, "
      "max: 3000}, output_tokens: {distribution: uniform, min: 1, max: 300}}");
  const Workload sessions = make(
      "{arrivals: {rate: 3}, prompt_tokens: {distribution: uniform, min: 1, max: 300}, "
      "output_tokens: {value: 9}, sessions: {kind: chat, num_sessions: 9, turns: {distribution: "
      "uniform, min: 1, max: 4}, think_time_ms: {value: 1500}}}");
  int num_formats = 0;
  for (const std::string_view format_name : trace_format_names()) {
    const std::string name(format_name);
    const TraceFormat format = *trace_format_of(name);
    if (name == "auto" || name == "custom" || name == "sharegpt") continue;
    INFO(name);
    ++num_formats;
    Workload expected = single;
    const TimeNs first = expected.requests.front().arrival;
    for (RequestSpec& request : expected.requests) request.arrival -= first;
    CHECK(summary(round_trip(single, format, name)) == summary(expected));
    const std::string error = error_of([&] { trace_text(sessions, format); });
    if (!error.empty()) continue;
    expected = sessions;
    for (std::size_t s = expected.num_sessions(); s-- > 0;) {
      expected.requests[expected.session_begin[s]].arrival -= expected.requests[0].arrival;
    }
    CHECK(summary(round_trip(sessions, format, name)) == summary(expected));
  }
  CHECK(num_formats == 14);
}

TEST_CASE("token ids and hash ids are written and read", "[core][trace]") {
  TraceFile trace;
  const Workload served = trace.load(
      "{\"input_toks\": 3, \"output_toks\": 2, \"arrival_time_ns\": 0, \"input_tok_ids\": [5, 6, "
      "7], \"ignore_eos\": true}\n{\"input_toks\": 1, \"output_toks\": 8, \"arrival_time_ns\": "
      "1500, \"input_tok_ids\": [9]}\n");
  const Workload again = round_trip(served, TraceFormat::ShareGpt, "sharegpt");
  CHECK(summary(again) == summary(served));
  CHECK(again.token_ids == served.token_ids);
  CHECK(again.requests[0].ignores_eos == std::optional(true));
  const Workload blocks = trace.load(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 3, \"hash_ids\": [7, 8]}\n"
      "{\"timestamp\": 3000, \"input_length\": 1024, \"output_length\": 4, \"hash_ids\": [7, "
      "9]}\n");
  for (const auto& [format, name] :
       {std::pair(TraceFormat::Mooncake, "mooncake"), std::pair(TraceFormat::Plain, "plain")}) {
    const Workload read = round_trip(blocks, format, name);
    REQUIRE(read.segments.size() == blocks.segments.size());
    for (std::size_t i = 0; i < read.segments.size(); ++i) {
      CHECK(read.segments[i].content == blocks.segments[i].content);
      CHECK(read.segments[i].num_tokens == blocks.segments[i].num_tokens);
    }
  }
}

TEST_CASE("prompts of one block are written in blocks of a size that holds them", "[core][trace]") {
  TraceFile trace;
  const Workload blocks = trace.load(
      "{\"timestamp\": 0, \"input_length\": 300, \"output_length\": 5, \"hash_ids\": [7]}\n"
      "{\"timestamp\": 10, \"input_length\": 500, \"output_length\": 5, \"hash_ids\": [7]}\n");
  const std::string text = trace_text(blocks, TraceFormat::Plain);
  CHECK(text.find("\"block_size\":512") != std::string::npos);
  const Workload read = trace.load(text);
  CHECK(summary(read) == "0/300/5 10/500/5 ");
  CHECK(read.segments[0].content == read.segments[1].content);
}

TEST_CASE("what a format cannot say is refused, and plain says it", "[core][trace]") {
  const Workload shared = make(
      "{num_requests: 6, arrivals: {rate: 3}, prompt_tokens: {distribution: uniform, min: 1, "
      "max: 90}, output_tokens: {value: 4}, priority: {values: [1, 5]}, prefix: {kind: groups, "
      "num_groups: 2, prefix_tokens: 96}}");
  CHECK(error_of([&] { trace_text(shared, TraceFormat::Azure); }) ==
        "format: azure cannot say that prompts share parts; allowed: a workload without, or format "
        "plain");
  const Workload read = round_trip(shared, TraceFormat::Plain, "plain");
  for (std::size_t i = 0; i < shared.requests.size(); ++i) {
    CHECK(read.requests[i].priority == shared.requests[i].priority);
    const RequestId id{static_cast<std::uint32_t>(i)};
    for (std::size_t k = 0; k < i; ++k) {
      const RequestId other{static_cast<std::uint32_t>(k)};
      CHECK((read.prompt_segments(id)[0].content == read.prompt_segments(other)[0].content) ==
            (shared.prompt_segments(id)[0].content == shared.prompt_segments(other)[0].content));
    }
  }
}

// All that a request may have, exactly.
std::string details(const Workload& workload) {
  std::string text;
  for (const RequestSpec& r : workload.requests) {
    text += std::to_string(r.arrival) + "/" + std::to_string(r.num_prompt_tokens) + "/" +
            std::to_string(r.max_output_tokens) + "/" + std::to_string(r.output_limit) +
            " priority " + std::to_string(r.priority) + " class " +
            (r.class_number == 0 ? "none" : workload.class_names[r.class_number - 1u]) + " eos " +
            (r.ignores_eos ? std::to_string(*r.ignores_eos) : "-") + "\n";
  }
  return text;
}

TEST_CASE("priorities, classes and limits go round by every format with rows", "[core][trace]") {
  TraceFile trace;
  const Workload rich = trace.load(
      R"({"arrival_ns": 0, "prompt_tokens": 16, "output_tokens": 3, "priority": -2, "class": "a b"}
{"arrival_ns": 1, "prompt_tokens": 100, "output_tokens": 2, "max_tokens": 9, "ignore_eos": true}
{"arrival_ns": 1234567891, "prompt_tokens": 7, "output_tokens": 4, "class": "c", "priority": 7}
)");
  int num_formats = 0;
  for (const std::string_view format_name : trace_format_names()) {
    const std::string name(format_name);
    const TraceFormat format = *trace_format_of(name);
    if (name == "auto" || name == "custom" || name == "sharegpt" || name == "weka" ||
        name == "opentelemetry") {
      continue;
    }
    INFO(trace_text(rich, format));
    ++num_formats;
    CHECK(details(round_trip(rich, format, name)) == details(rich));
  }
  CHECK(num_formats == 12);
}

TEST_CASE("documents of agents refuse what their requests cannot hold", "[core][trace]") {
  TraceFile trace;
  const std::string row = R"({"arrival_ns": 5, "prompt_tokens": 9, "output_tokens": 3)";
  const Workload bare = trace.load(row + "}\n");
  for (const TraceFormat format : {TraceFormat::Weka, TraceFormat::OpenTelemetry}) {
    CHECK_NOTHROW(trace_text(bare, format));
    for (const auto& [more, what] :
         {std::pair{R"(, "priority": 2})", "priorities"},
          std::pair{R"(, "class": "a"})", "classes"},
          std::pair{R"(, "max_tokens": 8})", "limits beside lengths"},
          std::pair{R"(, "ignore_eos": false})", "which answers end only at their length"}}) {
      const Workload workload = trace.load(row + more + "\n");
      const std::string error = error_of([&] { trace_text(workload, format); });
      INFO(error);
      CHECK(error.find(std::string(" cannot say ") + what + "; allowed: a workload without") !=
            std::string::npos);
      CHECK(error.find('\n') == std::string::npos);
      CHECK_NOTHROW(trace_text(workload, TraceFormat::Plain));
    }
  }
  // Clients that wait have no times.
  Workload closed = bare;
  closed.mode = ArrivalMode::ClosedLoop;
  CHECK(error_of([&] { trace_text(closed, TraceFormat::Azure); }).find("wait for answers") !=
        std::string::npos);
  CHECK(trace_text(closed, TraceFormat::Plain).find("arrival") == std::string::npos);
}

TEST_CASE("logs of gateways: no tokens of failed requests, numbers in quotes", "[core][trace]") {
  TraceFile trace;
  const Workload log = trace.load(R"({"time": "2026-01-01T00:00:00+01:00", "status": "200", )"
                                  R"("prompt_tokens": "300", "completion_tokens": 12}
{"time": "2026-01-01T00:00:01.5+01:00", "status": "429", )"
                                  R"("prompt_tokens": null, "completion_tokens": "-"}
{"time": "2025-12-31T23:00:02Z", "status": "200", )"
                                  R"("prompt_tokens": 310, "completion_tokens": "13"}
)");
  CHECK(summary(log) == "0/300/12 2000/310/13 ");
  CHECK(log.num_skipped == 1);
  // A key with points in it, as Envoy's log has it.
  const Workload envoy =
      trace.load(R"({"start_time": "2025-06-01T10:00:00.123Z", "response_code": 200, )"
                 R"("gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 20}
{"start_time": "2025-06-01T10:00:01.123Z", "response_code": 503, )"
                 R"("gen_ai.usage.input_tokens": 301, "gen_ai.usage.output_tokens": 21}
)");
  CHECK(summary(envoy) == "0/300/20 ");
  CHECK(envoy.num_skipped == 1);
}

TEST_CASE("packed files are refused by their name", "[core][trace]") {
  TraceFile trace;
  for (const auto& [bytes, name] :
       {std::pair{"\x1f\x8b\x08 0", "gzip"}, std::pair{"PAR1 0", "Parquet"},
        std::pair{"\x28\xb5\x2f\xfd 0", "zstd"}}) {
    const std::string error = trace.error(bytes);
    INFO(error);
    CHECK(error.find(std::string(" is packed by ") + name + "; allowed: the file unpacked") !=
          std::string::npos);
  }
}

TEST_CASE("conversations in all their layouts", "[core][trace]") {
  TraceFile trace;
  const std::string question = "why is the sky blue in the morning";
  const std::string answer = "because the air scatters blue light most";
  const auto load = [&](const std::string& text, const std::string& keys = "") {
    return trace.load(
        text, ", tokenizer: " + source_dir() + "/tests/fixtures/tokenizers/llama3.json" + keys,
        ", arrivals: {rate: 1}");
  };
  const std::string turns = "[{\"from\": \"human\", \"value\": \"" + question +
                            "\"}, {\"from\": \"gpt\", \"value\": \"" + answer + "\"}]";
  const std::string roles = "[{\"role\": \"user\", \"content\": \"" + question +
                            "\"}, {\"role\": \"assistant\", \"content\": \"" + answer + "\"}]";
  const std::string lengths = summary(load("[{\"id\": 1, \"conversations\": " + turns + "}]"));
  CHECK(lengths.size() > 8);
  for (const std::string& text :
       {"{\"id\": 1, \"conversations\": " + turns + "}\n{\"conversations\": []}\n",
        "[{\"conversation\": " + turns + "}]", "[{\"conversations\": " + roles + "}]",
        "{\"messages\": " + roles + "}\n", "[{\"messages\": " + roles + "}]",
        "{\n \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"" +
            question + "\"}]},\n {\"role\": \"assistant\", \"content\": \"" + answer + "\"}]\n}"}) {
    INFO(text);
    CHECK(summary(load(text)) == lengths);
  }
  const Workload custom =
      load("{\"prompt\": \"" + question + "\", \"output_tokens\": 3}\n", ", format: custom");
  CHECK(custom.requests[0].max_output_tokens == 3);
  // A line of OpenAI's batches: the request is its body.
  const std::string body = "{\"custom_id\": \"r\", \"body\": {\"model\": \"m\", ";
  for (const std::string& text :
       {body + "\"messages\": [{\"role\": \"user\", \"content\": \"" + question +
            "\"}], \"max_tokens\": 3}, \"method\": \"POST\"}\n",
        body + "\"max_tokens\": 3, \"prompt\": \"" + question + "\"}}\n"}) {
    INFO(text);
    CHECK(summary(load(text, ", format: custom")) == summary(custom));
  }
  CHECK(trace
            .error("[{\"words\": 1}]",
                   ", tokenizer: " + source_dir() + "/tests/fixtures/tokenizers/llama3.json")
            .find("there are none; allowed: objects with a list") != std::string::npos);
}

TEST_CASE("the bodies that AIPerf sent", "[core][trace]") {
  TraceFile trace;
  const std::string tokenizer =
      ", tokenizer: " + source_dir() + "/tests/fixtures/tokenizers/llama3.json";
  const std::string question = "why is the sky blue in the morning";
  const std::string answer = "because the air scatters blue light most";
  const std::string roles = "[{\"role\": \"user\", \"content\": \"" + question +
                            "\"}, {\"role\": \"assistant\", \"content\": \"" + answer + "\"}]";
  const auto load = [&](const std::string& text) {
    return trace.load(text, tokenizer, ", arrivals: {rate: 1}");
  };
  const Workload custom = load("{\"prompt\": \"" + question + "\", \"output_tokens\": 3}\n");
  // The bodies that AIPerf sent, in its order; answers in a body are read by the server, too.
  const std::string sent =
      "{\"data\": [{\"session_id\": \"s\", \"payloads\": [{\"messages\": "
      "[{\"role\": \"user\", \"content\": \"" +
      question + "\"}], \"max_completion_tokens\": 3}";
  CHECK(summary(load(sent + "]}]}")) == summary(custom));
  const Workload two =
      load(sent + ", {\"stream\": true, \"max_tokens\": 7, \"messages\": " + roles +
           "}]}, {\"session_id\": \"t\", \"payloads\": [{\"max_tokens\": 5, \"prompt\": \"" +
           answer + "\"}]}]}");
  REQUIRE(two.requests.size() == 3);
  CHECK(two.requests[0].max_output_tokens == 3);
  CHECK(two.requests[1].max_output_tokens == 7);
  CHECK(two.requests[2].max_output_tokens == 5);
  CHECK(two.requests[1].num_prompt_tokens > two.requests[0].num_prompt_tokens);
  const auto error_of_sent = [&](const std::string& rest) {
    return trace.error(sent + rest,
                       ", tokenizer: " + source_dir() + "/tests/fixtures/tokenizers/llama3.json");
  };
  for (const auto& [rest, expected] : std::initializer_list<std::pair<const char*, const char*>>{
           {", {\"prompt\": \"a b\"}]}]}",
            "payloads: number 1 has no max_tokens; allowed: one that has"},
           {", {\"max_tokens\": 0, \"prompt\": \"a\"}]}]}",
            "data[0].payloads[1]: max_tokens: is 0; allowed: 1 to "},
           {", {\"max_tokens\": 2, \"messages\": [{\"content\": [{\"type\": \"image_url\"}]}]}]}]}",
            "data[0].payloads[1]: messages: has {\"type\":\"image_url\"}; allowed: texts"},
           {"]}, {\"payloads\": 1}]}", "data[1].payloads: is not a list"},
           {"", "data: not JSON: "}}) {
    const std::string error = error_of_sent(rest);
    INFO(error);
    CHECK(error.find(expected) != std::string::npos);
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
