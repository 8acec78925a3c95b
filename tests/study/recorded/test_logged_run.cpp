// SPDX-License-Identifier: Apache-2.0
// Contexts rebuilt from a log of iterations: run_logged.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "core/base/json.h"
#include "core/metrics/recorded_steps.h"
#include "core/scenario/scenario.h"
#include "reports/compare/validation.h"
#include "study/recorded/logged_run.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Prompts that share prefixes, a cache that is too small for all that run, and a queue.
std::string scenario_text(std::uint64_t seed, int async_depth) {
  return "seed: " + std::to_string(seed) + R"(
model: llama-3.1-8b
hardware: h200
engine: {max_num_seqs: 16, max_model_len: 4096, async_depth: )" +
         std::to_string(async_depth) + R"(}
kv_cache: {num_blocks: 420}
scheduler: {policy: vllm, max_num_batched_tokens: 512}
workload:
  num_requests: 150
  arrivals: {process: poisson, rate: 25}
  prompt_tokens: {distribution: uniform, min: 20, max: 1300}
  output_tokens: {distribution: uniform, min: 2, max: 200}
  prefix: {kind: groups, num_groups: 4, prefix_tokens: 160}
)";
}

// The iterations of a run as a model runner of vLLM counts them, from what the run recorded.
std::vector<std::string> lines_of(const RunRecord& record, ModelRunner runner,
                                  std::size_t first_number = 1) {
  std::vector<std::string> lines;
  std::map<RequestId, TimeNs> last_planned;  // of each request's last chunk
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const StepEntry step = record.steps[s];
    std::int64_t counts[2][2] = {{0, 0}, {step.num_decode_tokens, step.num_decode_tokens}};
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const PrefillChunk& chunk =
          record.prefills[static_cast<std::size_t>(step.first_prefill_chunk + c)];
      const TimeNs first_token = record.requests[index(chunk.request)].first_token;
      const auto last = last_planned.find(chunk.request);
      const bool is_resumed =
          last != last_planned.end() &&
          std::any_of(record.preemptions.begin(), record.preemptions.end(), [&](const auto& p) {
            return p.request == chunk.request && p.time > last->second && p.time <= step.planned_at;
          });
      last_planned[chunk.request] = step.planned_at;
      const bool has_output = first_token != kNoTime && first_token <= step.planned_at;
      const bool is_generation = has_output && !(is_resumed && runner == ModelRunner::V2);
      ++counts[is_generation][0];
      counts[is_generation][1] += chunk.num_tokens;
    }
    const double ms = static_cast<double>(step.duration_ns()) / 1e6;
    lines.push_back("INFO [core.py:349] Iteration(" + std::to_string(first_number + s) + "): " +
                    composition_text(counts[0][0], counts[0][1], counts[1][0], counts[1][1]) +
                    ", iteration elapsed time: " + std::to_string(ms) + " ms");
  }
  return lines;
}

struct Logged {
  ScratchFolder folder;
  StoredRun run;
  std::vector<std::string> lines;

  Logged(std::uint64_t seed, int async_depth, ModelRunner runner = ModelRunner::V2) {
    const std::string path = folder.write("scenario.yaml", scenario_text(seed, async_depth));
    const std::string out = folder.path() + "/out";
    REQUIRE(run_metronome("run '" + path + "' -q --out '" + out + "'").exit_code == 0);
    run = read_result(out);
    lines = lines_of(run.record, runner);
  }
  std::string text() const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }
  IterationLog log() const { return read_iteration_log(folder.write("iterations.log", text())); }
  // The text of this log behind an engine's first iterations with other requests, and before
  // others.
  std::string text_between(const Logged& others) const {
    std::string text;
    std::size_t number = 0;
    for (const Logged* part : {&others, this, &others}) {
      const std::vector<std::string> own = lines_of(part->run.record, ModelRunner::V2, number);
      number += own.size();
      for (const std::string& line : own) text += line + "\n";
    }
    return text;
  }
};

std::string unwrapped(const std::string& text) {
  std::string all;
  std::istringstream words(text);
  for (std::string word; words >> word;) all += word + " ";
  return all;
}

}  // namespace

