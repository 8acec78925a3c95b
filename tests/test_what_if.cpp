// Replays under other settings: they repeat the record, and the change that is named is the
// smallest one, as runs of the scenario itself show.
#include <nlohmann/json.hpp>

#include "reports/result_reader.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tools/what_if.h"

using namespace metronome;
using namespace metronome::testing;
using Json = nlohmann::json;

namespace {

// Long prompts among short ones, one budget for both.
constexpr const char* kLongPrompts =
    "--set workload.prompt_tokens.max=4000 --set engine.max_model_len=8192 "
    "--set workload.num_requests=60 --set workload.arrivals.rate=20 "
    "--set workload.output_tokens.value=60 ";

struct Place {
  ScratchFolder scratch;
  std::string file = scratch.write("small.yaml", kSmallScenario);

  StoredRun run(const std::string& options, const std::string& name = "out") const {
    const std::string out = scratch.path() + "/" + name;
    const CommandResult result =
        run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return read_result(out);
  }
};

WhatIf find(const StoredRun& run, double target_ms, const std::string& hardware = "") {
  return find_smallest_change(
      run, target_ms, hardware, [](const std::string&) {}, [](const RunProgress&) { return true; });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the smallest change is what runs of the scenario itself show", "[tools][whatif]") {
  const Place place;
  const std::string options =
      std::string(kLongPrompts) + "--set scheduler.max_num_batched_tokens=4096 ";
  const StoredRun recorded = place.run(options);
  // The largest power of two that keeps the target, by running one after the other.
  constexpr double kTargetMs = 12;
  REQUIRE(recorded.result.summary.itl.max_ms > kTargetMs);
  int budget = 2048;
  Summary better;
  for (;; budget /= 2) {
    REQUIRE(budget >= 64);
    const std::string smaller = "--set scheduler.max_num_batched_tokens=" + std::to_string(budget);
    better = place.run(kLongPrompts + smaller, "better").result.summary;
    if (better.itl.max_ms <= kTargetMs) break;
  }
  const WhatIf what_if = find(recorded, kTargetMs);
  CHECK(what_if.is_same_run);
  CHECK(what_if.notes.empty());
  CHECK_FALSE(what_if.baseline.keeps_all);
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  CHECK(chosen.changes ==
        std::vector<std::string>{"scheduler.max_num_batched_tokens=" + std::to_string(budget)});
  CHECK(chosen.keeps_all);
  CHECK(chosen.summary.itl.max_ms == better.itl.max_ms);
  CHECK(chosen.summary.ttft.p99_ms == better.ttft.p99_ms);
  CHECK(chosen.summary.output_throughput == better.output_throughput);
  const std::vector<EngineFlags> flags = changed_flags(what_if.baseline.scenario, chosen.scenario);
  CHECK(flags[0].flags ==
        std::vector<std::string>{"--max-num-batched-tokens " + std::to_string(budget)});
  CHECK(flags[1].flags ==
        std::vector<std::string>{"--chunked-prefill-size " + std::to_string(budget)});
  const std::string text = what_if_text(what_if, recorded, 100);
  CHECK(contains(text, "The simulator repeats the recorded run exactly.\n"));
  CHECK(contains(text, "keeps every gap within 12.0 ms: " + chosen.changes[0] + "\n"));
}

TEST_CASE("every kind of workload is replayed as it was", "[tools][whatif]") {
  for (const char* options :
       {"--set workload.arrivals.process=closed_loop --set workload.arrivals.concurrency=6",
        "--set scheduler.policy=vllm --set engine.async_depth=2 --set "
        "workload.prefix.kind=groups --set workload.prefix.num_groups=3 --set "
        "workload.prefix.prefix_tokens=200",
        "--set scheduler.policy=sglang --set kv_cache.num_blocks=300",
        "--set workload.arrivals.process=burst", "--set kv_cache.backend=slotted"}) {
    INFO(options);
    const Place place;
    const StoredRun run = place.run(options);
    const WhatIf what_if = find(run, 1e-3);
    CHECK(what_if.is_same_run);
    CHECK(what_if.notes.empty());
    CHECK(what_if.baseline.summary.itl.p99_ms == run.result.summary.itl.p99_ms);
  }
}

TEST_CASE("without its trace a run is replayed from its record", "[tools][whatif]") {
  const Place place;
  std::string trace;
  for (int i = 0; i < 30; ++i) {
    trace += "{\"timestamp\": " + std::to_string(40 * i) +
             ", \"input_length\": 500, \"output_length\": " + std::to_string(20 + i) +
             ", \"hash_ids\": [" + std::to_string(i) + "]}\n";
  }
  const std::string path = place.scratch.write("trace.jsonl", trace);
  const StoredRun run =
      place.run("--set workload.trace.file='" + path + "' --set workload.trace.format=mooncake");
  std::filesystem::remove(path);
  const WhatIf what_if = find(run, 1e-3);
  CHECK(what_if.is_same_run);
  REQUIRE(what_if.notes.size() == 1);
  CHECK(contains(what_if.notes[0], "Arrivals and lengths are the record's"));
}

TEST_CASE("where the policy has no chunks, another policy is named", "[tools][whatif]") {
  const Place place;
  const StoredRun run = place.run(std::string(kLongPrompts) + "--set scheduler.policy=continuous");
  const WhatIf what_if = find(run, 12);
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  CHECK(chosen.keeps_all);
  REQUIRE(chosen.changes.size() == 2);
  CHECK(chosen.changes[0].starts_with("scheduler.policy="));
  for (const Trial& trial : what_if.trials) {  // none that keeps it has fewer keys
    if (trial.keeps_all) CHECK(trial.changes.size() >= 2);
  }
}

TEST_CASE("what no change can do is said", "[tools][whatif]") {
  const Place place;
  const StoredRun run = place.run(kLongPrompts);
  const WhatIf hopeless = find(run, 0.5);
  CHECK_FALSE(hopeless.baseline.keeps_all);
  for (const Trial& trial : hopeless.trials) CHECK_FALSE(trial.keeps_all);
  CHECK(contains(what_if_text(hopeless, run, 100),
                 "No change that was tried keeps every gap within 0.5 ms."));
  const WhatIf idle = find(run, 1e6);
  CHECK(idle.baseline.keeps_all);
  CHECK(idle.trials.empty());
  CHECK(contains(what_if_text(idle, run, 100), "no gap is longer than 1,000,000.0 ms"));
}

TEST_CASE("a measured run needs hardware to be simulated", "[cli][whatif]") {
  const Place place;
  place.scratch.write("real.yaml",
                      "seed: 1\nmodel: tiny-llama\nengine: {max_num_seqs: 4, max_model_len: 512}\n"
                      "kv_cache: {num_blocks: 200}\nworkload:\n  num_requests: 6\n"
                      "  arrivals: {process: burst}\n"
                      "  prompt_tokens: {distribution: fixed, value: 100}\n"
                      "  output_tokens: {distribution: fixed, value: 8}\n");
  const std::string out = place.scratch.path() + "/real";
  const CommandResult run = run_metronome("run '" + place.scratch.path() +
                                          "/real.yaml' --backend=cpu -q --out '" + out + "'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const std::string diagnose = "diagnose '" + out + "' --target-itl 0.001 ";
  const CommandResult without = run_metronome(diagnose);
  INFO(without.err);
  REQUIRE(without.exit_code == 0);
  CHECK(contains(without.out, "Not replayed: the run names no hardware"));
  const CommandResult with = run_metronome(diagnose + "--hardware h200");
  INFO(with.err);
  REQUIRE(with.exit_code == 0);
  CHECK(contains(with.out, "Simulated on h200 with its own settings the run has an ITL p50 of"));
  const CommandResult bad = run_metronome(diagnose + "--hardware h2000");
  CHECK(bad.exit_code == 2);
  CHECK(contains(bad.err, "h2000"));
  CHECK_FALSE(contains(run_metronome(diagnose + "--no-replay").out, "what if"));
}

TEST_CASE("diagnose tells what to change, for people and programs", "[cli][whatif]") {
  const Place place;
  const StoredRun run = place.run(std::string(kLongPrompts) +
                                  "--set scheduler.policy=vllm --set slo.itl_ms=12 --set "
                                  "scheduler.max_num_batched_tokens=4096");
  const CommandResult text = run_metronome("diagnose '" + run.folder + "'");
  INFO(text.err);
  REQUIRE(text.exit_code == 0);
  CHECK(contains(text.out, "\nflags that change\n  vLLM: --max-num-batched-tokens "));
  const CommandResult json = run_metronome("diagnose '" + run.folder + "' --json");
  REQUIRE(json.exit_code == 0);
  const Json parsed = Json::parse(json.out);
  const Json& what_if = parsed.at(0).at("what_if");
  CHECK(what_if.at("target_itl_ms") == 12.0);
  CHECK(what_if.at("repeats_the_run") == true);
  CHECK(what_if.at("change").at("keeps_every_gap") == true);
  CHECK(what_if.at("change").at("max_itl_ms") <= 12.0);
  CHECK(what_if.at("flags").at(0).at("engine") == "vLLM");
  CHECK(what_if.at("flags").at(0).at("notes").empty());
  CHECK(json.out == run_metronome("diagnose '" + run.folder + "' --json").out);
  // No limit is known, or none is broken.
  const StoredRun calm = place.run("", "calm");
  CHECK(contains(run_metronome("diagnose '" + calm.folder + "'").out, "give --target-itl MS"));
  CHECK(contains(run_metronome("diagnose '" + calm.folder + "' --target-itl 9999").out,
                 "there is nothing to change"));
}
