// SPDX-License-Identifier: Apache-2.0
// Why tokens came late: known answers for records and iteration logs, and the command that prints
// them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/metrics/summary.h"
#include "engines/vllm/iteration_log.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_data.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_gaps.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/fake_run.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

constexpr TimeNs kMs = kNsPerMs;

std::string log_line(int number, int context_requests, int context_tokens, int generations,
                     const std::string& elapsed) {
  return "(EngineCore_DP0 pid=77) INFO 12-22 21:44:40 [core.py:349] Iteration(" +
         std::to_string(number) + "): " + std::to_string(context_requests) + " context requests, " +
         std::to_string(context_tokens) + " context tokens, " + std::to_string(generations) +
         " generation requests, " + std::to_string(generations) +
         " generation tokens, iteration elapsed time: " + elapsed + " ms";
}

// Twenty steps of four decodes, one with a prompt beside them, one with a prompt alone.
std::string small_log() {
  std::string text = "INFO starting\n";
  for (int i = 0; i < 20; ++i) text += log_line(i, 0, 0, 4, "10.00") + "\n";
  text += log_line(20, 2, 1024, 4, "100.25") + "\n";
  text += "INFO Iteration details are logged\n";
  text += log_line(21, 1, 700, 0, "60.5") + ", GPU KV cache usage: 3.1%\r\n";
  text += log_line(22, 0, 0, 0, "0.01") + "\n";  // nothing was scheduled
  return text;
}

struct SmallRun {
  ScratchFolder scratch;
  std::string out = scratch.path() + "/out";
  CommandResult run;

  explicit SmallRun(const std::string& options, const char* variants = "") {
    const std::string file = scratch.write("small.yaml", std::string(kSmallScenario) + variants);
    run = run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
};

}  // namespace

namespace {

bool has_note(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&part](const std::string& note) { return contains(note, part); });
}

std::string sglang_decode(int running, const char* rate, const char* usage = "0.40") {
  return "[2025-06-01 12:00:00] Decode batch. #running-req: " + std::to_string(running) +
         ", #token: 9000, token usage: " + usage +
         ", cuda graph: True, gen throughput (token/s): " + rate + ", #queue-req: 0\n";
}

}  // namespace

TEST_CASE("decodes of SGLang that become slow without a prompt have their first line",
          "[cli][diagnosis]") {
  std::string text;
  for (int i = 0; i < 13; ++i) text += sglang_decode(24, "1200.00");  // 20 ms
  text +=
      "[2025-06-01 12:00:13] KV cache pool is full. Retract requests. #retracted_reqs: 12, "
      "#new_tokens_gained: 4000, #new_token_ratio: 0.40 -> 0.90\n";
  for (int i = 0; i < 5; ++i) text += sglang_decode(12, "60.00", "0.30");  // 200 ms
  for (int i = 0; i < 3; ++i) text += sglang_decode(12, "600.00", "0.30");
  std::istringstream in(text);
  const LogGaps gaps = gaps_of(read_engine_log(in, "x.log"));
  REQUIRE(gaps.slow.size() == 1);
  CHECK((gaps.slow[0].first_where == 15 && gaps.slow[0].last_where == 19));
  CHECK(std::abs(gaps.slow[0].ratio() - 10) < 0.01);
  CHECK(
      has_note(gaps.notes, "From line 15 (12:00:00) on, a decode step of 12 requests takes 200 "));
  CHECK(has_note(gaps.notes, "No scheduler setting explains it"));
  CHECK(has_note(gaps.notes, "A decode step takes 20 ms"));
  const ScratchFolder scratch;
  const std::string log = scratch.write("x.log", text);
  const std::string shown = run_metronome("diagnose '" + log + "'").out;
  INFO(shown);
  CHECK(contains(shown, "slow decode %"));
  CHECK(contains(shown, "slow decodes since line 15"));
  const Json json = Json::parse(run_metronome("diagnose '" + log + "' --json").out).at(0);
  CHECK(json.at("slow_decodes").at(0).at("first") == 15);
  CHECK(json.at("gaps").at(0).at("slow_decode_ms").get<double>() > 0);
  // One slow line is a hiccup; more requests, or far more cache, may take longer.
  for (const std::string& last :
       {sglang_decode(12, "60.00") + sglang_decode(12, "600.00"),
        sglang_decode(60, "300.00") + sglang_decode(60, "300.00") + sglang_decode(60, "300.00"),
        sglang_decode(12, "60.00", "0.90") + sglang_decode(12, "60.00", "0.90")}) {
    std::string other;
    for (int i = 0; i < 13; ++i) other += sglang_decode(24, "1200.00");
    std::istringstream lines(other + last);
    CHECK(gaps_of(read_engine_log(lines, "x.log")).slow.empty());
  }
}

