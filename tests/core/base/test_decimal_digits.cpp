// SPDX-License-Identifier: Apache-2.0
// Decimal digits beside those of the standard library.
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include "core/base/decimal_digits.h"
#include "core/base/json_text.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::TEST_FILE {
namespace {

template <class Int>
std::string decimal(Int number) {
  std::array<char, kDecimalBytes> text;
  return {text.data(), write_decimal(text.data(), number)};
}

std::string fraction(std::uint32_t number) {
  std::array<char, 9> text;
  return {text.data(), write_decimal_fraction(text.data(), number)};
}

std::string expected_fraction(std::uint32_t number) {
  std::array<char, 16> text;
  std::string digits(text.data(),
                     static_cast<std::size_t>(std::snprintf(text.data(), text.size(), ".%08u",
                                                            static_cast<unsigned>(number))));
  while (digits.back() == '0') digits.pop_back();
  return number == 0 ? "" : digits;
}

TEST_CASE("integers have the digits that the standard library gives them", "[decimal_digits]") {
  for (std::uint64_t power = 1; power <= 10'000'000'000'000'000'000ull / 10; power *= 10) {
    for (const std::uint64_t number : {power - 1, power, power + 1, 9 * power, 10 * power - 1}) {
      REQUIRE(decimal(number) == std::to_string(number));
    }
  }
  CHECK(decimal(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  CHECK(decimal(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(decimal(std::numeric_limits<std::int32_t>::min()) == "-2147483648");
  CHECK(decimal(std::int16_t{-7}) == "-7");
  CHECK(decimal(std::uint8_t{255}) == "255");
  constexpr std::uint64_t kSeed = 1;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "decimal digits");
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t number = rng() >> testing::draw(rng, 0, 63);
    REQUIRE(decimal(number) == std::to_string(number));
    const auto with_sign = static_cast<std::int64_t>(number);
    REQUIRE(decimal(with_sign) == std::to_string(with_sign));
  }
}

// Every number of eight digits, by its halves: each is divided alone.
TEST_CASE("halves of eight digits are right for each of their values", "[decimal_digits]") {
  for (std::uint32_t half = 0; half < 10'000; ++half) {
    const std::uint32_t other = (half * 7 + 3) % 10'000;
    for (const std::uint32_t number : {half * 10'000 + other, other * 10'000 + half, half}) {
      REQUIRE(decimal(number) == std::to_string(number));
      REQUIRE(fraction(number) == expected_fraction(number));
    }
  }
}

TEST_CASE("times are written exactly, in milliseconds and microseconds", "[decimal_digits]") {
  JsonText json;
  json.begin_array();
  for (const TimeNs ns : {TimeNs{0}, TimeNs{1}, TimeNs{-1}, TimeNs{1'000'000}, TimeNs{-2'500'000},
                          TimeNs{123'456'789'012'345}, std::numeric_limits<TimeNs>::min()}) {
    json.ms(ns);
    json.us(ns);
  }
  json.end_array();
  CHECK(json.view() ==
        "[0,0,0.000001,0.001,-0.000001,-0.001,1,1000,-2.5,-2500,123456789.012345,123456789012.345,"
        "-9223372036854.775808,-9223372036854775.808]");
}

}  // namespace
}  // namespace metronome::TEST_FILE
