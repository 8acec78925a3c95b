// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of routers. A file has a case a line: a fresh router, and the events that it
// saw. An event "arrive" is a request, and has the replica that the router chose for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "fleet/router_registry.h"

namespace metronome {

// A router's answer to an arrival.
struct RouterAnswer {
  Json known = Json::object();          // fields of the event: what the router knew before
  std::vector<ReplicaId> choices = {};  // among which it draws by lot
};

// A fresh router in the course of a case.
class RouterCase {
 public:
  // Throws ConfigError for a missing or unknown key or a value out of range.
  RouterCase(const RouterInfo& info, const JsonPlace& place);

  const Json& json() const { return place_.json(); }  // as recorded
  std::string name() const;
  std::size_t num_events() const { return json().at("events").size(); }
  std::string_view choice_key() const;
  // Throws ConfigError unless the event has a choice.
  ReplicaId recorded_choice(std::size_t event) const;

  // Tells the router of the event. nullopt: the event is no arrival. Otherwise send() follows.
  // Throws ConfigError for an event that is not one, or is of a request that is not there.
  std::optional<RouterAnswer> apply(std::size_t event);
  void send(ReplicaId replica);

 private:
  struct Sent {
    std::int64_t number = 0;
    ReplicaId replica = 0;
  };

  JsonPlace event_at(std::size_t event) const;
  ReplicaId replica_at(const JsonPlace& place) const;
  std::map<std::string, Sent>::iterator find(const JsonPlace& event);
  std::vector<ReplicaReport> reports_at(const JsonPlace& counts) const;
  RoutedRequest request_at(const JsonPlace& event);

  const RouterCaseFormat& format_;
  JsonPlace place_;
  std::int32_t num_replicas_ = 0;
  std::int32_t block_size_ = 1;
  std::unique_ptr<Router> router_;
  std::map<std::string, Sent> sent_;  // by id, as JSON
  std::int64_t num_arrived_ = 0;
  std::vector<ContentRun> prompt_;
  std::vector<std::uint64_t> blocks_;
  RoutedRequest arrived_;
  std::string arrived_id_;
};

// The routers whose cases can be replayed.
std::vector<std::string_view> recorded_routers();

// Reads the cases one by one. Throws ConfigError for an unreadable file, malformed JSON, and as the
// constructor of RouterCase does. `router` is one of recorded_routers(). `line` is from 1.
void for_each_router_case(std::string_view router, const std::string& path,
                          const std::function<void(RouterCase&, std::size_t line)>& visit);

}  // namespace metronome