namespace {

// Decode lines of SGLang: requests and milliseconds of a step each.
LogGaps gaps_of_decodes(const std::vector<std::pair<int, double>>& lines) {
  std::string text;
  for (const auto& [running, ms] : lines) {
    text += sglang_decode(running, fixed_text(1000 * running / ms, 2).c_str());
  }
  std::istringstream in(text);
  return gaps_of(read_engine_log(in, "x.log"));
}

}  // namespace

TEST_CASE("slow decodes are found where they begin with more requests than before",
          "[cli][diagnosis]") {
  using Lines = std::vector<std::pair<int, double>>;
  Lines falling = {{11, 8}, {13, 8.1}, {14, 8.2}, {17, 8.3}, {19, 8.4}, {20, 8.5}, {22, 8.6}};
  for (int running = 21; running > 5; --running) falling.emplace_back(running, 75);
  struct Slow {
    Lines lines;
    std::int64_t first;
    const char* note;
  };
  std::vector<Slow> cases = {{falling, 8, "a decode step of 6 to 21 requests takes 75 ms"}};
  for (const int more : {17, 24}) {
    Lines lines(16, {16, 8});
    lines.insert(lines.end(), 8, {more, 80});
    const char* note = more == 17 ? "9.4 times as long as the steps before explain, even in "
                                    "proportion to requests and cache (8.5 ms)"
                                  : "6.7 times as long as the steps before explain";
    cases.push_back({lines, 17, note});
    // Once slow, more requests are no recovery.
    cases.back().lines.insert(cases.back().lines.end(), 4, {64, 90});
  }
  for (const Slow& one : cases) {
    const LogGaps gaps = gaps_of_decodes(one.lines);
    REQUIRE(gaps.slow.size() == 1);
    CHECK(gaps.slow[0].first_where == one.first);
    CHECK(gaps.slow[0].is_to_the_end);
    INFO(gaps.notes.front());
    CHECK(has_note(gaps.notes, one.note));
    CHECK(has_note(gaps.notes, "No scheduler setting explains it"));
  }
  // A time that grows with the requests, at once or little by little, is explained by them.
  Lines growing;
  for (int running = 1; running <= 64; ++running) growing.emplace_back(running, 7 + running / 4.5);
  const Lines at_once = {{1, 7}, {1, 7}, {1, 7}, {8, 9}, {64, 21}, {64, 21}, {64, 21}, {2, 7}};
  const Lines computing = {{16, 8}, {16, 8}, {16, 8}, {16, 8}, {256, 90}, {256, 92}, {256, 91}};
  for (const Lines& lines : {growing, at_once, computing}) {
    CHECK(gaps_of_decodes(lines).slow.empty());
  }
}

