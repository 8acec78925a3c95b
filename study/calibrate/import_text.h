// SPDX-License-Identifier: Apache-2.0
// Words that imports of measured tables share.
#pragma once

#include <string>
#include <vector>

#include "core/config/config_node.h"

namespace metronome {

// Where an error stands whose cause is an option of the command line.
SourceLocation option_location(const char* option);

// A whole number with separators: "12,288".
std::string whole_text(double value);

// First and last of sorted points, at least one: "1 to 8,192".
std::string points_text(const std::vector<double>& points);

}  // namespace metronome
