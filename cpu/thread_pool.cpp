// SPDX-License-Identifier: Apache-2.0
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

#include "core/base/error.h"

namespace metronome {
namespace {

// Longer than the serial code between two loops of a forward pass, but shorter than a time slice.
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
  explicit State(int count) : num_threads(count), spins(count <= num_usable_processors()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    is_over = true;
    open_parts(0);
    for (std::thread& thread : threads) thread.join();
  }

  // Opens a new generation of parts: threads can take [0, num_open).
  void open_parts(int num_open) {
    const std::uint64_t generation = (ticket.load() >> 32) + 1;
    ticket.store(generation << 32 | static_cast<std::uint64_t>(num_open));
    ticket.notify_all();
  }

  // Calls parts until none is left. A loop cannot end while a thread has one of its parts, so
  // `work` and `num_parts` belong to the same loop.
  void call_parts() {
    std::uint64_t seen = ticket.load();
    while (static_cast<std::uint32_t>(seen) > 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
      call(num_parts - static_cast<int>(static_cast<std::uint32_t>(seen)));
      if (num_left.fetch_sub(1) == 1) num_left.notify_one();
      seen = ticket.load();
    }
  }

  void call(int part) {
    try {
      (*work)(part);
    } catch (...) {
      errors[static_cast<std::size_t>(part)] = std::current_exception();
    }
  }

  void serve() {
    while (true) {
      const std::uint64_t seen = ticket.load();
      if (is_over) return;
      call_parts();
      wait_for_change(ticket, seen, spins);
    }
  }

  const int num_threads;
  // False with more threads than processors, which would only delay each other by spinning.
  const bool spins;
  // The caller writes these before opening the parts; threads read them after taking one.
  const std::function<void(int)>* work = nullptr;
  int num_parts = 0;
  std::vector<std::exception_ptr> errors;  // one per part
  std::vector<std::thread> threads;
  bool is_running = false;
  std::atomic<bool> is_over{false};
  // The upper half is the generation, the lower half the number of parts that nobody has taken.
  // Both change atomically.
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<int> num_left{0};
};

ThreadPool::ThreadPool(int num_threads) {
  METRONOME_CHECK(num_threads >= 1, "a thread pool needs a thread");
  state_ = std::make_unique<State>(num_threads);
  state_->threads.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    state_->threads.emplace_back([state = state_.get()] { state->serve(); });
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::for_each_part(const std::function<void(int part)>& work) {
  run_parts(num_threads(), work);
}

void ThreadPool::run_parts(int num_parts, const std::function<void(int part)>& work) {
  METRONOME_CHECK(!state_->is_running, "a loop inside a loop of the same thread pool");
  state_->errors.resize(static_cast<std::size_t>(num_parts));
  state_->is_running = true;
  state_->work = &work;
  state_->num_parts = num_parts;
  state_->num_left.store(num_parts);
  state_->open_parts(num_parts);
  state_->call_parts();
  for (int left = state_->num_left.load(); left > 0; left = state_->num_left.load()) {
    wait_for_change(state_->num_left, left, state_->spins);
  }
  state_->is_running = false;
  std::exception_ptr first;
  for (std::exception_ptr& error : state_->errors) {
    if (first == nullptr) first = error;
    error = nullptr;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void ThreadPool::for_range(std::int64_t num_items, int num_parts,
                           const std::function<void(std::int64_t, std::int64_t)>& work) {
  METRONOME_CHECK(num_parts >= 1, "a loop needs a part");
  if (num_items <= 0) return;
  if (num_items == 1 || num_threads() == 1) return work(0, num_items);
  const auto count = static_cast<int>(std::min<std::int64_t>(num_parts, num_items));
  run_parts(count, [&work, num_items, count](int part) {
    work(num_items * part / count, num_items * (part + 1) / count);
  });
}

int num_usable_processors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof(processors), &processors) == 0) return CPU_COUNT(&processors);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace metronome
