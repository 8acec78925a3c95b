// SPDX-License-Identifier: Apache-2.0
// A log's gaps and its full KV cache, against the run that it was written from.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "engines/log/log_dialect.h"
#include "reports/terminal/cache_pressure.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_gaps.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/engine_log_writer.h"
#include "tests/error_of.h"
#include "tests/expected.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr const char* kSglang = R"(seed: 8
model: llama-3.1-8b
hardware: h100-sxm
engine: {max_num_seqs: 64, max_model_len: 16384}
kv_cache: {block_size: 16, num_blocks: 8192}
scheduler: {policy: sglang, chunked_prefill_size: 2048}
sampling: {ignore_eos: false}
workload:
  num_requests: 100
  arrivals: {process: gamma, rate: 9, burstiness: 0.5}
  prompt_tokens: {distribution: lognormal, median: 900, p99: 9000, min: 16, max: 12000}
  output_tokens: {distribution: lognormal, median: 180, p99: 900, min: 4, max: 1200}
)";

struct Written {
  std::string text;
  EngineLog log;
  Summary truth;
  std::int64_t num_preempted = 0;
  std::int64_t num_freed_tokens = 0;
  std::int64_t num_recomputed_tokens = 0;
};

// Runs a scenario and writes the log of it.
Written write_log(const Scenario& scenario, int report_seconds = 10) {
  Simulation simulation = prepare_simulation(scenario);
  EngineLogWriter writer(scenario, simulation.setup.kv_cache.num_blocks, report_seconds);
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  RunRecorder recorder(workload.requests.size());
  EventSink* sinks[] = {&recorder, &writer};
  VirtualClock clock;
  simulation.run(workload, clock, sinks);
  Written written;
  written.text = writer.text();
  std::istringstream in(written.text);
  written.log = read_engine_log(in, "written.log");
  written.truth = summarize(recorder.finish(), {});
  written.num_preempted = writer.num_preempted;
  written.num_freed_tokens = writer.num_freed_tokens;
  written.num_recomputed_tokens = writer.num_recomputed_tokens;
  return written;
}

Written write_log(const std::string& yaml, const std::vector<std::string>& changes) {
  return write_log(parse_scenario(yaml, "case.yaml", changes).variants.front());
}

bool is_near(double value, double truth, double share) {
  return std::abs(value - truth) <= share * truth;
}

}  // namespace

TEST_CASE("gaps of an SGLang log are near those of its run", "[reports][log_diagnosis]") {
  for (const char* change :
       {"seed=8", "seed=9", "scheduler.enable_mixed_chunk=true",
        "scheduler.prefill_decode_interval=1", "scheduler.chunked_prefill_size=8192",
        "workload.arrivals.rate=3", "engine.async_depth=2"}) {
    const Written written = write_log(kSglang, {change});
    CHECK(written.log.num_broken == 0);
    const LogGaps gaps = gaps_of(written.log);
    Distribution itl;
    const Diagnosis diagnosis = diagnose(gaps, std::nullopt, 5, itl);
    INFO(change << ": p50 " << itl.p50_ms << " of " << written.truth.itl.p50_ms << ", p99 "
                << itl.p99_ms << " of " << written.truth.itl.p99_ms << ", longest " << itl.max_ms
                << " of " << written.truth.itl.max_ms << ", count " << itl.count << " of "
                << written.truth.itl.count);
    CHECK(is_near(itl.p50_ms, written.truth.itl.p50_ms, 0.1));
    CHECK(is_near(itl.p99_ms, written.truth.itl.p99_ms, 0.15));
    CHECK(is_near(itl.max_ms, written.truth.itl.max_ms, 0.2));
    CHECK(is_near(static_cast<double>(itl.count), static_cast<double>(written.truth.itl.count),
                  0.15));
    CHECK(diagnosis.step_word == "line");
    REQUIRE(diagnosis.stalls.front().worst.has_value());
  }
}

namespace {

// As SGLang wrote logs in 2025: without the throughput of batches.
EngineLog without_batch_rates(const std::string& text) {
  std::istringstream lines(text);
  std::string old;
  for (std::string line; std::getline(lines, line);) {
    old += line.substr(0, line.find(", input throughput")) + "\n";
  }
  std::istringstream in(old);
  return read_engine_log(in, "old.log");
}

}  // namespace

