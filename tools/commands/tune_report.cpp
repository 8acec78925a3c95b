// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "reports/files/result_names.h"

namespace metronome {
namespace {

std::string tune_path(const std::string& folder) {
  return (std::filesystem::path(folder) / kTuneFile).string();
}

void check_object(const JsonPlace& place) {
  if (!place.json().is_object()) place.fail("is not an object; allowed: an object");
}

// As the limits of a run are written: 500, not 500.0.
Json whole_limits(const JsonPlace& slo) {
  check_object(slo);
  constexpr double kMostExact = 1LL << 53;
  Json limits = slo.json();
  for (const auto& [key, limit] : slo.json().items()) {
    if (limit.is_null()) continue;
    const double value = slo.at(key).number();
    if (value == std::floor(value) && std::abs(value) <= kMostExact) {
      limits[key] = static_cast<std::int64_t>(value);
    }
  }
  return limits;
}

// The seed of a scenario: any whole number of 64 bits.
Json seed_of(const JsonPlace& config) {
  const JsonPlace seed = config.at("seed");
  if (!seed.json().is_number_integer()) seed.fail("is not a whole number; allowed: a whole number");
  return seed.json();
}

// The configuration is the setting's; the load, which scales its arrivals, is the trial's.
TuneReportRun run_of(const std::string& name, const JsonPlace& config, const Json& slo,
                     const JsonPlace& trial) {
  const double load = trial.at("request_rate").number();
  TuneReportRun run;
  RunInfo& info = run.info;
  info.label = name + " at " + rate_text(load) + "/s";
  const std::int64_t num_simulated = trial.at("num_simulated").integer(0, kNever);
  if (trial.has("is_short") && trial.at("is_short").truth()) {
    info.label += ", of " + count_text(num_simulated, "request");
  }
  info.model = config.at("model").text();
  info.hardware = config.at("hardware").text();
  info.policy = config.at("scheduler").at("policy").text();
  Json result = {
      {std::string(kResultSchemaKey), kResultSchema},
      {"label", name},
      {"backend", info.backend},
      {"endpoint_type", info.endpoint_type},
      {"model_id", info.model},
      {"hardware", info.hardware},
      {"policy", info.policy},
      {"seed", seed_of(config)},
      {"tensor_parallel_size", config.at("cost_model").at("tensor_parallel_size").count()},
      {"num_prompts", num_simulated},
      {"burstiness", nullptr},
      {"max_concurrency", nullptr},
      {"slo", slo},
      {"config", config.json()}};
  for (const auto& [key, value] : trial.json().items()) {
    if (key == "is_short") continue;
    if (!value.is_null()) trial.at(key).number();
    result[key] = value;
  }
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
  const Json slo = whole_limits(tuned.at("slo"));
  TuneReport report;
  const std::string scenario = std::filesystem::path(tuned.at("scenario").text()).stem().string();
  tuned.at("settings").for_each([&](const JsonPlace& setting) {
    std::string name = setting.at("setting").text();
    if (setting.at("is_cut_short").truth()) {
      report.unfinished += (report.unfinished.empty() ? "" : ", ") + name;
      name += " (not finished)";
    }
    const auto add = [&](const JsonPlace& trial) {
      report.runs.push_back(run_of(name, setting.at("config"), slo, trial));
      report.runs.back().info.scenario = scenario;
    };
    if (setting.has("trials")) setting.at("trials").for_each(add);
    if (setting.has("trial")) add(setting.at("trial"));
  });
  if (tuned.has("refused_points")) {
    tuned.at("refused_points").for_each([&report](const JsonPlace& point) {
      report.refused.push_back(point.text());
    });
  }
  if (report.runs.empty()) {
    throw ConfigError(printable(file) +
                      ": settings: no trial has ended; allowed: the folder of a "
                      "search that has tried a load");
  }
  return report;
}

}  // namespace metronome
