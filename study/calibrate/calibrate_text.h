// SPDX-License-Identifier: Apache-2.0
// The text of a fit that `metronome calibrate` prints.
#pragma once

#include <string>
#include <vector>

namespace metronome {

struct Calibration;

// Prints the fit and its errors on held-out steps. Writes the cost model unless `out` is empty.
void report_calibration(const Calibration& calibration, const std::string& out);

std::string microseconds_text(double ns);  // "12.345 us"
std::string joined_names(const std::vector<std::string>& names);

}  // namespace metronome
