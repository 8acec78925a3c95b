// SPDX-License-Identifier: Apache-2.0
#include "study/run/fleet_records.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/fleet_groups.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "study/run/run_bands.h"

namespace metronome {

namespace {

constexpr std::int64_t kMostRequestsWithSteps = 1'000'000;

}  // namespace

bool keeps_steps(const PreparedVariant& variant) {
  const FleetConfig& fleet = variant.scenario.fleet;
  if (!fleet.is_on()) return true;
  if (fleet.keeps_steps) return *fleet.keeps_steps;
  if (!fleet.steps_of.empty()) return false;
  if (any_has_drafts(fleet_groups(variant.scenario))) return true;
  return variant.scenario.results.steps.value_or(false) ||
         std::ssize(variant.workload->requests) <= kMostRequestsWithSteps;
}

FleetFigures::Options figures_options(const PreparedVariant& variant) {
  const std::vector<RequestSpec>& requests = variant.workload->requests;
  return {variant.scenario.slo, variant.workload->class_names, variant.run->front_end,
          requests.empty() ? 0 : requests.front().arrival};
}

std::string unasked_figures_text(const PreparedVariant& variant) {
  const FleetConfig& fleet = variant.scenario.fleet;
  if (keeps_steps(variant) || fleet.keeps_steps || !fleet.steps_of.empty()) return {};
  return fmt::format("a fleet with more than {} requests keeps no steps, and its percentiles come "
                     "from histograms; fleet.keep_steps=true keeps the steps",
                     grouped_text(kMostRequestsWithSteps));
}

void require_steps(const PreparedVariant& variant) {
  if (keeps_steps(variant)) return;
  fail_config(variant.scenario.location_of("fleet.keep_steps"), "fleet.keep_steps",
              "the steps of all replicas are needed here; allowed: true");
}

EventSink* ChosenReplicas::of_replica(const ReplicaScope& scope) {
  const std::vector<std::int64_t>& wanted = variant_.scenario.fleet.steps_of;
  if (std::find(wanted.begin(), wanted.end(), scope.replica) == wanted.end()) return nullptr;
  chosen_.push_back({scope, std::make_unique<RunRecorder>(scope, variant_.run->front_end)});
  return chosen_.back().recorder.get();
}

std::vector<ReplicaOutcome> ChosenReplicas::finish(const std::string& label) {
  std::vector<ReplicaOutcome> outcomes;
  SimulatedBackend backend;  // no other one has fleets
  const std::vector<FleetGroup> groups = fleet_groups(variant_.scenario);
  std::vector<PreparedVariant> engines(groups.size());
  for (Chosen& chosen : chosen_) {
    std::int64_t first = 0;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const FleetGroup& one) {
      first += one.num_replicas;
      return chosen.scope.replica < first;
    });
    PreparedVariant& engine = engines[static_cast<std::size_t>(group - groups.begin())];
    if (engine.run == nullptr) {
      engine = {group->scenario, backend.prepare(group->scenario), variant_.workload};
    }
    ReplicaOutcome& outcome = outcomes.emplace_back();
    outcome.replica = chosen.scope.replica;
    outcome.record = chosen.recorder->finish();
    outcome.record.class_names = variant_.workload->class_names;
    outcome.result.summary =
        summarize(outcome.record, {variant_.scenario.slo, chosen.scope.num_blocks});
    RunInfo& info = outcome.result.info;
    info = run_info(backend, engine, {});
    info.label = fmt::format("{} replica {}", label, outcome.replica);
    info.num_prompts = std::ssize(outcome.record.requests);
    info.num_blocks = chosen.scope.num_blocks;
    info.accuracy = accuracy_of(*engine.run, outcome.result.summary);
    // The router decides when requests arrive.
    info.request_rate.reset();
    info.burstiness = 1;
    info.max_concurrency.reset();
  }
  return outcomes;
}

}  // namespace metronome
