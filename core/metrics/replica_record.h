// SPDX-License-Identifier: Apache-2.0
// The part of a run of several engines that one of them had.
#pragma once

#include <cstddef>

#include "core/metrics/run_record.h"

namespace metronome {

// Its steps, numbered from 0, and the requests that it had last, under their ids. All other
// requests are as if they had never come: they have no prompt, and were never scheduled. The result
// has no replicas. Requires one of `record.replicas`.
RunRecord record_of_replica(const RunRecord& record, std::size_t replica);

}  // namespace metronome
