// SPDX-License-Identifier: Apache-2.0
#include "reports/files/variant_result.h"

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/base/json.h"
#include "core/run/prepared_variant.h"
#include "core/workload/workload_config.h"
#include "reports/files/result_names.h"
#include "reports/files/steps_jsonl.h"
#include "reports/files/steps_stream.h"
#include "system/file_writer.h"
#include "system/progress.h"

namespace metronome {
namespace {

// Arrivals per second; nullopt if requests do not arrive at given times.
std::optional<double> request_rate(const WorkloadConfig& config, const Workload& workload) {
  if (workload.has_sessions()) return std::nullopt;
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
    default: return 1.0;  // Poisson; other processes have none, and vLLM writes this default
  }
}

struct TooLarge {};

// Lets `fill` write a file. Removes it, and returns false, if it grows beyond `limit` bytes.
bool write_up_to(std::int64_t limit, const std::string& path,
                 const std::function<void(FileWriter&)>& fill) {
  try {
    const FileWriter* written = nullptr;
    FileWriter file(path, [&] {
      throw_if_interrupted();
      if (written->num_bytes() > limit) throw TooLarge();
    });
    written = &file;
    fill(file);
    if (file.num_bytes() > limit) throw TooLarge();
    file.begin_sync();
    file.close();
    return true;
  } catch (const TooLarge&) {
    std::filesystem::remove(path);
    return false;
  }
}

// The name in the result folder of a file in `subfolder`, which may be empty.
std::string name_in(const std::string& subfolder, std::string_view name) {
  return subfolder.empty() ? std::string(name) : subfolder + "/" + std::string(name);
}

// The most bytes of a file.
std::int64_t limit_of(std::optional<bool> is_wanted, std::int64_t max_unasked_bytes) {
  return is_wanted ? INT64_MAX : max_unasked_bytes;
}

// Null without any.
Json reasons_of(const std::vector<ServeDefault>& defaults) {
  Json reasons;
  for (const ServeDefault& added : defaults) reasons[added.key] = added.reason;
  return reasons;
}

}  // namespace

RunInfo run_info(const Backend& backend, const PreparedVariant& variant, const std::string& date) {
  const Scenario& scenario = variant.scenario;
  RunInfo info = scenario_info(scenario, *variant.workload);
  info.backend = backend.name();
  if (backend.is_measured()) info.date = date;
  info.model = variant.run->model.name;
  info.hardware = variant.run->device;
  info.weights = variant.run->weights_text;
  info.policy = scenario.scheduler.policy;
  // Only the simulator has more than one device.
  if (!backend.is_measured()) info.tensor_parallel_size = scenario.cost_model.tensor_parallel_size;
  info.num_gpus = variant.run->num_gpus;
  if (info.num_gpus > 0) info.price_per_gpu_hour = variant.run->price_per_gpu_hour;
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
  info.price_per_gpu_hour = scenario.price_per_gpu_hour;
  info.config = scenario.resolved();
  info.config_reasons = reasons_of(scenario.serve_defaults);
  return info;
}

std::unique_ptr<StepsStream> open_steps_stream(const ResultsConfig& wanted, ResultFolder& folder,
                                               const std::string& subfolder,
                                               std::int64_t max_unasked_bytes) {
  if (!wanted.steps.value_or(true)) return nullptr;
  if (!subfolder.empty()) folder.make_subfolder(subfolder);
  try {
    return std::make_unique<StepsStream>(folder.path(name_in(subfolder, kStepsFile)),
                                         limit_of(wanted.steps, max_unasked_bytes));
  } catch (const std::system_error&) {
    return nullptr;
  }
}

std::vector<std::string> write_variant(VariantOutcome& outcome, const ResultsConfig& wanted,
                                       ResultFolder& folder, const std::string& subfolder,
                                       std::int64_t max_unasked_bytes, StepsStream* steps) {
  if (!subfolder.empty()) folder.make_subfolder(subfolder);
  std::vector<std::string> left_out;
  const auto leave_out = [&left_out](std::string_view name, const char* key) {
    left_out.push_back(std::string(name) + " (" + key + ")");
  };
  const auto write = [&](std::string_view name, std::optional<bool> is_wanted, const char* key,
                         const auto& fill) {
    if (!is_wanted.value_or(true)) return;
    const std::int64_t limit = limit_of(is_wanted, max_unasked_bytes);
    if (!write_up_to(limit, folder.path(name_in(subfolder, name)), fill)) leave_out(name, key);
  };
  write("requests.jsonl", wanted.requests, "results.requests",
        [&](FileWriter& file) { write_requests_jsonl(outcome.record, file); });
  const bool is_whole = steps == nullptr || steps->finish();
  const bool is_streamed = steps != nullptr && StepFields(outcome.record) == StepFields();
  if (is_streamed && !is_whole) {
    std::filesystem::remove(folder.path(name_in(subfolder, kStepsFile)));
    leave_out(kStepsFile, "results.steps");
  }
  if (!is_streamed) {
    write(kStepsFile, wanted.steps, "results.steps",
          [&](FileWriter& file) { write_steps_jsonl(outcome.record, file); });
  }
  if (outcome.record.replicas.empty()) {  // a trace shows one engine
    write(kTraceFile, wanted.trace, "results.trace",
          [&](FileWriter& file) { write_trace_json(outcome.record, outcome.result.info, file); });
  }
  if (wanted.outputs && !outcome.result.info.output_digest.empty()) {
    write(kOutputsFile, true, "results.outputs",
          [&](FileWriter& file) { write_outputs_jsonl(outcome.outputs, file); });
  }
  std::map<std::string, std::int64_t>& files = outcome.result.files.emplace();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path(subfolder))) {
    const std::string name = entry.path().filename().string();
    if (!is_companion_name(name)) continue;
    files[name] = static_cast<std::int64_t>(entry.file_size());
  }
  folder.write(name_in(subfolder, kResultFile), result_json(outcome.result));
  return left_out;
}

void write_variant(VariantOutcome& outcome, const PreparedVariant& variant, ResultFolder& folder) {
  write_variant(outcome, variant.scenario.results, folder, {});
}

}  // namespace metronome
