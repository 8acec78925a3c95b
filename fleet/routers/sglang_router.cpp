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
struct SglangRouterConfig {
  CacheAwareConfig cache;
};

void visit_fields(FieldVisitor& visitor, SglangRouterConfig& config) {
  visit_fields(visitor, config.cache);
}

namespace {

class SglangRouter final : public CacheAwareRouter {
 public:
  using CacheAwareRouter::CacheAwareRouter;

 private:
  std::optional<ReplicaId> owner_of(const RoutedRequest& request) override {
    const PrefixTree::Match match = tree().match(request.prompt);
    // The program divides in single precision.
    const float rate =
        static_cast<float>(match.num_tokens) / static_cast<float>(request.num_prompt_tokens);
    if (rate > static_cast<float>(config().cache_threshold)) return match.owner;
    return std::nullopt;
  }
};

std::unique_ptr<Router> make_sglang_router(const RouterContext& context) {
  const auto& config = context.settings.get<SglangRouterConfig>();
  switch (config.cache.rule) {
    case RouterRule::RoundRobin: return kRoundRobin.make(context);
    // It counts requests for its other rules alone. So power_of_two compares nothing with nothing
    // and keeps the first of two replicas that it drew.
    case RouterRule::PowerOfTwo:
    case RouterRule::Random: return kRandomRouter.make(context);
    case RouterRule::CacheAware: break;
  }
  return std::make_unique<SglangRouter>(context, config.cache);
}

constexpr RouterCaseFormat kSglangRouterCases = {
    .settings = cache_aware_settings, .read_prompt = read_characters, .known = known_loads};

std::string sglang_command(const PolicySettings& settings) {
  return cache_aware_command("python3 -m sglang_router.launch_router",
                             settings.get<SglangRouterConfig>().cache);
}

}  // namespace

const RouterInfo kSglangRouter = {
    .name = "sglang_router",
    .summary = "follows the prompt's prefix unless loads are unequal; knows its own requests alone",
    .source = "sglang-router 0.3.2",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<SglangRouterConfig>,
    .command = sglang_command,
    .cases = &kSglangRouterCases,
    .make = make_sglang_router};

}  // namespace metronome
