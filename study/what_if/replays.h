// SPDX-License-Identifier: Apache-2.0
// Replays of a recorded run in the simulator, each with changes of its settings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "study/what_if/what_if.h"

namespace metronome {

inline const std::string kNumBlocksKey = "kv_cache.num_blocks";

// "key=value".
std::string assignment(const std::string& key, std::int64_t value);

class Replays {
 public:
  // `run`, `start` and `progress` outlive this object. `hardware`, if not empty, replaces the
  // run's.
  Replays(const StoredRun& run, double target_ms, const std::string& hardware,
          const std::function<void(const std::string&)>& start, const ProgressFn& progress);

  // The run's scenario with `changes`, and what follows from them. Throws ConfigError.
  Scenario scenario_with(const std::vector<std::string>& changes) const;
  // From here on the cache has as many blocks as the run's, unless the run was simulated here and
  // chose them: then a change may change them, as it does for the engine.
  void keep_cache_size(const Scenario& scenario);
  // From here on the host is that of `scenario`: another policy brings no other engine's host.
  void keep_host(const Scenario& scenario);
  // The blocks that a device holds with this share of its memory; 0: unknown.
  std::int64_t blocks_of_share(double share) const;
  // The blocks of the run's settings without a number of blocks; 0: unknown.
  std::int64_t blocks_without_size() const;
  // The assignments of every replay.
  const std::vector<std::string>& fixed() const { return fixed_; }
  void take_workload(Workload workload) { workload_ = std::move(workload); }

  // One replay; sets `digest`, if there is one, to that of its decisions. Throws ConfigError.
  Trial replay(const std::vector<std::string>& changes, std::string* digest);
  // nullopt if the settings are invalid.
  std::optional<Trial> try_out(const std::vector<std::string>& changes);
  std::int64_t num_replays() const { return num_replays_; }

 private:
  std::vector<std::string> assignments_of(const std::vector<std::string>& changes) const;
  std::int64_t blocks_of(std::vector<std::string> changes) const;
  bool has_chosen(const std::string& key) const;
  std::optional<std::int64_t> capped_seqs(const std::vector<std::string>& changes) const;

  const StoredRun& run_;
  double target_ms_;
  const std::function<void(const std::string&)>& start_;
  const ProgressFn& progress_;
  // The run's scenario is read without what its server chose, which then follows the changes.
  bool follows_server_ = false;
  Json config_;  // of the scenario that is changed
  std::vector<std::string> fixed_;
  std::vector<std::string> policy_fixed_;  // the run's host and graphs, for other policies
  Workload workload_;
  std::int64_t num_replays_ = 0;
};

}  // namespace metronome
