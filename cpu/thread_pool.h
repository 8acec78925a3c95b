// SPDX-License-Identifier: Apache-2.0
// Threads that run one parallel loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace metronome {

// A loop is divided into parts by index only: the thread that computes a part does not affect the
// result. A thread that has finished a part takes the next free one, so a loop waits only for the
// current part of a thread that lost its processor.
class ThreadPool {
 public:
  // The calling thread counts as one of `num_threads` (>= 1).
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const;

  // Calls work(part) once for every part in [0, num_threads()) and waits for all. After all have
  // ended it rethrows an exception (the one of the lowest part). Not reentrant. Threads spin for a
  // short time after a call, then sleep.
  void for_each_part(const std::function<void(int part)>& work);

  // Calls `work` once for each of at most `num_parts` contiguous, nearly equal parts of [0,
  // num_items), and waits as for_each_part() does. More parts than threads balance threads of
  // different speed; each costs about 0.1 us.
  void for_range(std::int64_t num_items, int num_parts,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work);
  // With at most a part for each thread.
  void for_range(std::int64_t num_items,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
    for_range(num_items, num_threads(), work);
  }

  // Calls work(row) for every row in [0, num_rows), on all threads if there are many.
  template <class Work>
  void for_rows(std::int64_t num_rows, const Work& work) {
    const auto all = [&work](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) work(row);
    };
    // With fewer, a loop does not pay for waking the other threads.
    constexpr std::int64_t kFewRows = 4;
    if (num_rows < kFewRows) return all(0, num_rows);
    for_range(num_rows, all);
  }

 private:
  void run_parts(int num_parts, const std::function<void(int part)>& work);

  struct State;
  std::unique_ptr<State> state_;
};

// The number of processors this process may use.
int num_usable_processors();

}  // namespace metronome
