// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "reports/files/result_names.h"
#include "reports/files/result_reader.h"

namespace metronome {
namespace {

std::string tune_path(const std::string& folder) {
  return (std::filesystem::path(folder) / kTuneFile).string();
}

void check_object(const JsonPlace& place) {
  if (!place.json().is_object()) place.fail("is not an object; allowed: an object");
}

SloConfig read_limits(const JsonPlace& slo) {
  check_object(slo);
  const auto limit = [&slo](const char* key) -> std::optional<double> {
    if (!slo.has(key) || slo.at(key).is_null()) return std::nullopt;
    return slo.at(key).number();
  };
  SloConfig limits;
  limits.ttft_ms = limit("ttft_ms");
  limits.tpot_ms = limit("tpot_ms");
  limits.itl_ms = limit("itl_ms");
  limits.e2el_ms = limit("e2el_ms");
  return limits;
}

// The seed of a scenario: any whole number of 64 bits.
std::uint64_t seed_of(const JsonPlace& config) {
  const JsonPlace seed = config.at("seed");
  if (!seed.json().is_number_integer()) seed.fail("is not a whole number; allowed: a whole number");
  return seed.json().get<std::uint64_t>();
}

// The configuration is the setting's; the load, which scales its arrivals, is the trial's.
TuneReportRun run_of(const std::string& setting, const JsonPlace& config, const SloConfig& slo,
                     const JsonPlace& trial) {
  TuneReportRun run;
  RunInfo& info = run.result.info;
  info.label = setting;
  info.model = config.at("model").text();
  info.hardware = config.at("hardware").text();
  info.policy = config.at("scheduler").at("policy").text();
  info.seed = seed_of(config);
  info.tensor_parallel_size = config.at("cost_model").at("tensor_parallel_size").count();
  info.num_prompts = trial.at("num_simulated").integer(0, kNever);
  info.request_rate = trial.at("request_rate").number();
  info.burstiness = std::nan("");  // unknown
  info.slo = slo;
  info.config = config.json();
  run.result.figures = read_figures(trial);
  run.name = setting + " at " + rate_text(*info.request_rate) + "/s";
  if (trial.has("is_short") && trial.at("is_short").truth()) {
    run.name += ", of " + count_text(info.num_prompts, "request");
  }
  return run;
}

std::vector<TextBlock> blocks_of(const JsonPlace& answer) {
  std::vector<TextBlock> blocks = {
      {.title = answer.at("question").text(), .lines = {{answer.at("text").text()}}}};
  if (answer.has("how_sure") && !answer.at("how_sure").is_null()) {
    blocks.front().lines.push_back({"How sure: " + answer.at("how_sure").text() + "."});
  }
  answer.at("flags").for_each([&blocks](const JsonPlace& engine) {
    TextBlock block = {.title = engine.at("engine").text()};
    if (engine.at("is_comparison").truth()) block.title = "for comparison, " + block.title;
    block.copied = engine.at("flags").text();
    engine.at("notes").for_each(
        [&block](const JsonPlace& note) { block.lines.push_back({note.text()}); });
    blocks.push_back(std::move(block));
  });
  return blocks;
}

}  // namespace

Json tune_answer_json(const std::string& question, const std::string& text,
                      const std::string& how_sure, const std::vector<EngineFlags>& flags,
                      const std::string& router) {
  Json engines = Json::array();
  for (const EngineFlags& engine : flags) {
    Json notes = Json::array();
    if (!engine.refusal.empty()) notes.push_back("no flags, as " + engine.refusal);
    for (const std::string& note : engine.notes) notes.push_back(note);
    std::string copied;
    for (const std::string& line : flag_lines(engine)) copied += line + "\n";
    engines.push_back({{"engine", engine.engine + " " + engine.version},
                       {"is_comparison", engine.is_comparison},
                       {"flags", engine.refusal.empty() ? copied : ""},
                       {"notes", notes}});
  }
  if (!router.empty()) {
    engines.push_back({{"engine", "router"},
                       {"is_comparison", false},
                       {"flags", router + "\n"},
                       {"notes", Json::array()}});
  }
  return {{"question", question},
          {"text", text},
          {"how_sure", how_sure.empty() ? Json() : Json(how_sure)},
          {"flags", engines}};
}

bool is_tune_folder(const std::string& path) {
  return is_folder(path) && path_exists(tune_path(path));
}

TuneReport read_tune_report(const std::string& path) {
  const std::string file = tune_path(path);
  const Json json = read_json_file(file, "a folder that `metronome tune` wrote");
  const JsonPlace tuned(file, json);
  const SloConfig slo = read_limits(tuned.at("slo"));
  TuneReport report;
  if (tuned.has("answer")) report.answer = blocks_of(tuned.at("answer"));
  const std::string scenario = std::filesystem::path(tuned.at("scenario").text()).stem().string();
  tuned.at("settings").for_each([&](const JsonPlace& setting) {
    std::string name = setting.at("setting").text();
    if (setting.at("is_cut_short").truth()) {
      report.unfinished += (report.unfinished.empty() ? "" : ", ") + name;
      name += " (not finished)";
    }
    const auto add = [&](const JsonPlace& trial) {
      report.runs.push_back(run_of(name, setting.at("config"), slo, trial));
      report.runs.back().result.info.scenario = scenario;
    };
    if (setting.has("trials")) setting.at("trials").for_each(add);
    if (setting.has("trial")) add(setting.at("trial"));
  });
  if (tuned.has("refused_points")) {
    tuned.at("refused_points").for_each([&report](const JsonPlace& point) {
      report.refused.push_back(point.text());
    });
  }
  if (tuned.has("notes")) {
    tuned.at("notes").for_each(
        [&report](const JsonPlace& note) { report.notes.push_back(note.text()); });
  }
  if (report.runs.empty()) {
    throw ConfigError(printable(file) +
                      ": settings: no trial has ended; allowed: the folder of a "
                      "search that has tried a load");
  }
  return report;
}

}  // namespace metronome
