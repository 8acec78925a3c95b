// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/fleet_text.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/count_text.h"
#include "core/base/number_text.h"

namespace metronome {
namespace {

std::string line_of(const FleetEvent& event) {
  std::string line = fmt::format("{:>11} s  replica {} {}", grouped_text(to_seconds(event.time), 3),
                                 event.replica, to_string(event.change));
  if (!event.cause.empty()) line += fmt::format(": {}", event.cause);
  if (event.num_retried > 0) {
    line += fmt::format("; {} began anew", count_text(event.num_retried, "request"));
  }
  if (event.num_lost > 0) {
    line += fmt::format("; {} {} lost", count_text(event.num_lost, "request"),
                        event.num_lost == 1 ? "was" : "were");
  }
  return line;
}

}  // namespace

std::vector<std::string> fleet_event_lines(std::span<const FleetEvent> events) {
  constexpr std::size_t kMost = 40;
  std::vector<std::string> lines;
  for (const FleetEvent& event : events.first(std::min(events.size(), kMost))) {
    lines.push_back(line_of(event));
  }
  if (events.size() > kMost) {
    lines.push_back(fmt::format("{:>13}  and {} more: fleet_events of result.json", "",
                                grouped_text(static_cast<std::int64_t>(events.size() - kMost))));
  }
  return lines;
}

}  // namespace metronome
