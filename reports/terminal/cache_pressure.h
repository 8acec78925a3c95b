// SPDX-License-Identifier: Apache-2.0
// The cost of a full KV cache in an engine's log: requests that lost their blocks, and prompts
// that were computed again because the prefix cache had no room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/log/engine_log.h"

namespace metronome {

class JsonText;

// From the first to the last line of something.
struct LogSpan {
  std::int64_t first_line = 0, last_line = 0;
  std::string first_time, last_time;  // as logged; empty: the lines have none

  void add(const LogObservation& seen);
};

// The prefix cache found less while the KV cache was full.
struct CacheThrash {
  double hit_rate_with_room = 0;
  double hit_rate_when_full = 0;
  // Prompt tokens that were computed while the cache was full and would have been found there at
  // the other rate.
  std::int64_t num_tokens = 0;
  LogSpan span;  // of the observations with a full cache
};

struct CachePressure {
  // Preempted (vLLM) or retracted (SGLang) requests; one that lost its blocks twice counts twice.
  std::int64_t num_preempted = 0;
  std::int64_t num_lines = 0;  // that report them
  LogSpan span;
  // KV cache that retractions freed. SGLang computes it again, but for prefixes that are cached.
  std::int64_t num_freed_tokens = 0;
  // vLLM: tokens that were computed again, and how far the number may be off. nullopt: the log
  // cannot tell.
  std::optional<std::int64_t> num_recomputed_tokens;
  std::int64_t recomputed_error_tokens = 0;
  double highest_reserve_ratio = 0;  // SGLang's new_token_ratio after a retraction
  std::optional<double> highest_usage;
  std::optional<CacheThrash> thrash;
};

// Share of the KV cache in use from which on it counts as full.
constexpr double kFullCache = 0.9;

CachePressure cache_pressure(const EngineLog& log);

// One sentence or more for each thing that the log shows; empty: the cache was large enough.
std::vector<std::string> pressure_notes(const CachePressure& pressure, const EngineLog& log);
// Appends one JSON value.
void append_pressure(const CachePressure& pressure, JsonText& json);

}  // namespace metronome
