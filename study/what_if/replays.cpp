// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/replays.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"

namespace metronome {
namespace {

const std::string kMaxNumSeqs = "engine.max_num_seqs";
const std::string kMaxGraphTokens = "cost_model.max_graph_tokens";

}  // namespace

Replays::Replays(const StoredRun& run, const std::string& hardware) : run_(run) {
  if (!hardware.empty()) fixed_.push_back({"hardware", hardware});
  const RunInfo& info = run.result.info;
  follows_server_ = hardware.empty() && info.backend == kBackendNames[0];
  config_ = info.config;
  if (!follows_server_) return;
  for (const auto& [key, reason] : info.config_reasons.items()) {
    const std::size_t dot = key.find('.');
    config_.at(key.substr(0, dot)).erase(key.substr(dot + 1));
  }
}

std::vector<Setting> Replays::settings_of(const std::vector<Setting>& changes) const {
  std::vector<Setting> all = fixed_;
  const bool is_other = is_other_policy(changes);
  if (is_other) all.insert(all.end(), policy_fixed_.begin(), policy_fixed_.end());
  all.insert(all.end(), changes.begin(), changes.end());
  if (follows_server_ && !is_other) return all;
  if (const auto seqs = capped_seqs(changes)) all.push_back({kMaxNumSeqs, *seqs});
  if (!is_other && has_chosen(kMaxGraphTokens)) all.push_back({kMaxGraphTokens, "auto"});
  return all;
}

Scenario Replays::scenario_with(const std::vector<Setting>& changes) const {
  // With another policy, what the run's server chose stays.
  const Json& config = is_other_policy(changes) ? run_.result.info.config : config_;
  return scenario_of_config(run_, config, settings_of(changes));
}

void Replays::keep_cache_size(const Scenario& scenario) {
  if (scenario.kv_cache.backend != KvBackend::Paged || scenario.kv_cache.num_blocks) return;
  const std::int64_t num_blocks = run_.result.info.num_blocks;
  if (follows_server_ && prepare_simulation(scenario).setup.kv_cache.num_blocks == num_blocks) {
    return;
  }
  fixed_.push_back({kNumBlocksKey, num_blocks});
}

void Replays::keep_host(const Scenario& scenario) {
  const auto* first_own = std::begin(kBackendNames) + 1;  // behind the simulator
  const bool is_own = std::find(first_own, std::end(kBackendNames), run_.result.info.backend) !=
                      std::end(kBackendNames);
  const HostSettings host = host_settings(is_own ? on_own_engine(scenario) : scenario);
  std::vector<Setting>& kept = is_own ? fixed_ : policy_fixed_;
  kept.insert(kept.end(), host.times.begin(), host.times.end());
  policy_fixed_.insert(policy_fixed_.end(), host.graphs.begin(), host.graphs.end());
}

std::int64_t Replays::blocks_of(std::vector<Setting> changes) const {
  changes.insert(changes.begin(), Setting{kNumBlocksKey, "auto"});
  try {
    return prepare_simulation(scenario_with(changes)).setup.kv_cache.num_blocks;
  } catch (const ConfigError&) {
    return 0;
  }
}

std::int64_t Replays::blocks_of_share(double share) const {
  return blocks_of({setting_of("cost_model.gpu_memory_utilization", fixed_text(share, 3))});
}

std::int64_t Replays::blocks_without_size() const { return blocks_of({}); }

std::optional<Trial> Replays::try_out(const std::vector<Setting>& changes) {
  try {
    bool is_cut_short = false;
    Trial trial = replay(changes, [&](const RunProgress& now) {
      is_cut_short = now.now > end_behind_;
      return !is_cut_short;
    });
    trial.is_cut_short = is_cut_short;
    return trial;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Trial Replays::replay(const std::vector<Setting>& changes, const ProgressFn& progress,
                      ReplayExtras* extras, double step_scale) {
  Trial trial;
  trial.changes = changes;
  trial.settings = settings_of(changes);
  trial.scenario = scenario_with(changes);
  Simulation simulation = prepare_simulation(trial.scenario);
  EventDigest fingerprint;
  RunRecorder recorder(workload_.requests.size(), simulation.front_end);
  std::vector<EventSink*> sinks = {&recorder};
  if (extras != nullptr) sinks.push_back(&fingerprint);
  VirtualClock clock;
  check_workload(trial.scenario, simulation, workload_);
  simulation.scale_steps(step_scale);
  simulation.run(workload_, clock, sinks, progress);
  ++num_replays_;
  RunRecord record = recorder.finish();
  record.class_names = workload_.class_names;
  const std::int64_t num_blocks = simulation.setup.kv_cache.num_blocks;
  trial.summary = summarize(record, {trial.scenario.slo, num_blocks});
  trial.reachable_ttft_ms =
      left_out_.empty() ? trial.summary.ttft.p99_ms : reachable_ttft_ms(record);
  for (const RequestRecord& request : record.requests) {
    trial.num_prefix_hit_tokens += request.num_prefix_hit_tokens;
  }
  if (extras != nullptr) *extras = {fingerprint.hex(), std::move(record), num_blocks};
  return trial;
}

std::optional<std::vector<std::int64_t>> Replays::hits_with(std::int64_t num_blocks,
                                                            const std::vector<Setting>& changes) {
  try {
    const Scenario scenario = scenario_with(changes);
    Simulation simulation = prepare_simulation(scenario);
    simulation.setup.kv_cache.num_blocks = num_blocks;
    RunRecorder recorder(workload_.requests.size(), simulation.front_end);
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    check_workload(scenario, simulation, workload_);
    simulation.run(workload_, clock, sinks);
    ++num_replays_;
    std::vector<std::int64_t> hits;
    for (const RequestRecord& request : recorder.finish().requests) {
      hits.push_back(request.num_prefix_hit_tokens);
    }
    return hits;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

double Replays::reachable_ttft_ms(const RunRecord& record) const {
  std::vector<double> sample;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (!request.completed() || request.first_token == kNoTime) continue;
    if (std::binary_search(left_out_.begin(), left_out_.end(), i)) continue;
    sample.push_back(static_cast<double>(request.ttft_ns()));
  }
  return describe(sample).p99_ms;
}

// Whether the run's server chose this setting by itself.
bool Replays::has_chosen(const std::string& key) const {
  return run_.result.info.config_reasons.contains(key);
}

// vLLM's server lowers the number of sequences that it chose by itself to a smaller token budget.
std::optional<std::int64_t> Replays::capped_seqs(const std::vector<Setting>& changes) const {
  if (!has_chosen(kMaxNumSeqs)) return std::nullopt;
  const Json& config = run_.result.info.config;
  const auto seqs = config.at("engine").at("max_num_seqs").get<std::int64_t>();
  for (const Setting& change : changes) {
    if (change.key != "scheduler.max_num_batched_tokens") continue;
    const auto budget = change.value.get<std::int64_t>();
    if (budget < seqs) return budget;
  }
  return std::nullopt;
}

}  // namespace metronome
