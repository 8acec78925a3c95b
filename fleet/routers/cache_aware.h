// SPDX-License-Identifier: Apache-2.0
// The common part of the routers of SGLang and vLLM. vLLM's began as a copy of SGLang's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/types.h"
#include "fleet/prefix_tree.h"
#include "fleet/router.h"

namespace metronome {

class FieldVisitor;

enum class RouterRule : std::uint8_t { CacheAware, RoundRobin, Random, PowerOfTwo };

// The launchers' defaults, which differ from those of the programs' own structures.
struct CacheAwareConfig {
  RouterRule rule = RouterRule::CacheAware;
  double cache_threshold = 0.3;
  std::int64_t balance_abs_threshold = 64;
  double balance_rel_threshold = 1.5;
  double eviction_interval_s = 60;
  std::int64_t max_tree_size = std::int64_t{1} << 26;
};

void visit_fields(FieldVisitor& visitor, CacheAwareConfig& config);

// The command of such a router: the program, its rule, and what differs from its defaults.
std::string cache_aware_command(std::string_view program, const CacheAwareConfig& config);

// Cuts the tree to its largest size from time to time.
class TreeEviction {
 public:
  explicit TreeEviction(const CacheAwareConfig& config);
  void run(TimeNs now, PrefixTree& tree);

 private:
  TimeNs interval_;  // 0: never
  TimeNs next_;
  std::int64_t max_tokens_;
};

// Sends a request to the least loaded replica, unless loads are equal enough and its prompt was
// sent before.
class CacheAwareRouter : public Router {
 public:
  CacheAwareRouter(const RouterContext& context, const CacheAwareConfig& config);

 protected:
  // The replica to which the prompt, which is not empty, belongs; nullopt: none.
  virtual std::optional<ReplicaId> owner_of(const RoutedRequest& request) = 0;

  const CacheAwareConfig& config() const { return config_; }
  PrefixTree& tree() { return tree_; }

 private:
  void decide(const RoutedRequest& request) override;
  void sent(const RoutedRequest& request, ReplicaId replica) override;
  void forget(ReplicaId replica) override { tree_.remove(replica); }

  CacheAwareConfig config_;
  PrefixTree tree_;
  TreeEviction eviction_;
};

// Of recorded cases: the settings, and the requests in flight, which one rule of these programs
// counts.
Json cache_aware_settings(const JsonPlace& c);
Json known_loads(Router& router, const RoutedRequest& request, const JsonPlace& c);

}  // namespace metronome
