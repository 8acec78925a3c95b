// SPDX-License-Identifier: Apache-2.0
// Traces: every format from small texts, the published files, and every way a file can be wrong.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"
#include "tests/scratch_folder.h"
#include "tests/shared_data.h"

namespace metronome::testing::TEST_FILE {
namespace {

const std::string kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 23:59:59.5000001,374,44\r\n"
    "2023-11-17 00:00:01.0000000,396,109\r\n"
    "2023-11-17 00:00:01.25,879,55";

const std::string kMooncake =
    "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 3, \"hash_ids\": [7, 8]}\n"
    "{\"timestamp\": 3000, \"input_length\": 1000, \"output_length\": 4, \"hash_ids\": [7, 9]}\n"
    "{\"timestamp\": 3001, \"input_length\": 1, \"output_length\": 5, \"hash_ids\": [8]}\n";

const std::string kShareGpt =
    "{\"input_toks\": 3, \"output_toks\": 2, \"arrival_time_ns\": 500, \"input_tok_ids\": "
    "[5, 6, 7], \"output_tok_ids\": [1, 2]}\n"
    "{\"input_tok_ids\": [9], \"note\": {\"a\": [1, \"x\\\"]\", null]}, \"input_toks\": 1, "
    "\"output_toks\": 8, \"arrival_time_ns\": 1500}\n";

// Requests as text: "arrival_ns/prompt/output ...".
std::string summary(const Workload& workload) {
  std::string text;
  for (const RequestSpec& r : workload.requests) {
    text += std::to_string(r.arrival) + "/" + std::to_string(r.num_prompt_tokens) + "/" +
            std::to_string(r.max_output_tokens) + " ";
  }
  return text;
}

// Reads `text` as a trace called t; `keys` go beside `file`. Errors show the path as PATH.
struct TraceText {
  ScratchFolder folder;

