// SPDX-License-Identifier: Apache-2.0
// The prefix-aware rule of vLLM's production stack (src/vllm_router, read in 2026): chunk by chunk
// it keeps the replicas that got the prompt's beginning before, and draws among the last of them.
// It looks at no load and forgets nothing.
#include <algorithm>
#include <vector>

#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/routers/routers.h"
#include "fleet/sent_blocks.h"

namespace metronome {

struct ProductionStackConfig {
  std::int64_t chunk_tokens = 32;
};

void visit_fields(FieldVisitor& visitor, ProductionStackConfig& config) {
  visitor.integer("chunk_tokens", config.chunk_tokens, 1, 1 << 20,
                  "tokens of a chunk; the program has 128 characters");
}

namespace {

class ProductionStackRouter final : public Router {
 public:
  explicit ProductionStackRouter(const RouterContext& context)
      : Router(context),
        rule_{.num_tokens = context.settings.get<ProductionStackConfig>().chunk_tokens},
        sent_(num_replicas(), {}),
        matched_(num_replicas()) {}

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    hash_blocks(request.prompt, rule_, blocks_);
    sent_.add(blocks_, replica, request.now);
  }

 private:
  // Replicas hold their chunks without a gap, as it forgets none. So those that are left at the
  // last chunk that any of them got are those with the longest match.
  void decide(const RoutedRequest& request) override {
    hash_blocks(request.prompt, rule_, blocks_);
    sent_.match(blocks_, request.now, matched_);
    const auto matched = [this](ReplicaId each) {
      return matched_[static_cast<std::size_t>(each)];
    };
    const std::int64_t best = highest(matched);
    for (const ReplicaId each : listed()) {
      if (matched(each) == best) choices().push_back(each);
    }
  }
  void forget(ReplicaId replica) override { sent_.forget(replica); }

  BlockRule rule_;
  SentBlocks sent_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::int64_t> matched_;  // by replica
};

std::unique_ptr<Router> make_production_stack(const RouterContext& context) {
  return std::make_unique<ProductionStackRouter>(context);
}

// Its chunks have no flag.
std::string production_stack_command(const PolicySettings&) {
  return "vllm-router --routing-logic prefixaware";
}

}  // namespace

const RouterInfo kProductionStack = {
    .name = "production_stack",
    .summary = "any of the replicas with the longest prefix, by lot, whatever their load",
    .source = "vLLM production stack, prefixaware",
    .evidence = RouterEvidence::Read,
    .visit = visit_settings_of<ProductionStackConfig>,
    .command = production_stack_command,
    .make = make_production_stack};

}  // namespace metronome
