// SPDX-License-Identifier: Apache-2.0
// Real time for engines that compute.
#include <stdexcept>

#include "study/run/wall_clock.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {

TEST_CASE("a wall clock starts at 0 and runs", "[tools]") {
  WallClock clock;
  const TimeNs first = clock.now();
  CHECK(first >= 0);
  clock.wait_until(first + 3 * kNsPerMs);
  CHECK(clock.now() >= first + 3 * kNsPerMs);
  const TimeNs second = clock.now();
  clock.wait_until(first);  // the past
  CHECK(clock.now() >= second);
}

TEST_CASE("what on_wait throws ends a wait", "[tools]") {
  int num_calls = 0;
  WallClock clock([&num_calls] {
    if (++num_calls == 2) throw std::runtime_error("interrupted");
  });
  CHECK_THROWS_AS(clock.wait_until(3600 * kNsPerSecond), std::runtime_error);
  CHECK(num_calls == 2);
}

TEST_CASE("dates are written as vLLM writes them", "[tools]") {
  const std::string date = date_text();
  REQUIRE(date.size() == 15);
  CHECK(date[8] == '-');
  CHECK(date.find_first_not_of("0123456789-") == std::string::npos);
  CHECK(date >= "20260101-000000");
}

}  // namespace metronome::TEST_FILE