TEST_CASE("a log that is ten times slower from a line on has that line", "[cli][diagnosis]") {
  std::istringstream whole(
      read_text_file(std::string(source_dir()) + "/tests/expected/logs/sglang.log"));
  EngineLog log = read_engine_log(whole, "sglang.log");
  CHECK(gaps_of(log).slow.empty());
  constexpr std::int64_t kFirst = 107;
  for (LogObservation& seen : log.observations) {
    if (seen.line < kFirst) continue;
    seen.elapsed_ns *= 10;
    seen.decode_rate /= 10;
  }
  const LogGaps gaps = gaps_of(log);
  REQUIRE(gaps.slow.size() == 1);
  CHECK(gaps.slow[0].first_where == 108);  // the first decodes from there on
  CHECK(gaps.slow[0].is_to_the_end);
}

TEST_CASE("iterations of vLLM that become slow without a prompt have their first one",
          "[reports][diagnosis]") {
  std::string text;
  int number = 0;
  const auto add = [&](int count, int tokens, int generations, const char* elapsed) {
    for (int i = 0; i < count; ++i) {
      text += log_line(number++, tokens > 0 ? 1 : 0, tokens, generations, elapsed) + "\n";
    }
  };
  add(40, 0, 8, "10.00");
  add(1, 1000, 8, "60.00");
  add(6, 0, 4, "100.00");
  add(1, 1000, 4, "150.00");
  add(6, 0, 4, "100.00");
  std::istringstream in(text);
  const LogGaps gaps = gaps_of(read_engine_log(in, "x.log"));
  REQUIRE(gaps.slow.size() == 1);
  CHECK((gaps.slow[0].first_where == 41 && gaps.slow[0].is_to_the_end));
  CHECK(has_note(gaps.notes,
                 "From iteration 41 (line 42, 21:44:40) on, a decode step of 4 requests takes "
                 "100 ms without a prompt, 10.0 times as long"));
  // The prompt has its own share alone, in the slow span and before.
  CHECK(gaps.gaps[47].decode_ns == 100 * kMs);
  CHECK(std::abs(to_ms(gaps.gaps[40].decode_ns) - 10) < 0.1);
  // More requests than ever before, as soon as it begins.
  std::string more;
  for (int i = 0; i < 60; ++i)
    more += log_line(i, 0, 0, 8 + i / 8, i < 40 ? "10.0" : "95.0") + "\n";
  std::istringstream rising(more);
  const LogGaps risen = gaps_of(read_engine_log(rising, "x.log"));
  REQUIRE(risen.slow.size() == 1);
  CHECK(risen.slow[0].first_where == 40);
  // Times that grow with the contexts are no sudden change.
  std::string growing;
  for (int i = 0; i < 200; ++i) {
    growing += log_line(i, 0, 0, 8 - i / 50, std::to_string(10 + i) + ".00") + "\n";
  }
  std::istringstream slowly(growing);
  CHECK(gaps_of(read_engine_log(slowly, "x.log")).slow.empty());
}

// Two engines, the second of which becomes slow, with the same numbers of iterations.
TEST_CASE("a slow engine of a log is none of the other's", "[reports][diagnosis]") {
  std::string text;
  const auto add = [&text](int number, const char* rank, const char* elapsed) {
    std::string line = log_line(number, 0, 0, 4, elapsed) + "\n";
    text += line.replace(line.find("DP0"), 3, rank);
  };
  for (int i = 0; i < 40; ++i) {
    add(i, "DP0", i < 20 ? "10.00" : "20.00");
    add(i, "DP1", i < 20 ? "10.00" : "100.00");
  }
  std::istringstream in(text);
  const LogGaps gaps = gaps_of(read_engine_log(in, "x.log"));
  REQUIRE(gaps.slow.size() == 1);
  CHECK((gaps.slow[0].rank == 1 && gaps.slow[0].first_where == 20));
  CHECK(has_note(gaps.notes,
                 "From iteration 20 (line 42, 21:44:40) on, a decode step of 4 "
                 "requests of rank 1 takes 100 ms"));
  Distribution itl;
  const Diagnosis diagnosis = diagnose(gaps, std::nullopt, 40, itl);
  CHECK(diagnosis.rows[0].slow_ns == 20 * 4 * 100 * kMs);
  const std::string shown = blocks_text(diagnosis_blocks(diagnosis), 100);
  std::istringstream lines(shown);
  int num_slow = 0;
  int num_healthy = 0;
  for (std::string line; std::getline(lines, line);) {
    num_slow += contains(line, "slow decodes since iteration 20") ? 1 : 0;
    num_healthy += contains(line, "no prefill") ? 1 : 0;
  }
  INFO(shown);
  CHECK((num_slow == 20 && num_healthy == 20));
  CHECK(contains(shown, "rank  iteration"));
}