TEST_CASE("gaps of an SGLang log without times of batches are estimated",
          "[reports][log_diagnosis]") {
  struct Case {
    std::vector<std::string> changes;
    double p99, longest;  // shares that the estimate may be off
  };
  const std::vector<Case> cases = {
      {{"seed=8"}, 0.35, 0.35},
      {{"seed=9"}, 0.35, 0.35},
      {{"scheduler.chunked_prefill_size=8192"}, 0.35, 0.35},
      {{"scheduler.enable_mixed_chunk=true"}, 0.5, 0.5},
      // Long prompts on a slow GPU: stalls of seconds.
      {{"hardware=l4", "kv_cache.num_blocks=3600", "workload.arrivals.rate=0.4",
        "workload.prompt_tokens.median=6000", "workload.prompt_tokens.p99=15000",
        "workload.prompt_tokens.max=15000"},
       0.35,
       0.35}};
  for (const Case& one : cases) {
    const Written written = write_log(kSglang, one.changes);
    const EngineLog log = without_batch_rates(written.text);
    CHECK(log.num_broken == 0);
    const LogGaps gaps = gaps_of(log);
    Distribution itl;
    const Diagnosis diagnosis = diagnose(gaps, std::nullopt, 5, itl);
    INFO(one.changes[0] << ": p50 " << itl.p50_ms << " of " << written.truth.itl.p50_ms << ", p99 "
                        << itl.p99_ms << " of " << written.truth.itl.p99_ms << ", longest "
                        << itl.max_ms << " of " << written.truth.itl.max_ms);
    CHECK(is_near(itl.p50_ms, written.truth.itl.p50_ms, 0.2));
    CHECK(is_near(itl.p99_ms, written.truth.itl.p99_ms, one.p99));
    CHECK(is_near(itl.max_ms, written.truth.itl.max_ms, one.longest));
    CHECK(diagnosis.stalls.front().worst.has_value());
    CHECK(gaps.slow.empty());
    CHECK(std::any_of(gaps.notes.begin(), gaps.notes.end(), [](const std::string& note) {
      return contains(note, "no 'input throughput', so the times of batches are estimates");
    }));
  }
}

TEST_CASE("an estimate of the longest gap of a log says how rough it is",
          "[reports][log_diagnosis]") {
  const std::string text =
      read_text_file(std::string(source_dir()) + "/tests/expected/logs/sglang_full.log");
  std::istringstream in(text);
  Distribution truth;
  diagnose(gaps_of(read_engine_log(in, "full.log")), std::nullopt, 5, truth);
  const LogGaps gaps = gaps_of(without_batch_rates(text));
  Distribution itl;
  diagnose(gaps, std::nullopt, 5, itl);
  const std::string begin = "The longest gap, " + ms_text(itl.max_ms) + " ms, is an estimate";
  const auto note =
      std::find_if(gaps.notes.begin(), gaps.notes.end(),
                   [&begin](const std::string& one) { return one.starts_with(begin); });
  REQUIRE(note != gaps.notes.end());
  INFO(*note);
  CHECK(contains(*note, " if no decode ran between the batches of lines 7 to 15."));
  const std::string about = "it may be shorter, or about ";
  REQUIRE(contains(*note, about));
  const double most = std::stod(note->substr(note->find(about) + about.size()));
  // The truth lies between them.
  CHECK((itl.max_ms < truth.max_ms && truth.max_ms < most));
  // Without another batch before the next decode there is nothing to join.
  const std::string decode =
      "[2025-06-01 12:00:00] Decode batch. #running-req: 4, #token: 900, token usage: 0.10, cuda "
      "graph: True, gen throughput (token/s): 100.00, #queue-req: 0\n";
  const std::string batch =
      "[2025-06-01 12:00:01] Prefill batch. #new-seq: 1, #new-token: 1000, #cached-token: 0, token "
      "usage: 0.10, #running-req: 4, #queue-req: 0\n";
  std::istringstream lines(
      decode + decode + batch +
      replaced(replaced(decode, "token/s): 100", "token/s): 80"), "12:00:00", "12:00:02"));
  const LogGaps one = gaps_of(read_engine_log(lines, "x.log"));
  CHECK(std::any_of(one.notes.begin(), one.notes.end(),
                    [](const std::string& n) { return n.ends_with(" ms, is an estimate."); }));
}