  Workload load(const std::string& text, const std::string& keys = "",
                const std::string& beside = "") {
    folder.write("t", text);
    const std::string yaml = "{trace: {file: t" + keys + "}" + beside + "}";
    return make_workload(read_config(yaml, folder.path()), 7);
  }
  std::string error(const std::string& text, const std::string& keys = "",
                    const std::string& beside = "") {
    std::string message = error_of([&] { load(text, keys, beside); });
    const std::string path = folder.path() + "/t";
    for (std::size_t at = message.find(path); at != std::string::npos; at = message.find(path)) {
      message.replace(at, path.size(), "PATH");
    }
    return message;
  }
};

std::string azure_row(const std::string& row) {
  return "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,3,4\n" + row + "\n";
}

std::string vidur_row(const std::string& row) {
  return "arrived_at,num_prefill_tokens,num_decode_tokens\n" + row + "\n";
}

// ---- Formats ----

TEST_CASE("azure traces", "[core][trace]") {
  TraceText trace;
  CHECK(summary(trace.load(kAzure)) == "0/374/44 1499999900/396/109 1749999900/879/55 ");
  CHECK(summary(trace.load(kAzure, ", format: azure")) == summary(trace.load(kAzure)));
  // The 2024 release: an offset from UTC, decimals only where there are any.
  CHECK(summary(trace.load("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2024-02-29 23:59:59.009930+00:00,10,1\n"
                           "2024-03-01 00:00:00+00:00,20,2\n"
                           "2024-03-01T01:00:00.5+01:00,30,3\n"
                           "2024-02-29 23:30:01-00:30,40,4\n"
                           "2024-03-01 00:00:02.123456789123Z,50,5\n")) ==
        "0/10/1 990070000/20/2 1490070000/30/3 1990070000/40/4 3113526789/50/5 ");
}

TEST_CASE("vidur traces", "[core][trace]") {
  TraceText trace;
  CHECK(summary(trace.load(vidur_row("0.340020095758267,395,112\n1e1,1030,403"))) ==
        "0/395/112 9659979904/1030/403 ");
  CHECK(summary(trace.load("arrival_s,prompt_tokens,output_tokens\n\n0.0,374,44\n 4.314579 , 396,"
                           "109\n\n")) == "0/374/44 4314579000/396/109 ");
  // Columns are found by name.
  CHECK(summary(trace.load("num_decode_tokens,model,arrived_at,num_prefill_tokens\n"
                           "7,llama,2.5,100\n8,llama,3,200\n")) == "0/100/7 500000000/200/8 ");
}

TEST_CASE("burstgpt traces leave failed requests out", "[core][trace]") {
  TraceText trace;
  const Workload workload = trace.load(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "6,ChatGPT,0,0,0,API log\n"
      "45,ChatGPT,1087,230,1317,Conversation log\n"
      "118,GPT-4,417,0,417,Conversation log\n");
  CHECK(summary(workload) == "0/472/18 40000000000/1087/230 ");
  CHECK(workload.num_skipped == 2);
  CHECK(summary(trace.load("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response "
                           "tokens,Total tokens,Log Type\n"
                           "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
                           "19440161.5,d5983bf9,2,ChatGPT,36,29,65,Conversation log\n")) ==
        "0/906/446 51500000000/36/29 ");
}

TEST_CASE("mooncake hash ids become shared segments", "[core][trace]") {
  TraceText trace;
  const Workload workload = trace.load(kMooncake);
  CHECK(summary(workload) == "0/1024/3 3000000000/1000/4 3001000000/1/5 ");
  CHECK(workload.segment_begin == std::vector<std::uint32_t>{0, 2, 4, 5});
  const std::vector<PromptSegment>& s = workload.segments;
  REQUIRE(s.size() == 5);
  CHECK(s[0].content == s[2].content);
  CHECK(s[1].content == s[4].content);
  CHECK(s[1].content != s[3].content);
  CHECK(s[1].num_tokens == 512);
  CHECK(s[3].num_tokens == 488);
  CHECK(s[4].num_tokens == 1);
  std::vector<TokenId> first;
  std::vector<TokenId> second;
  workload.prompt_token_ids(0, 7, 1000, first);
  workload.prompt_token_ids(1, 7, 1000, second);
  CHECK(std::equal(first.begin(), first.begin() + 512, second.begin()));
  CHECK_FALSE(std::equal(second.begin() + 512, second.end(), first.begin() + 512));
}

TEST_CASE("mooncake jitter spreads a bucket over its three seconds", "[core][trace]") {
  TraceText trace;
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    const int bucket = i / 1000;
    const int timestamp = bucket * 3000 + (bucket == 0 ? 0 : i % 3 - 1);  // 2999, 3000, 3001
    text += "{\"timestamp\": " + std::to_string(timestamp) +
            ", \"input_length\": " + std::to_string(i % 500 + 1) +
            ", \"output_length\": 3, \"hash_ids\": [1]}\n";
  }
  // Within a bucket requests keep the order of their recorded times.
  const Workload plain = trace.load(text);
  const Workload workload = trace.load(text, ", jitter: true");
  REQUIRE(workload.requests.size() == 4000);
  const TimeNs last = workload.requests.back().arrival;
  CHECK(workload.requests.front().arrival == 0);
  CHECK(std::is_sorted(
      workload.requests.begin(), workload.requests.end(),
      [](const RequestSpec& a, const RequestSpec& b) { return a.arrival < b.arrival; }));
  CHECK(to_seconds(last) == Approx(12.0).margin(0.05));
  // 1,000 requests uniform over each three seconds: a second holds 333, give or take four sigma.
  for (int second = 0; second < 12; ++second) {
    const auto count = std::count_if(
        workload.requests.begin(), workload.requests.end(),
        [second](const RequestSpec& r) { return r.arrival / kNsPerSecond == second; });
    CAPTURE(second);
    CHECK(std::abs(static_cast<double>(count) - 333) < 4 * 15);
  }
  for (std::size_t i = 0; i < 4000; ++i) {
    CHECK(workload.requests[i].num_prompt_tokens == plain.requests[i].num_prompt_tokens);
  }
}

TEST_CASE("sharegpt traces carry token ids", "[core][trace]") {
  TraceText trace;
  const Workload workload = trace.load(kShareGpt);
  CHECK(summary(workload) == "0/3/2 1000/1/8 ");
  CHECK(workload.token_begin == std::vector<std::uint64_t>{0, 3, 4});
  std::vector<TokenId> ids;
  workload.prompt_token_ids(0, 1, 100, ids);
  CHECK(ids == std::vector<TokenId>{TokenId(5), TokenId(6), TokenId(7)});
  workload.prompt_token_ids(1, 1, 100, ids);
  CHECK(ids == std::vector<TokenId>{TokenId(9)});
}

// ---- Options ----

TEST_CASE("traces are sorted by arrival, equal times in file order", "[core][trace]") {
  TraceText trace;
  CHECK(summary(trace.load(vidur_row("5,1,1\n2,2,2\n5,3,3\n2,4,4\n1,5,5"))) ==
        "0/5/5 1000000000/2/2 1000000000/4/4 4000000000/1/1 4000000000/3/3 ");
  // All fields of a request move with it.
  std::string reversed = kMooncake;
  reversed.replace(reversed.find("\"timestamp\": 0"), 14, "\"timestamp\": 9999");
  const Workload mooncake = trace.load(reversed);
  CHECK(summary(mooncake) == "0/1000/4 1000000/1/5 6999000000/1024/3 ");
  CHECK(mooncake.segment_begin == std::vector<std::uint32_t>{0, 2, 3, 5});
  CHECK(mooncake.segments[0].content == content_id(ContentKind::TraceBlock, 7));
  CHECK(mooncake.segments[1].content == content_id(ContentKind::TraceBlock, 9));
  CHECK(mooncake.segments[1].num_tokens == 488);
  CHECK(mooncake.segments[4].content == content_id(ContentKind::TraceBlock, 8));
  std::string swapped = kShareGpt;
  swapped.replace(swapped.find("500"), 3, "5000");
  const Workload sharegpt = trace.load(swapped);
  CHECK(summary(sharegpt) == "0/1/8 3500/3/2 ");
  CHECK(sharegpt.token_ids == std::vector<TokenId>{TokenId(9), TokenId(5), TokenId(6), TokenId(7)});
}

TEST_CASE("limit, rate_scale and replaced arrivals", "[core][trace]") {
  TraceText trace;
  CHECK(summary(trace.load(kMooncake, ", limit: 2")) == "0/1024/3 3000000000/1000/4 ");
  CHECK(trace.load(kMooncake, ", limit: 2").segments.size() == 4);
  CHECK(trace.load(kMooncake, ", limit: 99").requests.size() == 3);
  CHECK(trace.load(kShareGpt, ", limit: 1").token_ids.size() == 3);
  CHECK(summary(trace.load(kMooncake, ", rate_scale: 2")) ==
        "0/1024/3 1500000000/1000/4 1500500000/1/5 ");
  CHECK(summary(trace.load(kMooncake, "", ", arrivals: {process: constant, rate: 10}")) ==
        "100000000/1024/3 200000000/1000/4 300000000/1/5 ");
  const Workload loop =
      trace.load(kMooncake, "", ", arrivals: {process: closed_loop, concurrency: 2}");
  CHECK(loop.mode == ArrivalMode::ClosedLoop);
  CHECK(summary(loop) == "0/1024/3 0/1000/4 0/1/5 ");
  CHECK(summary(trace.load(kMooncake, "", ", arrivals: {process: steps, steps: [0, 4, 4]}")) ==
        "0/1024/3 4/1000/4 4/1/5 ");
  const Workload ranked = trace.load(kMooncake, "", ", priority: {values: [4]}");
  CHECK(ranked.requests[2].priority == 4);
}

// ---- Errors ----

TEST_CASE("trace files that cannot be read", "[core][trace]") {
  ScratchFolder folder;
  const auto error = [&](const std::string& yaml) {
    return error_of([&] { make_workload(read_config(yaml, folder.path()), 7); });
  };
  const std::string where = "w.yaml:2: workload.trace.file: '" + folder.path();
  const std::string allowed = "; it must be a readable trace file";
  CHECK(error("trace:\n  file: no.csv\n") == where + "/no.csv' does not exist" + allowed);
  CHECK(error("trace:\n  file: no/no.csv\n") == where + "/no/no.csv' does not exist" + allowed);
  CHECK(error("trace:\n  file: .\n") == where + "/' is a folder" + allowed);
  folder.write("empty.csv", "");
  CHECK(error("trace:\n  file: empty.csv\n") == where + "/empty.csv' is empty" + allowed);
  folder.write("blank.csv", "\xef\xbb\xbf \r\n\n");
  CHECK(error("trace:\n  file: blank.csv\n") == where + "/blank.csv' is empty" + allowed);
  folder.write("header.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n");
  CHECK(error("trace:\n  file: header.csv\n") ==
        where + "/header.csv' contains no request" + allowed);
}

TEST_CASE("files of another kind", "[core][trace]") {
  TraceText trace;
  CHECK(trace.error("time,tokens\n1,2\n")
            .starts_with(
                "PATH:1: unknown trace format: 'time,tokens'; allowed: CSV with a header of azure "
                "(TIMESTAMP, ContextTokens, GeneratedTokens), vidur"));
  CHECK(trace.error("[{\"conversations\": []}]")
            .ends_with("workload.trace.tokenizer: missing; the lengths of conversations need the "
                       "path of a tokenizer.json, or characters_per_token for an estimate"));
  CHECK(trace.error("{\"id\": 1}\n").starts_with("PATH:1: unknown trace format: '{\"id\": 1}'"));
  CHECK(trace.error(std::string(100, '\1')).find('\1') == std::string::npos);
  CHECK(trace.error("TIMESTAMP,ContextTokens\n1,2\n") ==
        "PATH:1: GeneratedTokens: missing column; an azure trace has TIMESTAMP, ContextTokens, "
        "GeneratedTokens");
  CHECK(trace.error("arrival_s,prompt_tokens,output_tokens,prompt_tokens\n1,2,3,4\n") ==
        "PATH:1: prompt_tokens: appears twice; allowed: once");
  CHECK(trace.error("a,b\n1,2\n", ", format: vidur") ==
        "PATH:1: arrived_at: missing column; a vidur trace has arrived_at, num_prefill_tokens, "
        "num_decode_tokens");
  CHECK(trace.error(kAzure, ", format: burstgpt") ==
        "PATH:1: Timestamp: missing column; a burstgpt trace has Timestamp, Request tokens, "
        "Response tokens");
  CHECK(trace.error(kAzure, ", format: mooncake") ==
        "PATH:1: character 1: not JSON; allowed: one object per line");
  CHECK(trace.error(kMooncake, ", format: sharegpt") ==
        "PATH:1: input_toks: missing; a line of a sharegpt trace has input_toks, output_toks, "
        "arrival_time_ns, input_tok_ids");
  CHECK(trace.error(kAzure, ", jitter: true") ==
        "w.yaml:1: workload.trace.jitter: 'PATH' is not a mooncake trace; it belongs to mooncake");
}

TEST_CASE("malformed CSV lines", "[core][trace]") {
  TraceText trace;
  const std::string counts = " fields; the first line names 3 columns; allowed: as many";
  CHECK(trace.error(azure_row("2023-11-16 18:15")) ==
        "PATH:3: ContextTokens: missing, the line has 1" + counts);
  CHECK(trace.error(azure_row("2023-11-16 18:15:50.9,3")) ==
        "PATH:3: GeneratedTokens: missing, the line has 2" + counts);
  CHECK(trace.error(azure_row("2023-11-16 18:15:50.9,3,4,5")) ==
        "PATH:3: columns: the line has 4" + counts);
  const std::string tokens = "; allowed: 1 to 100000000";
  const auto tokens_error = [&](const std::string& context) {
    return trace.error(azure_row("2023-11-16 18:15:50.9," + context + ",4"));
  };
  CHECK(tokens_error("12x") == "PATH:3: ContextTokens: '12x' is not a whole number" + tokens);
  CHECK(tokens_error("") == "PATH:3: ContextTokens: '' is not a whole number" + tokens);
  CHECK(tokens_error("1.5") == "PATH:3: ContextTokens: '1.5' is not a whole number" + tokens);
  CHECK(tokens_error("-5") == "PATH:3: ContextTokens: '-5' is out of range" + tokens);
  CHECK(tokens_error("0") == "PATH:3: ContextTokens: '0' is out of range" + tokens);
  CHECK(tokens_error("100000001") == "PATH:3: ContextTokens: '100000001' is out of range" + tokens);
  CHECK(tokens_error("99999999999999999999") ==
        "PATH:3: ContextTokens: '99999999999999999999' is out of range" + tokens);
  CHECK(trace.error(azure_row("2023-11-16 18:15:50.9,3,0")) ==
        "PATH:3: GeneratedTokens: '0' is out of range" + tokens);
  for (const char* time :
       {"x", "2023-11-16", "2023-13-16 18:15:50", "2023-02-29 18:15:50", "2023-11-16 24:15:50",
        "2023-11-16 18:60:50", "2023-11-16 18:15:60", "2023-11-16 18:15:50.",
        "2023-11-16 18:15:50+1", "1969-11-16 18:15:50", "2023-11-16 18:15:50 ?"}) {
    CHECK(trace.error(azure_row(std::string(time) + ",3,4")) ==
          "PATH:3: TIMESTAMP: '" + std::string(time) +
              "' is not a time; allowed: YYYY-MM-DD HH:MM:SS, 1970 to 2095, with decimals and "
              "+HH:MM where needed");
  }
  const std::string seconds = "; allowed: 0 to 4000000000";
  CHECK(trace.error(vidur_row("soon,3,4")) ==
        "PATH:2: arrived_at: 'soon' is not a number" + seconds);
  CHECK(trace.error(vidur_row("-0.5,3,4")) ==
        "PATH:2: arrived_at: '-0.5' is out of range" + seconds);
  CHECK(trace.error(vidur_row("nan,3,4")) == "PATH:2: arrived_at: 'nan' is out of range" + seconds);
  CHECK(trace.error(vidur_row("1e999,3,4")) ==
        "PATH:2: arrived_at: '1e999' is out of range" + seconds);
}

TEST_CASE("malformed JSON lines", "[core][trace]") {
  TraceText trace;
  const auto mooncake = [&](const std::string& line) { return trace.error(kMooncake + line); };
  CHECK(mooncake("{\"timestamp\": 4000, \"input_length\": 10, \"output_le") ==
        "PATH:4: character 51: the line ends inside its JSON object; allowed: one whole object "
        "per line");
  CHECK(mooncake("{\"timestamp\": 4000, \"input_length\": 10") ==
        "PATH:4: character 39: the line ends inside its JSON object; allowed: one whole object "
        "per line");
  CHECK(mooncake("{\"timestamp\" 4000}") ==
        "PATH:4: character 14: not JSON; allowed: one object per line");
  CHECK(mooncake("{\"other\": nope}") ==
        "PATH:4: character 15: not JSON; allowed: one object per line");
  CHECK(mooncake("{} {}") == "PATH:4: character 4: not JSON; allowed: one object per line");
  CHECK(mooncake("{\"other\": " + std::string(200, '[') + "}").starts_with("PATH:4: character "));
  const std::string names = "a line of a mooncake trace has input_length, output_length";
  CHECK(mooncake("{}") == "PATH:4: input_length: missing; " + names);
  CHECK(mooncake("{\"input_length\": 10, \"output_length\": 3}") ==
        "PATH:4: timestamp: missing; allowed: an arrival in the first row of each session, or in "
        "none");
  CHECK(mooncake("{\"timestamp\": 1, \"input_length\": 10}") ==
        "PATH:4: output_length: missing; " + names);
  CHECK(mooncake("{\"timestamp\": 1, \"timestamp\": 2}") ==
        "PATH:4: timestamp: appears twice; allowed: once");
  CHECK(mooncake("{\"input_length\": \"10\"}") ==
        "PATH:4: input_length: '\"10\"' is not a whole number; allowed: 1 to 100000000");
  CHECK(mooncake("{\"output_length\": 0}") ==
        "PATH:4: output_length: '0' is out of range; allowed: 1 to 100000000");
  CHECK(mooncake("{\"timestamp\": -3}") ==
        "PATH:4: timestamp: '-3' is out of range; allowed: 0 to 4000000000000");
  CHECK(mooncake("{\"hash_ids\": 3}") ==
        "PATH:4: hash_ids: not a list; allowed: whole numbers in [ ]");
  CHECK(mooncake("{\"hash_ids\": [3, null]}") ==
        "PATH:4: hash_ids: 'null' is not a whole number; allowed: 0 to 72057594037927935");
  CHECK(mooncake("{\"timestamp\": 1, \"input_length\": 513, \"output_length\": 3, "
                 "\"hash_ids\": [1]}") ==
        "PATH:4: hash_ids: 1 ids for 513 prompt tokens; allowed: one per 512 tokens, 2");
  CHECK(trace.error("{\"input_toks\": 2, \"output_toks\": 2, \"arrival_time_ns\": 5, "
                    "\"input_tok_ids\": [5]}") ==
        "PATH:1: input_tok_ids: 1 ids for 2 prompt tokens; allowed: one per token");
}

TEST_CASE("options that do not fit the trace", "[core][trace]") {
  TraceText trace;
  CHECK(trace.error(vidur_row("0,1,1\n4e9,1,1"), ", rate_scale: 0.5") ==
        "w.yaml:1: workload.trace.rate_scale: the last request would arrive after "
        "8000000000.000000 s; at most 1000000000 s");
  CHECK(trace.error(kMooncake, "", ", arrivals: {process: steps, steps: [0, 1]}") ==
        "w.yaml:1: workload.arrivals.steps: 2 steps for 3 requests; one step per request");
}

TEST_CASE("a damaged trace is loaded or refused with its line", "[core][trace]") {
  TraceText trace;
  const std::string burstgpt =
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1317,Conversation log\n";
  const std::string originals[] = {kAzure, vidur_row("0.5,3,4\n1e-3,5,6"), burstgpt, kMooncake,
                                   kShareGpt};
  constexpr std::string_view kBytes = "0123456789,:.-+eE \t\r\n\"\\{}[]xT\0\xff";
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed, "damage");
    std::string text = originals[seed % 5];
    const std::int64_t num_edits = rng.uniform_int(1, 4);
    for (std::int64_t i = 0; i < num_edits && !text.empty(); ++i) {
      const auto at =
          static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(text.size()) - 1));
      const auto byte = static_cast<std::size_t>(
          rng.uniform_int(0, static_cast<std::int64_t>(kBytes.size()) - 1));
      switch (rng.uniform_int(0, 3)) {
        case 0: text[at] = kBytes[byte]; break;
        case 1: text.insert(at, 1, kBytes[byte]); break;
        case 2: text.erase(at, 1 + byte); break;
        default: text.resize(at);
      }
    }
    CAPTURE(seed, text);
    const std::string message = trace.error(text);
    const bool is_about_a_line = message.starts_with("PATH:") || message.starts_with("w.yaml:1: ");
    CHECK((message.empty() || is_about_a_line));
    CHECK(message.find('\n') == std::string::npos);
  }
}