TEST_CASE("a log of iterations and the requests give every step back", "[tools][logged]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 7));
  const int async_depth = GENERATE(1, 2);
  const ModelRunner runner = GENERATE(ModelRunner::V1, ModelRunner::V2);
  INFO("seed " << seed << ", async_depth " << async_depth << ", runner "
               << static_cast<int>(runner));
  Logged logged(seed, async_depth, runner);
  // Half of the logs name the runner.
  if (seed % 2 == 1 && runner == ModelRunner::V1) {
    logged.lines.front() =
        "WARNING Model Runner V2 requires Triton; using the V1 model runner "
        "instead.\n" +
        logged.lines.front();
  }
  REQUIRE(logged.run.result.summary.num_preemptions > 0);
  REQUIRE(logged.run.result.summary.prefix_hit_rate > 0);
  const LoggedRun run = run_logged(scenario_of(logged.run), logged.log());
  if (run.first_difference) {
    FAIL_CHECK("iteration " << run.first_difference->logged.number << ": "
                            << run.first_difference->simulated);
  }
  CHECK(run.num_equal == static_cast<std::int64_t>(logged.lines.size()));
  const DecisionComparison decisions =
      compare_decisions(logged.run.record, StepShape::Mixed, run.record, StepShape::Mixed);
  INFO("step " << (decisions.first_difference ? decisions.first_difference->step : -1));
  CHECK_FALSE(decisions.first_difference);
  for (std::size_t i = 0; i < run.record.steps.size(); ++i) {
    REQUIRE(std::abs(run.record.steps[i].duration_ns() -
                     logged.run.record.steps[i].duration_ns()) <= 1000);
  }
}

TEST_CASE("the first iteration that is decided otherwise is named", "[tools][logged]") {
  Logged logged(1, 1);
  const Scenario scenario = scenario_of(logged.run);
  // One with a chunk that ends a prompt and decodes beside it.
  std::size_t at = 20;
  while (logged.run.record.steps[at].num_prefill_chunks != 2) ++at;
  const StepEntry& step = logged.run.record.steps[at];
  const std::string text =
      composition_text(2, step.num_prefill_tokens, step.num_decode_tokens, step.num_decode_tokens);
  std::string& line = logged.lines[at];
  line.replace(line.find(text), text.size(),
               composition_text(2, step.num_prefill_tokens - 1, step.num_decode_tokens,
                                step.num_decode_tokens));
  const LoggedRun run = run_logged(scenario, logged.log());
  CHECK(run.num_equal == static_cast<std::int64_t>(at));
  REQUIRE(run.first_difference);
  CHECK(run.first_difference->logged.line == static_cast<std::int64_t>(at) + 1);
  CHECK(run.first_difference->simulated == text);
}

TEST_CASE("a log under other settings is found out", "[tools][logged]") {
  const Logged logged(2, 1);
  const Setting changes[] = {{"scheduler.max_num_batched_tokens", 448},
                             {"engine.max_num_seqs", 6},
                             {"kv_cache.num_blocks", 400},
                             {"kv_cache.enable_prefix_caching", false}};
  for (const Setting& change : changes) {
    INFO(change.text());
    const Scenario changed = scenario_of(logged.run).with({&change, 1});
    CHECK(run_logged(changed, logged.log()).first_difference);
  }
}

TEST_CASE("logs and workloads that cannot be followed", "[tools][logged]") {
  Logged logged(1, 1);
  const Scenario scenario = scenario_of(logged.run);
  logged.lines[3] = "(EngineCore_DP1 pid=3) " + logged.lines[3];
  CHECK(error_of([&] { run_logged(scenario, logged.log()); }) ==
        logged.folder.path() +
            "/iterations.log:4: is from another engine than the first iteration; allowed: the "
            "iterations of one engine");
}

