// SPDX-License-Identifier: Apache-2.0
#include "fleet/routers/cache_aware.h"

#include <fmt/core.h>

#include "core/config/config_reader.h"
#include "fleet/prefix_tree.h"
#include "fleet/routers/routers.h"

namespace metronome {

namespace {

constexpr std::string_view kRules[] = {"cache_aware", "round_robin", "random", "power_of_two"};

// The lowest and the highest number of requests in flight differ too much to look at prefixes.
bool is_unequal(const CacheAwareConfig& config, std::int64_t lowest, std::int64_t highest) {
  // In single precision, as in both programs.
  const float limit = static_cast<float>(lowest) * static_cast<float>(config.balance_rel_threshold);
  return highest - lowest > config.balance_abs_threshold && static_cast<float>(highest) > limit;
}

}  // namespace

void visit_fields(FieldVisitor& visitor, CacheAwareConfig& config) {
  visitor.choice("rule", config.rule, kRules, "the router's --policy");
  visitor.number("cache_threshold", config.cache_threshold, 0, 1,
                 "share of a prompt that must be known for it to follow its prefix");
  visitor.integer("balance_abs_threshold", config.balance_abs_threshold, 0, 1 << 30,
                  "loads are unequal when they differ by more requests than this, and");
  visitor.number("balance_rel_threshold", config.balance_rel_threshold, 0, 1e9,
                 "when the highest is more than so many times the lowest");
  visitor.number("eviction_interval_s", config.eviction_interval_s, 0, 1e6,
                 "seconds between cuts of the tree of prompts; 0: it is never cut");
  visitor.integer("max_tree_size", config.max_tree_size, 1, std::int64_t{1} << 40,
                  "tokens of prompts that the tree keeps for a replica");
}

std::string cache_aware_command(std::string_view program, const CacheAwareConfig& config) {
  const CacheAwareConfig defaults;
  std::string text =
      fmt::format("{} --policy {}", program, kRules[static_cast<std::size_t>(config.rule)]);
  const auto add = [&text](std::string_view flag, double value, double otherwise) {
    text += flag_unless_default(flag, value, otherwise);
  };
  add("--cache-threshold", config.cache_threshold, defaults.cache_threshold);
  add("--balance-abs-threshold", static_cast<double>(config.balance_abs_threshold),
      static_cast<double>(defaults.balance_abs_threshold));
  add("--balance-rel-threshold", config.balance_rel_threshold, defaults.balance_rel_threshold);
  add("--eviction-interval-secs", config.eviction_interval_s, defaults.eviction_interval_s);
  add("--max-tree-size", static_cast<double>(config.max_tree_size),
      static_cast<double>(defaults.max_tree_size));
  return text;
}

TreeEviction::TreeEviction(const CacheAwareConfig& config)
    : interval_(static_cast<TimeNs>(config.eviction_interval_s * 1e9)),
      next_(interval_),
      max_tokens_(config.max_tree_size) {}

void TreeEviction::run(TimeNs now, PrefixTree& tree) {
  if (interval_ == 0 || now < next_) return;
  tree.evict(max_tokens_);
  next_ = now - now % interval_ + interval_;
}

CacheAwareRouter::CacheAwareRouter(const RouterContext& context, const CacheAwareConfig& config)
    : Router(context), config_(config), tree_(num_replicas()), eviction_(config) {}

void CacheAwareRouter::decide(const RoutedRequest& request) {
  eviction_.run(request.now, tree_);
  const auto load = [this](ReplicaId each) { return in_flight(each); };
  const ReplicaId least_loaded = first_lowest(load);
  std::optional<ReplicaId> owner;
  if (!is_unequal(config_, in_flight(least_loaded), highest(load)) &&
      request.num_prompt_tokens > 0) {
    owner = owner_of(request);
  }
  choices().push_back(owner.value_or(least_loaded));
}

void CacheAwareRouter::sent(const RoutedRequest& request, ReplicaId replica) {
  Router::sent(request, replica);
  tree_.insert(request.prompt, replica);
}

Json cache_aware_settings(const JsonPlace& c) {
  Json settings = c.at("config").json();
  settings["rule"] = c.at("policy").text();
  return settings;
}

Json known_loads(Router& router, const RoutedRequest&, const JsonPlace& c) {
  const bool counts = c.at("policy").text() == "cache_aware";
  Json loads = Json::array();
  for (const std::int64_t load : router.num_in_flight()) loads.push_back(counts ? load : 0);
  return {{"loads", loads}};
}

}  // namespace metronome
