// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/state_times.h"

#include "sim/operators/operator_rows.h"

namespace metronome {
namespace {

// The least of an engine's kernels.
Cells places_of(const std::vector<StateCells>& all, const TableOrigin& origin,
                std::int64_t key_heads, std::int64_t value_heads, bool is_convolution) {
  Cells least;
  for (const StateCells& cells : all) {
    if (cells.origin != origin || cells.key_heads != key_heads ||
        cells.value_heads != value_heads || cells.is_convolution != is_convolution) {
      continue;
    }
    for (const auto& [place, us] : cells.us) keep_least(us, least[place]);
  }
  return least;
}

// Where both were measured.
Cells sum_of_both(const Cells& a, const Cells& b) {
  Cells sums;
  for (const auto& [place, us] : a) {
    if (const auto other = b.find(place); other != b.end()) sums[place] = us + other->second;
  }
  return sums;
}

}  // namespace

std::optional<StateTimes> state_times(const OperatorTables& tables, std::int64_t key_heads,
                                      std::int64_t value_heads, std::vector<std::string>& remarks) {
  const auto sums_of = [&](const std::vector<StateCells>& all, const TableOrigin& origin) {
    return sum_of_both(places_of(all, origin, key_heads, value_heads, true),
                       places_of(all, origin, key_heads, value_heads, false));
  };
  for (const StateCells& first : tables.context_states) {
    const Cells prompts = sums_of(tables.context_states, first.origin);
    const Cells decodes = sums_of(tables.decode_states, first.origin);
    if (prompts.empty() || decodes.empty()) continue;
    StateTimes times;
    times.prompts = grid_of(prompts, false);
    raise_to_earlier(times.prompts);
    for (const auto& [place, us] : decodes) {
      if (place.second != 1) continue;
      times.decodes.x.push_back(place.first);
      times.decodes.us.push_back(us);
    }
    if (times.decodes.empty()) continue;
    raise_to_earlier(times.decodes);
    if (first.origin.engine != tables.meta.engine) {
      remarks.push_back("linear attention: of " + first.origin.text());
    }
    return times;
  }
  return std::nullopt;
}

}  // namespace metronome
