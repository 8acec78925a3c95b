// SPDX-License-Identifier: Apache-2.0
// Threads that stay, for work that comes in many small parts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace metronome {

class WorkerGroup {
 public:
  // The calling thread is one of them. Fewer, if the system gives no more.
  explicit WorkerGroup(int num_threads);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  std::size_t num_threads() const { return threads_.size() + 1; }

  // Calls visit(t) once for each t below num_threads(), each on a thread of its own, 0 on the
  // caller's. Returns when all have returned; rethrows the exception of the lowest t that threw.
  // Workers sleep in between.
  void run(const std::function<void(std::size_t)>& visit);

 private:
  void work(std::size_t number);
  void visit(std::size_t number);

  std::vector<std::thread> threads_;
  std::vector<std::exception_ptr> errors_;  // by number
  const std::function<void(std::size_t)>* visit_ = nullptr;
  std::atomic<std::uint32_t> round_ = 0;     // of calls of run()
  std::atomic<std::uint32_t> num_busy_ = 0;  // workers in this round
  std::atomic<bool> is_over_ = false;
};

}  // namespace metronome
