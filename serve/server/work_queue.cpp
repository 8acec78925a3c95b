// SPDX-License-Identifier: Apache-2.0
#include "serve/server/work_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "system/parallel.h"

namespace metronome {

WorkQueue::WorkQueue() {
  const auto work_on_long = [this] {
    constexpr int kNice = 5;  // Linux counts it by thread
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
    work_on(long_);
  };
  const bool has_both =
      start_thread(threads_, [this] { work_on(short_); }) && start_thread(threads_, work_on_long);
  if (has_both) return;
  stop();
  throw std::bad_alloc();
}

// The order of a client's work is the sum of bytes up to its end, as if all clients were served a
// byte at a time (Demers, Keshav and Shenker, 1989).
void WorkQueue::add(Work work) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  Lane& lane = work.num_bytes <= kMaxShortBytes ? short_ : long_;
  std::uint64_t& last = lane.last[work.client];
  last = std::max(last, lane.reached) + work.num_bytes;
  lane.waiting.emplace(Waiting{last, next_number_++}, std::move(work));
  lane.has_work.notify_one();
}

void WorkQueue::work_on(Lane& lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    lane.has_work.wait(lock, [&] { return is_stopped_ || !lane.waiting.empty(); });
    if (is_stopped_) return;
    const auto first = lane.waiting.begin();
    lane.reached = std::max(lane.reached, first->first.order - first->second.num_bytes);
    Work work = std::move(first->second);
    lane.waiting.erase(first);
    std::erase_if(lane.last, [&](const auto& client) { return client.second <= lane.reached; });
    lock.unlock();
    work.run();
    work = {};  // what it holds is freed without the lock
    lock.lock();
  }
}

void WorkQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    short_.has_work.notify_all();
    long_.has_work.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  short_.waiting.clear();
  long_.waiting.clear();
}

}  // namespace metronome
