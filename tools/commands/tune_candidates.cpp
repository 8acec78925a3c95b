// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_candidates.h"

#include <exception>
#include <map>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"
#include "fleet/fleet_run.h"
#include "study/sweep/sweep_points.h"

namespace metronome {
namespace {

void check_keys(const SweepSpec& spec) {
  const auto check = [](const std::string& key, const std::string& where) {
    if (key != "seed" && !key.starts_with("workload.") && !key.starts_with("slo.")) return;
    throw UsageError(where + ": '" + key +
                     "' is not a setting of an engine: requests and limits are the same for all; "
                     "allowed: any key but seed and those of workload and slo");
  };
  for (const SweptKey& swept : spec.over) check(swept.key, swept.where);
  for (const std::vector<Assignment>& point : spec.points) {
    for (const auto& [key, value] : point) check(key, spec.points_where);
  }
}

// Variants that differ only in their names are one candidate, with all of their names.
void join_alike(TuneCandidates& candidates) {
  std::vector<SweepRun> runs;
  std::vector<std::string> names;
  std::map<std::string, std::size_t> known;  // by configuration
  for (std::size_t i = 0; i < candidates.names.size(); ++i) {
    SweepRun& run = candidates.plan.runs[i];
    const auto [entry, is_new] = known.emplace(run.scenario.to_json(), runs.size());
    if (is_new) {
      runs.push_back(std::move(run));
      names.push_back(candidates.names[i]);
    } else {
      names[entry->second] += ", " + candidates.names[i];
    }
  }
  candidates.plan.rows.clear();
  candidates.plan.runs = std::move(runs);
  candidates.names = std::move(names);
}

}  // namespace

TuneCandidates find_candidates(const SweepRequest& request, const std::vector<std::string>& over,
                               const ScenarioFile& file, int num_jobs) {
  TuneCandidates candidates;
  SweepSpec spec;
  if (!over.empty() || file.sweep.kind != ConfigNode::Kind::Null) spec = read_sweep(file, over);
  check_keys(spec);
  candidates.plan = plan_sweep(request, spec, num_jobs);
  candidates.names.resize(candidates.plan.runs.size());
  for (const SweepRow& row : candidates.plan.rows) {
    std::string& name = candidates.names[row.run];
    if (!name.empty()) continue;
    if (file.has_variants) name = candidates.plan.runs[row.run].scenario.name;
    for (const auto& [key, value] : row.values) {
      name += (name.empty() ? "" : " ") + key + "=" + value;
    }
    if (name.empty()) name = candidates.plan.runs[row.run].scenario.name;
  }
  join_alike(candidates);
  leave_out_refused(candidates);
  return candidates;
}

void check_alike(const SweepPlan& plan) {
  const auto text = [](const Scenario& scenario) {
    const Json config = scenario.resolved();
    return config.at("workload").dump() + config.at("slo").dump() + config.at("seed").dump();
  };
  const Scenario& first = plan.runs.front().scenario;
  for (const SweepRun& run : plan.runs) {
    if (text(run.scenario) == text(first)) continue;
    throw UsageError("tune: " + printable(run.scenario.name) +
                     " has a different workload, slo or seed than " + printable(first.name) +
                     "; allowed: variants with the same ones, chosen by --variant");
  }
}

void leave_out_refused(TuneCandidates& candidates) {
  std::vector<SweepRun> runs;
  std::vector<std::string> names;
  std::exception_ptr first;
  for (std::size_t i = 0; i < candidates.plan.runs.size(); ++i) {
    SweepRun& run = candidates.plan.runs[i];
    try {
      (void)FleetBackend().prepare(run.scenario);
    } catch (const ConfigError& error) {
      if (!first) first = std::current_exception();
      candidates.plan.invalid.push_back(candidates.names[i] + ": " + error.what());
      continue;
    }
    runs.push_back(std::move(run));
    names.push_back(std::move(candidates.names[i]));
  }
  if (runs.empty()) std::rethrow_exception(first);
  candidates.plan.runs = std::move(runs);
  candidates.names = std::move(names);
}

}  // namespace metronome
