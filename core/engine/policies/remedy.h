// SPDX-License-Identifier: Apache-2.0
// Settings of a policy that may shorten stalls, as `metronome diagnose` tries them.
#pragma once

#include <cstdint>
#include <string_view>

namespace metronome {

enum class RemedyKind : std::uint8_t {
  Switch,       // `value` where the run has `only_from`: with its size of a step, then smaller ones
  SmallerWith,  // smaller sizes of a step, with `value`; tried last
  Tokens,       // smaller limits of tokens, from the run's, or from its budget
  Count,        // smaller limits, from the run's, or from `from`
  Reserve,      // larger shares; for runs that lose KV blocks
};

// A key of `scheduler:` with a value as YAML has it.
struct PolicySetting {
  std::string_view key;
  std::string_view value;
};

struct Remedy {
  RemedyKind kind = RemedyKind::Switch;
  std::string_view key;  // of `scheduler:`
  std::string_view value = {};
  std::string_view only_from = {};
  std::string_view only_key = {};  // and where the run has, for this key, `only_value`
  std::string_view only_value = {};
  std::int64_t from = 0;  // Count: where the run has no limit; 0: engine.max_num_seqs
};

}  // namespace metronome
