// SPDX-License-Identifier: Apache-2.0
// Causes in a run of several engines: its router's, and those of each engine alone.
#pragma once

#include <vector>

#include "study/what_if/causes.h"

namespace metronome {

// First `gateway`: requests that waited in front of all replicas. Then `router`: requests that
// waited in the queue of a replica while another one had nobody waiting, and a free slot. Then each
// cause of a replica (find_causes), from the replica of which it has the largest share, and with
// its number. Requires replicas in the record.
std::vector<Cause> find_fleet_causes(const CauseFacts& facts);

}  // namespace metronome