TEST_CASE("calibrate reads a log of iterations", "[cli][logged]") {
  Logged logged(3, 1);
  logged.log();
  const std::string folder = logged.folder.path();
  const std::string from = "calibrate --hardware h200 --from '" + folder + "/";
  const std::string served = "iterations.log' --scenario '" + folder + "/scenario.yaml'";

  // With what served the requests it is as good as the steps themselves.
  const CommandResult by_steps = run_metronome(from + "out' --out '" + folder + "/steps.json'");
  const CommandResult by_log = run_metronome(from + served + " --out '" + folder + "/log.json'");
  INFO(by_log.err);
  REQUIRE(by_steps.exit_code == 0);
  REQUIRE(by_log.exit_code == 0);
  const auto form = [&](const std::string& name) {
    return Json::parse(read_text_file(folder + "/" + name)).at("body").at("form_ns");
  };
  const Json ours = form("log.json");
  const Json theirs = form("steps.json");
  for (const auto& [key, value] : theirs.items()) {
    if (!value.is_number()) continue;
    INFO(key);
    CHECK(ours.at(key).get<double>() == Approx(value.get<double>()).epsilon(0.02).margin(1));
  }

  // Without it, contexts are not known, and predictions are not outside for that.
  const CommandResult blind = run_metronome(from + "iterations.log' --model llama-3.1-8b --out '" +
                                            folder + "/blind.json'");
  REQUIRE(blind.exit_code == 0);
  CHECK(contains(blind.out, "the context lengths are unknown"));
  CHECK(form("blind.json").at("pair") == 0);
  CHECK(form("blind.json").at("decode_kv") == 0);
  const CommandResult run =
      run_metronome("run '" + folder + "/scenario.yaml' --json --set " + "cost_model.file='" +
                    folder + "/blind.json' --out '" + folder + "/blind'");
  REQUIRE(run.exit_code == 0);
  const Json result = Json::parse(run.out).at(0);
  CHECK(result.at("steps_outside_calibration").get<int>() * 20 < result.at("num_steps").get<int>());

  const CommandResult nobody = run_metronome(from + "iterations.log'");
  CHECK(nobody.exit_code == 2);
  CHECK(contains(nobody.err, "--scenario FILE with the engine and the requests"));
  const CommandResult both =
      run_metronome(from + "out' --from '" + folder + "/iterations.log' --model llama-3.1-8b");
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "has no context lengths"));

  // Served otherwise: the first such iteration is named, and what is before it counts.
  logged.lines[400] =
      "Iteration(401): " + composition_text(1, 7, 1, 1) + ", iteration elapsed time: 9.5 ms";
  logged.log();
  const CommandResult cut = run_metronome(from + served);
  REQUIRE(cut.exit_code == 0);
  CHECK(contains(unwrapped(cut.out),
                 "iterations.log:401: iteration 401 has 1 context requests, 7 context"));
}

TEST_CASE("a resumed request is counted as the log's model runner does", "[tools][logged]") {
  const Logged first(1, 1, ModelRunner::V1);
  const Logged second(1, 1, ModelRunner::V2);
  REQUIRE(first.text() != second.text());
  const Scenario scenario = scenario_of(first.run);
  IterationLog log = first.log();
  CHECK_FALSE(run_logged(scenario, log).first_difference);  // found out
  log.runner = ModelRunner::V2;
  CHECK(run_logged(scenario, log).first_difference);
}

