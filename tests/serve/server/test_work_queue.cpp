// SPDX-License-Identifier: Apache-2.0
#include <future>

#include "serve/server/work_queue.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;
namespace {

constexpr std::size_t kShort = 1000;
constexpr std::size_t kLong = WorkQueue::kMaxShortBytes + 1;

// A queue whose first work waits, so that the rest is ordered before it begins.
class Held {
 public:
  explicit Held(std::size_t num_bytes) {
    queue.add({.client = "holder", .num_bytes = num_bytes, .run = [this] {
                 begun_.set_value();
                 open_.get_future().wait();
               }});
    begun_.get_future().wait();
  }
  void add(const std::string& client, std::size_t num_bytes) {
    queue.add({.client = client, .num_bytes = num_bytes, .run = [this, client] {
                 const std::lock_guard lock(mutex_);
                 order_ += client;
               }});
  }
  // The clients in the order in which their work was done.
  std::string order() {
    std::promise<void> last;
    queue.add({.client = "last", .num_bytes = kLong * 1000, .run = [&] { last.set_value(); }});
    open_.set_value();
    last.get_future().wait();
    const std::lock_guard lock(mutex_);
    return order_;
  }

  WorkQueue queue;

 private:
  std::promise<void> begun_, open_;
  std::mutex mutex_;
  std::string order_;
};

}  // namespace

TEST_CASE("a client that sends more delays itself alone", "[serve][work_queue]") {
  Held held(kLong);
  for (int i = 0; i < 4; ++i) held.add("a", kLong * 2);
  held.add("b", kLong);
  held.add("b", kLong);
  held.add("c", kLong * 4);
  // As if every client was served a byte at a time: a at 2, 4, 6, 8; b at 1, 2; c at 4.
  CHECK(held.order() == "babacaa");
}

TEST_CASE("the work of a client comes in order, and old work gives no credit",
          "[serve][work_queue]") {
  Held held(kLong);
  held.add("a", kLong * 3);
  held.add("a", kLong);
  held.add("b", kLong * 3);
  CHECK(held.order() == "aba");
}

TEST_CASE("short work does not wait for long work", "[serve][work_queue]") {
  Held held(kLong);
  std::promise<void> done;
  held.queue.add({.client = "holder", .num_bytes = kShort, .run = [&] { done.set_value(); }});
  done.get_future().wait();  // would wait for ever behind the long work
  CHECK(held.order().empty());
}

TEST_CASE("a queue that is stopped forgets what has not begun", "[serve][work_queue]") {
  bool was_run = false;
  {
    WorkQueue queue;
    std::promise<void> begun, open;
    queue.add({.client = "a", .num_bytes = kShort, .run = [&] {
                 begun.set_value();
                 open.get_future().wait();
               }});
    queue.add({.client = "a", .num_bytes = kShort, .run = [&] { was_run = true; }});
    begun.get_future().wait();
    std::thread opener([&] { open.set_value(); });
    opener.join();
    queue.stop();
    queue.add({.client = "a", .num_bytes = kShort, .run = [&] { was_run = true; }});
  }
  SUCCEED("it ends");
  (void)was_run;
}

}  // namespace TEST_FILE