TEST_CASE("a slow span is none of the same numbers after a restart", "[reports][diagnosis]") {
  std::string text;
  for (int i = 0; i < 40; ++i) text += log_line(i, 0, 0, 4, i < 20 ? "10.00" : "100.00") + "\n";
  for (int i = 0; i < 40; ++i) text += log_line(i, 0, 0, 4, "12.00") + "\n";
  std::istringstream in(text);
  const LogGaps gaps = gaps_of(read_engine_log(in, "x.log"));
  REQUIRE(gaps.slow.size() == 1);
  CHECK((gaps.slow[0].first_line == 21 && gaps.slow[0].last_line == 40));
  CHECK_FALSE(contains(gaps.notes[0], "rank"));
  Distribution itl;
  const Diagnosis diagnosis = diagnose(gaps, std::nullopt, 40, itl);
  CHECK(diagnosis.rows[0].slow_ns == 20 * 4 * 100 * kMs);
  CHECK_FALSE(contains(blocks_text(diagnosis_blocks(diagnosis), 100), "rank"));
}

TEST_CASE("a slow rank of SGLang leaves the others' lines as they are", "[reports][diagnosis]") {
  std::string text;
  const auto add = [&text](const char* rank, int num_requests, const char* rate) {
    std::string line = sglang_decode(num_requests, rate);
    text += line.insert(line.find(']'), std::string(" DP") + rank);
  };
  for (int i = 0; i < 30; ++i) {
    add("0", 24, "1200.00");
    add("1", 24, i < 15 ? "1200.00" : "120.00");
  }
  std::istringstream in(text);
  const LogGaps gaps = gaps_of(read_engine_log(in, "x.log"));
  REQUIRE(gaps.slow.size() == 1);
  CHECK(gaps.slow[0].rank == 1);
  CHECK(has_note(gaps.notes, "a decode step of 24 requests of rank 1 takes 200 ms"));
  Distribution itl;
  const Diagnosis diagnosis = diagnose(gaps, std::nullopt, 3, itl);
  CHECK(diagnosis.rows[0].slow_ns == std::int64_t{15} * 40 * 24 * 200 * kMs);
}

TEST_CASE("steps of a run that become slow without a prompt have their first one",
          "[reports][diagnosis]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 10);
  TimeNs now = 0;
  const auto step = [&](TimeNs duration, const std::vector<FakeChunk>& chunks) {
    run.step(now, now + duration, chunks);
    now += duration;
  };
  step(20 * kMs, {prefill(a, 0, 10, true), prefill(b, 0, 10, true)});
  for (int i = 0; i < 10; ++i) step(5 * kMs, {decode(a), decode(b)});
  for (int i = 0; i < 10; ++i) step(50 * kMs, {decode(a)});
  const RunRecord record = recorder.finish();
  Distribution itl;
  itl.count = 30;
  itl.p99_ms = 20;
  const Diagnosis diagnosis = diagnose(record, itl, {}, 3);
  REQUIRE(diagnosis.slow.size() == 1);
  CHECK((diagnosis.slow[0].first_where == 11 && diagnosis.slow[0].last_where == 20));
  CHECK(diagnosis.rows[1].slow_ns == 500 * kMs);
  CHECK(diagnosis.rows[1].sum.parts.decode_ns == 500 * kMs);
  CHECK(contains(blocks_text(diagnosis_blocks(diagnosis), 100), "slow decodes since step 11"));
  CHECK(contains(slow_decode_notes(diagnosis.slow, "step", false)[0],
                 "From step 11 on, a decode step of 1 request takes 50 ms"));
}

