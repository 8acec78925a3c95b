// SPDX-License-Identifier: Apache-2.0
// Replays under other settings: they repeat the record, and the change that is named is the
// smallest one, as runs of the scenario itself show.
#include <algorithm>
#include <fmt/core.h>

#include "core/base/json.h"
#include "reports/files/result_reader.h"
#include "study/what_if/what_if.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/study/what_if/what_if_place.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("the change is replayed with the fastest and the slowest steps", "[tools][whatif]") {
  const Place place;
  const StoredRun recorded =
      place.run(std::string(kLongPrompts) + "--set scheduler.max_num_batched_tokens=4096 ");
  const WhatIf what_if = find(recorded, 12);
  const Sureness& sureness = what_if.sureness;
  REQUIRE(sureness.accuracy.has_value());
  CHECK(what_if.step_error == sureness.accuracy->mean_tpot_error);
  REQUIRE((sureness.fast && sureness.slow && what_if.chosen));
  const double longest = what_if.trials[*what_if.chosen].summary.itl.max_ms;
  CHECK(sureness.fast->summary.itl.max_ms < longest);
  CHECK(sureness.slow->summary.itl.max_ms > longest);
  // The largest budget within 12 ms leaves no room for steps that take a tenth longer.
  CHECK(sureness.fast->keeps_all);
  CHECK_FALSE(sureness.slow->keeps_all);
  CHECK(contains(what_if_text(what_if, 1000), "times as long it is broken: longest gap "));
  if (sureness.safe) {
    CHECK(std::find(what_if.front.begin(), what_if.front.end(), *sureness.safe) !=
          what_if.front.end());
  }
}

