// SPDX-License-Identifier: Apache-2.0
#include "system/parallel.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

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
  for (std::size_t i = 1; i < num_used && start_thread(threads, work); ++i) {
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error != nullptr) std::rethrow_exception(error);
}

bool start_thread(std::vector<std::thread>& threads, std::function<void()> work) try {
  threads.emplace_back(std::move(work));
  return true;
} catch (const std::system_error&) {
  return false;
} catch (const std::bad_alloc&) {
  return false;
}

std::size_t prepare_stacks() {
  constexpr std::size_t kWanted = std::size_t{8} << 20;
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kWanted) return kWanted;
  const rlimit raised{std::min<rlim_t>(kWanted, stack.rlim_max), stack.rlim_max};
  if (setrlimit(RLIMIT_STACK, &raised) == 0) stack.rlim_cur = raised.rlim_cur;
#ifdef __GLIBC__
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, kWanted);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
#endif
  return stack.rlim_cur;
}

}  // namespace metronome