TEST_CASE("the requests are found in a log that has others, too", "[cli][logged]") {
  const Logged logged(3, 1);
  const Logged others(4, 1);
  const std::string text = logged.text_between(others);
  const std::string folder = logged.folder.path();
  const IterationLog log = read_iteration_log(logged.folder.write("long.log", text));
  CHECK(run_logged(scenario_of(logged.run), log).num_equal < 10);
  const LoggedRun run = run_logged(scenario_of(logged.run), log, LogStart::Found);
  CHECK_FALSE(run.first_difference);
  CHECK(run.first == others.lines.size());
  CHECK(run.num_equal == std::ssize(logged.lines));
  CHECK(run.num_after == std::ssize(others.lines));

  const std::string first = std::to_string(others.lines.size());
  const std::string last = std::to_string(others.lines.size() + logged.lines.size() - 1);
  const std::string both = "validate '" + folder + "/long.log' '" + folder + "/out'";
  const CommandResult found = run_metronome(both + " --same-decisions");
  CHECK(found.exit_code == 0);
  CHECK(contains(unwrapped(found.out), "the requests fit from iteration " + first + " (line "));
  CHECK(contains(unwrapped(found.out), "all requests have ended before iteration "));
  const CommandResult asked =
      run_metronome(both + " --same-decisions --iterations " + first + ":" + last);
  CHECK(asked.exit_code == 0);
  CHECK(contains(asked.out, "decisions   the same in all iterations"));
  CHECK(run_metronome(both + " --same-decisions --iterations " + first + ":").exit_code == 0);
  // A range is taken as it is.
  CHECK(run_metronome(both + " --same-decisions --iterations :" + last).exit_code == 1);
  const CommandResult none = run_metronome(both + " --iterations 9000000:");
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "long.log has none of these; allowed: numbers from 0 to "));
  for (const char* range : {"120", "9:3", ":", "a:b", "1:2:3", "-1:3"}) {
    INFO(range);
    const CommandResult bad = run_metronome(both + " --iterations '" + range + "'");
    CHECK(bad.exit_code == 2);
    CHECK(contains(bad.err, "--iterations: '"));
  }

  const std::string from = "calibrate --scenario '" + folder + "/scenario.yaml' --from '" + folder;
  logged.log();
  const CommandResult alone =
      run_metronome(from + "/iterations.log' --out '" + folder + "/a.json'");
  const CommandResult among = run_metronome(from + "/long.log' --out '" + folder + "/b.json'");
  REQUIRE(alone.exit_code == 0);
  REQUIRE(among.exit_code == 0);
  CHECK(contains(unwrapped(among.out), "long.log: the requests fit from iteration " + first));
  const auto form = [&](const char* name) {
    return Json::parse(read_text_file(folder + name)).at("body").at("form_ns");
  };
  CHECK(form("/a.json").dump() == form("/b.json").dump());
  // Nothing fits: the first difference says why.
  const CommandResult other =
      run_metronome(from + "/long.log' --iterations 0:" + first + " --set seed=99");
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "calibrate: got "));
  CHECK(contains(other.err, folder + "/long.log:"));
  CHECK(contains(other.err, " context requests, "));
  CHECK(contains(other.err, ", but " + folder + "/scenario.yaml gives "));
  CHECK(contains(other.err, "; allowed: at least 50"));
}

TEST_CASE("a few iterations that match by chance are no beginning", "[tools][logged]") {
  const Logged logged(3, 1);
  // Prompts of every length, one after the other.
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += "Iteration(" + std::to_string(i) + "): " + composition_text(1, 1 + i % 512, 0, 0) +
            ", iteration elapsed time: 5.00 ms\n";
  }
  const IterationLog log = read_iteration_log(logged.folder.write("prompts.log", text));
  const LoggedRun run = run_logged(scenario_of(logged.run), log, LogStart::Found);
  CHECK(run.first == 0);
  CHECK(run.first_difference);
}

// One request at a time, all alike, and one iteration that the engine does not give. Each of 10,000
// starts would match up to there: most need no run, and the number of runs is limited.
TEST_CASE("the start of a long log of like requests is found in seconds", "[tools][logged]") {
  const bool has_two_contexts = GENERATE(false, true);
  INFO("two contexts " << has_two_contexts);
  constexpr int kNumRequests = 10'000;
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 4 * kNumRequests; ++i) {
    std::string work = i % 4 == 0 ? composition_text(1, 512, 0, 0) : composition_text(0, 0, 1, 1);
    if (i == 2 * kNumRequests) {
      work = has_two_contexts ? composition_text(2, 1023, 0, 0) : composition_text(1, 511, 0, 0);
    }
    text += "Iteration(" + std::to_string(i) + "): " + work + ", iteration elapsed time: 5.00 ms\n";
  }
  const IterationLog log = read_iteration_log(folder.write("like.log", text));
  const std::string path = folder.write("scenario.yaml", R"(
model: llama-3.1-8b
engine: {max_num_seqs: 16, max_model_len: 4096, async_depth: 1}
kv_cache: {num_blocks: 420, enable_prefix_caching: false}
scheduler: {policy: vllm, max_num_batched_tokens: 2048}
workload:
  num_requests: 10000
  arrivals: {process: poisson, rate: 1}
  prompt_tokens: {distribution: fixed, value: 512}
  output_tokens: {distribution: fixed, value: 4}
)");
  const Scenario scenario = load_scenario(path, {}, std::nullopt).variants.front();
  const LoggedRun run = run_logged(scenario, log, LogStart::Found);
  CHECK(run.first == 0);
  CHECK(run.num_equal == 2 * kNumRequests);
  CHECK((run.num_untried > 0) == has_two_contexts);
  CHECK(contains(left_out_text(run, log), "were not tried") == has_two_contexts);
}

