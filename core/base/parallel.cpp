#include "core/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace metronome {

void for_each_index(std::size_t count, int num_threads,
                    const std::function<void(std::size_t)>& visit) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards first_failed and error
  std::size_t first_failed = count;
  std::exception_ptr error;
  const auto work = [&] {
    for (;;) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count) return;
      try {
        visit(i);
      } catch (...) {
        // Lower indices were handed out before, so they are still visited.
        next = count;
        const std::lock_guard lock(mutex);
        if (i < first_failed) {
          first_failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t num_used = std::min(static_cast<std::size_t>(std::max(1, num_threads)), count);
  for (std::size_t i = 1; i < num_used; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace metronome