TEST_CASE("a record's diagnosis: shares, stalls, culprits", "[reports][diagnosis]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  StepResult result;
  const auto step = [&](TimeNs from, TimeNs until, TimeNs decode,
                        const std::vector<FakeChunk>& chunks) {
    result.decode_only_ns = decode;
    run.next.result = &result;
    run.step(from, until, chunks);
  };
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 10);
  const RequestId c = run.submit(0, 900);
  step(0, 10 * kMs, 0, {prefill(a, 0, 10, true), prefill(b, 0, 10, true)});
  step(10 * kMs, 15 * kMs, 5 * kMs, {decode(a), decode(b)});
  step(16 * kMs, 116 * kMs, 6 * kMs, {decode(a), decode(b), prefill(c, 0, 900, true)});
  const RunRecord record = recorder.finish();
  Distribution itl;
  itl.count = 4;
  itl.p99_ms = 5;
  const Diagnosis diagnosis = diagnose(record, itl, {.itl_ms = 100.0}, 3);
  REQUIRE(diagnosis.rows.size() == 3);
  CHECK(diagnosis.rows[0].sum.num_gaps == 4);
  CHECK(diagnosis.rows[0].sum.parts.total_ns() == 212 * kMs);
  CHECK(diagnosis.rows[1].sum.num_gaps == 2);  // longer than 5 ms
  CHECK(diagnosis.rows[2].sum.num_gaps == 2);
  CHECK(diagnosis.rows[2].sum.parts.prefill_ns == 188 * kMs);
  REQUIRE(diagnosis.stalls.size() == 2);
  CHECK(diagnosis.stalls[0].gap_ns == 101 * kMs);
  CHECK(diagnosis.stalls[0].num_waiting == 2);
  CHECK(*diagnosis.stalls[0].began_at == 15 * kMs);
  REQUIRE(diagnosis.stalls[0].worst.has_value());
  CHECK(*diagnosis.stalls[0].worst->request == 2);
  CHECK_FALSE(diagnosis.stalls[1].worst.has_value());
  REQUIRE(diagnosis.chunks.size() == 1);
  CHECK(diagnosis.chunks[0].stall_ns() == 188 * kMs);
  CHECK_FALSE(diagnosis.is_estimated);
  const std::string text = blocks_text(diagnosis_blocks(diagnosis), 100);
  CHECK(contains(text, "request 2, 900 tokens from 0 (94)"));
}

TEST_CASE("diagnosis and report count the same delayed requests", "[reports][diagnosis]") {
  const SmallRun small(
      "--set kv_cache.num_blocks=200 --set workload.output_tokens.value=200 "
      "--set workload.arrivals.rate=60");
  const StoredRun run = read_result(small.out);
  REQUIRE(run.result.summary.num_preemptions > 0);
  const Diagnosis diagnosis = diagnose(run.record, run.result.summary.itl, {}, 10);
  const Json stalls = Json::parse(report_detail(run.record, {}, {})).at("stalls");
  REQUIRE(stalls.size() >= diagnosis.stalls.size());
  int num_preempted = 0;
  for (std::size_t i = 0; i < diagnosis.stalls.size(); ++i) {
    INFO("stall " << i);
    CHECK(stalls[i].at("request") == *diagnosis.stalls[i].request);
    CHECK(stalls[i].at("delayed") == diagnosis.stalls[i].num_waiting);
    num_preempted += diagnosis.stalls[i].parts.preemption_ns > 0 ? 1 : 0;
  }
  CHECK(num_preempted > 0);
}

