#include "tools/variant_run.h"

#include <chrono>
#include <limits>
#include <utility>

#include "core/digest.h"
#include "core/error.h"
#include "core/output_log.h"
#include "core/policy_registry.h"
#include "core/run_record.h"
#include "core/summary.h"
#include "reports/file_writer.h"
#include "reports/number_text.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tools/cli.h"
#include "tools/progress.h"
#include "tools/wall_clock.h"

namespace metronome {
namespace {

bool has_same_workload(const Scenario& a, const Scenario& b) {
  const auto keys = [](const WorkloadConfig& config) {
    WorkloadConfig copy = config;
    return fields_to_json([&copy](FieldVisitor& visitor) { visit_fields(visitor, copy); });
  };
  return a.seed == b.seed && keys(a.workload) == keys(b.workload);
}

// Requests per second as they arrive; nullopt when they do not arrive by a clock.
std::optional<double> request_rate(const WorkloadConfig& config, const Workload& workload) {
  switch (config.arrivals.process) {
    case ArrivalProcess::Poisson:
    case ArrivalProcess::Gamma:
    case ArrivalProcess::Constant: return config.arrivals.rate;
    case ArrivalProcess::Trace: {
      const TimeNs span = workload.requests.empty() ? 0 : workload.requests.back().arrival;
      if (span == 0) return std::nullopt;
      return static_cast<double>(workload.requests.size()) / to_seconds(span);
    }
    case ArrivalProcess::Burst: {
      const auto size = static_cast<double>(config.arrivals.burst_size);
      const bool is_one_burst = size == 0 || size >= static_cast<double>(workload.requests.size());
      if (is_one_burst || config.arrivals.burst_interval_s == 0) return std::nullopt;
      return size / config.arrivals.burst_interval_s;
    }
    case ArrivalProcess::ClosedLoop:
    case ArrivalProcess::Steps: return std::nullopt;
  }
  return std::nullopt;
}

double burstiness(const ArrivalConfig& arrivals) {
  switch (arrivals.process) {
    case ArrivalProcess::Gamma: return arrivals.burstiness;
    case ArrivalProcess::Constant: return std::numeric_limits<double>::infinity();
    default: return 1.0;  // Poisson; the other processes have none, and vLLM writes this default
  }
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
    default: METRONOME_CHECK(false, "the reason has no messages");
  }
  return grouped_text(num_requests) + " of " + grouped_text(summary.num_requests) + " requests " +
         what + "; first: " + message.text;
}

std::unique_ptr<Clock> make_clock(const Backend& backend) {
  if (backend.is_measured()) return std::make_unique<WallClock>(throw_if_interrupted);
  return std::make_unique<VirtualClock>();
}

}  // namespace

RunInfo run_info(const Backend& backend, const PreparedVariant& variant) {
  const Scenario& scenario = variant.scenario;
  RunInfo info = scenario_info(scenario, *variant.workload);
  info.backend = backend.name();
  if (backend.is_measured()) info.date = date_text();
  info.model = variant.run->model.name;
  info.hardware = variant.run->device;
  info.weights = variant.run->weights_text;
  info.policy = scenario.scheduler.policy;
  // Only the simulator has more than one device.
  if (!backend.is_measured()) info.tensor_parallel_size = scenario.cost_model.tensor_parallel_size;
  info.is_calibrated = !backend.is_measured() && !scenario.cost_model.file.empty();
  info.num_blocks = variant.run->setup.kv_cache.num_blocks;
  return info;
}

Summary summary_of(const PreparedVariant& variant, const RunRecord& record) {
  return summarize(record, {variant.scenario.slo, variant.run->setup.kv_cache.num_blocks});
}

RunInfo scenario_info(const Scenario& scenario, const Workload& workload) {
  RunInfo info;
  info.label = scenario.name;
  info.seed = scenario.seed;
  info.num_prompts = static_cast<std::int64_t>(workload.requests.size());
  info.request_rate = request_rate(scenario.workload, workload);
  info.burstiness = burstiness(scenario.workload.arrivals);
  if (workload.mode == ArrivalMode::ClosedLoop) info.max_concurrency = workload.concurrency;
  info.slo = scenario.slo;
  info.config_json = scenario.to_json();
  return info;
}

