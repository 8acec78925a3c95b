// SPDX-License-Identifier: Apache-2.0
#include "study/run/variant_run.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/digest.h"
#include "core/metrics/fleet_figures.h"
#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_config.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/fleet_records.h"
#include "study/run/run_bands.h"
#include "study/run/wall_clock.h"
#include "system/file_writer.h"
#include "system/progress.h"

namespace metronome {
namespace {

// Without a file only collectives have a measured range.
std::string source_of_times(const Scenario& scenario) {
  const CostModelConfig& config = scenario.cost_model;
  if (!config.file.empty()) return config.file;
  return config.link.empty() ? "the hardware's link" : "the link " + config.link;
}

// Equal for scenarios that have the same requests.
std::string workload_key(const Scenario& scenario) {
  WorkloadConfig config = scenario.workload;
  return fmt::format("{} {}", scenario.seed, fields_to_json([&config](FieldVisitor& visitor) {
                       visit_fields(visitor, config);
                     }));
}

std::string warning_text(const FailureMessage& message, const Summary& summary) {
  std::int64_t num_requests = 0;
  std::string what;
  switch (message.reason) {
    case EndReason::NeverFits:
      num_requests = summary.never_fits;
      what = "can never fit";
      break;
    case EndReason::QueueFull:
      num_requests = summary.refused;
      what = "were refused";
      break;
    case EndReason::StepFailed:
      num_requests = summary.step_failed;
      what = "failed with their step";
      break;
    case EndReason::Errored:
      num_requests = summary.errored;
      what = num_requests == 1 ? "was lost" : "were lost";
      break;
    default: METRONOME_CHECK(false, "the reason has no messages");
  }
  return grouped_text(num_requests) + " of " + count_text(summary.num_requests, "request") + " " +
         what + "; first: " + message.text;
}

std::unique_ptr<Clock> make_clock(const Backend& backend) {
  if (backend.is_measured()) return std::make_unique<WallClock>(throw_if_interrupted);
  return std::make_unique<VirtualClock>();
}

}  // namespace

std::vector<Scenario> chosen_variants(const ScenarioFile& file,
                                      const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const Scenario& scenario : file.variants) known.push_back(scenario.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw UsageError("--variant: " + file.path + " has no variant '" + name + "'" +
                     did_you_mean(name, known) + "; allowed: " + join_names(known));
  }
  std::vector<Scenario> chosen;
  for (const Scenario& scenario : file.variants) {
    const bool is_wanted = std::find(names.begin(), names.end(), scenario.name) != names.end();
    if (names.empty() || is_wanted) chosen.push_back(scenario);
  }
  return chosen;
}

std::vector<PreparedVariant> prepare_variants(Backend& backend, std::vector<Scenario> scenarios) {
  std::vector<PreparedVariant> variants;
  std::map<std::string, std::shared_ptr<const Workload>> workloads;
  for (Scenario& scenario : scenarios) {
    if (backend.is_measured() && scenario.fleet.is_on()) {
      fail_config(scenario.location_of("fleet.replicas"), "fleet.replicas",
                  fmt::format("several engines are simulated, and --backend is {}; allowed: 0, or "
                              "--backend sim",
                              backend.name()));
    }
    std::unique_ptr<PreparedRun> run = backend.prepare(scenario);
    if (run->predictor == nullptr && find_policy(scenario.scheduler.policy)->predicts_steps) {
      run->predict_with(make_step_predictor(on_own_engine(scenario), run->model));
    }
    std::shared_ptr<const Workload>& workload = workloads[workload_key(scenario)];
    if (workload == nullptr) {
      workload = std::make_shared<const Workload>(make_workload(scenario));
    }
    check_workload(scenario, *run, *workload);
    variants.push_back({std::move(scenario), std::move(run), workload});
  }
  return variants;
}

VariantOutcome run_variant(const Backend& backend, PreparedVariant& variant, EventSink* extra_sink,
                           const ProgressFn& progress, StepSink* step_sink,
                           EndedRequestSink* request_sink) {
  VariantOutcome outcome;
  const Workload& workload = *variant.workload;
  EventDigest digest;
  std::vector<EventSink*> sinks = {&digest};
  std::optional<RunRecorder> recorder;
  std::optional<FleetFigures> figures;
  ChosenReplicas chosen(variant);
  outcome.keeps_steps = keeps_steps(variant);
  if (outcome.keeps_steps) {
    sinks.push_back(
        &recorder.emplace(workload.requests.size(), variant.run->front_end, step_sink));
  } else {
    sinks.push_back(&figures.emplace(figures_options(variant), request_sink));
    sinks.push_back(&chosen);
  }
  if (backend.is_measured()) sinks.push_back(&outcome.outputs);
  if (extra_sink != nullptr) sinks.push_back(extra_sink);

  outcome.result.info = run_info(backend, variant, date_text());  // of the start
  outcome.result.info.keeps_steps = outcome.keeps_steps;
  variant.run->load(throw_if_interrupted);
  const auto started = std::chrono::steady_clock::now();
  const std::unique_ptr<Clock> clock = make_clock(backend);
  const RunOutcome run = variant.run->run(workload, *clock, sinks, progress);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - started;
  if (!run.completed) throw Interrupted();

  if (recorder) outcome.record = recorder->finish();
  outcome.record.class_names = workload.class_names;
  outcome.elapsed_ms = elapsed.count();
  outcome.result.info.digest = digest.hex();
  outcome.result.info.output_digest = outcome.outputs.digest();
  outcome.result.summary = figures ? figures->finish() : summary_of(variant, outcome.record);
  if (figures) outcome.replicas = chosen.finish(outcome.result.info.label);
  outcome.result.info.accuracy = accuracy_of(*variant.run, outcome.result.summary);
  for (const FailureMessage& message : run.messages) {
    outcome.warnings.push_back(warning_text(message, outcome.result.summary));
  }
  if (!run.remark.empty()) outcome.warnings.push_back(run.remark);
  if (std::string text = unasked_figures_text(variant); !text.empty()) {
    outcome.warnings.push_back(std::move(text));
  }
  const Summary& summary = outcome.result.summary;
  METRONOME_CHECK(summary.completed + summary.failed + static_cast<std::int64_t>(run.num_unsent) ==
                      std::ssize(variant.workload->requests),
                  "every request of the workload is in the record");
  if (run.num_unsent > 0) {
    outcome.warnings.push_back(grouped_text(static_cast<std::int64_t>(run.num_unsent)) + " of " +
                               count_text(std::ssize(variant.workload->requests), "request") + " " +
                               was_or_were(run.num_unsent) +
                               " not sent: an earlier one of their session failed");
  }
  if (summary.num_extrapolated_steps > 0) {
    outcome.warnings.push_back(grouped_text(summary.num_extrapolated_steps) + " of " +
                               count_text(summary.num_steps, "step") +
                               " lie outside the measured range of " +
                               source_of_times(variant.scenario));
  }
  return outcome;
}

}  // namespace metronome
