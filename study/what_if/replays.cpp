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

// A change of the policy comes first.
bool is_other_policy(const std::vector<std::string>& changes) {
  return !changes.empty() && changes.front().starts_with("scheduler.policy=");
}

}  // namespace

std::string assignment(const std::string& key, std::int64_t value) {
  return key + "=" + std::to_string(value);
}

Replays::Replays(const StoredRun& run, double target_ms, const std::string& hardware,
                 const std::function<void(const std::string&)>& start, const ProgressFn& progress)
    : run_(run), target_ms_(target_ms), start_(start), progress_(progress) {
  if (!hardware.empty()) fixed_.push_back("hardware=" + hardware);
  const RunInfo& info = run.result.info;
  follows_server_ = hardware.empty() && info.backend == kBackendNames[0];
  config_ = info.config;
  if (!follows_server_) return;
  for (const auto& [key, reason] : info.config_reasons.items()) {
    const std::size_t dot = key.find('.');
    config_.at(key.substr(0, dot)).erase(key.substr(dot + 1));
  }
}

std::vector<std::string> Replays::assignments_of(const std::vector<std::string>& changes) const {
  std::vector<std::string> all = fixed_;
  const bool is_other = is_other_policy(changes);
  if (is_other) all.insert(all.end(), policy_fixed_.begin(), policy_fixed_.end());
  all.insert(all.end(), changes.begin(), changes.end());
  if (follows_server_ && !is_other) return all;
  if (const auto seqs = capped_seqs(changes)) all.push_back(assignment(kMaxNumSeqs, *seqs));
  if (!is_other && has_chosen(kMaxGraphTokens)) all.push_back(kMaxGraphTokens + "=auto");
  return all;
}

Scenario Replays::scenario_with(const std::vector<std::string>& changes) const {
  // With another policy, what the run's server chose stays.
  const Json& config = is_other_policy(changes) ? run_.result.info.config : config_;
  return scenario_of(run_, config, assignments_of(changes));
}

void Replays::keep_cache_size(const Scenario& scenario) {
  if (scenario.kv_cache.backend != KvBackend::Paged || scenario.kv_cache.num_blocks) return;
  const std::int64_t num_blocks = run_.result.info.num_blocks;
  if (follows_server_ && prepare_simulation(scenario).setup.kv_cache.num_blocks == num_blocks) {
    return;
  }
  fixed_.push_back(assignment(kNumBlocksKey, num_blocks));
}

void Replays::keep_host(const Scenario& scenario) {
  const auto* first_own = std::begin(kBackendNames) + 1;  // behind the simulator
  const bool is_own = std::find(first_own, std::end(kBackendNames), run_.result.info.backend) !=
                      std::end(kBackendNames);
  const HostSettings host = host_settings(is_own ? on_own_engine(scenario) : scenario);
  std::vector<std::string>& kept = is_own ? fixed_ : policy_fixed_;
  kept.insert(kept.end(), host.times.begin(), host.times.end());
  policy_fixed_.insert(policy_fixed_.end(), host.graphs.begin(), host.graphs.end());
}

std::int64_t Replays::blocks_of(std::vector<std::string> changes) const {
  changes.insert(changes.begin(), kNumBlocksKey + "=auto");
  try {
    return prepare_simulation(scenario_with(changes)).setup.kv_cache.num_blocks;
  } catch (const ConfigError&) {
    return 0;
  }
}

std::int64_t Replays::blocks_of_share(double share) const {
  return blocks_of({"cost_model.gpu_memory_utilization=" + fixed_text(share, 3)});
}

std::int64_t Replays::blocks_without_size() const { return blocks_of({}); }

std::optional<Trial> Replays::try_out(const std::vector<std::string>& changes) {
  try {
    return replay(changes, nullptr);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Trial Replays::replay(const std::vector<std::string>& changes, std::string* digest) {
  Trial trial;
  trial.changes = changes;
  trial.assignments = assignments_of(changes);
  trial.scenario = scenario_with(changes);
  Simulation simulation = prepare_simulation(trial.scenario);
  EventDigest fingerprint;
  RunRecorder recorder(workload_.requests.size(), simulation.front_end);
  EventSink* sinks[] = {&fingerprint, &recorder};
  VirtualClock clock;
  start_(changes.empty() ? std::string("as recorded") : changes.back());
  check_workload(trial.scenario, simulation, workload_);
  simulation.run(workload_, clock, sinks, progress_);
  ++num_replays_;
  trial.summary =
      summarize(recorder.finish(), {run_.result.info.slo, simulation.setup.kv_cache.num_blocks});
  trial.keeps_p99 = trial.summary.itl.count > 0 && trial.summary.itl.p99_ms <= target_ms_;
  trial.keeps_all = trial.summary.itl.count > 0 && trial.summary.itl.max_ms <= target_ms_;
  if (digest != nullptr) *digest = fingerprint.hex();
  return trial;
}

// Whether the run's server chose this setting by itself.
bool Replays::has_chosen(const std::string& key) const {
  return run_.result.info.config_reasons.contains(key);
}

// vLLM's server lowers the number of sequences that it chose by itself to a smaller token budget.
std::optional<std::int64_t> Replays::capped_seqs(const std::vector<std::string>& changes) const {
  if (!has_chosen(kMaxNumSeqs)) return std::nullopt;
  const Json& config = run_.result.info.config;
  const auto seqs = config.at("engine").at("max_num_seqs").get<std::int64_t>();
  const std::string prefix = "scheduler.max_num_batched_tokens=";
  for (const std::string& change : changes) {
    if (!change.starts_with(prefix)) continue;
    const std::int64_t budget = std::stoll(change.substr(prefix.size()));
    if (budget < seqs) return budget;
  }
  return std::nullopt;
}

}  // namespace metronome
