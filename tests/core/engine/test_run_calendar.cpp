// SPDX-License-Identifier: Apache-2.0
// The calendar of a run: who needs attention in which step.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/engine/decode_run.h"
#include "core/engine/request.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

constexpr std::int32_t kHorizon = RunCalendar::kHorizon;

// How soon an end is seen by someone who looks at the request whenever it asks for it.
TEST_CASE("an end is marked however far it is", "[engine][calendar]") {
  for (const std::int32_t num_to_end :
       {0, 1, kHorizon - 1, kHorizon, 2 * kHorizon - 2, 2 * kHorizon - 1, 2 * kHorizon, 5000}) {
    INFO(num_to_end << " steps to the end");
    RunCalendar calendar;
    Request request;
    const std::int32_t end = 7 + num_to_end;
    calendar.add({0, &request}, 7, num_to_end, num_to_end);
    for (std::int32_t step = 7; step <= end; ++step) {
      REQUIRE(calendar.num_endless_steps(step) == std::min(end - step, kHorizon));
      const bool is_due = !calendar.due(step).empty();
      // Added before the step is dropped, as the scheduler does.
      if (is_due && step < end)
        calendar.add({0, &request}, step + 1, end - step - 1, end - step - 1);
      if (step == end) REQUIRE(is_due);
      calendar.drop(step);
      REQUIRE(calendar.due(step).empty());
    }
    REQUIRE(calendar.num_endless_steps(end + 1) == kHorizon);
  }
}

TEST_CASE("entries of a step come in service order", "[engine][calendar]") {
  RunCalendar calendar;
  std::vector<Request> requests(3);
  calendar.add({2, &requests[0]}, 0, 4, 9);
  calendar.add({0, &requests[1]}, 1, 3, 9);
  calendar.add({1, &requests[2]}, 2, 2, 9);
  CHECK(calendar.num_free_steps(0) == 4);
  const auto due = calendar.due(4);
  REQUIRE(due.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(due[i].order == static_cast<std::int64_t>(i));
  calendar.drop(4);
  CHECK(calendar.num_free_steps(0) == kHorizon);
}

}  // namespace
}  // namespace metronome::TEST_FILE
