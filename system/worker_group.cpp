// SPDX-License-Identifier: Apache-2.0
#include "system/worker_group.h"

#include <utility>

#include "system/parallel.h"

namespace metronome {

WorkerGroup::WorkerGroup(int num_threads) {
  for (int i = 1; i < num_threads; ++i) {
    const std::size_t number = threads_.size() + 1;
    if (!start_thread(threads_, [this, number] { work(number); })) break;
  }
  errors_.resize(threads_.size() + 1);
}

WorkerGroup::~WorkerGroup() {
  is_over_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerGroup::run(const std::function<void(std::size_t)>& given) {
  visit_ = &given;
  num_busy_ = static_cast<std::uint32_t>(threads_.size());
  ++round_;
  round_.notify_all();
  visit(0);
  for (std::uint32_t busy = num_busy_; busy > 0; busy = num_busy_) num_busy_.wait(busy);
  for (const std::exception_ptr& error : std::exchange(errors_, {threads_.size() + 1, nullptr})) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

void WorkerGroup::visit(std::size_t number) {
  try {
    (*visit_)(number);
  } catch (...) {
    errors_[number] = std::current_exception();
  }
}

void WorkerGroup::work(std::size_t number) {
  for (std::uint32_t seen = 0;; ++seen) {
    round_.wait(seen);
    if (is_over_) return;
    visit(number);
    if (--num_busy_ == 0) num_busy_.notify_one();
  }
}

}  // namespace metronome