TEST_CASE("a gap as long as the p99, or as the limit, is not beyond it", "[reports][diagnosis]") {
  // Lengths that are no whole number once they are milliseconds in binary, and come back too small.
  for (const TimeNs gap : {16'400'000, 4'100'000, 33'300'000}) {
    INFO(gap << " ns");
    RunRecorder recorder;
    FakeRun run({&recorder});
    const RequestId a = run.submit(0, 10);
    run.step(0, kMs, {prefill(a, 0, 10, true)});
    run.step(kMs, kMs + gap, {decode(a)});
    run.step(kMs + gap, kMs + 2 * gap, {decode(a)});
    run.end(a, kMs + 2 * gap);
    const RunRecord record = recorder.finish();
    const Distribution itl = summarize(record, {}).itl;
    REQUIRE(itl.p99_ms == to_ms(gap));
    const Diagnosis diagnosis = diagnose(record, itl, {.itl_ms = to_ms(gap)}, 3);
    REQUIRE(diagnosis.rows.size() == 3);
    CHECK(diagnosis.rows[0].sum.num_gaps == 2);
    CHECK(diagnosis.rows[1].sum.num_gaps == 0);
    CHECK(diagnosis.rows[2].sum.num_gaps == 0);
    CHECK(diagnose(record, itl, {.itl_ms = to_ms(gap - 1)}, 3).rows[2].sum.num_gaps == 2);
  }
}

TEST_CASE("an iteration log is read whatever surrounds its lines", "[reports][diagnosis]") {
  const ScratchFolder scratch;
  std::string text = small_log();
  text +=
      "(EngineCore_DP13 pid=1) Iteration(5): 0 context requests, 0 context tokens, 1 "
      "generation requests, 3 generation tokens, iteration elapsed time: 0.03 ms\n";
  const IterationLog log = read_iteration_log(scratch.write("vllm.log", text));
  REQUIRE(log.iterations.size() == 23);
  const LoggedIteration& mixed = log.iterations[20];
  CHECK((mixed.number == 20 && mixed.num_context_requests == 2 && mixed.line == 22));
  CHECK((mixed.num_context_tokens == 1024 && mixed.num_generation_requests == 4));
  CHECK((mixed.elapsed_ns == 100'250'000 && mixed.engine == 0));
  CHECK(log.iterations[21].elapsed_ns == 60'500'000);
  CHECK((log.iterations[22].engine == 13 && log.iterations[22].num_generation_tokens == 3));
  CHECK(log.num_implausible == 1);
  // A log that was copied while it was written.
  const std::string cut = small_log() + log_line(23, 0, 0, 4, "1").substr(0, 90);
  CHECK(read_iteration_log(scratch.write("cut.log", cut)).iterations.size() == 22);
}

TEST_CASE("what is no iteration log is refused by line", "[reports][diagnosis]") {
  const ScratchFolder scratch;
  const auto refusal = [&](const std::string& text) {
    const std::string path = scratch.write("vllm.log", text);
    return error_of([&] { (void)read_iteration_log(path); }).substr(path.size());
  };
  for (const char* bad :
       {"Iteration(x): 0",
        "Iteration(1): -1 context requests, 0 context tokens, 1 generation "
        "requests, 1 generation tokens, iteration elapsed time: 1 ms",
        "Iteration(1): 1 context requests, 99999999999 context tokens, 1 generation requests, 1 "
        "generation tokens, iteration elapsed time: 1 ms",
        "Iteration(1): 1 context requests, 9 context tokens, 1 generation requests, 1 "
        "generation tokens, iteration elapsed time: nan ms",
        "Iteration(1): 1 context requests, 9 context tokens, 1 generation requests, 1 "
        "generation tokens, iteration elapsed time: 12 s"}) {
    INFO(bad);
    CHECK(refusal("first\n" + std::string(bad) + "\nlast\n")
              .starts_with(":2: is not an iteration in vLLM's format; allowed: Iteration(N): N "));
  }
  CHECK(refusal("nothing\n") ==
        ": has no iteration; allowed: a vLLM log with --enable-logging-iteration-details, or a "
        "folder that `metronome run` wrote");
  CHECK(contains(error_of([] { (void)read_iteration_log("/nowhere"); }), "does not exist"));
}

