// SPDX-License-Identifier: Apache-2.0
// The waiting queue: its two ends, its orders, and random operations against a plain list.
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/waiting_queue.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

using Ints = std::vector<int>;

int id_of(const Request& request) { return static_cast<int>(index(request.id)); }

Ints ids_of(const std::vector<Request*>& requests) {
  Ints ids;
  for (const Request* request : requests) ids.push_back(id_of(*request));
  return ids;
}

// Takes everyone out, one after the other.
Ints drained(WaitingQueue queue) {
  Ints ids;
  while (const Request* request = queue.front()) {
    ids.push_back(id_of(*request));
    queue.pop();
  }
  return ids;
}

Ints visited(const WaitingQueue& queue, std::size_t at_most) {
  Ints ids;
  if (at_most == 0) return ids;
  queue.visit_in_order([&](const Request& request) {
    ids.push_back(id_of(request));
    return ids.size() < at_most;
  });
  return ids;
}

// The three ways to read the order agree, and none of them changes it.
Ints order_of(const WaitingQueue& queue) {
  const Ints ids = ids_of(queue.in_order());
  REQUIRE(drained(queue) == ids);
  REQUIRE(visited(queue, ids.size() + 1) == ids);
  REQUIRE(queue.size() == ids.size());
  REQUIRE(queue.empty() == ids.empty());
  return ids;
}

// `count` requests with prompts of one token that arrive at the same time.
void add_requests(RequestTable& requests, int count) {
  for (int i = 0; i < count; ++i) requests.add({0, 1, 1, 0});
}

// The place of every request written down plainly: what comes first decides.
struct Place {
  std::int64_t key;
  std::int64_t rank;
  int id;

  auto operator<=>(const Place&) const = default;
};

// A queue and a sorted list, made to do the same.
class Pair {
 public:
  explicit Pair(std::uint64_t seed)
      : rng_(seed, "waiting_queue"), order_(static_cast<QueueOrder>(draw(0, 2))), queue_(order_) {
    for (int i = 0; i < 16; ++i) {
      requests_.add({draw(0, 3), static_cast<std::int32_t>(draw(1, 4)), 1,
                     static_cast<std::int32_t>(draw(0, 2))});
      outside_.push_back(i);
    }
  }

  void act() {
    const std::int64_t action = draw(0, 9);
    if (action < 5) return push(action);
    if (places_.empty()) return;
    if (action < 7) {
      outside_.push_back(places_.front().id);
      places_.erase(places_.begin());
      queue_.pop();
    } else if (action < 9) {
      const auto at = draw(0, static_cast<std::int64_t>(places_.size()) - 1);
      queue_.remove(request(places_[static_cast<std::size_t>(at)].id));
      outside_.push_back(places_[static_cast<std::size_t>(at)].id);
      places_.erase(places_.begin() + at);
    } else {
      const std::int64_t modulus = draw(1, 3);
      const auto key_of = [&](int id) { return (id * 7) % modulus; };
      queue_.sort_by([&](const Request& r) { return key_of(id_of(r)); });
      for (Place& place : places_) place.key = key_of(place.id);
      std::sort(places_.begin(), places_.end());
    }
  }

  void require_same() const {
    Ints expected;
    for (const Place& place : places_) expected.push_back(place.id);
    REQUIRE(order_of(queue_) == expected);
    for (std::size_t k = 0; k <= expected.size(); ++k) {
      const auto end = expected.begin() + static_cast<std::ptrdiff_t>(k);
      REQUIRE(visited(queue_, k) == Ints(expected.begin(), end));
    }
  }

 private:
  std::int64_t draw(std::int64_t low, std::int64_t high) { return rng_.uniform_int(low, high); }
  Request& request(int id) { return requests_[static_cast<RequestId>(id)]; }

  void push(std::int64_t action) {
    if (outside_.empty()) return;
    const auto at = draw(0, static_cast<std::int64_t>(outside_.size()) - 1);
    const int id = outside_[static_cast<std::size_t>(at)];
    outside_.erase(outside_.begin() + at);
    Request& pushed = request(id);
    std::int64_t rank = 0;
    if (action < 2) {
      queue_.push_back(pushed);
      rank = back_ = std::max<std::int64_t>(back_ + 1, id + 1);
    } else if (action < 4) {
      queue_.push_front(pushed);
      rank = --front_;
    } else {
      queue_.push_in_turn(pushed);
      rank = id + 1;
    }
    Place place{0, rank, id};
    if (order_ == QueueOrder::Priority) place = {pushed.priority, pushed.arrival, id};
    if (order_ == QueueOrder::ShortestPrefillFirst) place = {pushed.num_prompt_tokens, 0, id};
    places_.insert(std::upper_bound(places_.begin(), places_.end(), place), place);
  }

  Rng rng_;
  QueueOrder order_;
  WaitingQueue queue_;
  RequestTable requests_;
  Ints outside_;
  std::vector<Place> places_;  // in order
  std::int64_t front_ = 0;
  std::int64_t back_ = 0;
};

}  // namespace

