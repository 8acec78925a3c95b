// SPDX-License-Identifier: Apache-2.0
// Shared by the files that draw requests.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// Sets mode and arrivals. Requires at least one request. `purpose` names the stream of random
// numbers.
void set_arrivals(const ArrivalConfig& config, std::uint64_t seed, Workload& workload,
                  std::string_view purpose = "arrivals");

// Draws the requests of classes: workload_classes.cpp. Their arrivals are those of their rates, or
// all 0 where they have none.
Workload draw_classes(const WorkloadConfig& config, std::uint64_t seed);

// Gives requests the priorities of their classes, and limits of output tokens.
void apply_classes_and_limit(const WorkloadConfig& config, Workload& workload);

}  // namespace metronome