TEST_CASE("gaps of an SGLang log: known answers", "[reports][log_diagnosis]") {
  const auto prefill = [](const std::string& number, const char* rate, int num_pending) {
    return "Prefill batch" + number +
           ", #new-seq: 1, #new-token: 1000, #cached-token: 0, token usage: 0.10, #running-req: "
           "10, #queue-req: 0, #pending-token: " +
           std::to_string(num_pending) +
           ", cuda graph: False, input throughput (token/s): " + rate + "\n";
  };
  const auto decode = [](const char* rate) {
    return std::string(
               "Decode batch, #running-req: 10, #token: 9, token usage: 0.10, cuda graph: "
               "True, gen throughput (token/s): ") +
           rate + ", #queue-req: 0\n";
  };
  const auto gaps = [&](const std::string& batches, const std::string& settings = "") {
    std::istringstream in(settings + decode("1.00") + decode("1000.00") + batches +
                          decode("666.67"));
    return gaps_of(read_engine_log(in, "x.log")).gaps;
  };
  const auto is_ms = [](TimeNs ns, double ms) { return is_near(to_ms(ns), ms, 1e-3); };
  // A decode step takes 10 ms, a batch 100 ms; the first Decode line has no interval.
  const auto apart = gaps(prefill(" [7]", "10000.00", 0) + prefill(" [9]", "10000.00", 0));
  REQUIRE(apart.size() == 4);
  CHECK((is_ms(apart[0].gap_ns, 10) && apart[0].num_gaps == 400 && apart[0].where == 2));
  CHECK((is_ms(apart[1].gap_ns, 110) && is_ms(apart[1].decode_ns, 10)));
  CHECK((apart[1].num_gaps == 10 && apart[1].num_prefill_tokens == 1000 && apart[1].where == 3));
  CHECK((is_ms(apart[2].gap_ns, 110) && apart[2].where == 4));
  // 40 steps and 200 ms of prefill in 600 ms; two of the ten requests' forty gaps are above.
  CHECK((is_ms(apart[3].gap_ns, 10) && apart[3].num_gaps == 380 && apart[3].where == 5));
  // Numbers that follow each other, or no room for a decode between: one pause.
  for (const char* numbers : {"with", "without"}) {
    const bool has = numbers[4] == '\0';
    const auto together =
        gaps(prefill(has ? " [7]" : "", "10000.00", 0) + prefill(has ? " [8]" : "", "10000.00", 0));
    INFO(numbers);
    REQUIRE(together.size() == 3);
    CHECK((is_ms(together[1].gap_ns, 210) && together[1].num_prefill_batches == 2));
    CHECK((together[1].num_prefill_tokens == 2000 && together[2].num_gaps == 390));
  }
  // Room for a decode: two gaps, unless prompts waited behind the first batch.
  CHECK(gaps(prefill("", "10000.00", 0) + prefill("", "8000.00", 0)).size() == 4);
  const auto waited = gaps(prefill("", "10000.00", 500) + prefill("", "8000.00", 0));
  REQUIRE(waited.size() == 3);
  CHECK(is_ms(waited[1].gap_ns, 235));
  // Settings: a decode behind each batch; a batch that decodes itself.
  const std::string batches = prefill("", "10000.00", 500) + prefill("", "10000.00", 0);
  CHECK(gaps(batches, "server_args={'prefill_decode_interval': 1}\n").size() == 4);
  const auto mixed = gaps(batches, "server_args={'enable_mixed_chunk': True}\n");
  REQUIRE(mixed.size() == 4);
  CHECK((is_ms(mixed[1].gap_ns, 100) && is_ms(mixed[1].decode_ns, 10)));
  CHECK(mixed[3].num_gaps == 400);
}

