#include "cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace metronome {
namespace {

// Longer than the serial code between two loops of a forward pass, shorter than a time slice.
constexpr std::chrono::microseconds kSpinTime{60};
constexpr int kPausesPerLook = 32;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` differs from `old`.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old, bool spins) {
  if (spins) {
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause_processor();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  explicit State(int num_threads)
      : spins(num_threads <= num_usable_processors()),
        errors(static_cast<std::size_t>(num_threads)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    work = nullptr;
    start();
    for (std::thread& thread : threads) thread.join();
  }

  void start() {
    generation.fetch_add(1);
    generation.notify_all();
  }

  void call(int thread) {
    try {
      (*work)(thread);
    } catch (...) {
      errors[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  }

  void serve(int thread) {
    for (std::uint32_t seen = 0;; ++seen) {
      wait_for_change(generation, seen, spins);
      if (work == nullptr) return;
      call(thread);
      if (num_running.fetch_sub(1) == 1) num_running.notify_one();
    }
  }

  // More threads than processors would only spin in each other's way.
  const bool spins;
  // Written by the caller before it counts up `generation`, read by the others after.
  const std::function<void(int)>* work = nullptr;
  std::vector<std::exception_ptr> errors;  // one a thread
  std::vector<std::thread> threads;
  bool is_running = false;
  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<int> num_running{0};
};

ThreadPool::ThreadPool(int num_threads) {
  METRONOME_CHECK(num_threads >= 1, "a thread pool needs a thread");
  state_ = std::make_unique<State>(num_threads);
  state_->threads.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    state_->threads.emplace_back([state = state_.get(), thread] { state->serve(thread); });
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::num_threads() const { return static_cast<int>(state_->errors.size()); }

void ThreadPool::run(const std::function<void(int thread)>& work) {
  METRONOME_CHECK(!state_->is_running, "a loop inside a loop of the same thread pool");
  state_->is_running = true;
  state_->work = &work;
  state_->num_running.store(num_threads() - 1);
  if (num_threads() > 1) state_->start();
  state_->call(0);
  for (int left = state_->num_running.load(); left > 0; left = state_->num_running.load()) {
    wait_for_change(state_->num_running, left, state_->spins);
  }
  state_->is_running = false;
  std::exception_ptr first;
  for (std::exception_ptr& error : state_->errors) {
    if (first == nullptr) first = error;
    error = nullptr;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void ThreadPool::for_range(std::int64_t num_items,
                           const std::function<void(std::int64_t, std::int64_t)>& work) {
  if (num_items <= 0) return;
  if (num_items == 1 || num_threads() == 1) return work(0, num_items);
  run([&work, num_items, threads = num_threads()](int thread) {
    const std::int64_t begin = num_items * thread / threads;
    const std::int64_t end = num_items * (thread + 1) / threads;
    if (begin < end) work(begin, end);
  });
}

void ThreadPool::for_each(std::int64_t num_items, const std::function<void(std::int64_t)>& work) {
  if (num_items <= 0) return;
  if (num_items == 1) return work(0);
  run([&work, num_items, threads = num_threads()](int thread) {
    for (std::int64_t i = thread; i < num_items; i += threads) work(i);
  });
}

int num_usable_processors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof(processors), &processors) == 0) return CPU_COUNT(&processors);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace metronome
