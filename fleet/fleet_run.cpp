// SPDX-License-Identifier: Apache-2.0
#include "fleet/fleet_run.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/base/rng.h"
#include "core/scenario/fleet_groups.h"

namespace metronome {
namespace {

// Replicas of which each draws for itself have a seed each; the first one has the scenario's.
bool draws(const Scenario& scenario) {
  return scenario.cost_model.noise != StepNoise::None || scenario.speculative.has_drafts();
}

std::string text_of(const FleetConfig& fleet, const std::vector<FleetGroup>& groups) {
  const RouterInfo& router = *find_router(fleet.router);
  std::string text = fmt::format("{} {} behind {}", fleet.replicas,
                                 fleet.replicas == 1 ? "replica" : "replicas", router.name);
  if (fleet.scaling.is_on() && fleet.scaling.min_replicas < fleet.replicas) {
    text = fmt::format("{} to {}", fleet.scaling.min_replicas, text);
  }
  if (!router.source.empty()) text += fmt::format(" ({})", router.source);
  for (const FleetGroup& group : groups) {
    if (group.changed.empty()) continue;
    text += fmt::format("; {} with", group.num_replicas);
    for (const std::string& setting : group.changed) text += " " + setting;
  }
  return text;
}

TimeNs report_interval(const FleetConfig& fleet, const RouterInfo& router) {
  if (router.report_ms == 0) return 0;
  return std::llround(fleet.report_ms.value_or(router.report_ms) * 1e6);
}

void check_blocks(const Scenario& scenario, const FleetSetup& fleet) {
  if (!fleet.router->hears_blocks) return;
  const KvCacheLayout& first = fleet.simulations.front()->setup.kv_cache;
  for (const Simulation* const simulation : fleet.simulations) {
    const KvCacheLayout& layout = simulation->setup.kv_cache;
    const bool is_alike = layout.block_size == first.block_size &&
                          layout.states.hash_unit == first.states.hash_unit &&
                          layout.num_hash_lookahead_tokens == first.num_hash_lookahead_tokens;
    if (is_alike) continue;
    fail_config(scenario.location_of("fleet.router"), "fleet.router",
                fmt::format("{} compares KV blocks, and those of the replicas differ; allowed: "
                            "replicas with one kv_cache.block_size, or another router",
                            fleet.router->name));
  }
}

}  // namespace

FleetRun::FleetRun(const Scenario& scenario, std::int32_t num_threads) {
  const std::vector<FleetGroup> groups = fleet_groups(scenario);
  const FleetConfig& config = scenario.fleet;
  fleet_.num_threads = std::clamp(num_threads, 1, static_cast<std::int32_t>(config.replicas));
  const auto num_lanes = static_cast<std::size_t>(fleet_.num_threads);
  for (const FleetGroup& group : groups) {
    // Equal replicas of a thread share a simulation.
    std::vector<Simulation*> shared(num_lanes);
    for (std::int64_t i = 0; i < group.num_replicas; ++i) {
      const std::size_t number = fleet_.simulations.size();
      Simulation*& own_simulation = shared[number % num_lanes];
      if (own_simulation == nullptr || draws(group.scenario)) {
        Scenario own = group.scenario;
        if (number > 0 && draws(own)) own.seed = mix64(own.seed ^ mix64(number));
        simulations_.push_back(std::make_unique<Simulation>(prepare_simulation(own)));
        own_simulation = simulations_.back().get();
      }
      fleet_.simulations.push_back(own_simulation);
    }
    const std::string& gpu = simulations_.back()->device;
    if (device.find(gpu) == std::string::npos) device += (device.empty() ? "" : ", ") + gpu;
  }
  const ScenarioGpus gpus = gpus_of(scenario);
  num_gpus = gpus.count;
  if (gpus.price_per_hour) {
    price_per_gpu_hour = *gpus.price_per_hour / static_cast<double>(num_gpus);
  }
  const Simulation& usual = *simulations_.back();
  model = usual.model;
  setup = usual.setup;
  front_end = usual.front_end;
  predictor = usual.predictor;
  warning = usual.warning;
  fleet_.router = find_router(config.router);
  METRONOME_CHECK(fleet_.router != nullptr, "reading refuses unknown routers");
  fleet_.router_settings = config.settings;
  fleet_.router_seed =
      config.router_seed ? static_cast<std::uint64_t>(*config.router_seed) : scenario.seed;
  fleet_.shuffles_replicas = config.shuffles_replicas;
  fleet_.report_interval = report_interval(config, *fleet_.router);
  fleet_.gateway = GatewayRules::of(scenario);
  fleet_.scaling = ScalingRules::of(scenario);
  fleet_.failures = planned_failures(scenario);
  fleet_.slo = scenario.slo;
  classes_at_ = scenario.location_of("fleet.gateway.classes");
  fleet_text = text_of(config, groups);
  check_blocks(scenario, fleet_);
}

void FleetRun::check_workload(const Workload& workload) const {
  for (const std::unique_ptr<Simulation>& simulation : simulations_) {
    simulation->check_workload(workload);
  }
  const std::vector<std::string_view> known(workload.class_names.begin(),
                                            workload.class_names.end());
  for (const GatewayClass& one : fleet_.gateway.classes) {
    if (std::find(known.begin(), known.end(), one.name) != known.end()) continue;
    fail_config(classes_at_, "fleet.gateway.classes",
                fmt::format("no request has class '{}'; allowed: {}", one.name,
                            known.empty() ? "none, as requests have no class" : join_names(known)));
  }
}

void FleetRun::draw_noise(std::int32_t n) {
  for (const std::unique_ptr<Simulation>& simulation : simulations_) simulation->draw_noise(n);
}

void FleetRun::scale_steps(double factor) {
  for (const std::unique_ptr<Simulation>& simulation : simulations_) {
    simulation->scale_steps(factor);
  }
}

std::optional<TimeAccuracy> FleetRun::accuracy(double num_in_system) const {
  return simulations_.front()->accuracy(num_in_system /
                                        static_cast<double>(fleet_.simulations.size()));
}

RunOutcome FleetRun::run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                         const ProgressFn& progress) {
  FleetLoop loop(fleet_, workload, sinks);
  RunOutcome outcome;
  outcome.completed = loop.run(progress);
  outcome.num_unsent = loop.num_unsent();
  clock.wait_until(loop.now());
  for (const EndReason reason :
       {EndReason::NeverFits, EndReason::QueueFull, EndReason::StepFailed}) {
    for (const std::unique_ptr<Replica>& replica : loop.replicas()) {
      const FirstFailure& first = replica->engine().first_failure(reason);
      if (first.text.empty()) continue;
      outcome.messages.push_back(
          {reason, fmt::format("request {}: {}", replica->number_of(first.request), first.text)});
      break;
    }
  }
  const bool has_refusal = std::any_of(
      outcome.messages.begin(), outcome.messages.end(),
      [](const FailureMessage& message) { return message.reason == EndReason::QueueFull; });
  if (!has_refusal && !loop.first_refusal().empty()) {
    outcome.messages.push_back({EndReason::QueueFull, loop.first_refusal()});
  }
  if (!loop.first_loss().empty()) {
    outcome.messages.push_back({EndReason::Errored, loop.first_loss()});
  }
  for (const std::unique_ptr<Replica>& replica : loop.replicas()) {
    if (outcome.remark.empty()) outcome.remark = replica->engine().remark();
  }
  return outcome;
}

void FleetRun::serve(RequestFeed&, Clock&, std::span<EventSink* const>) {
  METRONOME_CHECK(false, "a fleet is not served");
}

std::unique_ptr<PreparedRun> FleetBackend::prepare(const Scenario& scenario) {
  if (!scenario.fleet.is_on()) return SimulatedBackend().prepare(scenario);
  return std::make_unique<FleetRun>(scenario, num_threads_);
}

}  // namespace metronome
