// SPDX-License-Identifier: Apache-2.0
// The same work on many things, on several threads.
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "system/parallel.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("every index is visited once, on any number of threads", "[tools]") {
  for (const int num_threads : {0, 1, 2, 7}) {
    for (const std::size_t count : {0u, 1u, 2u, 1000u}) {
      std::vector<std::atomic<int>> visits(count);
      for_each_index(count, num_threads, [&](std::size_t i) { ++visits[i]; });
      for (const std::atomic<int>& num_visits : visits) CHECK(num_visits == 1);
    }
  }
}

TEST_CASE("of several failures the first in order is the one that is said", "[tools]") {
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::atomic<int> num_below = 0;
    const std::string error = error_of<std::runtime_error>([&] {
      for_each_index(400, 3, [&](std::size_t i) {
        if (i >= 100) throw std::runtime_error(std::to_string(i));
        ++num_below;
      });
    });
    CHECK(error == "100");
    CHECK(num_below == 100);
  }
}

}  // namespace TEST_FILE
