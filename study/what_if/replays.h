// SPDX-License-Identifier: Apache-2.0
// Replays of a recorded run in the simulator, each with changes of its settings.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/run_record.h"
#include "study/what_if/what_if.h"

namespace metronome {

inline const std::string kNumBlocksKey = "kv_cache.num_blocks";
inline const std::string kPolicyKey = "scheduler.policy";

// The facts of a replay beside its trial.
struct ReplayExtras {
  std::string digest;  // of its decisions
  RunRecord record;
  std::int64_t num_blocks = 0;
};

class Replays {
 public:
  // `run` outlives this object. `hardware`, if not empty, replaces the run's.
  Replays(const StoredRun& run, const std::string& hardware);

  // The run's scenario with `changes`, and what follows from them. Throws ConfigError.
  Scenario scenario_with(const std::vector<Setting>& changes) const;
  // From here on the cache has as many blocks as the run's, unless the run was simulated here and
  // chose them: then a change may change them, as it does for the engine.
  void keep_cache_size(const Scenario& scenario);
  // From here on the host is that of `scenario`: another policy brings no other engine's host.
  void keep_host(const Scenario& scenario);
  // The blocks that a device holds with this share of its memory; 0: unknown.
  std::int64_t blocks_of_share(double share) const;
  // The blocks of the run's settings without a number of blocks; 0: unknown.
  std::int64_t blocks_without_size() const;
  // The settings of every replay.
  const std::vector<Setting>& fixed() const { return fixed_; }
  void take_workload(Workload workload) { workload_ = std::move(workload); }
  const Workload& workload() const { return workload_; }
  // Requests that Trial::reachable_ttft_ms leaves out, ascending.
  void leave_out(std::vector<std::size_t> requests) { left_out_ = std::move(requests); }

  // One replay. Several threads may call it at once. Steps take `step_scale` times as long. Throws
  // ConfigError.
  Trial replay(const std::vector<Setting>& changes, const ProgressFn& progress = {},
               ReplayExtras* extras = nullptr, double step_scale = 1);
  // From here on try_out() ends replays that take longer, in simulated time.
  void end_behind(TimeNs time) { end_behind_ = time; }
  // nullopt if the settings are invalid.
  std::optional<Trial> try_out(const std::vector<Setting>& changes);
  // Prompt tokens that each request finds in a cache of so many blocks, which may be more than the
  // device has room for; with `changes` of the run's settings. nullopt if these are invalid.
  std::optional<std::vector<std::int64_t>> hits_with(std::int64_t num_blocks,
                                                     const std::vector<Setting>& changes = {});
  std::int64_t num_replays() const { return num_replays_; }

 private:
  std::vector<Setting> settings_of(const std::vector<Setting>& changes) const;
  std::int64_t blocks_of(std::vector<Setting> changes) const;
  bool has_chosen(const std::string& key) const;
  std::optional<std::int64_t> capped_seqs(const std::vector<Setting>& changes) const;
  double reachable_ttft_ms(const RunRecord& record) const;

  const StoredRun& run_;
  // The run's scenario is read without what its server chose, which then follows the changes.
  bool follows_server_ = false;
  Json config_;  // of the scenario that is changed
  std::vector<Setting> fixed_;
  std::vector<Setting> policy_fixed_;  // the run's host and graphs, for other policies
  Workload workload_;
  std::vector<std::size_t> left_out_;
  TimeNs end_behind_ = kNever;
  std::atomic<std::int64_t> num_replays_ = 0;
};

}  // namespace metronome
