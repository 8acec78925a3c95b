// SPDX-License-Identifier: Apache-2.0
#include "reports/files/variant_result.h"

#include <filesystem>
#include <fmt/core.h>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/base/json.h"
#include "core/run/prepared_variant.h"
#include "core/workload/workload_config.h"
#include "reports/files/requests_stream.h"
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

std::unique_ptr<RequestsStream> open_requests_stream(const ResultsConfig& wanted,
                                                     const Workload& workload,
                                                     ResultFolder& folder,
                                                     const std::string& subfolder,
                                                     std::int64_t max_unasked_bytes) {
  if (!wanted.requests.value_or(true)) return nullptr;
  if (!subfolder.empty()) folder.make_subfolder(subfolder);
  return std::make_unique<RequestsStream>(folder.path(name_in(subfolder, kRequestsFile)),
                                          limit_of(wanted.requests, max_unasked_bytes),
                                          workload.class_names);
}

namespace {

// The files of one run, beside result.json.
class RunFiles {
 public:
  RunFiles(const ResultsConfig& wanted, ResultFolder& folder, const std::string& subfolder,
           std::int64_t max_unasked_bytes)
      : wanted_(wanted),
        folder_(folder),
        subfolder_(subfolder),
        max_unasked_bytes_(max_unasked_bytes) {
    if (!subfolder.empty()) folder.make_subfolder(subfolder);
  }

  void write(std::string_view name, std::optional<bool> is_wanted, const char* key,
             const std::function<void(FileWriter&)>& fill) {
    if (!is_wanted.value_or(true)) return;
    const std::int64_t limit = limit_of(is_wanted, max_unasked_bytes_);
    if (!write_up_to(limit, path(name), fill)) leave_out(name, key);
  }
  // Of a record that has requests and steps.
  void write_requests(const RunRecord& record) {
    write(kRequestsFile, wanted_.requests, "results.requests",
          [&](FileWriter& file) { write_requests_jsonl(record, file); });
  }
  void write_steps(const RunRecord& record) {
    write(kStepsFile, wanted_.steps, "results.steps",
          [&](FileWriter& file) { write_steps_jsonl(record, file); });
  }
  void write_trace(const RunRecord& record, const RunInfo& info) {
    write(kTraceFile, wanted_.trace, "results.trace",
          [&](FileWriter& file) { write_trace_json(record, info, file); });
  }
  // A file that was written meanwhile, whole or not.
  void take(std::string_view name, bool is_whole, const char* key) {
    if (is_whole) return;
    std::filesystem::remove(path(name));
    leave_out(name, key);
  }
  // Writes result.json, which lists the files.
  void finish(RunResult& result) {
    std::map<std::string, std::int64_t>& files = result.files.emplace();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(subfolder_))) {
      const std::string name = entry.path().filename().string();
      if (!is_companion_name(name)) continue;
      files[name] = static_cast<std::int64_t>(entry.file_size());
    }
    folder_.write(name_in(subfolder_, kResultFile), result_json(result));
  }
  std::vector<std::string> left_out() && { return std::move(left_out_); }

 private:
  std::string path(std::string_view name) const {
    return folder_.path(name_in(subfolder_, name));
  }
  void leave_out(std::string_view name, const char* key) {
    left_out_.push_back(std::string(name) + " (" + key + ")");
  }

  const ResultsConfig& wanted_;
  ResultFolder& folder_;
  const std::string& subfolder_;
  std::int64_t max_unasked_bytes_;
  std::vector<std::string> left_out_;
};

// A folder beside that of the run.
std::string replica_folder(const std::string& subfolder, std::int32_t replica) {
  return fmt::format("{}{}replica_{}", subfolder, subfolder.empty() ? "" : ".", replica);
}

}  // namespace

std::vector<std::string> write_variant(VariantOutcome& outcome, const ResultsConfig& wanted,
                                       ResultFolder& folder, const std::string& subfolder,
                                       std::int64_t max_unasked_bytes, const RunStreams& streams) {
  RunFiles files(wanted, folder, subfolder, max_unasked_bytes);
  if (streams.requests != nullptr) {
    files.take(kRequestsFile, streams.requests->finish(), "results.requests");
  } else if (outcome.keeps_steps) {
    files.write_requests(outcome.record);
  }
  const bool is_whole = streams.steps == nullptr || streams.steps->finish();
  const bool is_streamed =
      streams.steps != nullptr && StepFields(outcome.record) == StepFields();
  if (is_streamed) files.take(kStepsFile, is_whole, "results.steps");
  if (!is_streamed && outcome.keeps_steps) files.write_steps(outcome.record);
  if (outcome.keeps_steps && outcome.record.replicas.empty()) {  // a trace shows one engine
    files.write_trace(outcome.record, outcome.result.info);
  }
  if (wanted.outputs && !outcome.result.info.output_digest.empty()) {
    files.write(kOutputsFile, true, "results.outputs",
                [&](FileWriter& file) { write_outputs_jsonl(outcome.outputs, file); });
  }
  files.finish(outcome.result);
  std::vector<std::string> left_out = std::move(files).left_out();
  for (ReplicaOutcome& replica : outcome.replicas) {
    const std::string own = replica_folder(subfolder, replica.replica);
    RunFiles own_files(wanted, folder, own, max_unasked_bytes);
    own_files.write_requests(replica.record);
    own_files.write_steps(replica.record);
    own_files.write_trace(replica.record, replica.result.info);
    own_files.finish(replica.result);
    for (const std::string& name : std::move(own_files).left_out()) {
      left_out.push_back(name_in(own, name));
    }
  }
  return left_out;
}

void write_variant(VariantOutcome& outcome, const PreparedVariant& variant, ResultFolder& folder,
                   RequestsStream* requests) {
  write_variant(outcome, variant.scenario.results, folder, {}, INT64_MAX,
                {.steps = nullptr, .requests = requests});
}

}  // namespace metronome
