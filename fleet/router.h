// SPDX-License-Identifier: Apache-2.0
// A router sends each request to one of several replicas. What it knows of them, and how old that
// is, belongs to its rule: the fleet tells each router of every event, and a router keeps what the
// program that it reproduces would know.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/engine/policy_settings.h"
#include "fleet/content_run.h"

namespace metronome {

class FieldVisitor;

// A replica, from 0.
using ReplicaId = std::int32_t;

// A request as a router sees it.
struct RoutedRequest {
  std::int64_t number = 0;             // no other request of the fleet has it
  TimeNs now = 0;                      // when the router decides
  std::span<const ContentRun> prompt;  // empty: the prompt is like no other
  std::int64_t num_prompt_tokens = 0;
  // A hash for each full block of the prompt, of all tokens up to its end. For routers that hear
  // of blocks.
  std::span<const std::uint64_t> blocks = {};
  std::uint64_t session = 0;  // requests with the same one, but 0, belong together
};

// A replica's report of itself.
struct ReplicaReport {
  std::int64_t num_waiting = 0;
  std::int64_t num_running = 0;
  double kv_usage = 0;  // share of the KV blocks, 0 to 1
};

// The caches of replicas when a router decides, for routers that hear of blocks.
class CacheView {
 public:
  virtual ~CacheView() = default;
  // For each replica how many of the prompt's first blocks it holds without a gap. `overlaps` has a
  // place for each replica.
  virtual void count_cached(const RoutedRequest& request, std::span<std::int64_t> overlaps) = 0;
};

struct RouterContext {
  std::int32_t num_replicas = 1;
  // The order in which the router looks at replicas, which decides ties. Empty: by number.
  std::vector<ReplicaId> order = {};
  std::uint64_t seed = 0;        // of its lots
  std::int32_t block_size = 16;  // tokens of a KV block of the replicas
  PolicySettings settings = {};  // of the router
  // Asked instead of stored() and removed(), which are then not called; null: those tell it. A
  // router with it hears of a block at once.
  CacheView* caches = nullptr;
};

class Router {
 public:
  explicit Router(const RouterContext& context);
  virtual ~Router() = default;

  // The replicas among which it draws by lot, in its order: one if the rule decides. None is down.
  // Requires that one is up. The result is valid until the next call.
  std::span<const ReplicaId> choose(const RoutedRequest& request);

  // ---- Events, in order of time ----

  // The request goes to `replica`.
  virtual void sent(const RoutedRequest& request, ReplicaId replica);
  // The answer's first token came.
  virtual void answered(std::int64_t request) { (void)request; }
  // It ended in any way, after it was sent.
  virtual void ended(std::int64_t request, ReplicaId replica);
  // The reports of all replicas, as often as RouterInfo::report_ms says.
  virtual void reported(std::span<const ReplicaReport> reports) { (void)reports; }
  // The replica's KV cache has these blocks of a prompt. `blocks` begins with the prompt's first
  // one, `first` is the place of the first new one.
  virtual void stored(ReplicaId, std::span<const std::uint64_t> /*blocks*/, std::size_t /*first*/) {
  }
  // It lost this block, and with it those that continue it.
  virtual void removed(ReplicaId, std::uint64_t /*block*/) {}
  // A replica comes, or goes: it gets no request while it is down.
  void set_up(ReplicaId replica, bool is_up);

  // Requests that were sent and have not ended, by replica.
  std::span<const std::int64_t> num_in_flight() const { return num_in_flight_; }

 protected:
  // The rule. Fills choices().
  virtual void decide(const RoutedRequest& request) = 0;
  // A replica's cache and memory of the router's are gone.
  virtual void forget(ReplicaId) {}

  // The replicas that are up, in the router's order.
  std::span<const ReplicaId> listed() const { return listed_; }
  std::size_t num_replicas() const { return num_in_flight_.size(); }
  std::vector<ReplicaId>& choices() { return choices_; }
  // The listed replica with the lowest value; the first of equal ones.
  template <class Value>
  ReplicaId first_lowest(const Value& value_of) const {
    ReplicaId best = listed_.front();
    for (const ReplicaId replica : listed_) {
      if (value_of(replica) < value_of(best)) best = replica;
    }
    return best;
  }
  // The highest value of a listed replica.
  template <class Value>
  auto highest(const Value& value_of) const {
    auto best = value_of(listed_.front());
    for (const ReplicaId replica : listed_) best = std::max(best, value_of(replica));
    return best;
  }
  std::int64_t in_flight(ReplicaId replica) const {
    return num_in_flight_[static_cast<std::size_t>(replica)];
  }

 private:
  std::vector<ReplicaId> order_;
  std::vector<bool> is_up_;
  std::vector<ReplicaId> listed_;
  std::vector<ReplicaId> choices_;
  std::vector<std::int64_t> num_in_flight_;
};

}  // namespace metronome
