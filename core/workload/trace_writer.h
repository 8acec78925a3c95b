// SPDX-License-Identifier: Apache-2.0
// Writes the requests of a workload as a trace.
#pragma once

#include <string>

#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// The trace's text; reading it with this format gives the same requests. Throws UnplacedConfigError
// with what the format cannot say: arrivals by step, sessions, prompts with shared parts, images.
// `plain` says most.
std::string trace_text(const Workload& workload, TraceFormat format);

// "azure, mooncake, ...": the formats that can be written.
std::string writable_formats();

}  // namespace metronome