TEST_CASE("a steady SGLang server has no slow decodes in its log", "[reports][log_diagnosis]") {
  for (const char* rate : {"2", "6", "12", "20"}) {
    for (const char* chunk : {"512", "2048", "8192"}) {
      for (const char* seed : {"1", "2", "3"}) {
        const std::vector<std::string> sets = {
            std::string("workload.arrivals.rate=") + rate,
            std::string("scheduler.chunked_prefill_size=") + chunk, std::string("seed=") + seed};
        INFO(sets[0] << ' ' << sets[1] << ' ' << sets[2]);
        const LogGaps gaps = gaps_of(write_log(kSglang, sets).log);
        INFO((gaps.notes.empty() ? "" : gaps.notes.front()));
        CHECK(gaps.slow.empty());
      }
    }
  }
}

TEST_CASE("retractions in an SGLang log are counted", "[reports][log_diagnosis]") {
  const Written written =
      write_log(kSglang, {"kv_cache.num_blocks=1000", "workload.arrivals.rate=20",
                          "scheduler.schedule_conservativeness=0.3"});
  REQUIRE(written.num_preempted > 1);
  const CachePressure pressure = cache_pressure(written.log);
  CHECK(pressure.num_preempted == written.num_preempted);
  CHECK(pressure.num_freed_tokens == written.num_freed_tokens);
  CHECK((pressure.num_lines > 0 && pressure.num_lines <= pressure.num_preempted));
  CHECK((pressure.highest_reserve_ratio > 0 && pressure.highest_reserve_ratio <= 1));
  CHECK(pressure.highest_usage.value() > 0.9);
  const auto notes = pressure_notes(pressure, written.log);
  REQUIRE_FALSE(notes.empty());
  CHECK(contains(notes[0],
                 "SGLang retracted requests " + std::to_string(written.num_preempted) + " times"));
  CHECK(contains(notes[0], "--schedule-conservativeness"));
  CHECK(contains(notes[0], "in lines " + std::to_string(pressure.span.first_line) + " to "));
  // With room for all there are none.
  const Written roomy = write_log(kSglang, {});
  CHECK(cache_pressure(roomy.log).num_preempted == 0);
  CHECK(pressure_notes(cache_pressure(roomy.log), roomy.log).empty());
}

TEST_CASE("preemptions in a vLLM log are counted, and what they cost", "[reports][log_diagnosis]") {
  const std::vector<std::string> vllm = {"scheduler.policy=vllm",
                                         "scheduler.max_num_batched_tokens=2048"};
  for (const char* seed : {"seed=8", "seed=9", "seed=10"}) {
    std::vector<std::string> changes = vllm;
    for (const char* change : {"kv_cache.num_blocks=900", "workload.num_requests=400",
                               "workload.output_tokens.median=400", seed}) {
      changes.emplace_back(change);
    }
    const Written written = write_log(kSglang, changes);
    REQUIRE(written.num_preempted > 10);
    const CachePressure pressure = cache_pressure(written.log);
    // The last seconds have no report.
    CHECK(pressure.num_preempted <= written.num_preempted);
    CHECK(is_near(static_cast<double>(pressure.num_preempted),
                  static_cast<double>(written.num_preempted), 0.2));
    REQUIRE(pressure.num_recomputed_tokens.has_value());
    INFO(seed << ": " << *pressure.num_recomputed_tokens << " +- "
              << pressure.recomputed_error_tokens << " of " << written.num_recomputed_tokens);
    CHECK(pressure.recomputed_error_tokens > 0);
    CHECK(std::abs(*pressure.num_recomputed_tokens - written.num_recomputed_tokens) <
          pressure.recomputed_error_tokens);
    CHECK(contains(pressure_notes(pressure, written.log)[0], "tokens (+-"));
  }
  const Written roomy = write_log(kSglang, vllm);
  REQUIRE(roomy.num_preempted == 0);
  CHECK(cache_pressure(roomy.log).num_recomputed_tokens == 0);
  CHECK(pressure_notes(cache_pressure(roomy.log), roomy.log).empty());
}

