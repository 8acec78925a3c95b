// SPDX-License-Identifier: Apache-2.0
// The thread pool: every item once, errors by part, whatever the number of threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "cpu/thread_pool.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// The error that run() rethrows when each of `failing` parts throws its number.
std::string error_of_run(ThreadPool& pool, const std::vector<int>& failing) {
  try {
    pool.for_each_part([&](int part) {
      for (const int number : failing) {
        if (number == part) throw std::runtime_error(std::to_string(part));
      }
    });
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("run calls every part once and waits for all", "[thread_pool]") {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    CHECK(pool.num_threads() == num_threads);
    // Plain integers: run() alone orders the parts' writes before the caller's reads.
    std::vector<int> calls(static_cast<std::size_t>(num_threads), 0);
    for (int round = 1; round <= 200; ++round) {
      pool.for_each_part([&](int part) { ++calls[static_cast<std::size_t>(part)]; });
      REQUIRE(calls == std::vector<int>(calls.size(), round));
    }
  }
}

TEST_CASE("every thread takes part", "[thread_pool]") {
  for (const int num_threads : {2, 3, 5}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 20; ++round) {
      // Each part waits for all others to have begun: fewer threads than parts would never end.
      std::atomic<int> num_begun{0};
      std::vector<std::thread::id> ids(static_cast<std::size_t>(num_threads));
      pool.for_each_part([&](int part) {
        ids[static_cast<std::size_t>(part)] = std::this_thread::get_id();
        ++num_begun;
        while (num_begun < num_threads) std::this_thread::yield();
      });
      std::sort(ids.begin(), ids.end());
      CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
    }
  }
}

TEST_CASE("for_range cuts the items into contiguous, nearly equal parts", "[thread_pool]") {
  for (const int num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    for (std::int64_t num_items = 0; num_items <= 17; ++num_items) {
      std::vector<int> owner(static_cast<std::size_t>(num_items), -1);
      std::vector<std::int64_t> sizes(owner.size());
      pool.for_range(num_items, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          owner[static_cast<std::size_t>(i)] += 1;
          sizes[static_cast<std::size_t>(i)] = end - begin;
        }
      });
      INFO("threads " << num_threads << " items " << num_items);
      CHECK(owner == std::vector<int>(owner.size(), 0));
      for (const std::int64_t size : sizes) {
        CHECK(size >= num_items / num_threads);
        CHECK(size <= (num_items + num_threads - 1) / num_threads);
      }
    }
  }
}

TEST_CASE("for_range has as many parts as asked for, each once", "[thread_pool]") {
  for (const int num_threads : {2, 3}) {
    ThreadPool pool(num_threads);
    for (const int num_parts : {1, 2, 7, 40}) {
      for (const std::int64_t num_items : {2, 7, 39, 1000}) {
        std::mutex mutex;
        std::vector<std::pair<std::int64_t, std::int64_t>> parts;
        pool.for_range(num_items, num_parts, [&](std::int64_t begin, std::int64_t end) {
          const std::lock_guard lock(mutex);
          parts.emplace_back(begin, end);
        });
        std::sort(parts.begin(), parts.end());
        INFO("threads " << num_threads << " parts " << num_parts << " items " << num_items);
        REQUIRE(std::ssize(parts) == std::min<std::int64_t>(num_parts, num_items));
        CHECK(parts.front().first == 0);
        CHECK(parts.back().second == num_items);
        for (std::size_t i = 1; i < parts.size(); ++i) {
          CHECK(parts[i].first == parts[i - 1].second);
        }
      }
    }
    CHECK_THROWS_AS(pool.for_range(5, 0, [](std::int64_t, std::int64_t) {}), InvariantError);
  }
}

TEST_CASE("a thread that is held up leaves its parts to the others", "[thread_pool]") {
  ThreadPool pool(2);
  constexpr int kNumParts = 8;
  std::atomic<int> num_done{0};
  // The first part waits for all others: with parts given out in advance it would never end.
  pool.for_range(kNumParts, kNumParts, [&](std::int64_t begin, std::int64_t) {
    while (begin == 0 && num_done < kNumParts - 1) std::this_thread::yield();
    ++num_done;
  });
  CHECK(num_done == kNumParts);
}

TEST_CASE("the lowest part's error comes out when all have ended", "[thread_pool]") {
  ThreadPool pool(4);
  CHECK(error_of_run(pool, {2}) == "2");
  CHECK(error_of_run(pool, {3, 1}) == "1");
  CHECK(error_of_run(pool, {0, 1, 2, 3}) == "0");
  CHECK(error_of_run(pool, {}) == "none");

  // More parts than threads, then fewer again.
  CHECK_THROWS_WITH(pool.for_range(40, 40,
                                   [](std::int64_t begin, std::int64_t) {
                                     if (begin == 17 || begin == 39) {
                                       throw std::runtime_error(std::to_string(begin));
                                     }
                                   }),
                    "17");
  CHECK(error_of_run(pool, {1}) == "1");
  CHECK(error_of_run(pool, {}) == "none");

  int num_ended = 0;
  CHECK_THROWS_AS(pool.for_each_part([&](int part) {
    if (part == 0) throw std::runtime_error("early");
    if (part == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      num_ended = 1;
    }
  }),
                  std::runtime_error);
  CHECK(num_ended == 1);
}

TEST_CASE("a loop inside a loop is refused, and the pool lives on", "[thread_pool]") {
  ThreadPool pool(2);
  CHECK_THROWS_AS(pool.for_each_part([&](int part) {
    if (part == 0) pool.for_each_part([](int) {});
  }),
                  InvariantError);
  CHECK(error_of_run(pool, {1}) == "1");
  CHECK_THROWS_AS(ThreadPool(0), InvariantError);
}

TEST_CASE("threads that went to sleep wake up", "[thread_pool]") {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<int> calls(3, 0);
    pool.for_each_part([&](int part) {
      // The caller sleeps too, where it waits for the others.
      if (part == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      calls[static_cast<std::size_t>(part)] = 1;
    });
    CHECK(calls == std::vector<int>(3, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_CASE("many short loops on more threads than processors", "[thread_pool]") {
  ThreadPool pool(2 * num_usable_processors() + 1);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(pool.num_threads()), 0);
  for (int round = 0; round < 2000; ++round) {
    pool.for_each_part([&](int part) { sums[static_cast<std::size_t>(part)] += round; });
  }
  CHECK(sums == std::vector<std::int64_t>(sums.size(), 1999 * 1000));
}

TEST_CASE("the usable processors are counted", "[thread_pool]") {
  CHECK(num_usable_processors() >= 1);
  CHECK(num_usable_processors() <= static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace TEST_FILE
