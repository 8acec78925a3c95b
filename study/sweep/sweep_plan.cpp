// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_plan.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/config/config_writer.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/workload/workload_config.h"
#include "reports/files/content_id.h"
#include "reports/files/result_files.h"
#include "sim/cost/cost_model_file.h"
#include "study/run/variant_run.h"
#include "system/parallel.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

// The content of files and catalogues, read once for all points and threads.
class Contents {
 public:
  // The model and, if there is one, the drafter's.
  std::string models_text(const Scenario& scenario, bool is_measured) {
    const std::string& drafter = scenario.speculative.model;
    return model_text(scenario.model, scenario.location_of("model"), is_measured) +
           (drafter.empty()
                ? ""
                : model_text(drafter, scenario.location_of("speculative.model"), is_measured));
  }
  std::string hardware_text(const Scenario& scenario) {
    if (scenario.hardware.empty()) return {};
    return memo(hardware_, scenario.hardware, [&] {
      HardwareSpec hardware = find_hardware(scenario.hardware, scenario.location_of("hardware"));
      return fields_to_json([&hardware](FieldVisitor& v) { visit_fields(v, hardware); });
    });
  }
  std::string cost_model_text(const Scenario& scenario) {
    const std::string& file = scenario.cost_model.file;
    if (file.empty()) return {};
    return memo(cost_models_, file, [&] {
      return find_cost_model_file(file, scenario.location_of("cost_model.file")).to_json();
    });
  }
  // Of the other files that keys name: traces, logs, tokenizers, links, costs of a drafter.
  std::string files_id(const Scenario& scenario) {
    Scenario copy = scenario;
    std::string text;
    for (const PathField& field : path_fields(copy)) {
      const std::string& path = *field.value;
      const bool is_elsewhere =
          field.key.ends_with("model") || field.key == "workload.images.folder";
      const bool is_file =
          field.may_be_name ? path_exists(path) && !is_folder(path) : !path.empty();
      if (is_file && !is_elsewhere) {
        text += file_id(scenario.location_of(field.key), field.key, path);
      }
    }
    return text;
  }
  std::string pictures_id(const ImageConfig& images) {
    if (images.folder.empty()) return {};
    return memo(pictures_, images.folder, [&] {
      std::string text;
      for (const std::shared_ptr<const ImageFile>& picture : read_pictures(images)) {
        text += content_id_text(picture->bytes);
      }
      return text;
    });
  }

 private:
  std::string model_text(const std::string& name, const SourceLocation& where, bool is_measured) {
    return memo(models_, name + (is_measured ? "\n" : ""), [&] {
      ModelConfig model = find_model(name, where);
      std::string text = fields_to_json([&model](FieldVisitor& v) { visit_fields(v, model); });
      if (is_measured) {
        const std::string file = find_gguf_file(name);
        text += file.empty() ? weight_files(find_model_folder(name)) : weight_file(file);
      }
      return text;
    });
  }

  std::string file_id(const SourceLocation& where, const std::string& key,
                      const std::string& path) {
    return memo(files_, path, [&] {
      const std::optional<std::string> text = read_file(path);
      if (!text) {
        fail_config(where, key,
                    "'" + path + "' " + input_problem() + "; it must be a readable file");
      }
      return content_id_text(*text);
    });
  }

  using Texts = std::map<std::string, std::string>;

  template <class Make>
  std::string memo(Texts& texts, const std::string& key, Make make) {
    const std::lock_guard lock(mutex_);
    const auto known = texts.find(key);
    if (known != texts.end()) return known->second;
    return texts.emplace(key, make()).first->second;
  }
  // Weight files are too large to read for this; their names and sizes stand for their content.
  static std::string weight_file(const fs::path& file) {
    std::error_code ignored;
    return fmt::format("{} {}\n", file.filename().string(), fs::file_size(file, ignored));
  }

  static std::string weight_files(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code ignored;
    for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
         it.increment(ignored)) {
      if (!it->is_regular_file(ignored)) continue;
      files.push_back(
          fmt::format("{} {}\n", it->path().filename().string(), it->file_size(ignored)));
    }
    std::sort(files.begin(), files.end());
    std::string text;
    for (const std::string& file : files) text += file;
    return text;
  }

  std::mutex mutex_;
  Texts models_;
  Texts hardware_;
  Texts cost_models_;
  Texts files_;
  Texts pictures_;
};

