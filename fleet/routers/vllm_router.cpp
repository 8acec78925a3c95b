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
struct VllmRouterConfig {
  CacheAwareConfig cache;
};

void visit_fields(FieldVisitor& visitor, VllmRouterConfig& config) {
  visit_fields(visitor, config.cache);
}

namespace {

class VllmRouter final : public CacheAwareRouter {
 public:
  using CacheAwareRouter::CacheAwareRouter;

 private:
  std::optional<ReplicaId> owner_of(const RoutedRequest& request) override {
    matched_.resize(num_replicas());
    tree().match_each(request.prompt, matched_);
    const auto matched = [this](ReplicaId each) {
      return matched_[static_cast<std::size_t>(each)];
    };
    const std::int64_t best = highest(matched);
    const double rate = static_cast<double>(best) / static_cast<double>(request.num_prompt_tokens);
    // The threshold is kept in single precision.
    if (rate <= static_cast<double>(static_cast<float>(config().cache_threshold))) {
      return std::nullopt;
    }
    return first_lowest(
        [&](ReplicaId each) { return matched(each) == best ? in_flight(each) : INT64_MAX; });
  }

  std::vector<std::int64_t> matched_;  // by replica
};

std::unique_ptr<Router> make_vllm_router(const RouterContext& context) {
  const auto& config = context.settings.get<VllmRouterConfig>();
  switch (config.cache.rule) {
    case RouterRule::RoundRobin: return kRoundRobin.make(context);
    case RouterRule::Random: return kRandomRouter.make(context);
    case RouterRule::PowerOfTwo: return kPowerOfTwo.make(context);
    case RouterRule::CacheAware: break;
  }
  return std::make_unique<VllmRouter>(context, config.cache);
}

// The recording sent characters as token ids, and one token where there was no text.
std::vector<std::uint64_t> read_token_ids(const JsonPlace& event) {
  std::vector<std::uint64_t> tokens = read_characters(event);
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

constexpr RouterCaseFormat kVllmRouterCases = {
    .settings = cache_aware_settings, .read_prompt = read_token_ids, .known = known_loads};

std::string vllm_command(const PolicySettings& settings) {
  return cache_aware_command("vllm-router", settings.get<VllmRouterConfig>().cache);
}

}  // namespace

const RouterInfo kVllmRouter = {
    .name = "vllm_router",
    .summary = "the least loaded of the replicas with the longest prefix, unless loads are unequal",
    .source = "vllm-router 0.1.17",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<VllmRouterConfig>,
    .command = vllm_command,
    .cases = &kVllmRouterCases,
    .make = make_vllm_router};

}  // namespace metronome
