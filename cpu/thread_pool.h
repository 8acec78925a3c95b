// Threads that share one loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace metronome {

// Work is cut by index, never by who comes first, so that each item is computed by the same code
// whatever the number of threads.
class ThreadPool {
 public:
  // The caller's thread counts as one of `num_threads` (>= 1).
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const;

  // Calls work(thread) once for every thread in [0, num_threads) and waits for all. An exception
  // of one of them is rethrown here (of several, the lowest thread's) when all have ended. Not
  // reentrant. Between calls that follow each other closely the threads spin, later they sleep.
  void run(const std::function<void(int thread)>& work);

  // Calls work(begin, end) with contiguous, nearly equal parts of [0, num_items), one a thread.
  void for_range(std::int64_t num_items,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work);
  // Calls work(i) for every i in [0, num_items), thread t taking t, t + num_threads, ...: for items
  // whose cost grows along the index.
  void for_each(std::int64_t num_items, const std::function<void(std::int64_t i)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The processors this process may run on.
int num_usable_processors();

}  // namespace metronome