std::string workload_text(const Scenario& scenario) {
  WorkloadConfig copy = scenario.workload;
  return fmt::format(
      "{}\n{}", fields_to_json([&copy](FieldVisitor& visitor) { visit_fields(visitor, copy); }),
      scenario.seed);
}

std::int64_t estimated_cost(const Scenario& scenario) {
  const WorkloadConfig& workload = scenario.workload;
  if (workload.trace.file.empty()) return workload.num_requests;
  return workload.trace.limit == 0 ? kMaxRequests : workload.trace.limit;
}

SweepRun resolve_run(Scenario scenario, int run_number, const SweepRequest& request,
                     Contents& contents) {
  const bool is_measured = request.backend != kBackendNames[0];
  const auto is_given = [&scenario](const char* key) {
    return scenario.source != nullptr && scenario.source->find_path(key) != nullptr;
  };
  if (!is_given("results.steps")) scenario.results.steps = false;
  if (!is_given("results.requests")) scenario.results.requests = false;
  if (!is_given("results.trace")) scenario.results.trace = false;
  scenario.results.report = false;  // a point has no report

  SweepRun run;
  run.run_number = run_number;
  run.workload_key = workload_text(scenario);
  run.cost = estimated_cost(scenario);
  std::string everything;
  for (const std::string& part :
       {request.program, request.backend, scenario.name, std::to_string(run_number),
        scenario.to_json(), contents.models_text(scenario, is_measured),
        contents.hardware_text(scenario), contents.cost_model_text(scenario),
        contents.files_id(scenario), contents.pictures_id(scenario.workload.images)}) {
    everything += fmt::format("{}\n{}\n", part.size(), part);
  }
  run.id = content_id_text(everything);
  run.scenario = std::move(scenario);
  return run;
}

std::string point_text(const std::vector<Assignment>& point) {
  std::string text;
  for (const auto& [key, value] : point) text += " " + key + "=" + value;
  return printable(text);
}

// Names the point as the source of an error, instead of the `--set` that it became.
std::string point_error(const SweepSpec& spec, const std::vector<Assignment>& point,
                        std::string message) {
  if (point.empty()) return message;  // no key varies
  std::string where = spec.points.empty() ? "" : spec.points_where;
  for (const SweptKey& swept : spec.over) {
    const std::string prefix = "--set " + printable(swept.key) + ": ";
    if (where.empty() || message.starts_with(prefix)) where = swept.where;
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
  }
  return where + ": at the point" + point_text(point) + ": " + message;
}

// The runs of one point in order, or why there are none.
struct ResolvedPoint {
  std::vector<SweepRun> runs;
  std::string error;
};

// Throws UnknownKeyError, so that a misspelled key is reported before anything runs.
ResolvedPoint resolve_point(const std::vector<Assignment>& point, const SweepSpec& spec,
                            const SweepRequest& request, Contents& contents) {
  std::vector<std::string> assignments = request.assignments;
  for (const auto& [key, value] : point) assignments.push_back(key + "=" + value);
  ResolvedPoint resolved;
  try {
    const ScenarioFile file =
        load_scenario(request.scenario, assignments, request.seed, request.backend);
    for (const Scenario& scenario : chosen_variants(file, request.variants)) {
      for (int run_number = 0; run_number < request.num_runs; ++run_number) {
        resolved.runs.push_back(resolve_run(scenario, run_number, request, contents));
      }
    }
  } catch (const UnknownKeyError& error) {
    throw UnknownKeyError(point_error(spec, point, error.what()));
  } catch (const ConfigError& error) {
    resolved = {{}, point_error(spec, point, error.what())};
  }
  return resolved;
}

