// SPDX-License-Identifier: Apache-2.0
// How fast an engine was, from lines about batches (SGLang).
#pragma once

#include <span>

#include "engines/log/engine_log.h"

namespace metronome {

// A running request's nanoseconds per token, as the throughput of a Decode line says; at most ten
// seconds. Requires decode_rate > 0.
double logged_decode_pace(const LogObservation& decode);

// Nanoseconds per prompt token where nothing else was in the way; 0: no Prefill line has a time.
double logged_prefill_pace(std::span<const LogObservation> observations);

}  // namespace metronome