TEST_CASE("an iteration log's diagnosis blames iterations", "[reports][diagnosis]") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("vllm.log", small_log());
  const LogGaps log = gaps_of(read_engine_log(path));
  Distribution itl;
  const Diagnosis diagnosis = diagnose(log, 50.0, 4, itl);
  CHECK((itl.count == 84 && itl.p50_ms == 10 && itl.max_ms == 100.25));
  REQUIRE(diagnosis.rows.size() == 3);
  CHECK(diagnosis.rows[0].sum.num_gaps == 84);
  CHECK(diagnosis.rows[2].sum.num_gaps == 4);
  CHECK(std::abs(diagnosis.rows[2].sum.parts.prefill_ns - 361 * kMs) < 1000);
  Distribution unused;
  CHECK(diagnose(log, 100.25, 4, unused).rows[2].sum.num_gaps == 0);  // as long as it may be
  REQUIRE(diagnosis.stalls.size() == 4);
  CHECK(diagnosis.stalls[0].step == 20);
  CHECK_FALSE(diagnosis.stalls[1].worst.has_value());
  REQUIRE(diagnosis.chunks.size() == 1);
  CHECK((diagnosis.chunks[0].step == 20 && diagnosis.chunks[0].num_delayed == 4));
  CHECK(contains(blocks_text(diagnosis_blocks(diagnosis), 100),
                 "longest stalls, one per iteration; milliseconds\n"));
}

TEST_CASE("diagnose prints every variant of a result", "[cli][diagnosis]") {
  const SmallRun small("--set slo.itl_ms=5", kTwoVariants);
  const CommandResult result = run_metronome("diagnose '" + small.out + "' --top 2");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out.starts_with("whole\n  llama-3.2-1b on h200, policy continuous, "));
  CHECK(contains(result.out, "\npieces\n"));
  CHECK(contains(result.out, "parts of the inter-token latency\n"));
  CHECK(contains(result.out, "over the limit, 5 ms"));
  CHECK(contains(result.out, "longest stalls, one per step; milliseconds\n"));
  const CommandResult json = run_metronome("diagnose '" + small.out + "/whole' --json --top 3");
  REQUIRE(json.exit_code == 0);
  const Json runs = Json::parse(json.out);
  REQUIRE(runs.size() == 1);
  const StoredRun run = read_result(small.out + "/whole");
  CHECK(runs[0].at("label") == "whole");
  CHECK(runs[0].at("itl_limit_ms") == 5.0);
  CHECK(runs[0].at("stalls").size() == 3);
  CHECK(runs[0].at("stalls")[0].at("gap_ms") == to_ms(run.result.summary.longest_stall.gap_ns));
  CHECK(runs[0].at("gaps")[0].at("gaps") == run.result.summary.itl.count);
}

