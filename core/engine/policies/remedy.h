// SPDX-License-Identifier: Apache-2.0
// Settings of a policy and of its engine that may shorten stalls or bring first tokens earlier, as
// `metronome diagnose` tries them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace metronome {

enum class RemedyKind : std::uint8_t {
  Switch,       // `value` where the run has `only_from`: with its size of a step, then smaller ones
  SmallerWith,  // smaller sizes of a step, with `value`; tried last
  Tokens,       // smaller limits of tokens, from the run's, or from its budget
  Count,        // smaller limits, from the run's, or from `from`
  Larger,       // larger limits, doubled from the run's, or from `from`, up to `most`
  Rising,       // 1, 2, 4, ... from `from` on, above the run's, up to `most`
  Choice,       // each other value of `values`
  Reserve,      // larger shares; for runs that lose KV blocks
};

// A key of `scheduler:` with a value as YAML has it.
struct PolicySetting {
  std::string_view key;
  std::string_view value;
};

struct Remedy {
  RemedyKind kind = RemedyKind::Switch;
  std::string_view key;  // of `scheduler:`; with a dot, of the scenario: "engine.async_depth"
  std::string_view value = {};
  std::string_view only_from = {};
  std::string_view only_key = {};  // and where the run has, for this key, `only_value`
  std::string_view only_value = {};
  // Where the run has no limit; 0: engine.max_num_seqs (Count), or none. Of Rising, the first.
  std::int64_t from = 0;
  std::int64_t most = 0;                              // of Larger and Rising
  std::span<const std::string_view> values = {};      // of Choice, as in YAML
  std::span<const PolicySetting> together_with = {};  // these settings
};

}  // namespace metronome
