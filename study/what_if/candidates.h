// SPDX-License-Identifier: Apache-2.0
// The settings that a search for shorter stalls and earlier first tokens tries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/policies/registry.h"
#include "core/scenario/setting.h"

namespace metronome {

struct Scenario;

// Values of one setting to try, nearest to the run's first, together with fixed `others`.
struct Family {
  std::vector<Setting> others;
  std::string key;                   // empty: only `others`, once
  std::vector<std::int64_t> values;  // for an empty key, one unused value
  // A value nearer to the run's than the first one; the run's own, if `others` is empty. nullopt:
  // there is none.
  std::optional<std::int64_t> failing = {};
  std::int64_t grain = 1;  // values between two powers of two are multiples of this
  // Smaller groups are smaller changes: memory, sizes of a step, other settings, other policies.
  int group = 0;

  std::vector<Setting> settings(std::int64_t value) const;
};

class Candidates {
 public:
  // Keeps a reference to the scenario.
  explicit Candidates(const Scenario& scenario);

  // Every single change of the run's engine: tokens of a step, or of a chunk if the policy has no
  // budget; the rows of its policy (PolicyInfo::remedies); drafts; requests at once. In this order.
  std::vector<Family> own_settings() const;
  // Larger reserves for outputs: fewer requests at once, and fewer that lose their blocks.
  std::vector<Family> reserves() const;
  // More KV blocks than `now`, up to `most`.
  static Family more_blocks(std::int64_t now, std::int64_t most);
  // In the place of a policy of our own, with the target for the longest gap.
  std::vector<Family> other_policies(double target_ms) const;

 private:
  void add_remedy(const Remedy& remedy, std::vector<Family>& families) const;
  void add_sizes(std::vector<Family>& families) const;
  void add_drafts(std::vector<Family>& families) const;
  void add_requests(std::vector<Family>& families) const;
  // Whether a key has this value, written as in YAML.
  bool has(std::string_view key, std::string_view yaml) const;
  // The run's limit; nullopt if it has none.
  std::optional<std::int64_t> current(const std::string& key) const;
  std::optional<std::int64_t> current_size() const;
  Family smaller_sizes(std::vector<Setting> others) const;

  const Scenario& scenario_;
  const PolicyInfo& policy_;
};

}  // namespace metronome
