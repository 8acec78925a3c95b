// SPDX-License-Identifier: Apache-2.0
// Reads bodies on threads of their own, in an order that is fair to clients.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace metronome {

struct Work {
  std::string client;
  std::size_t num_bytes = 0;  // a measure of how long it takes
  std::function<void()> run;
};

// Short work has a thread, and long work has one that yields to all others. So nobody waits for
// more than one piece of work that is much longer than the own. Among clients the one with the
// fewest bytes served is next (fair queueing by bytes): a client that sends more only delays
// itself.
class WorkQueue {
 public:
  static constexpr std::size_t kMaxShortBytes = 64 * 1024;

  WorkQueue();
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void add(Work work);
  // Forgets all work that has not begun, and waits for the rest.
  void stop();

 private:
  struct Waiting {
    std::uint64_t order;  // smaller: sooner
    std::uint64_t number;
    auto operator<=>(const Waiting&) const = default;
  };
  struct Lane {
    std::map<Waiting, Work> waiting;
    // By client: the order of the last work that was added. Forgotten when it has been reached.
    std::map<std::string, std::uint64_t> last;
    std::uint64_t reached = 0;  // the order of the work that began last
    std::condition_variable has_work;
  };

  void work_on(Lane& lane);

  std::mutex mutex_;
  bool is_stopped_ = false;
  std::uint64_t next_number_ = 0;
  Lane short_, long_;
  std::vector<std::thread> threads_;
};

}  // namespace metronome
