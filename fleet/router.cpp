// SPDX-License-Identifier: Apache-2.0
#include "fleet/router.h"

#include <numeric>

#include "core/base/error.h"

namespace metronome {

Router::Router(const RouterContext& context)
    : order_(context.order),
      is_up_(static_cast<std::size_t>(context.num_replicas), true),
      num_in_flight_(is_up_.size(), 0) {
  if (order_.empty()) {
    order_.resize(is_up_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  METRONOME_CHECK(order_.size() == is_up_.size(), "a router's order has each replica once");
  listed_ = order_;
}

std::span<const ReplicaId> Router::choose(const RoutedRequest& request) {
  METRONOME_CHECK(!listed_.empty(), "a router chooses among replicas that are up");
  choices_.clear();
  decide(request);
  METRONOME_CHECK(!choices_.empty(), "a router chose a replica");
  return choices_;
}

void Router::sent(const RoutedRequest&, ReplicaId replica) {
  ++num_in_flight_[static_cast<std::size_t>(replica)];
}

void Router::ended(std::int64_t, ReplicaId replica) {
  --num_in_flight_[static_cast<std::size_t>(replica)];
}

void Router::set_up(ReplicaId replica, bool is_up) {
  is_up_[static_cast<std::size_t>(replica)] = is_up;
  listed_.clear();
  for (const ReplicaId each : order_) {
    if (is_up_[static_cast<std::size_t>(each)]) listed_.push_back(each);
  }
  if (!is_up) forget(replica);
}

}  // namespace metronome