// ---- Published files ----

Workload load_shared(const std::string& path, const std::string& keys = "") {
  return make_workload(read_config("{trace: {file: " + path + keys + "}}"), 7);
}

TEST_CASE("the published traces are read whole", "[core][trace][shared]") {
  struct Published {
    const char* path;
    std::size_t num_requests;
    std::int64_t num_prompt_tokens;
    std::int64_t num_output_tokens;
    TimeNs last_arrival;
  };
  const Published all[] = {
      {"data/traces/azure_2023_conv.csv", 19'366, 22'361'870, 4'088'665, 3'501'721'937'000},
      {"data/peer_vidur/azure_conv_replay_trace.csv", 19'366, 22'083'063, 4'088'665,
       3'501'721'937'000},
      {"data/peer_vidur/sarathi512_poisson3_4096/trace.csv", 4'096, 4'670'688, 867'806,
       1'300'284'655'872},
      {"data/traces/mooncake_conversation.jsonl", 12'031, 144'793'823, 4'122'048,
       3'536'999'000'000},
      {"data/measured/sharegpt-llama-3.1-8b-300-sps10.jsonl", 300, 257'239, 195'753,
       29'136'836'395},
  };
  for (const Published& expected : all) {
    const auto path = shared_path(expected.path);
    if (!path) continue;
    CAPTURE(expected.path);
    const Workload workload = load_shared(*path);
    CHECK(workload.requests.size() == expected.num_requests);
    CHECK(workload.total_prompt_tokens() == expected.num_prompt_tokens);
    CHECK(workload.total_output_tokens() == expected.num_output_tokens);
    CHECK(workload.requests.front().arrival == 0);
    CHECK(workload.requests.back().arrival == expected.last_arrival);
    CHECK(workload.num_skipped == 0);
  }
}

TEST_CASE("the published traces' prompts add up", "[core][trace][shared]") {
  if (const auto path = shared_path("data/traces/mooncake_conversation.jsonl")) {
    const Workload workload = load_shared(*path, ", jitter: true");
    CHECK(workload.segments.size() == 288'500);
    std::int64_t num_tokens = 0;
    for (const PromptSegment& segment : workload.segments) num_tokens += segment.num_tokens;
    CHECK(num_tokens == workload.total_prompt_tokens());
    CHECK(to_seconds(workload.requests.back().arrival) == Approx(3540).margin(3));
    std::vector<TokenId> ids;
    workload.prompt_token_ids(12'030, 7, 128'256, ids);
    CHECK(ids.size() == 20'774);
  }
  if (const auto path = shared_path("data/measured/sharegpt-llama-3.1-8b-300-sps10.jsonl")) {
    const Workload workload = load_shared(*path);
    CHECK(workload.token_ids.size() == 257'239);
    std::vector<TokenId> ids;
    workload.prompt_token_ids(0, 7, 128'256, ids);
    REQUIRE(ids.size() == 2358);
    CHECK(value(ids[0]) == 5971);
    CHECK(value(ids[4]) == 97554);
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
