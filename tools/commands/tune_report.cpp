#include "tools/commands/tune_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/number_text.h"
#include "reports/files/result_names.h"

namespace metronome {
namespace {

std::string tune_path(const std::string& folder) {
  return (std::filesystem::path(folder) / kTuneFile).string();
}

// As the limits of a run are written: 500, not 500.0.
Json whole_limits(const Json& slo) {
  Json limits = slo;
  for (const auto& [key, limit] : slo.items()) {
    const double value = limit.is_number() ? limit.get<double>() : 0.5;
    if (value == std::floor(value)) limits[key] = static_cast<std::int64_t>(value);
  }
  return limits;
}

// The configuration is the setting's; the load, which scales its arrivals, is the trial's.
TuneReportRun run_of(const std::string& name, const Json& config, const Json& slo,
                     const JsonPlace& trial) {
  const double load = trial.at("request_rate").number();
  TuneReportRun run;
  RunInfo& info = run.info;
  info.label = name + " at " + fixed_text(load, 2) + "/s";
  info.model = config.value("model", Json("")).get<std::string>();
  info.hardware = config.value("hardware", Json("")).get<std::string>();
  info.policy = config.at("scheduler").at("policy").get<std::string>();
  Json result = {
      {std::string(kResultSchemaKey), kResultSchema},
      {"label", name},
      {"backend", info.backend},
      {"endpoint_type", info.endpoint_type},
      {"model_id", info.model},
      {"hardware", info.hardware},
      {"policy", info.policy},
      {"seed", config.value("seed", Json(0))},
      {"tensor_parallel_size", config.at("cost_model").value("tensor_parallel_size", Json(1))},
      {"num_prompts", trial.at("num_simulated").integer(0, kNever)},
      {"burstiness", nullptr},
      {"max_concurrency", nullptr},
      {"slo", whole_limits(slo)},
      {"config", config}};
  for (const auto& [key, value] : trial.json().items()) result[key] = value;
  run.result_json = result.dump({.replaces_bad_utf8 = true});
  return run;
}

}  // namespace

bool is_tune_folder(const std::string& path) {
  return is_folder(path) && path_exists(tune_path(path));
}

TuneReport read_tune_report(const std::string& path) {
  const std::string file = tune_path(path);
  const Json json = read_json_file(file, "a folder that `metronome tune` wrote");
  const JsonPlace tuned(file, json);
  TuneReport report;
  const std::string scenario = std::filesystem::path(tuned.at("scenario").text()).stem().string();
  tuned.at("settings").for_each([&](const JsonPlace& setting) {
    std::string name = setting.at("setting").text();
    if (setting.at("is_cut_short").truth()) {
      report.unfinished += (report.unfinished.empty() ? "" : ", ") + name;
      name += " (not finished)";
    }
    const auto add = [&](const JsonPlace& trial) {
      report.runs.push_back(
          run_of(name, setting.at("config").json(), tuned.at("slo").json(), trial));
      report.runs.back().info.scenario = scenario;
    };
    if (setting.has("trials")) setting.at("trials").for_each(add);
    if (setting.has("trial")) add(setting.at("trial"));
  });
  if (report.runs.empty()) {
    throw ConfigError(printable(file) +
                      ": settings: no trial has ended; allowed: the folder of a "
                      "search that has tried a load");
  }
  return report;
}

}  // namespace metronome
