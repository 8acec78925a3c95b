// SPDX-License-Identifier: Apache-2.0
// Compares the substitute for a <charconv> without real numbers with this library's.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/bits.h"
#include "core/base/number_chars.h"
#include "core/base/rng.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

std::string text_of(std::to_chars_result result, const char* begin) {
  return result.ec == std::errc() ? std::string(begin, static_cast<const char*>(result.ptr))
                                  : "too long";
}

template <class Real>
void check_written(Real number) {
  char room[1200];
  char* const end = room + sizeof room;
  for (const auto format :
       {std::chars_format(), std::chars_format::fixed, std::chars_format::scientific}) {
    const bool is_plain = format == std::chars_format();
    const std::string expected = text_of(
        is_plain ? std::to_chars(room, end, number) : std::to_chars(room, end, number, format),
        room);
    REQUIRE(text_of(detail::write_real(room, end, number, format), room) == expected);
  }
}

void check_fixed(double number, int decimals) {
  char room[1200];
  char* const end = room + sizeof room;
  const std::string expected =
      text_of(std::to_chars(room, end, number, std::chars_format::fixed, decimals), room);
  REQUIRE(text_of(detail::write_real(room, end, number, decimals), room) == expected);
}

template <class Real>
void check_read(std::string_view text) {
  CAPTURE(text);
  Real expected = 7;
  Real number = 7;
  const char* const end = text.data() + text.size();
  const auto library = std::from_chars(text.data(), end, expected);
  const auto ours = detail::read_real(text.data(), end, number);
  REQUIRE(ours.ptr - text.data() == library.ptr - text.data());
  REQUIRE(ours.ec == library.ec);
  if (library.ec != std::errc()) return;
  REQUIRE(((std::isnan(number) && std::isnan(expected)) || number == expected));
  REQUIRE(std::signbit(number) == std::signbit(expected));
}

}  // namespace

TEST_CASE("real numbers are written as the standard library writes them", "[core][base][numbers]") {
  Rng rng(1, "numbers");
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t bits = rng();
    check_written(bits_as<double>(bits));
    check_written(bits_as<float>(static_cast<std::uint32_t>(bits)));
    const double amount = static_cast<double>(rng() >> (rng() % 60)) / std::pow(10, rng() % 12);
    check_written(amount);
    check_fixed(amount, static_cast<int>(rng() % 12));
  }
  for (int power = -1074; power < 1024; ++power) check_written(std::ldexp(1.0, power));
  for (int power = -149; power < 128; ++power) check_written(std::ldexp(1.0f, power));
  for (double power = 1e-30; power < 1e30; power *= 10) check_written(power);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {0.0, -0.0, 0.1, -1.5, 1e5, 1e6, 123456.0, 9007199254740993.0,
                              kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    check_written(number);
    check_fixed(number, 3);
  }
  char room[3];
  CHECK(detail::write_real(room, room + 3, 0.25, std::chars_format()).ec ==
        std::errc::value_too_large);
}

TEST_CASE("real numbers are read as the standard library reads them", "[core][base][numbers]") {
  for (const std::string_view text :
       {"",         "-",      "+1",     " 1",       "1",
        "-1",       "1.",     ".5",     ".",        "-.5e",
        "1e",       "1e+",    "1e5",    "1E-5x",    "1e5.",
        "0x10",     "inf",    "-INF",   "infin",    "infinity",
        "nan",      "-nan",   "nan(",   "nan(a_1)", "nan(a-1)",
        "1e400",    "-1e400", "1e-400", "0e-400",   "0.000e999",
        "4.9e-324", "2e-324", "1e39",   "1e-46",    "123456789012345678901234567890",
        "0.1x",     "1_000",  "1,5",    "--1",      "i",
        "n"}) {
    check_read<double>(text);
    check_read<float>(text);
  }
  Rng rng(2, "numbers");
  constexpr std::string_view kLetters = "0123456789012345.eE+-";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::uint64_t left = rng() % 24; left > 0; --left) {
      text += kLetters[rng() % kLetters.size()];
    }
    check_read<double>(text);
  }
}

}  // namespace TEST_FILE
