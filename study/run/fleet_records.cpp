// SPDX-License-Identifier: Apache-2.0
#include "study/run/fleet_records.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/fleet_groups.h"
#include "core/scenario/scenario.h"

namespace metronome {

bool keeps_steps(const PreparedVariant& variant) {
  constexpr std::size_t kMostRequests = 1'000'000;
  const FleetConfig& fleet = variant.scenario.fleet;
  if (!fleet.is_on()) return true;
  if (fleet.keeps_steps) return *fleet.keeps_steps;
  if (!fleet.steps_of.empty()) return false;
  if (any_has_drafts(fleet_groups(variant.scenario))) return true;
  return variant.scenario.results.steps.value_or(false) ||
         variant.workload->requests.size() <= kMostRequests;
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

std::vector<ReplicaOutcome> ChosenReplicas::finish(const RunInfo& whole) {
  std::vector<ReplicaOutcome> outcomes;
  const std::vector<FleetGroup> groups = fleet_groups(variant_.scenario);
  for (Chosen& chosen : chosen_) {
    std::int64_t first = 0;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const FleetGroup& one) {
      first += one.num_replicas;
      return chosen.scope.replica < first;
    });
    ReplicaOutcome& outcome = outcomes.emplace_back();
    outcome.replica = chosen.scope.replica;
    outcome.record = chosen.recorder->finish();
    outcome.record.class_names = variant_.workload->class_names;
    RunInfo& info = outcome.result.info;
    info = whole;
    info.label = fmt::format("{} replica {}", whole.label, outcome.replica);
    info.num_prompts = std::ssize(outcome.record.requests);
    info.request_rate.reset();
    info.num_blocks = chosen.scope.num_blocks;
    info.config = group->scenario.resolved();
    const ScenarioGpus gpus = gpus_of(group->scenario);
    info.num_gpus = gpus.count;
    outcome.result.summary =
        summarize(outcome.record, {variant_.scenario.slo, chosen.scope.num_blocks});
  }
  return outcomes;
}

}  // namespace metronome
