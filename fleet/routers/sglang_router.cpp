// SPDX-License-Identifier: Apache-2.0
// sglang-router 0.3.2. Load is the requests that the router itself has in flight. A prompt follows
// the replica that created the deepest node which it touches, however loaded that is.
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

enum class SglangRule : std::uint8_t { CacheAware, RoundRobin, Random, PowerOfTwo };

struct SglangRouterConfig {
  SglangRule rule = SglangRule::CacheAware;
  CacheAwareConfig cache;
};

void visit_fields(FieldVisitor& visitor, SglangRouterConfig& config) {
  visitor.choice("rule", config.rule, kRules, "the router's --policy");
  visit_cache_aware(visitor, config.cache);
}

namespace {

class SglangRouter final : public Router {
 public:
  SglangRouter(const RouterContext& context, const CacheAwareConfig& config)
      : Router(context), config_(config), tree_(num_replicas()), eviction_(config) {}

 private:
  void decide(const RoutedRequest& request) override {
    eviction_.run(request.now, tree_);
    const auto load = [this](ReplicaId each) { return in_flight(each); };
    ReplicaId chosen = first_lowest(load);
    if (!is_unequal(config_, in_flight(chosen), highest(load)) && request.num_prompt_tokens > 0) {
      const PrefixTree::Match match = tree_.match(request.prompt);
      // The program divides in single precision.
      const float rate =
          static_cast<float>(match.num_tokens) / static_cast<float>(request.num_prompt_tokens);
      if (rate > static_cast<float>(config_.cache_threshold)) chosen = match.owner;
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
};

std::unique_ptr<Router> make_sglang_router(const RouterContext& context) {
  const auto& config = context.settings.get<SglangRouterConfig>();
  switch (config.rule) {
    case SglangRule::RoundRobin: return kRoundRobin.make(context);
    // It counts requests for its other rules alone. So power_of_two compares nothing with nothing
    // and keeps the first of two replicas that it drew.
    case SglangRule::PowerOfTwo:
    case SglangRule::Random: return kRandomRouter.make(context);
    case SglangRule::CacheAware: break;
  }
  return std::make_unique<SglangRouter>(context, config.cache);
}

constexpr RouterCaseFormat kCases = {
    .settings = cache_aware_settings, .read_prompt = read_characters, .known = known_loads};

}  // namespace

const RouterInfo kSglangRouter = {
    .name = "sglang_router",
    .summary = "follows the prompt's prefix unless loads are unequal; knows its own requests alone",
    .source = "sglang-router 0.3.2",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<SglangRouterConfig>,
    .cases = &kCases,
    .make = make_sglang_router};

}  // namespace metronome
