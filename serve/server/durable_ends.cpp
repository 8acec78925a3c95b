// SPDX-License-Identifier: Apache-2.0
#include "serve/server/durable_ends.h"

#include "serve/server/answer_ticket.h"

namespace metronome {

void DurableEnds::pass(std::vector<LiveEvent>& events,
                       const std::function<void(const LiveEvent&)>& see) {
  const std::int64_t num_recorded = records() ? num_recorded_() : INT64_MAX;
  for (; !held_.empty() && held_.front().first <= num_recorded; held_.pop_front()) {
    const LiveEvent& event = held_.front().second;
    const auto count = num_held_.find(number_of(event.ticket));
    if (--count->second == 0) num_held_.erase(count);
    see(event);
  }
  for (LiveEvent& event : events) {
    if (event.kind != LiveEventKind::Ended || ++num_ends_ <= num_recorded) {
      see(event);
      continue;
    }
    ++num_held_[number_of(event.ticket)];
    held_.emplace_back(num_ends_, std::move(event));
  }
}

}  // namespace metronome
