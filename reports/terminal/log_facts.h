// SPDX-License-Identifier: Apache-2.0
// The facts of a log about its engine, apart from the gaps (reports/terminal/log_gaps.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engines/log/engine_log.h"

namespace metronome {

class JsonText;

// "vLLM 0.32.0 iteration log, 565 iterations, 10 reports".
std::string log_text(const EngineLog& log);

// One note for each kind of lines that were left out.
std::vector<std::string> left_out_notes(const EngineLog& log);

// Appends one object: name, version, settings, size of the KV cache and the numbers of lines.
// `flags` are the engine's settings as flags: "--max-num-seqs 64", "--no-enable-prefix-caching".
void append_engine(const EngineLog& log, std::span<const std::string> flags, JsonText& json);

}  // namespace metronome
