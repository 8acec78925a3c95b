// SPDX-License-Identifier: Apache-2.0
// The parsers of engines' log lines, as engine_log.cpp calls them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "reports/files/engine_log.h"

namespace metronome {

// A part of a line: a marker of the dialect, and what surrounds it.
struct LogPart {
  std::string_view prefix;  // what is before the marker, from the last part on
  std::string_view text;    // from the marker to the next one
  std::string_view rest;    // from the marker to the end of the line
  std::int64_t line = 0;
  bool may_be_cut = false;  // the file ends behind it, without a line break
};

enum class LineOutcome : std::uint8_t {
  Foreign,  // has a marker, but is none of the engine's lines
  Read,
  Broken,   // begins like a line of the engine, and does not go on so
  Lacking,  // is whole, but for a field: EngineLog::num_lacking counts it
};

// An observation with the line and the time of its part.
LogObservation observation(Observed kind, const LogPart& part, std::int32_t rank);
// Adds an observation that is possible; others are broken.
LineOutcome note(LogObservation seen, EngineLog& log);
// Adds the settings behind a marker of Python's arguments, but for those that the log has already.
LineOutcome read_settings(const LogPart& part, std::string_view marker, EngineLog& log);

struct LogDialect {
  LogEngine engine;
  std::span<const std::string_view> markers;
  LineOutcome (*read)(const LogPart& part, EngineLog& log);
  std::string_view looks_for;  // for messages
};

const LogDialect& vllm_dialect();
const LogDialect& sglang_dialect();

}  // namespace metronome
