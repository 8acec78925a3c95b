// SPDX-License-Identifier: Apache-2.0
// The beginning of a workload.
#pragma once

#include <cstddef>
#include <vector>

#include "core/workload/workload.h"

namespace metronome {

// Puts the requests into this order, with their prompts and images. Requires no sessions.
void reorder_requests(const std::vector<std::size_t>& order, Workload& workload);

// Keeps the first `count` requests, with their prompts and images, or all if there are fewer. The
// caller cuts the sessions, if there are any.
void keep_first(std::size_t count, Workload& workload);

}  // namespace metronome