// Whether run `n` of every point stays the same for all values of a swept key. `stride` is the
// distance between two points that differ only in that key. False if no point tells.
bool is_idle(const std::vector<std::vector<std::size_t>>& runs_of, std::size_t num_values,
             std::size_t stride, std::size_t n) {
  bool is_known = false;
  for (std::size_t i = 0; i < runs_of.size(); ++i) {
    const std::size_t value = i / stride % num_values;
    const std::vector<std::size_t>& at_first = runs_of[i - value * stride];
    if (value == 0 || n >= runs_of[i].size() || n >= at_first.size()) continue;
    is_known = true;
    if (runs_of[i][n] != at_first[n]) return false;
  }
  return is_known;
}

// A key without any effect is probably a mistake: all variants that run may override it. Throws for
// such a key. If it has no effect on some runs, the plan names them. `runs_of` has the runs of each
// point, and is empty for an invalid point.
void find_idle_keys(const std::vector<std::vector<std::size_t>>& runs_of, const SweepSpec& spec,
                    int num_runs, SweepPlan& plan) {
  std::size_t stride = runs_of.size();
  if (!spec.points.empty()) stride /= spec.points.size();
  std::size_t num_rows = 0;  // per point
  for (const std::vector<std::size_t>& runs : runs_of) num_rows = std::max(num_rows, runs.size());
  for (const SweptKey& swept : spec.over) {
    stride /= swept.values.size();
    if (swept.values.size() < 2) continue;
    std::vector<std::string> idle;
    std::size_t num_variants = 0;
    for (std::size_t n = 0; n < num_rows; n += static_cast<std::size_t>(num_runs)) {
      ++num_variants;
      if (!is_idle(runs_of, swept.values.size(), stride, n)) continue;
      const auto whole = std::find_if(runs_of.begin(), runs_of.end(),
                                      [n](const auto& runs) { return n < runs.size(); });
      idle.push_back(plan.runs[(*whole)[n]].scenario.name);
    }
    if (idle.size() == num_variants) {
      throw ConfigError(swept.where +
                        ": has no effect: every run is the same for all its values; allowed: a "
                        "key that no variant overrides, or variants.NAME.KEY for one variant");
    }
    // A key of one variant should not affect the others.
    if (swept.key.starts_with("variants.")) continue;
    for (const std::string& name : idle) {
      plan.remarks.push_back(swept.where + ": does not vary " + printable(name) +
                             ", which is the same for all its values");
    }
  }
}

}  // namespace

std::string run_text(const SweepPlan& plan, const SweepRun& run) {
  std::string text = run.scenario.name;
  for (const auto& [key, value] : plan.rows[run.first_row].values) text += " " + key + "=" + value;
  if (run.run_number > 0) text += fmt::format(" run {}", run.run_number);
  return printable(text);
}

SweepPlan plan_sweep(const SweepRequest& request, const SweepSpec& spec, int num_threads) {
  std::vector<std::vector<Assignment>> points = expand_points(spec);
  std::vector<ResolvedPoint> resolved(points.size());
  Contents contents;
  for_each_index(points.size(), num_threads, [&](std::size_t i) {
    resolved[i] = resolve_point(points[i], spec, request, contents);
  });
  SweepPlan plan;
  plan.keys = swept_keys(spec);
  plan.num_points = points.size();
  std::map<std::string, std::size_t> known;  // id -> run
  std::vector<std::vector<std::size_t>> runs_of(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!resolved[i].error.empty()) plan.invalid.push_back(std::move(resolved[i].error));
    for (SweepRun& run : resolved[i].runs) {
      const auto [entry, is_new] = known.emplace(run.id, plan.runs.size());
      if (is_new) {
        run.first_row = plan.rows.size();
        plan.runs.push_back(std::move(run));
      }
      plan.rows.push_back({entry->second, points[i]});
      runs_of[i].push_back(entry->second);
    }
  }
  if (plan.rows.empty()) throw ConfigError(plan.invalid.front());
  find_idle_keys(runs_of, spec, request.num_runs, plan);
  std::set<std::string> told;  // runs mostly share theirs
  for (const SweepRun& run : plan.runs) {
    for (const std::string& warning : workload_warnings(run.scenario.workload)) {
      if (told.insert(warning).second) plan.remarks.push_back(warning);
    }
  }
  return plan;
}

std::string plan_id(const SweepPlan& plan) {
  std::string all;
  for (const SweepRun& run : plan.runs) all += run.id;
  return content_id_text(all);
}

}  // namespace metronome
