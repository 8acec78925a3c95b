// SPDX-License-Identifier: Apache-2.0
#include "core/workload/front_end_arrivals.h"

#include <algorithm>

namespace metronome {

std::optional<RequestSpec> FrontEndArrivals::pop_due(TimeNs now, std::int64_t step) {
  while (const auto spec = clients_.pop_due(now, step)) {
    sent_.push_back({hand_over_.time_of(spec->arrival, spec->num_prompt_tokens), *spec});
  }
  if (sent_.empty() || sent_.front().handed_over > now) return std::nullopt;
  const RequestSpec spec = sent_.front().spec;
  sent_.pop_front();
  return spec;
}

TimeNs FrontEndArrivals::next_time() const {
  return std::min(clients_.next_time(), sent_.empty() ? kNever : sent_.front().handed_over);
}

}  // namespace metronome
