// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_measure.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/model/model_catalogue.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/terminal/text.h"
#include "study/calibrate/calibrate_fit.h"
#include "study/calibrate/calibrate_script.h"
#include "study/calibrate/calibrate_text.h"
#include "study/calibrate/scripted_policy.h"
#include "study/run/variant_run.h"
#include "system/progress.h"

namespace metronome {
namespace {

constexpr std::size_t kNumRounds = 4;
constexpr std::int64_t kMaxKvTokens = 400'000;
constexpr const char* kOption = "--backend";
constexpr const char* kGapRun = "gaps";
constexpr const char* kStepRun = "steps";

struct DefaultSizes {
  std::int64_t max_num_seqs;
  std::int64_t max_model_len;
  std::int64_t max_num_batched_tokens;
  int async_depth;
};

// kLarge is for a GPU, kSmall for a few processors.
constexpr DefaultSizes kLarge = {256, 16'640, 8192, 2};
constexpr DefaultSizes kSmall = {16, 512, 256, 1};

// Allows only the scenario keys that say how steps are computed, not which steps.
void check_assignments(const std::vector<std::string>& assignments, bool is_measured) {
  constexpr std::string_view kKeys[] = {
      "engine.", "kv_cache.", "cuda.", "cpu.", "weights=", "scheduler.max_num_batched_tokens="};
  constexpr std::string_view kSimulated[] = {"hardware=", "cost_model."};
  for (const std::string& assignment : assignments) {
    const auto begins = [&](std::string_view key) { return assignment.starts_with(key); };
    if (std::any_of(std::begin(kKeys), std::end(kKeys), begins)) continue;
    if (!is_measured && std::any_of(std::begin(kSimulated), std::end(kSimulated), begins)) continue;
    throw UsageError("--set: " + printable(assignment) +
                     " has no effect on a calibration; allowed: keys of engine, kv_cache, cuda and "
                     "cpu, weights and scheduler.max_num_batched_tokens");
  }
}

// JSON is YAML.
std::string scenario_text(const MeasureOptions& options, std::string_view backend) {
  DefaultSizes sizes = backend == "cuda" ? kLarge : kSmall;
  const SourceLocation where{std::make_shared<const std::string>("--model"), 0};
  const ModelConfig model = find_model(options.model, where);
  sizes.max_model_len = std::min(sizes.max_model_len, model.max_context());
  Json json;
  json["seed"] = options.seed;
  json["model"] = options.model;
  json["weights"] = "random";  // times do not depend on the weights
  json["engine"] = {{"max_num_seqs", sizes.max_num_seqs},
                    {"max_model_len", sizes.max_model_len},
                    {"async_depth", sizes.async_depth}};
  json["scheduler"] = {{"policy", "token_budget"},
                       {"max_num_batched_tokens", sizes.max_num_batched_tokens}};
  const Json one = {{"distribution", "fixed"}, {"value", 1}};
  json["workload"] = {{"num_requests", 1},
                      {"arrivals", {{"process", "burst"}}},
                      {"prompt_tokens", one},
                      {"output_tokens", one}};
  return json.dump();
}

// By default a backend takes only the blocks that the longest requests need together. Prompts
// beside them may need more.
void find_blocks(Scenario& scenario) {
  if (scenario.kv_cache.num_blocks || scenario.kv_cache.backend != KvBackend::Paged) return;
  const StepSizes sizes{.max_tokens = token_budget(scenario.scheduler),
                        .max_seqs = scenario.engine.max_num_seqs,
                        .max_context = static_cast<std::int32_t>(*scenario.engine.max_model_len),
                        .block_size = scenario.kv_cache.block_size};
  const std::int64_t needed = 2 * min_script_kv(sizes);
  if (sizes.max_seqs * std::int64_t{sizes.max_context} >= needed) return;
  scenario.kv_cache.num_blocks = ceil_div(needed, sizes.block_size);
}

Scenario find_scenario(const MeasureOptions& options, const Backend& backend) {
  check_assignments(options.assignments, backend.is_measured());
  ScenarioFile file =
      parse_scenario(scenario_text(options, backend.name()), kOption, options.assignments);
  Scenario scenario = std::move(file.variants.front());
  if (!scenario.engine.max_model_len) {
    throw UsageError("--set: engine.max_model_len: is auto; allowed: a number");
  }
  scenario.results = {
      .steps = true, .requests = true, .trace = false, .outputs = false, .report = false};
  find_blocks(scenario);
  return scenario;
}

StepSizes sizes_of(const Scenario& scenario, const EngineSetup& setup) {
  const std::int64_t block_size = setup.kv_cache.block_size;
  const StepSizes sizes{
      .max_tokens = static_cast<std::int32_t>(
          std::min<std::int64_t>(token_budget(scenario.scheduler),
                                 std::int64_t{setup.max_num_seqs} * setup.max_model_len)),
      .max_seqs = setup.max_num_seqs,
      .max_context = setup.max_model_len,
      .block_size = static_cast<std::int32_t>(block_size),
      .kv_tokens = std::min(setup.kv_cache.num_blocks * block_size, kMaxKvTokens)};
  const auto fail_unless = [](bool is_good, const char* key, std::int64_t value,
                              const std::string& allowed) {
    if (is_good) return;
    throw ConfigError(fmt::format("{}: {}: is {}; allowed: {}", kOption, key, value, allowed));
  };
  fail_unless(sizes.max_context >= kMinScriptContext, "engine.max_model_len", sizes.max_context,
              fmt::format("{} or more", kMinScriptContext));
  fail_unless(sizes.max_tokens >= kMinScriptTokens, "scheduler.max_num_batched_tokens",
              sizes.max_tokens, fmt::format("{} or more", kMinScriptTokens));
  const std::int64_t needed = ceil_div(min_script_kv(sizes), block_size);
  fail_unless(needed <= sizes.kv_tokens / block_size, "kv_cache.num_blocks",
              sizes.kv_tokens / block_size,
              fmt::format("{} or more for steps of these sizes, or smaller engine.max_num_seqs, "
                          "engine.max_model_len and scheduler.max_num_batched_tokens",
                          needed));
  return sizes;
}

class Budget {
 public:
  Budget(double seconds, bool is_measured) : seconds_(seconds), is_measured_(is_measured) {}

  // `now` is a time of the engine's clock; it counts if time is simulated.
  double spent_s(TimeNs now) const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - started_;
    return is_measured_ ? wall.count() : to_seconds(now);
  }
  bool has(double more_s, TimeNs now) const { return spent_s(now) + more_s <= seconds_; }
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  double seconds_;
  bool is_measured_;
};

std::shared_ptr<const Workload> workload_of(const StepScript& script) {
  Workload workload;
  workload.requests = script.requests;
  return std::make_shared<const Workload>(std::move(workload));
}

// Requests that never ran are last: they belong to rounds that were left out.
void forget_refused(const PreparedVariant& variant, VariantOutcome& outcome) {
  std::vector<RequestRecord>& requests = outcome.record.requests;
  while (!requests.empty() && requests.back().first_scheduled == kNoTime) requests.pop_back();
  RunInfo& info = outcome.result.info;
  info.policy = "calibration";
  info.num_prompts = static_cast<std::int64_t>(requests.size());
  outcome.result.summary =
      summarize(outcome.record, {variant.scenario.slo, variant.run->setup.kv_cache.num_blocks});
}

struct Measurement {
  VariantOutcome outcome;
  std::size_t num_rounds = 0;  // complete ones
};

std::string out_of_time(double seconds, const ScriptProgress& progress, const StepScript& script) {
  return "--seconds: " + fixed_text(seconds, 0) + " are not enough for one round: " +
         grouped_text(static_cast<std::int64_t>(progress.num_steps)) + " of its " +
         count_text(script.round_begins[1], "step") +
         " were measured, and nothing was written; allowed: more seconds, or smaller "
         "engine.max_num_seqs, engine.max_model_len or scheduler.max_num_batched_tokens";
}

// With `is_limited`, throws UsageError if the time ends before the first round is complete.
Measurement measure(const Backend& backend, PreparedVariant variant, StepScript steps,
                    const Budget& budget, bool is_limited) {
  const auto script = std::make_shared<const StepScript>(std::move(steps));
  const auto done = std::make_shared<ScriptProgress>();
  TimeNs last = 0;
  variant.workload = workload_of(*script);
  variant.run->setup.make_policy =
      scripted_policy(script, done, [&](const ScriptProgress&, TimeNs elapsed) {
        const double took = to_seconds(elapsed - std::exchange(last, elapsed));
        return budget.has(1.1 * took, elapsed);
      });
  WorkProgress progress(true);
  Measurement result;
  result.outcome = run_variant(backend, variant, nullptr, [&](const RunProgress& now) {
    const std::size_t all = script->steps.size();
    // The time limit may come before the last step.
    const auto num_done = static_cast<double>(done->num_steps);
    const double spent_s = budget.spent_s(now.now);
    const double affordable =
        spent_s > 0 ? num_done * std::max(budget.seconds() - spent_s, 0.0) / spent_s : 0;
    progress.show(progress_bar_text(variant.scenario.name, done->num_steps, all) + " steps",
                  num_done, std::min(static_cast<double>(all) - num_done, affordable));
    throw_if_interrupted();
    if (is_limited && done->num_rounds == 0 && !budget.has(0, now.now)) {
      throw UsageError(out_of_time(budget.seconds(), *done, *script));
    }
    return true;
  });
  progress.clear();
  result.num_rounds = done->num_rounds;
  if (result.outcome.result.summary.step_failed > 0) {
    throw std::runtime_error("calibrate: " + result.outcome.warnings.front());
  }
  forget_refused(variant, result.outcome);
  return result;
}

std::string rounds_text(const Measurement& measured, const StepScript& script) {
  const std::string all = std::to_string(kNumRounds);
  std::string text = fmt::format(
      "{} in {} of {} rounds, each with every kind of step in a different order",
      count_text(measured.outcome.result.summary.num_steps, "step"), measured.num_rounds, all);
  if (measured.num_rounds == script.num_rounds()) return text;
  return text + "; no time was left for the other rounds";
}

// With two steps in flight a gap is visible only if the host is slower than the step.
std::optional<Measurement> measure_gaps(Backend& backend, const Scenario& scenario,
                                        const StepSizes& sizes, const Budget& budget, TimeNs now) {
  if (scenario.engine.async_depth == 1 || !budget.has(0, now)) return std::nullopt;
  Scenario single = scenario;
  single.name = kGapRun;
  single.engine.async_depth = 1;
  std::unique_ptr<PreparedRun> run = backend.prepare(single);
  return measure(backend, {std::move(single), std::move(run), nullptr}, make_gap_script(sizes),
                 budget, false);
}

}  // namespace

std::string measured_folder(const std::string& out) {
  constexpr std::string_view kSuffix = ".json";
  const std::string name =
      out.ends_with(kSuffix) ? out.substr(0, out.size() - kSuffix.size()) : out;
  return name + ".steps";
}

void calibrate_by_measuring(Backend& backend, const MeasureOptions& options) {
  const Budget budget(options.seconds, backend.is_measured());
  Scenario scenario = find_scenario(options, backend);
  scenario.name = kStepRun;
  std::unique_ptr<PreparedRun> run = backend.prepare(scenario);
  const StepSizes sizes = sizes_of(scenario, run->setup);
  const std::string path = measured_folder(options.out);
  ResultFolder folder(path);
  say("model", run->model.name + " on " + printable(run->device));
  if (!run->weights_text.empty()) say("weights", run->weights_text);
  say("seed", std::to_string(options.seed));
  say("sizes", fmt::format("up to {} and {} per step, contexts of {}, {} of KV, {} in flight",
                           count_text(sizes.max_tokens, "token"),
                           count_text(sizes.max_seqs, "sequence"), grouped_text(sizes.max_context),
                           count_text(sizes.kv_tokens, "token"), scenario.engine.async_depth));
  const StepScript script = make_step_script(sizes, kNumRounds, options.seed);
  Measurement steps = measure(backend, {scenario, std::move(run), nullptr}, script, budget, true);
  say("rounds", rounds_text(steps, script));
  const TimeNs now = steps.outcome.record.steps.back().finished_at;
  std::optional<Measurement> gaps = measure_gaps(backend, scenario, sizes, budget, now);
  std::vector<RunResult> results = {steps.outcome.result};
  write_variant(steps.outcome, scenario.results, folder, kStepRun);
  if (gaps) {
    write_variant(gaps->outcome, scenario.results, folder, kGapRun);
    results.push_back(gaps->outcome.result);
  } else if (scenario.engine.async_depth > 1) {
    say("remark", "no time was left to measure the host gap");
  }
  folder.write(kSummaryFile, summary_json(results));
  folder.commit();
  say("kept", printable(path) + ", for calibrate --from");
  std::cout << '\n';
  CalibrationSetup setup;
  setup.hardware = options.hardware;
  report_calibration(calibrate_from_steps({path}, setup, FitKind::Fitted), options.out);
}

}  // namespace metronome