// A warm-up with a request like the first ones of the workload: the right start is within the
// iterations that match from the log's first one on.
TEST_CASE("requests begin within iterations that match, too", "[tools][logged]") {
  const ScratchFolder folder;
  std::string text;
  int number = 0;
  const auto request = [&](int num_outputs) {
    for (int i = 0; i < num_outputs; ++i) {
      text += "Iteration(" + std::to_string(number++) +
              "): " + (i == 0 ? composition_text(1, 512, 0, 0) : composition_text(0, 0, 1, 1)) +
              ", iteration elapsed time: 5.00 ms\n";
    }
  };
  std::string trace = "arrival_s,prompt_tokens,output_tokens\n";
  request(30);  // the warm-up
  int arrival = 0;
  for (const int num_outputs : {30, 30, 12, 40, 7, 30}) {
    trace += std::to_string(arrival++) + ",512," + std::to_string(num_outputs) + "\n";
    request(num_outputs);
  }
  folder.write("trace.csv", trace);
  const IterationLog log = read_iteration_log(folder.write("warm.log", text));
  const std::string path = folder.write("scenario.yaml", R"(
model: llama-3.1-8b
engine: {max_num_seqs: 16, max_model_len: 4096, async_depth: 1}
kv_cache: {num_blocks: 420, enable_prefix_caching: false}
scheduler: {policy: vllm, max_num_batched_tokens: 2048}
workload: {trace: {file: trace.csv, format: vidur}}
)");
  const Scenario scenario = load_scenario(path, {}, std::nullopt).variants.front();
  CHECK(run_logged(scenario, log).num_equal == 72);
  const LoggedRun run = run_logged(scenario, log, LogStart::Found);
  CHECK(run.first == 30);
  CHECK_FALSE(run.first_difference);
}

TEST_CASE("a log is followed without hardware, which decides nothing", "[cli][logged]") {
  const Logged logged(3, 1);
  logged.log();
  std::string text = scenario_text(3, 1);
  const std::string hardware = "hardware: h200\n";
  text.erase(text.find(hardware), hardware.size());
  const std::string folder = logged.folder.path();
  logged.folder.write("bare.yaml", text);
  const std::string from =
      "calibrate --from '" + folder + "/iterations.log' --scenario '" + folder + "/bare.yaml' ";
  const CommandResult fit = run_metronome(from + "--out '" + folder + "/fit.json'");
  REQUIRE(fit.exit_code == 0);
  CHECK(contains(fit.out, "llama-3.1-8b on unknown, "));
  // The parts of the table add up: it has the tokens, too.
  CHECK(contains(fit.out, "\ntoken"));
  const CommandResult gaps = run_metronome("diagnose '" + folder + "/iterations.log' --scenario '" +
                                           folder + "/bare.yaml' --no-replay --target-itl 1");
  CHECK(gaps.exit_code == 0);
  // The file of step times stands where the name of the hardware would.
  logged.folder.write("fitted.yaml", text + "cost_model: {file: fit.json}\n");
  const CommandResult why = run_metronome("diagnose '" + folder + "/iterations.log' --scenario '" +
                                          folder + "/fitted.yaml' --target-itl 1");
  CHECK(contains(unwrapped(why.out), "Simulated with " + folder + "/fit.json, the requests of "));
  const CommandResult unsized = run_metronome(from + "--set kv_cache.num_blocks=auto");
  CHECK(unsized.exit_code == 2);
  CHECK(contains(unsized.err, "hardware: required key is missing: kv_cache.num_blocks is not "));
}

