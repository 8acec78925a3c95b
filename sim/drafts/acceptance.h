// SPDX-License-Identifier: Apache-2.0
// Draws how many drafts of a decode are accepted, and how many are proposed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"
#include "core/scenario/speculative_config.h"
#include "sim/drafts/acceptance_log.h"

namespace metronome {

// A draw depends on the seed, the request and the token's place in its output. So equal requests
// accept alike whatever the policy, the chunk size and the number of drafts.
class Acceptance {
 public:
  // Throws UnplacedConfigError for an unreadable log, or one with fewer positions than drafts.
  Acceptance(const SpeculativeConfig& config, std::uint64_t seed);

  // Of `num_drafts` draft tokens for places `place`, `place` + 1, ... of the request's output,
  // verified in a step that starts at `now`.
  std::int32_t num_accepted(RequestId request, std::int32_t place, std::int32_t num_drafts,
                            TimeNs now) const;
  // Of at most `num_drafts` for the places from `place` on.
  std::int32_t num_proposed(RequestId request, std::int32_t place, std::int32_t num_drafts) const;
  // Whether num_proposed() may be less than asked for.
  bool limits_proposals() const { return proposal_rate_ < 1; }

 private:
  double draw(RequestId request, std::int32_t place, std::uint64_t purpose) const;
  // The probability that draft token i is accepted if those before it were.
  double rate(RequestId request, std::size_t i, TimeNs now) const;

  std::uint64_t seed_;
  std::vector<double> rates_;        // by type of requests; empty: by position
  std::vector<double> shares_;       // of the types, cumulative
  std::vector<AcceptanceLine> log_;  // by position, in time order; the last one goes on
  double proposal_rate_;
};

}  // namespace metronome
