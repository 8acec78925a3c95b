// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/fleet_options.h"

#include <fmt/core.h>

namespace metronome {

void add_fleet_options(FleetOptions& fleet, OptionList& options) {
  options.push_back({"replicas N", &fleet.replicas,
                     "so many engines share the requests: short for --set fleet.replicas=N",
                     EmptyText::Refused, WholeRange{1, 100'000}});
  options.push_back({"router NAME", &fleet.router,
                     "who gives each request to a replica, a name of `metronome list routers`: "
                     "short for --set fleet.router=NAME"});
}

void append_assignments(const FleetOptions& fleet, std::vector<std::string>& assignments) {
  if (fleet.replicas) assignments.push_back(fmt::format("fleet.replicas={}", *fleet.replicas));
  if (fleet.router) assignments.push_back("fleet.router=" + *fleet.router);
}

}  // namespace metronome
