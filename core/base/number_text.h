// Numbers for people: fixed decimals and thousands separators, whatever the locale.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

// "1234.50"; "-" unless finite.
std::string fixed_text(double number, int decimals);

// "1,234.50"; "-" unless finite.
std::string grouped_text(double number, int decimals);
std::string grouped_text(std::int64_t number);

// A duration, without its unit: "1,234.6", "0.012", "500", "62.25"; "-" unless finite. As it is
// where that takes at most four digits, else with one decimal, or more where that leaves fewer than
// two digits.
std::string ms_text(double milliseconds);

}  // namespace metronome
