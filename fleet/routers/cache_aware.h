// SPDX-License-Identifier: Apache-2.0
// What the routers of SGLang and vLLM share. vLLM's began as a copy of SGLang's.
#pragma once

#include <cstdint>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/types.h"

namespace metronome {

class FieldVisitor;
class PrefixTree;
class Router;
struct RoutedRequest;

// The launchers' defaults, which differ from those of the programs' own structures.
struct CacheAwareConfig {
  double cache_threshold = 0.3;
  std::int64_t balance_abs_threshold = 64;
  double balance_rel_threshold = 1.5;
  double eviction_interval_s = 60;
  std::int64_t max_tree_size = std::int64_t{1} << 26;
};

void visit_cache_aware(FieldVisitor& visitor, CacheAwareConfig& config);

// Whether the lowest and the highest number of requests in flight differ too much to look at
// prefixes.
bool is_unequal(const CacheAwareConfig& config, std::int64_t lowest, std::int64_t highest);

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

// Of recorded cases: the settings, and the requests in flight, which one rule of these programs
// counts.
Json cache_aware_settings(const JsonPlace& c);
Json known_loads(Router& router, const RoutedRequest& request, const JsonPlace& c);

}  // namespace metronome
