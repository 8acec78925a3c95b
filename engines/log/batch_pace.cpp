// SPDX-License-Identifier: Apache-2.0
#include "engines/log/batch_pace.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/real.h"
#include "engines/log/log_dialect.h"

namespace metronome {

double logged_decode_pace(const LogObservation& decode) {
  constexpr double kSlowestTokenNs = 1e10;  // no server reaches it; sums keep in their range
  return std::min(real(decode.num_running) / decode.decode_rate * 1e9, kSlowestTokenNs);
}

// The time between two Prefill lines is that of the second batch, and of what ran between them. So
// the batches that followed directly have the shortest time per token: a low percentile, by tokens.
double logged_prefill_pace(std::span<const LogObservation> observations) {
  constexpr std::int64_t kLargeBatch = 256;  // tokens; for small ones it is the time of the weights
  constexpr double kShare = 0.1;
  for (const std::int64_t least : {kLargeBatch, std::int64_t{1}}) {
    std::vector<std::pair<double, double>> costs;  // per token, tokens
    double total = 0;
    for (const LogObservation& seen : observations) {
      if (seen.kind != Observed::Prefill || seen.elapsed_ns == 0) continue;
      if (seen.num_prefill_tokens < least) continue;
      const double tokens = real(seen.num_prefill_tokens);
      costs.emplace_back(real(seen.elapsed_ns) / tokens, tokens);
      total += tokens;
    }
    std::sort(costs.begin(), costs.end());
    double sum = 0;
    for (const auto& [cost, tokens] : costs) {
      sum += tokens;
      if (sum >= kShare * total) return cost;
    }
  }
  return 0;
}

}  // namespace metronome
