// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "system/worker_group.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("a worker group calls each thread once in each round", "[system]") {
  for (const int num_threads : {1, 2, 5}) {
    WorkerGroup workers(num_threads);
    REQUIRE(workers.num_threads() == static_cast<std::size_t>(num_threads));
    std::vector<int> counts(workers.num_threads());
    std::vector<std::thread::id> ids(workers.num_threads());
    for (int round = 0; round < 500; ++round) {
      workers.run([&](std::size_t number) {
        ++counts[number];
        ids[number] = std::this_thread::get_id();
      });
      // All have returned.
      CHECK(std::accumulate(counts.begin(), counts.end(), 0) == (round + 1) * num_threads);
    }
    CHECK(ids[0] == std::this_thread::get_id());
    CHECK(std::set<std::thread::id>(ids.begin(), ids.end()).size() == ids.size());
  }
}

TEST_CASE("a worker group rethrows the error of the lowest thread, and goes on", "[system]") {
  WorkerGroup workers(4);
  const auto fail = [&] {
    workers.run([](std::size_t number) {
      if (number >= 2) throw std::runtime_error(number == 2 ? "two" : "three");
    });
  };
  CHECK_THROWS_WITH(fail(), "two");
  std::atomic<int> num_calls = 0;
  workers.run([&](std::size_t) { ++num_calls; });
  CHECK(num_calls == 4);
}

}  // namespace metronome::testing::TEST_FILE
