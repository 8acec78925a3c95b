// Contexts rebuilt from a log of iterations: run_logged.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/base/json.h"
#include "core/metrics/recorded_steps.h"
#include "reports/compare/validation.h"
#include "study/recorded/logged_run.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing {
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

struct Logged {
  ScratchFolder folder;
  StoredRun run;
  std::vector<std::string> lines;

  Logged(std::uint64_t seed, int async_depth) {
    const std::string path = folder.write("scenario.yaml", scenario_text(seed, async_depth));
    const std::string out = folder.path() + "/out";
    REQUIRE(run_metronome("run '" + path + "' -q --out '" + out + "'").exit_code == 0);
    run = read_result(out);
    RecordedSteps steps(run.record, StepShape::Mixed);
    StepPlan plan;
    while (steps.next(plan)) {
      const StepEntry& step = run.record.steps[steps.position()];
      const double ms = static_cast<double>(step.duration_ns()) / 1e6;
      lines.push_back("INFO [core.py:349] Iteration(" + std::to_string(lines.size() + 1) + "): " +
                      composition_text(step.num_prefill_chunks, step.num_prefill_tokens,
                                       step.num_decode_tokens, step.num_decode_tokens) +
                      ", iteration elapsed time: " + std::to_string(ms) + " ms");
    }
  }
  IterationLog log() const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return read_iteration_log(folder.write("iterations.log", text));
  }
};

}  // namespace

TEST_CASE("a log of iterations and the requests give every step back", "[tools][logged]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 7));
  const int async_depth = GENERATE(1, 2);
  INFO("seed " << seed << ", async_depth " << async_depth);
  const Logged logged(seed, async_depth);
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
  for (const char* change : {"scheduler.max_num_batched_tokens=448", "engine.max_num_seqs=6",
                             "kv_cache.num_blocks=400", "kv_cache.enable_prefix_caching=false"}) {
    INFO(change);
    CHECK(run_logged(scenario_of(logged.run, {change}), logged.log()).first_difference);
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
  std::string unwrapped;
  std::istringstream words(cut.out);
  for (std::string word; words >> word;) unwrapped += word + " ";
  CHECK(contains(unwrapped, "iterations.log:401: iteration 401 has 1 context requests, 7 context"));
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

}  // namespace metronome::testing