TEST_CASE("a prefix cache without room is named", "[reports][log_diagnosis]") {
  // Known answers: 60 % of 10,000 tokens were cached with room, 10 % of 20,000 without.
  const auto prefill = [](int num_computed, int num_cached, const char* usage) {
    return "[2026-01-02 03:04:0" + std::to_string(num_cached / 2000) +
           "] Prefill batch, #new-seq: 1, #new-token: " + std::to_string(num_computed) +
           ", #cached-token: " + std::to_string(num_cached) + ", token usage: " + usage +
           ", #running-req: 1, #queue-req: 0, #pending-token: 0, cuda graph: False, input "
           "throughput (token/s): 1000.00\n";
  };
  const auto pressure_of = [](const std::string& text, EngineLog& log) {
    std::istringstream in(text);
    log = read_engine_log(in, "x.log");
    return cache_pressure(log);
  };
  EngineLog log;
  const CachePressure pressure =
      pressure_of(prefill(4000, 6000, "0.50") + prefill(18000, 2000, "0.95"), log);
  REQUIRE(pressure.thrash.has_value());
  CHECK(is_near(pressure.thrash->hit_rate_with_room, 0.6, 1e-9));
  CHECK(is_near(pressure.thrash->hit_rate_when_full, 0.1, 1e-9));
  CHECK(pressure.thrash->num_tokens == 10000);
  CHECK((pressure.thrash->span.first_line == 2 && pressure.thrash->span.first_time == "03:04:01"));
  CHECK(pressure_notes(pressure, log)[0] ==
        "While at least 90 % of the KV cache was in use (in line 2, at 03:04:01), the prefix cache "
        "had 10.0 % of the prompt tokens, else 60.0 %. At that rate 10,000 fewer prompt tokens "
        "would have been computed, if the prompts were alike. More KV memory or fewer requests at "
        "once keeps the prefixes.");
  // As good without room, never full, too little to say: nothing.
  CHECK_FALSE(pressure_of(prefill(4000, 6000, "0.50") + prefill(4200, 5800, "0.95"), log).thrash);
  CHECK_FALSE(pressure_of(prefill(4000, 6000, "0.50") + prefill(9000, 1000, "0.89"), log).thrash);
  CHECK_FALSE(pressure_of(prefill(1000, 3000, "0.50") + prefill(9000, 1000, "0.95"), log).thrash);
  // vLLM: 10 s of 800 computed tokens a second at 60 % are 20,000; of 1,800 at 10 % as well.
  const auto report = [](int second, double rate, const char* usage, const char* hits) {
    return "INFO 01-02 03:04:" + std::to_string(second) +
           " Engine 000: Avg prompt throughput: " + std::to_string(rate) +
           " tokens/s, Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
           "GPU KV cache usage: " +
           usage + "%, Prefix cache hit rate: " + hits + "%\n";
  };
  const CachePressure vllm =
      pressure_of(report(10, 800, "50.0", "60.0") + report(20, 1800, "99.0", "10.0"), log);
  REQUIRE(vllm.thrash.has_value());
  CHECK(vllm.thrash->num_tokens == 10000);
  CHECK_FALSE(vllm.num_recomputed_tokens.has_value());
}

// METRONOME_UPDATE_GOLDENS=1 writes them again.
TEST_CASE("the logs of the guide are those of their scenarios", "[reports][log_diagnosis]") {
  struct Case {
    const char* scenario;
    const char* stalls;
    const char* full;
  };
  for (const Case& one : {Case{"diagnose_vllm", "logs/vllm.log", "logs/vllm_full.log"},
                          Case{"diagnose_sglang", "logs/sglang.log", "logs/sglang_full.log"}}) {
    INFO(one.scenario);
    // Other requests than the scenario's, which only describes them.
    const ScenarioFile file =
        load_scenario(source_dir() + "/scenarios/" + one.scenario + ".yaml", {}, 7);
    REQUIRE(file.variants.size() == 2);
    check_expected(one.stalls, write_log(file.variants[0], 1).text);
    const Written full = write_log(file.variants[1], 1);
    check_expected(one.full, full.text);
    // The guide's sentence about it.
    const CachePressure pressure = cache_pressure(full.log);
    CHECK(pressure.num_preempted == full.num_preempted);
    if (full.log.dialect->form == LogForm::Batches) continue;
    CHECK(std::abs(pressure.num_recomputed_tokens.value() - full.num_recomputed_tokens) <=
          pressure.recomputed_error_tokens);
  }
}

