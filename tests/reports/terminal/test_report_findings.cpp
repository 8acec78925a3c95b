// SPDX-License-Identifier: Apache-2.0
// Findings in lines with rates and queues, which people paste.
#include <fmt/core.h>
#include <sstream>

#include "engines/log/log_dialect.h"
#include "reports/terminal/report_findings.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Report {
  int second = 0;
  double prompt_rate = 0, decode_rate = 0;
  int running = 0, waiting = 0;
  double usage = 0;
  int engine = 0;
  int preemptions = 0;
};

EngineLog log_of(const std::vector<Report>& reports, const std::string& settings = "") {
  std::string text;
  if (!settings.empty()) text = "INFO non-default args: {" + settings + "}\n";
  for (const Report& report : reports) {
    text += fmt::format(
        "INFO 01-20 10:{:02}:{:02} [loggers.py:257] Engine {:03}: Avg prompt throughput: {:.1f} "
        "tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} reqs, Waiting: {} reqs, "
        "GPU KV cache usage: {:.1f}%, Prefix cache hit rate: 0.0%{}\n",
        report.second / 60, report.second % 60, report.engine, report.prompt_rate,
        report.decode_rate, report.running, report.waiting, report.usage,
        report.preemptions > 0 ? fmt::format(", Preemptions: {}", report.preemptions) : "");
  }
  std::istringstream in(text);
  return read_engine_log(in, "case.log");
}

std::string text_of(const EngineLog& log, std::string_view name) {
  for (const LogFinding& found : report_findings(log)) {
    if (found.name == name) return found.text;
  }
  return {};
}

bool contains(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("answers that stand still behind a prompt are a finding", "[reports][findings]") {
  const std::vector<Report> reports = {{0, 0, 40, 2, 0, 10},
                                       {10, 0, 0.5, 2, 0, 30},
                                       {20, 0, 0.2, 2, 0, 50},
                                       {30, 6000, 30, 2, 0, 60},
                                       {40, 0, 40, 2, 0, 60}};
  const EngineLog log = log_of(reports, "'max_num_batched_tokens': 8192");
  const std::string text = text_of(log, "stall");
  CHECK(contains(text,
                 "10:00:10 to 10:00:20 (lines 3 to 4): 2 requests run and get 0.2 to 0.5 "
                 "tokens/s together (40.0 before, 30.0 after)"));
  CHECK(contains(text, "6,000.0 tokens/s at 10:00:30, about 60,000 tokens"));
  CHECK(contains(text, "for 20 to 30 s, at 2,000 to 3,000 prompt tokens/s"));
  // 8,192 tokens at these rates.
  CHECK(contains(text,
                 "--max-num-batched-tokens 8192 an answer gets one step a chunk, every 2.7 "
                 "to 4.1 s; with 2048 it would be 0.7 to 1.0 s"));
  CHECK(report_findings(log).size() == 1);
  CHECK(contains(mean_gap_text(log), "longest 10,000 ms (line 4, 10:00:20)"));
  // Without a prompt that is booked, or with requests that wait, it is another thing.
  std::vector<Report> other = reports;
  other[3].prompt_rate = 0;
  CHECK(report_findings(log_of(other)).empty());
  other = reports;
  other[1].waiting = other[2].waiting = 1;
  CHECK(text_of(log_of(other), "stall").empty());
}

TEST_CASE("queues say what holds them", "[reports][findings]") {
  const std::string full = text_of(log_of({{10, 1500, 610, 15, 40, 99.6},
                                           {20, 4300, 210, 9, 46, 98.9, 0, 14},
                                           {30, 5200, 150, 7, 48, 99.9, 0, 22}}),
                                   "full");
  CHECK(contains(full, "40 to 48 requests wait while the KV cache is 98.9 to 99.9 % full"));
  CHECK(contains(full, "falls from 610 to 150 tokens/s while prompts rise from 1,500 to 5,200"));
  CHECK(contains(full, "after 36 preemptions"));
  const std::vector<Report> busy = {{10, 900, 500, 16, 20, 40}, {20, 900, 500, 16, 30, 42}};
  CHECK(contains(text_of(log_of(busy, "'max_num_seqs': 16"), "slots"),
                 "As many run as --max-num-seqs 16 allows"));
  CHECK(contains(text_of(log_of(busy, "'max_num_seqs': 64"), "queue"), "20 to 30 requests wait"));
  CHECK(report_findings(log_of({{10, 900, 500, 16, 0, 40}, {20, 900, 500, 16, 2, 42}})).empty());
}

TEST_CASE("an engine with a queue beside idle ones is a finding", "[reports][findings]") {
  const std::vector<Report> reports = {{10, 900, 90, 3, 0, 4, 0},
                                       {10, 0, 0, 0, 0, 0, 1},
                                       {10, 900, 2000, 60, 117, 70, 2},
                                       {10, 900, 1900, 58, 0, 65, 3}};
  const std::string text = text_of(log_of(reports), "ranks");
  CHECK(contains(text, "Engine 2, 10:00:10, line 3: 117 requests wait and 60 run"));
  CHECK(contains(text, "engine 0 runs 3, engine 1 runs 0."));
  std::vector<Report> even = reports;
  for (Report& report : even) {
    report.running = 60;
    report.waiting = 100;
  }
  CHECK(text_of(log_of(even), "ranks").empty());
}

TEST_CASE("decode steps without a CUDA graph are a finding", "[reports][findings]") {
  const auto text_with = [](const std::vector<std::pair<int, const char*>>& lines,
                            const std::string& settings = {}) {
    std::string text = settings;
    for (const auto& [running, graph] : lines) {
      text += fmt::format(
          "[2026-01-02 12:00:00] Decode batch, #running-req: {}, #token: 900, token usage: 0.10, "
          "cuda graph: {}, gen throughput (token/s): 100.00, #queue-req: 0\n",
          running, graph);
    }
    std::istringstream in(text);
    return text_of(read_engine_log(in, "case.log"), "graphs");
  };
  CHECK(text_with({{8, "True"}, {32, "True"}}).empty());
  const std::string beyond = text_with({{8, "True"}, {32, "True"}, {40, "False"}, {57, "False"}});
  CHECK(contains(beyond,
                 "2 of 4 lines about decodes show steps without a CUDA graph (first in "
                 "line 3), with 40 to 57 running requests"));
  CHECK(contains(beyond, "The most with one are 32 requests. --cuda-graph-max-bs-decode 57 "));
  const std::string other = text_with({{32, "True"}, {8, "False"}});
  CHECK(contains(other, "Up to 32 requests ran with one, so their number is not the reason."));
  CHECK(!contains(other, "--cuda-graph"));
  const std::string mixed = text_with({{32, "True"}, {8, "False"}, {40, "False"}});
  CHECK(contains(mixed, "Up to 32 requests ran with one, so their number is not the reason."));
  CHECK(!contains(mixed, "--cuda-graph"));
  const std::string none = text_with({{8, "False"}, {40, "False"}});
  CHECK(contains(none, "No line shows one: graphs are off, or captured for fewer requests"));
  CHECK(!contains(none, "--cuda-graph"));
  CHECK(contains(text_with({{8, "False"}}, "server_args={'disable_cuda_graph': True}\n"),
                 "disable_cuda_graph is set"));
}

}  // namespace metronome::testing::TEST_FILE