std::vector<PreparedVariant> prepare_variants(Backend& backend, std::vector<Scenario> scenarios) {
  std::vector<PreparedVariant> variants;
  for (Scenario& scenario : scenarios) {
    std::unique_ptr<PreparedRun> run = backend.prepare(scenario);
    if (run->predictor == nullptr && find_policy(scenario.scheduler.policy)->predicts_steps) {
      run->predict_with(make_step_predictor(scenario, run->model));
    }
    std::shared_ptr<const Workload> workload;
    for (const PreparedVariant& earlier : variants) {
      if (has_same_workload(earlier.scenario, scenario)) workload = earlier.workload;
    }
    if (workload == nullptr) {
      workload = std::make_shared<const Workload>(make_workload(scenario.workload, scenario.seed));
    }
    run->check_workload(*workload);
    variants.push_back({std::move(scenario), std::move(run), std::move(workload)});
  }
  return variants;
}

VariantOutcome run_variant(const Backend& backend, PreparedVariant& variant, EventSink* extra_sink,
                           const ProgressFn& progress) {
  VariantOutcome outcome;
  EventDigest digest;
  RunRecorder recorder(variant.workload->requests.size());
  std::vector<EventSink*> sinks = {&digest, &recorder};
  if (backend.is_measured()) sinks.push_back(&outcome.outputs);
  if (extra_sink != nullptr) sinks.push_back(extra_sink);

  outcome.result.info = run_info(backend, variant);  // its date is that of the start
  variant.run->load(throw_if_interrupted);
  const auto started = std::chrono::steady_clock::now();
  const std::unique_ptr<Clock> clock = make_clock(backend);
  const RunOutcome run = variant.run->run(*variant.workload, *clock, sinks, progress);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - started;
  if (!run.completed) throw Interrupted();

  outcome.record = recorder.finish();
  outcome.elapsed_ms = elapsed.count();
  outcome.result.info.digest = digest.hex();
  outcome.result.info.output_digest = outcome.outputs.digest();
  outcome.result.summary = summary_of(variant, outcome.record);
  for (const FailureMessage& message : run.messages) {
    outcome.warnings.push_back(warning_text(message, outcome.result.summary));
  }
  if (!run.remark.empty()) outcome.warnings.push_back(run.remark);
  const Summary& summary = outcome.result.summary;
  if (summary.num_extrapolated_steps > 0) {
    outcome.warnings.push_back(grouped_text(summary.num_extrapolated_steps) + " of " +
                               grouped_text(summary.num_steps) + " steps lie outside what " +
                               variant.scenario.cost_model.file + " was measured with");
  }
  return outcome;
}

void add_noise_bands(const Backend& backend, PreparedVariant& variant, const ProgressFn& progress,
                     VariantOutcome& outcome) {
  const CostModelConfig& config = variant.scenario.cost_model;
  const bool is_noisy = !backend.is_measured() && config.noise != StepNoise::None;
  if (!is_noisy || config.noise_seeds == 1) return;
  std::vector<Summary> draws = {outcome.result.summary};
  for (std::int32_t n = 1; n < config.noise_seeds; ++n) {
    RunRecorder recorder(variant.workload->requests.size());
    EventSink* sinks[] = {&recorder};
    const std::unique_ptr<Clock> clock = make_clock(backend);
    variant.run->draw_noise(n);
    if (!variant.run->run(*variant.workload, *clock, sinks, progress).completed) {
      throw Interrupted();
    }
    draws.push_back(summary_of(variant, recorder.finish()));
  }
  variant.run->draw_noise(0);
  outcome.result.noise = noise_bands(draws);
}

void write_variant(const VariantOutcome& outcome, const ResultsConfig& wanted, ResultFolder& folder,
                   const std::string& subfolder) {
  const std::string prefix = subfolder.empty() ? "" : subfolder + "/";
  if (!subfolder.empty()) folder.make_subfolder(subfolder);
  folder.write(prefix + "result.json", result_json(outcome.result));
  if (wanted.requests) {
    FileWriter file(folder.path(prefix + "requests.jsonl"), throw_if_interrupted);
    write_requests_jsonl(outcome.record, file);
    file.close();
  }
  if (wanted.steps) {
    FileWriter file(folder.path(prefix + "steps.jsonl"), throw_if_interrupted);
    write_steps_jsonl(outcome.record, file);
    file.close();
  }
  if (wanted.trace) {
    FileWriter file(folder.path(prefix + std::string(kTraceFile)), throw_if_interrupted);
    write_trace_json(outcome.record, outcome.result.info, file);
    file.close();
  }
  if (wanted.outputs && !outcome.result.info.output_digest.empty()) {
    FileWriter file(folder.path(prefix + std::string(kOutputsFile)), throw_if_interrupted);
    write_outputs_jsonl(outcome.outputs, file);
    file.close();
  }
}

}  // namespace metronome
