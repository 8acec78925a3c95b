// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/request_ends.h"

#include <algorithm>
#include <map>

namespace metronome {
namespace {

constexpr std::size_t kNoLimit = SIZE_MAX;

// The iteration of its last possible token.
std::size_t limit_of(const RebuiltRequest& request) {
  if (request.max_output_tokens <= 0 || request.prefilled == kNoIteration) return kNoLimit;
  return request.prefilled + static_cast<std::size_t>(request.max_output_tokens) - 1;
}

// A request that is missing and comes back was preempted: it did not end.
std::vector<bool> take_out_preemptions(std::vector<std::int64_t>& num_ended) {
  std::vector<bool> is_settled(num_ended.size(), true);
  for (std::size_t i = 0; i < num_ended.size(); ++i) {
    std::size_t from = i;
    for (std::size_t j = i; num_ended[i] < 0 && j-- > 0;) {
      const std::int64_t back = std::clamp<std::int64_t>(num_ended[j], 0, -num_ended[i]);
      num_ended[j] -= back;
      num_ended[i] += back;
      if (back > 0) from = j;
    }
    num_ended[i] = std::max<std::int64_t>(num_ended[i], 0);
    for (std::size_t j = from; j < i; ++j) is_settled[j + 1] = false;
  }
  return is_settled;
}

// A request that runs, and whether an end was drawn among it and others.
struct Running {
  std::size_t request = 0;
  std::size_t limit = kNoLimit;
  bool was_drawn = false;
};

class EndFinder {
 public:
  EndFinder(std::vector<std::int64_t>& num_ended, std::vector<RebuiltRequest>& requests, Rng& rng)
      : num_ended_(num_ended), requests_(requests), rng_(rng) {}

  void take_limits();
  void draw_others();

 private:
  void end_some(std::size_t iteration);

  std::vector<std::int64_t>& num_ended_;
  std::vector<RebuiltRequest>& requests_;
  Rng& rng_;
  std::vector<Running> running_;
};

void EndFinder::take_limits() {
  std::map<std::size_t, std::vector<std::size_t>> due;
  for (std::size_t r = 0; r < requests_.size(); ++r) {
    const std::size_t limit = limit_of(requests_[r]);
    if (limit < num_ended_.size()) due[limit].push_back(r);
  }
  for (const auto& [iteration, requests] : due) {
    const auto num_due = static_cast<std::int64_t>(requests.size());
    const bool is_exact = num_due <= num_ended_[iteration];
    for (const std::size_t r : requests) {
      if (num_ended_[iteration] == 0) break;
      --num_ended_[iteration];
      requests_[r].last = iteration;
      requests_[r].is_output_exact = is_exact;
    }
  }
}

void EndFinder::end_some(std::size_t iteration) {
  auto left = static_cast<std::size_t>(num_ended_[iteration]);
  const bool all_end = running_.size() <= left;
  for (; left > 0 && !running_.empty(); --left) {
    // One that is at its limit, else any.
    auto ended =
        std::min_element(running_.begin(), running_.end(),
                         [](const Running& a, const Running& b) { return a.limit < b.limit; });
    if (!all_end && ended->limit > iteration) {
      ended =
          running_.begin() + rng_.uniform_int(0, static_cast<std::int64_t>(running_.size()) - 1);
    }
    RebuiltRequest& request = requests_[ended->request];
    request.last = iteration;
    request.is_output_exact = all_end && !ended->was_drawn && request.first != kNoIteration;
    running_.erase(ended);
    for (Running& other : running_) other.was_drawn = other.was_drawn || !all_end;
  }
}

void EndFinder::draw_others() {
  std::map<std::size_t, std::vector<std::size_t>> begins;
  for (std::size_t r = 0; r < requests_.size(); ++r) {
    const RebuiltRequest& request = requests_[r];
    if (request.last != kNoIteration) continue;
    if (request.first == kNoIteration) {
      running_.push_back({r});
    } else if (request.prefilled != kNoIteration) {
      begins[request.prefilled].push_back(r);
    }
  }
  for (std::size_t i = 0; i < num_ended_.size(); ++i) {
    if (const auto found = begins.find(i); found != begins.end()) {
      for (const std::size_t r : found->second) running_.push_back({r, limit_of(requests_[r])});
    }
    if (num_ended_[i] > 0) end_some(i);
  }
}

}  // namespace

RequestEnds find_request_ends(std::vector<std::int64_t> num_ended,
                              std::vector<RebuiltRequest>& requests, Rng& rng) {
  RequestEnds ends{take_out_preemptions(num_ended)};
  EndFinder finder(num_ended, requests, rng);
  finder.take_limits();
  finder.draw_others();
  return ends;
}

}  // namespace metronome
