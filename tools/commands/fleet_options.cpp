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

void add_steps_option(FleetOptions& fleet, OptionList& options) {
  options.push_back({"steps-of LIST", &fleet.steps_of,
                     "keep the steps of these replicas of a fleet alone, as 0,5, or none: memory "
                     "does not grow with the others' steps; short for --set "
                     "fleet.steps_of=[LIST]"});
}

void append_assignments(const FleetOptions& fleet, std::vector<std::string>& assignments) {
  if (fleet.replicas) assignments.push_back(fmt::format("fleet.replicas={}", *fleet.replicas));
  if (fleet.steps_of) {
    assignments.push_back("fleet.keep_steps=false");
    const bool is_none = *fleet.steps_of == "none";
    assignments.push_back(fmt::format("fleet.steps_of=[{}]", is_none ? "" : *fleet.steps_of));
  }
  if (fleet.router) assignments.push_back("fleet.router=" + *fleet.router);
}

}  // namespace metronome