TEST_CASE("fcfs: new requests join the back, preempted ones the front", "[core][queue]") {
  RequestTable requests;
  add_requests(requests, 5);
  const auto request = [&](int i) -> Request& { return requests[static_cast<RequestId>(i)]; };
  WaitingQueue queue(QueueOrder::Fcfs);
  CHECK(queue.front() == nullptr);
  CHECK(queue.empty());
  for (int i = 0; i < 4; ++i) queue.push_back(request(i));
  CHECK(order_of(queue) == Ints{0, 1, 2, 3});
  CHECK(queue.front() == &request(0));
  queue.pop();
  queue.pop();
  // Preempted from the tail: first the younger, then the older, which so comes back first.
  queue.push_front(request(1));
  queue.push_front(request(0));
  CHECK(order_of(queue) == Ints{0, 1, 2, 3});
  queue.pop();
  queue.push_back(request(0));  // an old one at the back stays behind younger ones
  CHECK(order_of(queue) == Ints{1, 2, 3, 0});
  queue.push_back(request(4));
  CHECK(order_of(queue) == Ints{1, 2, 3, 0, 4});
}

TEST_CASE("fcfs: back to where it was submitted", "[core][queue]") {
  RequestTable requests;
  add_requests(requests, 5);
  const auto request = [&](int i) -> Request& { return requests[static_cast<RequestId>(i)]; };
  WaitingQueue queue(QueueOrder::Fcfs);
  for (const int i : {0, 1, 3, 4}) queue.push_back(request(i));  // 2 was refused
  queue.pop();
  queue.pop();
  queue.remove(request(3));
  queue.push_front(request(4 - 4));
  queue.push_in_turn(request(3));
  CHECK(order_of(queue) == Ints{0, 3, 4});
  queue.push_in_turn(request(1));
  CHECK(order_of(queue) == Ints{0, 1, 3, 4});
}

TEST_CASE("priority: by value, then arrival, then submission; the ends do not matter",
          "[core][queue]") {
  RequestTable requests;
  requests.add({20, 1, 1, 5});   // 0
  requests.add({30, 1, 1, -1});  // 1
  requests.add({10, 1, 1, 5});   // 2
  requests.add({20, 1, 1, 5});   // 3, as 0
  requests.add({90, 1, 1, 0});   // 4
  const auto request = [&](int i) -> Request& { return requests[static_cast<RequestId>(i)]; };
  WaitingQueue queue(QueueOrder::Priority);
  queue.push_back(request(3));
  queue.push_back(request(4));
  queue.push_front(request(0));
  queue.push_in_turn(request(2));
  queue.push_back(request(1));
  CHECK(order_of(queue) == Ints{1, 4, 2, 0, 3});
  queue.pop();
  queue.pop();
  queue.push_front(request(4));
  CHECK(order_of(queue) == Ints{4, 2, 0, 3});
}

TEST_CASE("shortest_prefill_first: by tokens to compute when it joins, then submission",
          "[core][queue]") {
  RequestTable requests;
  for (const std::int32_t prompt : {30, 10, 20, 10}) requests.add({0, prompt, 9, 0});
  const auto request = [&](int i) -> Request& { return requests[static_cast<RequestId>(i)]; };
  WaitingQueue queue(QueueOrder::ShortestPrefillFirst);
  for (const int i : {3, 2, 1, 0}) queue.push_front(request(i));
  CHECK(order_of(queue) == Ints{1, 3, 2, 0});
  // Preempted with 11 tokens of output, it has 21 to compute.
  queue.pop();
  request(1).output_tokens = 11;
  queue.push_front(request(1));
  CHECK(order_of(queue) == Ints{3, 2, 1, 0});
}

TEST_CASE("sorting by a key keeps the order of the queue among equals", "[core][queue]") {
  RequestTable requests;
  add_requests(requests, 6);
  WaitingQueue queue(QueueOrder::Fcfs);
  for (const int i : {5, 1, 4, 0, 3, 2}) queue.push_back(requests[static_cast<RequestId>(i)]);
  const auto is_odd = [](const Request& request) { return std::int64_t{id_of(request) % 2}; };
  queue.sort_by(is_odd);
  CHECK(order_of(queue) == Ints{4, 0, 2, 5, 1, 3});
  queue.sort_by([&](const Request& request) { return -is_odd(request); });
  CHECK(order_of(queue) == Ints{5, 1, 3, 4, 0, 2});
  queue.sort_by([](const Request&) { return 0; });
  CHECK(order_of(queue) == Ints{5, 1, 4, 0, 3, 2});
}

TEST_CASE("requests leave the queue from anywhere, once", "[core][queue]") {
  RequestTable requests;
  add_requests(requests, 6);
  const auto request = [&](int i) -> Request& { return requests[static_cast<RequestId>(i)]; };
  WaitingQueue queue(QueueOrder::Fcfs);
  for (int i = 0; i < 6; ++i) queue.push_back(request(i));
  queue.remove(request(3));
  queue.remove(request(5));
  queue.remove(request(0));
  CHECK(order_of(queue) == Ints{1, 2, 4});
  CHECK_THROWS_AS(queue.remove(request(3)), InvariantError);
  CHECK(queue.size() == 3);
  while (!queue.empty()) queue.pop();
  CHECK(queue.front() == nullptr);
  CHECK_THROWS_AS(queue.pop(), InvariantError);
}

TEST_CASE("a queue does what a sorted list does", "[core][queue][property]") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Pair pair(seed);
    for (int i = 0; i < 60; ++i) {
      pair.act();
      pair.require_same();
    }
  }
}

}  // namespace metronome::TEST_FILE
