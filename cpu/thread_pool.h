// Threads that share one loop at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace metronome {

// A loop is cut into as many parts as there are threads, by index alone: who computes a part
// changes nothing. A thread that has done one takes the next that nobody has begun, so that a loop
// does not wait for a thread the system has taken the processor from.
class ThreadPool {
 public:
  // The caller's thread counts as one of `num_threads` (>= 1).
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const;

  // Calls work(part) once for every part in [0, num_threads()) and waits for all. An exception of
  // one of them is rethrown here (of several, the lowest part's) when all have ended. Not
  // reentrant. Between calls that follow each other closely the threads spin, later they sleep.
  void run(const std::function<void(int part)>& work);

  // Calls work(begin, end) with contiguous, nearly equal parts of [0, num_items).
  void for_range(std::int64_t num_items,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The processors this process may run on.
int num_usable_processors();

}  // namespace metronome