TEST_CASE("the smallest change is what runs of the scenario itself show", "[tools][whatif]") {
  const Place place;
  const std::string options =
      std::string(kLongPrompts) + "--set scheduler.max_num_batched_tokens=4096 ";
  const StoredRun recorded = place.run(options);
  // The largest multiple of 64 that keeps the target, by running one after the other.
  constexpr double kTargetMs = 12;
  REQUIRE(recorded.result.summary.itl.max_ms > kTargetMs);
  int budget = 4096 - 64;
  Summary better;
  for (;; budget -= 64) {
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
  CHECK(chosen.changes == std::vector<Setting>{{"scheduler.max_num_batched_tokens", budget}});
  CHECK((budget & (budget - 1)) != 0);  // no power of two, which is tried first
  CHECK(what_if.next_failing == budget + 64);
  CHECK(what_if.num_replays <= 200);
  CHECK(chosen.keeps_all);
  CHECK(chosen.summary.itl.max_ms == better.itl.max_ms);
  CHECK(chosen.summary.ttft.p99_ms == better.ttft.p99_ms);
  CHECK(chosen.summary.output_throughput == better.output_throughput);
  const std::vector<FlagChanges> flags = changed_flags(what_if.baseline.scenario, chosen.scenario);
  for (std::size_t e = 0; e < 2; ++e) {
    const std::string flag = e == 0 ? "--max-num-batched-tokens " : "--chunked-prefill-size ";
    CHECK((flags[e].added.empty() && flags[e].removed.empty()));
    REQUIRE(flags[e].changed.size() == 1);
    CHECK(flags[e].changed[0].before == flag + "4096");
    CHECK(flags[e].changed[0].after == flag + std::to_string(budget));
  }
  const std::string text = what_if_text(what_if, 1000);
  CHECK(contains(text, "The simulator repeats the recorded run exactly.\n"));
  CHECK(contains(text, "keeps every gap within 12 ms: " + chosen.changes[0].text()));
  CHECK(contains(text, fmt::format("(with {} it does not; steps with prompts", budget + 64)));
  CHECK(contains(text, "tried in " + std::to_string(what_if.num_replays) + " replays. "));
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
  CHECK(contains(what_if.notes[0], "Arrivals and lengths come from the record"));
}

TEST_CASE("a trace that the scenario names is found from where the run was started",
          "[cli][whatif]") {
  const ScratchFolder scratch;
  scratch.write(
      "trace.jsonl",
      "{\"timestamp\": 0, \"input_length\": 500, \"output_length\": 9, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 9, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [1, 2]}\n");
  scratch.write("sub/case.yaml",
                "model: llama-3.2-1b\nhardware: h200\nworkload: {trace: ../trace.jsonl}\n");
  const auto metronome = [&scratch](const std::string& arguments) {
    const CommandResult result = run_metronome(arguments, "cd '" + scratch.path() + "' && ");
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  metronome("run sub/case.yaml -q --out out");
  const Json result = Json::parse(read_text_file(scratch.path() + "/out/result.json"));
  CHECK(result.at("config").at("workload").at("trace").at("file") == "trace.jsonl");
  CHECK_FALSE(contains(metronome("diagnose out --target-itl 0.001"), "Arrivals and lengths"));
  // The resolved config is a scenario.
  scratch.write("saved.yaml", result.at("config").dump());
  metronome("run saved.yaml -q --out again");
  const Json again = Json::parse(read_text_file(scratch.path() + "/again/result.json"));
  CHECK(again.at("digest") == result.at("digest"));
  CHECK(again.at("config") == result.at("config"));
  // From elsewhere it is not there, and that is said.
  CHECK(contains(run_metronome("diagnose '" + scratch.path() + "/out' --target-itl 0.001").out,
                 "the trace cannot be read: trace.jsonl."));
}

TEST_CASE("against preemption more KV blocks are named", "[cli][whatif]") {
  const Place place;
  const StoredRun run =
      place.run(std::string(kLongAnswers) + "--set kv_cache.num_blocks=200 --set slo.itl_ms=20");
  REQUIRE(run.result.summary.num_preemptions > 0);
  REQUIRE(run.result.summary.itl.max_ms > 20);
  const WhatIf what_if = find(run, 20);
  INFO(what_if_text(what_if, 100));
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  CHECK(chosen.keeps_all);
  REQUIRE(what_if.next_failing.has_value());
  const std::int64_t blocks = *what_if.next_failing / 64 * 64 + 64;
  CHECK(chosen.changes == std::vector<Setting>{{"kv_cache.num_blocks", blocks}});
  const auto longest_ms = [&](std::int64_t num_blocks) {
    return place
        .run(kLongAnswers + ("--set kv_cache.num_blocks=" + std::to_string(num_blocks)), "b")
        .result.summary.itl.max_ms;
  };
  CHECK(longest_ms(blocks) <= 20);
  CHECK(longest_ms(*what_if.next_failing) > 20);
  const CommandResult text = run_metronome("diagnose '" + run.folder + "'");
  INFO(text.out);
  CHECK(contains(text.out, "longest stalls: the KV cache was full"));
  CHECK(contains(text.out, "change --num-gpu-blocks-override 200 to --num-gpu-blocks-override " +
                               std::to_string(blocks) + "\n"));
  CHECK(contains(text.out, "or drop --num-gpu-blocks-override: without it the memory gives "));
  CHECK(contains(text.out, "change --max-total-tokens"));
  CHECK(contains(text.out, "or drop --max-total-tokens: the memory gives the KV blocks"));
}

TEST_CASE("a smaller budget takes fewer of the sequences that vLLM's server chose",
          "[tools][whatif]") {
  Place place;
  place.file = place.scratch.write("serve.yaml", replaced(kSmallScenario, "max_num_seqs: 8, ", ""));
  const std::string options = std::string(kLongPrompts) + "--set scheduler.policy=vllm ";
  const StoredRun recorded = place.run(options);
  const WhatIf what_if = find(recorded, 4);
  CHECK(what_if.is_same_run);
  CHECK(what_if.baseline.scenario.engine.max_num_seqs == 1024);
  INFO(what_if_text(what_if, 200));
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  REQUIRE(chosen.changes.size() == 1);
  CHECK(chosen.changes[0].text().starts_with("scheduler.max_num_batched_tokens="));
  const std::int64_t budget = *chosen.scenario.scheduler.max_num_batched_tokens;
  CHECK(budget < 1024);
  CHECK(chosen.scenario.engine.max_num_seqs == budget);
  const FlagChanges flags = chosen_flags(what_if).front();
  CHECK(flags.changed.size() == 1);  // what its server does by itself is no flag
  const std::string lowered = "the server itself goes from --max-num-seqs 1024 to --max-num-seqs " +
                              std::to_string(budget) + ", as neither is set (";
  CHECK(std::any_of(flags.notes.begin(), flags.notes.end(),
                    [&](const std::string& note) { return note.starts_with(lowered); }));
  const Summary again =
      place.run(options + "--set " + chosen.changes[0].text(), "again").result.summary;
  CHECK(again.itl.max_ms == chosen.summary.itl.max_ms);
  CHECK(again.output_throughput == chosen.summary.output_throughput);
}

TEST_CASE("SGLang's own settings are tried, and cost what runs with them do", "[tools][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=sglang --set sampling.ignore_eos=false "
      "--set kv_cache.num_blocks=200 --set "
      "scheduler.schedule_conservativeness=0 --set workload.output_tokens.value=400 --set "
      "workload.prompt_tokens.max=500 --set workload.arrivals.rate=60 ";
  const StoredRun run = place.run(options);
  REQUIRE(run.result.summary.num_preemptions > 0);
  const WhatIf what_if = find(run, 1);
  INFO(what_if_text(what_if, 200));
  CHECK(what_if.is_same_run);
  for (const char* setting :
       {"scheduler.schedule_conservativeness=1.3",
        "scheduler.prefill_decode_interval=", "scheduler.enable_mixed_chunk=true",
        "scheduler.max_prefill_tokens=", "scheduler.prefill_max_requests="}) {
    INFO(setting);
    const auto trial = std::find_if(
        what_if.trials.begin(), what_if.trials.end(),
        [setting](const Trial& one) { return one.changes[0].text().starts_with(setting); });
    REQUIRE(trial != what_if.trials.end());
    std::string sets;
    for (const Setting& change : trial->changes) sets += "--set " + change.text() + " ";
    const Summary again = place.run(options + sets, "again").result.summary;
    CHECK(again.itl.max_ms == trial->summary.itl.max_ms);
    CHECK(again.output_throughput == trial->summary.output_throughput);
  }
  // For one engine alone, no other policy is tried and no other engine's flags are shown.
  const WhatIf own = find(run, {.goals = {.itl_ms = 1}, .engine = "SGLang"});
  for (const Trial& trial : own.trials) CHECK(trial.scenario.scheduler.policy == "sglang");
  CHECK_FALSE(contains(what_if_text(own, 200), "  vLLM\n"));
  CHECK(contains(what_if_text(own, 200), "  SGLang"));
}

TEST_CASE("fewer drafts are tried, at the acceptance of the run", "[tools][whatif]") {
  const Place place;
  const std::string options =
      std::string(kLongPrompts) +
      "--set scheduler.policy=vllm --set scheduler.max_num_batched_tokens=256 "
      "--set speculative.method=eagle --set speculative.num_speculative_tokens=3 "
      "--set 'speculative.acceptance={kind: length, mean_length: [1.5]}' ";
  const StoredRun run = place.run(options);
  const WhatIf what_if = find(run, 1);
  INFO(what_if_text(what_if, 200));
  const auto trial = std::find_if(
      what_if.trials.begin(), what_if.trials.end(),
      [](const Trial& one) { return one.scenario.speculative.num_speculative_tokens < 3; });
  REQUIRE(trial != what_if.trials.end());
  REQUIRE(trial->changes.size() == 2);
  CHECK(trial->changes[0].text() == "speculative.acceptance.mean_length_tokens=3");
  CHECK(trial->changes[1].text().starts_with("speculative.num_speculative_tokens="));
  const std::string again =
      "--set " + trial->changes[0].text() + " --set " + trial->changes[1].text();
  const Summary direct = place.run(options + again, "again").result.summary;
  CHECK(direct.itl.max_ms == trial->summary.itl.max_ms);
  CHECK(direct.tpot.mean_ms == trial->summary.tpot.mean_ms);
  CHECK(direct.tpot.mean_ms <= 1.1 * what_if.baseline.summary.tpot.mean_ms);
}

TEST_CASE("a share of the gaps is a goal of its own", "[cli][whatif]") {
  const Place place;
  const StoredRun run = place.run(std::string(kLongAnswers) +
                                  "--set kv_cache.num_blocks=150 "
                                  "--set scheduler.max_num_batched_tokens=512");
  const Distribution& itl = run.result.summary.itl;
  const double target = itl.p99_ms + 0.01;
  REQUIRE(itl.max_ms > target);
  const WhatIf kept = find(run, {.goals = {.itl_ms = target, .itl_share = 0.99}});
  CHECK(kept.is_kept());
  CHECK(kept.trials.empty());
  CHECK(contains(what_if_text(kept, 1000), "the run keeps 99 % of the gaps within "));
  const WhatIf every = find(run, target);
  CHECK_FALSE(every.is_kept());
  if (every.chosen) {
    CHECK(every.trials[*every.chosen].summary.itl.max_ms < itl.max_ms);
    CHECK(every.trials[*every.chosen].summary.itl.p99_ms <= 2 * itl.p99_ms);
  }
}

TEST_CASE("where the policy has no chunks, another policy is named", "[tools][whatif]") {
  const Place place;
  const StoredRun run = place.run(std::string(kLongPrompts) + "--set scheduler.policy=continuous");
  const WhatIf what_if = find(run, 12);
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  CHECK(chosen.keeps_all);
  REQUIRE(chosen.changes.size() == 2);
  CHECK(chosen.changes[0].text().starts_with("scheduler.policy="));
  for (const Trial& trial : what_if.trials) {  // none that keeps it has fewer keys
    if (trial.keeps_all) CHECK(trial.changes.size() >= 2);
  }
  // vLLM counts its null block, continuous has none: that is no change of the cache's size.
  for (const FlagChanges& flags : changed_flags(what_if.baseline.scenario, chosen.scenario)) {
    INFO(flags.engine);
    for (const std::string& flag : flags.added) CHECK_FALSE(contains(flag, "blocks"));
    for (const auto& [before, after] : flags.changed) {
      CHECK_FALSE((contains(after, "blocks") || contains(after, "total-tokens")));
    }
    CHECK(flags.removed.empty());
  }
}

TEST_CASE("a count between two powers of two is found, too", "[tools][whatif]") {
  // Whole prompts in bursts: what helps is how many requests run at once.
  const Place place;
  const std::string options =
      "--set scheduler.policy=continuous --set workload.arrivals.process=gamma "
      "--set workload.arrivals.burstiness=0.1 --set workload.num_requests=100 "
      "--set engine.max_num_seqs=48 --set workload.prompt_tokens.min=1400 "
      "--set workload.output_tokens.value=40 --set slo.ttft_ms=60000 ";
  const StoredRun run = place.run(options);
  const double target = run.result.summary.itl.max_ms * 0.7;
  // For one engine alone: no other policy is tried.
  const WhatIf what_if = find(run, {.goals = {.itl_ms = target}, .engine = "SGLang"});
  REQUIRE(what_if.chosen.has_value());
  const Trial& chosen = what_if.trials[*what_if.chosen];
  INFO(what_if_text(what_if, 100));
  for (const Trial& trial : what_if.trials) {
    INFO(trial.changes.back().text());
    // Each is what a run with its settings shows.
    std::string sets;
    for (const Setting& change : trial.changes) sets += "--set " + change.text() + " ";
    const Summary summary = place.run(options + sets, "again").result.summary;
    CHECK(summary.itl.max_ms == trial.summary.itl.max_ms);
    CHECK(summary.output_throughput == trial.summary.output_throughput);
  }
  REQUIRE(what_if.next_failing.has_value());
  CHECK(chosen.changes == std::vector<Setting>{{"engine.max_num_seqs", *what_if.next_failing - 1}});
  const std::string key = chosen.changes.back().key;
  std::string sets;
  for (const Setting& change : chosen.changes) sets += "--set " + change.text() + " ";
  sets += "--set " + key + "=" + std::to_string(*what_if.next_failing);
  CHECK(place.run(options + sets, "next").result.summary.itl.max_ms > target);
}

TEST_CASE("what no change can do is said", "[tools][whatif]") {
  const Place place;
  const StoredRun run = place.run(kLongPrompts);
  const WhatIf hopeless = find(run, 0.5);
  CHECK_FALSE(hopeless.baseline.keeps_all);
  for (const Trial& trial : hopeless.trials) CHECK_FALSE(trial.keeps_all);
  CHECK(contains(what_if_text(hopeless, 100), "No tried change keeps every gap within 0.5 ms."));
  const WhatIf idle = find(run, 1e6);
  CHECK(idle.baseline.keeps_all);
  CHECK(idle.trials.empty());
  CHECK(contains(what_if_text(idle, 100), "the run keeps every gap within 1,000,000 ms"));
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
  CHECK(contains(with.out, "Simulated on h200 with its own settings, the run has an ITL p50 of"));
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
  CHECK(
      contains(text.out, "current settings\n  vLLM\n    change --max-num-batched-tokens 4096 to "));
  const CommandResult json = run_metronome("diagnose '" + run.folder + "' --json");
  REQUIRE(json.exit_code == 0);
  const Json parsed = Json::parse(json.out);
  const Json& what_if = parsed.at(0).at("what_if");
  CHECK(what_if.at("goal").at(0).at("at_most") == 12.0);
  CHECK(what_if.at("goal").at(0).at("key") == "slo.itl_ms");
  CHECK(what_if.at("repeats_the_run") == true);
  CHECK(what_if.at("change").at("keeps_goal") == true);
  CHECK(what_if.at("change").at("max_itl_ms").get<double>() <= 12.0);
  CHECK(what_if.at("flags").at(0).at("engine") == "vLLM");
  CHECK(what_if.at("flags").at(0).at("notes").empty());
  CHECK(what_if.at("flags").at(0).at("add").empty());
  CHECK(what_if.at("flags").at(0).at("remove").empty());
  CHECK(what_if.at("flags").at(0).at("change").at(0).at("from") == "--max-num-batched-tokens 4096");
  CHECK(what_if.at("scenario").is_null());
  CHECK(what_if.at("replays").get<int>() >= 3);
  CHECK(json.out == run_metronome("diagnose '" + run.folder + "' --json").out);
  // No limit is known, or none is broken.
  const StoredRun calm = place.run("", "calm");
  CHECK(contains(run_metronome("diagnose '" + calm.folder + "'").out, "There is no limit"));
  CHECK(contains(run_metronome("diagnose '" + calm.folder + "' --target-itl 9999").out,
                 "there is nothing to change"));
}

namespace {

// Iterations of four decodes, now and then with a prompt of 3,000 tokens beside them.
std::string engine_log() {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    const bool has_prompt = i % 20 == 19;
    text += "Iteration(" + std::to_string(i) + "): " + (has_prompt ? "1" : "0") +
            " context requests, " + (has_prompt ? "3000" : "0") +
            " context tokens, 4 generation requests, 4 generation tokens, iteration elapsed "
            "time: " +
            (has_prompt ? "40.0" : "2.5") + " ms\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a log is replayed by the scenario that describes it", "[cli][whatif]") {
  const Place place;
  const std::string log = place.scratch.write("vllm.log", engine_log());
  const std::string file = place.scratch.write(
      "served.yaml",
      "seed: 3\nmodel: llama-3.2-1b\nhardware: h200\nslo: {itl_ms: 12}\n"
      "engine: {max_num_seqs: 8, max_model_len: 8192}\n"
      "scheduler: {policy: vllm, max_num_batched_tokens: 4096}\n"
      "workload:\n  num_requests: 60\n  arrivals: {process: poisson, rate: 20}\n"
      "  prompt_tokens: {distribution: uniform, min: 10, max: 4000}\n"
      "  output_tokens: {distribution: fixed, value: 60}\n");
  const std::string diagnose = "diagnose '" + log + "' --scenario '" + file + "' ";
  const CommandResult text = run_metronome(diagnose);
  INFO(text.err << text.out);
  REQUIRE(text.exit_code == 0);
  CHECK(contains(text.out, "over the limit, 12 ms"));  // the scenario's SLO
  CHECK(contains(text.out, "what if: the scenario's requests with other settings, simulated\n"));
  CHECK(contains(text.out, "they are 2.5 and 40 ms."));
  CHECK(contains(text.out, "The smallest change that keeps every gap within 12 ms: "));
  CHECK(contains(text.out, "change --max-num-batched-tokens 4096 to --max-num-batched-tokens "));
  CHECK_FALSE(contains(text.out, "linear estimate"));
  // The findings are those of the scenario's own run.
  const std::string out = place.scratch.path() + "/served";
  REQUIRE(run_metronome("run '" + file + "' -q --out '" + out + "'").exit_code == 0);
  const WhatIf of_run = find(read_result(out), 12);
  const CommandResult json = run_metronome(diagnose + "--json");
  REQUIRE(json.exit_code == 0);
  const Json what_if = Json::parse(json.out).at(0).at("what_if");
  CHECK(what_if.at("scenario") == file);
  CHECK(what_if.at("repeats_the_run") == false);
  CHECK(what_if.at("recorded_p99_itl_ms") == 40.0);
  CHECK(what_if.at("baseline").at("max_itl_ms") == of_run.baseline.summary.itl.max_ms);
  REQUIRE(of_run.chosen.has_value());
  CHECK(what_if.at("change").at("set").at(0) == of_run.trials[*of_run.chosen].changes.at(0).text());
  CHECK_FALSE(contains(text.out, "from the record"));
  // Nothing is too long, or the scenario does not have the log's stalls.
  CHECK(contains(run_metronome(diagnose + "--target-itl 50").out, "there is nothing to change"));
  CHECK(contains(run_metronome(diagnose + "--target-itl 39").out, "no changes were tried"));
  CHECK_FALSE(contains(run_metronome(diagnose + "--no-replay").out, "what if"));
}

TEST_CASE("the trace of a log's scenario is found beside it", "[cli][whatif]") {
  const Place place;
  const std::string log = place.scratch.write("vllm.log", engine_log());
  place.scratch.write(
      "trace.jsonl",
      "{\"timestamp\": 0, \"input_length\": 500, \"output_length\": 20, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 9, \"input_length\": 900, \"output_length\": 20, \"hash_ids\": [2, 3]}\n");
  const std::string file =
      place.scratch.write("traced.yaml",
                          "model: llama-3.2-1b\nhardware: h200\nscheduler: {policy: vllm}\n"
                          "engine: {max_num_seqs: 8, max_model_len: 4096}\n"
                          "workload: {trace: {file: trace.jsonl, format: mooncake}}\n");
  const CommandResult result =
      run_metronome("diagnose '" + log + "' --scenario '" + file + "' --target-itl 2");
  INFO(result.err << result.out);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "what if: the scenario's requests"));
  CHECK_FALSE(contains(result.out, "cannot be read from here"));
}

TEST_CASE("a scenario goes with a log, and is one", "[cli][whatif]") {
  const Place place;
  const std::string log = place.scratch.write("vllm.log", engine_log());
  const std::string two =
      place.scratch.write("two.yaml", std::string(kSmallScenario) + kTwoVariants);
  const StoredRun run = place.run("");
  const auto refused = [](const std::string& arguments, const std::string& message) {
    const CommandResult result = run_metronome("diagnose " + arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(contains(result.err, message));
  };
  refused("'" + log + "' --scenario '" + two + "'", "one of them with --variant: whole, pieces");
  refused("'" + log + "' --scenario '" + two + "' --variant hole", "has no variant 'hole'");
  refused("'" + log + "' --scenario /nowhere.yaml", "/nowhere.yaml");
  refused("'" + log + "' --hardware h200", "--model: is missing, as the log does not name its ");
  refused("'" + log + "' --variant whole", "--variant: has no effect; allowed: with --scenario");
  refused("/nowhere.log --scenario '" + two + "'",
          "/nowhere.log: does not exist; allowed: a result folder");
  refused("'" + run.folder + "' --hardware h201", "--hardware: ");
  refused("'" + run.folder + "' --hardware h201 --no-replay",
          "--hardware: has no effect with --no-replay; allowed: one of them");
  refused("'" + run.folder + "' --scenario '" + two + "'", "--scenario: has no effect, as ");
  const CommandResult one = run_metronome("diagnose '" + log + "' --scenario '" + two +
                                          "' --variant pieces --target-itl 10");
  CHECK(one.exit_code == 0);
}

}  // namespace TEST_FILE
