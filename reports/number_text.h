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

}  // namespace metronome