TEST_CASE("the log of another model is not followed unasked", "[cli][logged]") {
  Logged logged(3, 1);
  const std::string folder = logged.folder.path();
  const auto start = [&](const std::string& model) {
    logged.folder.write("iterations.log",
                        "INFO Initializing a V1 LLM engine (v0.32.0) with config: model='" + model +
                            "', speculative_config=None\n" + logged.text());
  };
  const std::string log = " '" + folder + "/iterations.log' ";
  const std::string commands[] = {
      "validate" + log + "'" + folder + "/out'",
      "calibrate --from" + log + "--scenario '" + folder + "/scenario.yaml'",
      "calibrate --from" + log + "--model llama-3.1-8b",
  };
  for (const std::string& command : commands) {
    INFO(command);
    start("/models/Qwen3-8B-FP8");
    const CommandResult other = run_metronome(command);
    CHECK(other.exit_code == 2);
    CHECK(contains(other.err, "the model is /models/Qwen3-8B-FP8, not llama-3.1-8b as "));
    CHECK(run_metronome(command + " --allow-differences").exit_code == 0);
    start("meta-llama/Llama-3.1-8B-Instruct");
    CHECK(run_metronome(command).exit_code == 0);
  }
  const CommandResult steps =
      run_metronome("calibrate --from '" + folder + "/out' --model qwen3-8b");
  CHECK(steps.exit_code == 2);
  CHECK(contains(steps.err, "the model is llama-3.1-8b, not qwen3-8b as --model says"));
}

// As a server's log begins: its start, then a warm-up; later requests are preempted and resumed.
TEST_CASE("validate follows resumed requests behind a warm-up", "[cli][logged]") {
  const ModelRunner runner = GENERATE(ModelRunner::V1, ModelRunner::V2);
  INFO("runner " << static_cast<int>(runner));
  const Logged logged(5, 1, runner);
  REQUIRE(logged.run.result.summary.num_preemptions > 0);
  std::string text =
      "(EngineCore pid=12) INFO 11-28 16:42:40 [core.py:112] Initializing a V1 LLM engine "
      "(v0.32.0) "
      "with config: model='llama-3.1-8b', speculative_config=None\n";
  std::size_t number = 0;
  for (const std::string& work :
       {composition_text(1, 9, 0, 0), composition_text(0, 0, 1, 1), composition_text(0, 0, 1, 1),
        composition_text(1, 5, 0, 0), composition_text(0, 0, 1, 1)}) {
    text += "(EngineCore pid=12) INFO 11-28 16:42:41 [core.py:349] Iteration(" +
            std::to_string(number++) + "): " + work + ", iteration elapsed time: 7.12 ms\n";
  }
  for (const std::string& line : lines_of(logged.run.record, runner, number)) text += line + "\n";
  const std::string folder = logged.folder.path();
  logged.folder.write("server.log", text);
  const std::string both = "validate '" + folder + "/server.log' '" + folder + "/out'";
  const CommandResult same = run_metronome(both + " --same-decisions");
  INFO(same.out);
  CHECK(same.exit_code == 0);
  CHECK(contains(unwrapped(same.out), "the requests fit from iteration 5 (line 7) on"));
  // With the warm-up as a part of it, it is another run.
  CHECK(run_metronome(both + " --same-decisions --iterations 0:").exit_code == 1);
}

TEST_CASE("validate follows a log of iterations", "[cli][logged]") {
  Logged logged(2, 2);
  logged.log();
  const std::string folder = logged.folder.path();
  const std::string both = "validate '" + folder + "/iterations.log' '" + folder + "/out'";
  const CommandResult same = run_metronome(both + " --same-decisions");
  CHECK(same.exit_code == 0);
  CHECK(contains(same.out, "decisions   the same in all iterations"));
  const auto json = Json::parse(run_metronome(both + " --json").out);
  CHECK(json.at("decisions").at("equal_steps") == logged.lines.size());
  // The log is that of the cost model.
  CHECK(json.at("step_times").back().at("regime") == "all");
  CHECK(json.at("step_times").back().at("mean_abs_error").get<double>() < 1e-4);

  logged.lines[99] =
      "Iteration(100): " + composition_text(1, 7, 1, 1) + ", iteration elapsed time: 9.5 ms";
  logged.log();
  const CommandResult differ = run_metronome(both);
  CHECK(differ.exit_code == 0);
  CHECK(contains(differ.out, "the same in 99 of them; then, in iteration 100 (line 100):"));
  CHECK(contains(differ.out, "measured    1 context requests, 7 context tokens"));
  CHECK(run_metronome(both + " --same-decisions").exit_code == 1);
}

}  // namespace metronome::testing::TEST_FILE