TEST_CASE("diagnose reads a vLLM log and says what it lacks", "[cli][diagnosis]") {
  const ScratchFolder scratch;
  const std::string path =
      scratch.write("vllm.log", small_log() + log_line(30, 0, 0, 4, "0.02") + "\n");
  const CommandResult result = run_metronome("diagnose '" + path + "'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "longest stalls, one per iteration; milliseconds\n"));
  CHECK(contains(result.out, "vLLM iteration log, 23 iterations"));
  CHECK(contains(result.out, "--no-async-scheduling"));
  CHECK(contains(result.out, " 361 "));
  CHECK_FALSE(contains(result.out, "--max-num-batched-tokens"));
  // 90.25 ms for 1024 tokens: 453 in the 40 ms that 10 ms of decodes leave.
  const CommandResult target = run_metronome("diagnose '" + path + "' --target-itl 50");
  CHECK(contains(target.out, "over the limit, 50 ms"));
  CHECK(contains(target.out, "--max-num-batched-tokens 457"));
  CHECK(contains(run_metronome("diagnose '" + path + "' --target-itl 9").out,
                 "no token budget can avoid this"));
}

TEST_CASE("diagnose says whose log it is, in JSON too", "[cli][diagnosis]") {
  const ScratchFolder scratch;
  const std::string start =
      "INFO non-default args: {'model': 'hf', 'max_num_seqs': 64, 'enable_prefix_caching': False}\n"
      "INFO Initializing a V1 LLM engine (v0.32.0) with config: model='hf'\n"
      "INFO CPU KV cache size: 93,184 tokens, Maximum concurrency\n";
  const std::string path = scratch.write("vllm.log", start + small_log());
  const std::string command = "diagnose '" + path + "' ";
  CHECK(contains(run_metronome(command).out, "vLLM 0.32.0 iteration log, 22 iterations"));
  const Json engine = Json::parse(run_metronome(command + "--json").out).at(0).at("engine");
  CHECK(engine.at("name") == "vllm");
  CHECK(engine.at("version") == "0.32");
  CHECK(engine.at("model") == "hf");
  CHECK(engine.at("kv_cache_tokens") == 93184);
  CHECK(engine.at("iterations") == 22);
  CHECK(engine.at("reports") == 0);
  CHECK(engine.at("settings").at("max_num_seqs") == 64);
  CHECK(engine.at("settings").at("enable_prefix_caching") == false);
  // This version does not print its usual budget.
  CHECK(engine.at("settings").at("max_num_batched_tokens") == 2048);
  CHECK(contains(run_metronome(command).out, "The log does not say --max-num-batched-tokens, and"));

  const std::string other = std::string(source_dir()) + "/tests/expected/logs/sglang.log";
  const Json sglang = Json::parse(run_metronome("diagnose '" + other + "' --json").out).at(0);
  CHECK(sglang.at("engine").at("name") == "sglang");
  CHECK(sglang.at("engine").at("version").is_null());
  CHECK(sglang.at("engine").at("decode_lines").get<int>() > 0);
  CHECK(sglang.at("engine").at("settings").size() > 2);

  const IterationLog log = read_iteration_log(path);
  const std::int64_t second = log.iterations[1].number;
  const std::string range = std::to_string(second) + ":" + std::to_string(second + 3);
  const CommandResult part = run_metronome(command + "--json --iterations " + range);
  INFO(part.err);
  CHECK(Json::parse(part.out).at(0).at("engine").at("iterations") == 4);
  const CommandResult none = run_metronome(command + "--iterations 999999:");
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "has none of these; allowed: numbers of its iterations"));
}

TEST_CASE("what diagnose cannot take is one line and exit code 2", "[cli][diagnosis]") {
  const ScratchFolder scratch;
  const std::string empty = scratch.write("empty.log", "");
  const auto refused = [](const std::string& arguments, const std::string& message) {
    const CommandResult result = run_metronome("diagnose " + arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(contains(result.err, message));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  };
  refused("", "diagnose: no RUN given; allowed: a result folder or log, --command with ");
  refused("/nowhere", "/nowhere: does not exist; allowed: ");
  refused("'" + empty + "'", "is not a vLLM, SGLang, TensorRT-LLM or llama-server log; allowed: ");
  refused("'" + empty + "' --top 0", "--top: 0 is out of range; allowed: 1 to 10000");
  for (const char* value : {"nan", "0", "x"}) {
    refused("'" + empty + "' --target-itl " + value, "; allowed: 0.001 to 3600000 milliseconds");
  }
  CHECK(contains(run_metronome("diagnose --help").out, "usage: metronome diagnose RUN"));
}

}  // namespace TEST_FILE
