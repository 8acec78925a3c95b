// SPDX-License-Identifier: Apache-2.0
// Formats numbers for users: fixed decimals and thousands separators, independent of the locale.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

// "1234.50"; "-" unless finite.
std::string fixed_text(double number, int decimals);

// "12.5 %" for a share of 0.125.
std::string percent_text(double share, int decimals);

// "1,234.50"; "-" unless finite.
std::string grouped_text(double number, int decimals);
std::string grouped_text(std::int64_t number);

// A duration, without its unit: "1,234.6", "0.012", "500", "62.25"; "-" unless finite. Up to four
// significant digits are written exactly. Other values get one decimal, or more if that leaves
// fewer than two significant digits.
std::string ms_text(double milliseconds);

}  // namespace metronome