TEST_CASE("diagnose replays a log with its own settings, or with others", "[cli][log_diagnosis]") {
  const auto diagnose_log = [](const std::string& engine, const std::string& options) {
    return run_metronome("diagnose tests/expected/logs/" + engine + ".log --scenario scenarios/" +
                         "diagnose_" + engine + ".yaml --variant stalls " + options);
  };
  // The scenario says 6,000 blocks and chunks of 8,192; the flags come before the log's settings.
  const CommandResult mixed =
      diagnose_log("sglang", "--json --flags '--enable-mixed-chunk --chunked-prefill-size 2048'");
  INFO(mixed.err);
  REQUIRE(mixed.exit_code == 0);
  const Json what_if = Json::parse(mixed.out)[0].at("what_if");
  CHECK(what_if.at("baseline").at("keeps_goal") == true);
  const CommandResult own = diagnose_log("sglang", "--json");
  const Json change = Json::parse(own.out)[0].at("what_if");
  CHECK(change.at("baseline").at("keeps_goal") == false);
  // Only the engine's own flags are printed.
  REQUIRE(change.at("flags").size() == 1);
  CHECK(change.at("flags")[0].at("engine") == "SGLang");
  CHECK(change.at("flags")[0].at("add")[0] == "--enable-mixed-chunk");
  bool has_interval = false;
  for (std::size_t i = 0; i < change.at("tried").size(); ++i) {
    for (std::size_t j = 0; j < change.at("tried")[i].at("set").size(); ++j) {
      const std::string set = change.at("tried")[i].at("set")[j].get<std::string>();
      CHECK_FALSE(set.starts_with("scheduler.policy"));
      has_interval = has_interval || set == "scheduler.prefill_decode_interval=1";
    }
  }
  CHECK(has_interval);
  const CommandResult other = run_metronome(
      "diagnose tests/expected/logs/sglang.log --no-replay --scenario "
      "scenarios/engines.yaml --variant vllm --flags '--max-running-requests 8'");
  INFO(other.err << other.out);
  CHECK(other.exit_code == 0);  // the variant's policy gives way to the log's
  CHECK(contains(other.out, "set in the log or by --flags: "));
  CHECK(contains(other.out, "--max-running-requests 8"));
  const CommandResult full =
      run_metronome("diagnose tests/expected/logs/vllm_full.log --json --target-itl 200");
  CHECK(Json::parse(full.out)[0].at("cache_pressure").at("preempted") == 12);
}

TEST_CASE("a flag that the replay cannot have is a note", "[cli][log_diagnosis]") {
  const std::string flags = " --flags '--prefix-cache-retention-interval 4096' --target-itl 5000";
  for (const char* scenario : {"", " --scenario scenarios/diagnose_vllm.yaml --variant stalls"}) {
    const CommandResult result =
        run_metronome("diagnose tests/expected/logs/vllm.log" + std::string(scenario) + flags);
    INFO(result.err << result.out);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "Not simulated: the retention interval of the prefix cache."));
  }
}

TEST_CASE("what diagnose cannot take of a log is one line and exit code 2",
          "[cli][log_diagnosis]") {
  const auto refused = [](const std::string& arguments, const std::string& message) {
    const CommandResult result = run_metronome("diagnose " + arguments);
    INFO(arguments << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(contains(result.err, message));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  };
  const std::string log = "tests/expected/logs/sglang.log ";
  const std::string scenario = "--scenario scenarios/diagnose_sglang.yaml --variant stalls ";
  refused(log + "--engine trt",
          "--engine: 'trt' is not valid; allowed: vllm, sglang, tensorrt_llm");
  refused(log + "--engine vllm", "sglang.log: is not a vLLM log; allowed: ");
  refused(log + "--flags '--tp-size 2'",
          "--flags: the log has step times for a tensor parallel size of 1 alone");
  refused(log + scenario + "--flags '--max-num-seqs 2'",
          "'--max-num-seqs' is no flag of SGLang; allowed: ");
  refused(log + scenario + "--flags '--max-running-requests 0'",
          "a setting of tests/expected/logs/sglang.log or of --flags: --set "
          "variants.stalls.engine.max_num_seqs: 0 is out of range; allowed: ");
  refused("scenarios/quickstart.yaml",
          "quickstart.yaml: is not a vLLM, SGLang, TensorRT-LLM "
          "or llama-server log; allowed: ");
  refused(log + "--scenario scenarios/diagnose_sglang.yaml",
          "has several variants; allowed: one of them with --variant: stalls, full");
}

}  // namespace TEST_FILE
