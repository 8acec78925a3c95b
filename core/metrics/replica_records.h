// SPDX-License-Identifier: Apache-2.0
// Joins the records of several engines that shared the requests of a run.
#pragma once

#include <vector>

#include "core/engine/event.h"

namespace metronome {

struct RunRecord;

// `parts` are by engine, each with requests as that engine counts them. `record` has what happened
// in front of them, with the numbers of the run. Steps follow each other by engine. A request that
// several engines had is as the last one left it. What derive_token_facts() sets is to be derived.
void join_replicas(std::vector<RunRecord> parts, const std::vector<ReplicaScope>& scopes,
                   RunRecord& record);

}  // namespace metronome
