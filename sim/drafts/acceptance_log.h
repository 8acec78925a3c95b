// SPDX-License-Identifier: Apache-2.0
// The acceptance of drafts that a vLLM server logged.
#pragma once

#include <string>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// One "SpecDecoding metrics" line, for the time since the line before.
struct AcceptanceLine {
  TimeNs until = 0;               // since the log's first interval began
  std::vector<double> positions;  // share of drafts whose first 1, 2, ... tokens were accepted
};

// Reads a log of vLLM 0.9 or later. The first interval is taken to be as long as the second;
// without times of day, or with one line, the lines become one for all times, weighted by their
// drafts. Throws UnplacedConfigError at `key` for a file that cannot be read, has no such line, or
// has lines of different lengths.
std::vector<AcceptanceLine> read_acceptance_log(const std::string& path, const std::string& key);

}  // namespace metronome
