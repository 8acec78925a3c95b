// SPDX-License-Identifier: Apache-2.0
// vllm-router 0.1.17. It asks for each replica how much of the prompt was sent there before, and
// takes the least loaded of those with the longest match.
#include <algorithm>

#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/decisions/router_case_format.h"
#include "fleet/prefix_tree.h"
#include "fleet/routers/cache_aware.h"
#include "fleet/routers/routers.h"

namespace metronome {
namespace {
constexpr std::string_view kRules[] = {"cache_aware", "round_robin", "random", "power_of_two"};
}  // namespace

enum class VllmRule : std::uint8_t { CacheAware, RoundRobin, Random, PowerOfTwo };

struct VllmRouterConfig {
  VllmRule rule = VllmRule::CacheAware;
  CacheAwareConfig cache;
};

void visit_fields(FieldVisitor& visitor, VllmRouterConfig& config) {
  visitor.choice("rule", config.rule, kRules, "the router's --policy");
  visit_cache_aware(visitor, config.cache);
}

namespace {

class VllmRouter final : public Router {
 public:
  VllmRouter(const RouterContext& context, const CacheAwareConfig& config)
      : Router(context),
        config_(config),
        tree_(num_replicas()),
        eviction_(config),
        matched_(num_replicas()) {}

 private:
  void decide(const RoutedRequest& request) override {
    eviction_.run(request.now, tree_);
    const auto load = [this](ReplicaId each) { return in_flight(each); };
    ReplicaId chosen = first_lowest(load);
    if (!is_unequal(config_, in_flight(chosen), highest(load)) && request.num_prompt_tokens > 0) {
      tree_.match_each(request.prompt, matched_);
      const auto matched = [this](ReplicaId each) {
        return matched_[static_cast<std::size_t>(each)];
      };
      const std::int64_t best = highest(matched);
      const double rate =
          static_cast<double>(best) / static_cast<double>(request.num_prompt_tokens);
      // The threshold is kept in single precision.
      if (rate > static_cast<double>(static_cast<float>(config_.cache_threshold))) {
        chosen = first_lowest(
            [&](ReplicaId each) { return matched(each) == best ? in_flight(each) : INT64_MAX; });
      }
    }
    choices().push_back(chosen);
  }

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    tree_.insert(request.prompt, replica);
  }

  void forget(ReplicaId replica) override { tree_.remove(replica); }

  CacheAwareConfig config_;
  PrefixTree tree_;
  TreeEviction eviction_;
  std::vector<std::int64_t> matched_;  // by replica
};

std::unique_ptr<Router> make_vllm_router(const RouterContext& context) {
  const auto& config = context.settings.get<VllmRouterConfig>();
  switch (config.rule) {
    case VllmRule::RoundRobin: return kRoundRobin.make(context);
    case VllmRule::Random: return kRandomRouter.make(context);
    case VllmRule::PowerOfTwo: return kPowerOfTwo.make(context);
    case VllmRule::CacheAware: break;
  }
  return std::make_unique<VllmRouter>(context, config.cache);
}

// The recording sent characters as token ids, and one token where there was no text.
std::vector<std::uint64_t> read_token_ids(const JsonPlace& event) {
  std::vector<std::uint64_t> tokens = read_characters(event);
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

constexpr RouterCaseFormat kCases = {
    .settings = cache_aware_settings, .read_prompt = read_token_ids, .known = known_loads};

}  // namespace

const RouterInfo kVllmRouter = {
    .name = "vllm_router",
    .summary = "the least loaded of the replicas with the longest prefix, unless loads are unequal",
    .source = "vllm-router 0.1.17",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<VllmRouterConfig>,
    .cases = &kCases,
    .make = make_vllm_router};

}  // namespace metronome
