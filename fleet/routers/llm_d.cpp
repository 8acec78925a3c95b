// SPDX-License-Identifier: Apache-2.0
// The scorers of llm-d's inference scheduler, as its chart weighs them (read in 2026): queue, KV
// use, and prefixes that it sent. Metrics of the replicas are up to 50 ms old.
#include <algorithm>
#include <fmt/core.h>
#include <vector>

#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/routers/routers.h"
#include "fleet/sent_blocks.h"

namespace metronome {

struct LlmDConfig {
  double queue_weight = 2;
  double kv_cache_weight = 2;
  double prefix_weight = 3;
  std::int64_t block_tokens = 16;
  std::int64_t max_prefix_blocks = 256;
  std::int64_t blocks_per_server = 31'250;
};

void visit_fields(FieldVisitor& visitor, LlmDConfig& config) {
  visitor.number("queue_weight", config.queue_weight, 0, 1e6,
                 "of the queue's score: 1 for the shortest queue, 0 for the longest");
  visitor.number("kv_cache_weight", config.kv_cache_weight, 0, 1e6, "of the score 1 - KV use");
  visitor.number("prefix_weight", config.prefix_weight, 0, 1e6,
                 "of the share of the prompt's blocks that were sent there");
  visitor.integer("block_tokens", config.block_tokens, 1, 1 << 20, "tokens of such a block");
  visitor.integer("max_prefix_blocks", config.max_prefix_blocks, 1, 1 << 30,
                  "blocks of a prompt that count");
  visitor.integer("blocks_per_server", config.blocks_per_server, 1, 1 << 30,
                  "blocks that it keeps for a replica");
}

namespace {

class LlmDRouter final : public Router {
 public:
  explicit LlmDRouter(const RouterContext& context)
      : Router(context),
        config_(context.settings.get<LlmDConfig>()),
        rule_{.num_tokens = config_.block_tokens, .max_blocks = config_.max_prefix_blocks},
        sent_(num_replicas(), {.max_blocks_per_replica = config_.blocks_per_server}),
        matched_(num_replicas()),
        reports_(num_replicas()) {}

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    hash_blocks(request.prompt, rule_, blocks_);
    sent_.add(blocks_, replica, request.now);
  }
  void reported(std::span<const ReplicaReport> reports) override {
    reports_.assign(reports.begin(), reports.end());
  }

 private:
  const ReplicaReport& report_of(ReplicaId replica) const {
    return reports_[static_cast<std::size_t>(replica)];
  }

  void decide(const RoutedRequest& request) override {
    hash_blocks(request.prompt, rule_, blocks_);
    sent_.match(blocks_, request.now, matched_);
    const auto queue = [this](ReplicaId each) { return report_of(each).num_waiting; };
    const std::int64_t shortest = queue(first_lowest(queue));
    const std::int64_t longest = highest(queue);
    double best = -1;
    for (const ReplicaId each : listed()) {
      const double queue_score = longest == shortest ? 1
                                                     : static_cast<double>(longest - queue(each)) /
                                                           static_cast<double>(longest - shortest);
      const double prefix_score =
          blocks_.empty() ? 0
                          : static_cast<double>(matched_[static_cast<std::size_t>(each)]) /
                                static_cast<double>(blocks_.size());
      const double score = config_.queue_weight * queue_score +
                           config_.kv_cache_weight * (1 - report_of(each).kv_usage) +
                           config_.prefix_weight * prefix_score;
      if (score > best) choices().clear();
      if (score >= best) choices().push_back(each);
      best = std::max(best, score);
    }
  }
  void forget(ReplicaId replica) override { sent_.forget(replica); }

  LlmDConfig config_;
  BlockRule rule_;
  SentBlocks sent_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::int64_t> matched_;  // by replica
  std::vector<ReplicaReport> reports_;
};

std::unique_ptr<Router> make_llm_d(const RouterContext& context) {
  return std::make_unique<LlmDRouter>(context);
}

// The configuration of its endpoint picker, in one line of YAML.
std::string llm_d_configuration(const PolicySettings& settings) {
  const auto config = settings.get<LlmDConfig>();
  return fmt::format(
      "{{apiVersion: inference.networking.x-k8s.io/v1alpha1, kind: EndpointPickerConfig, plugins: "
      "[{{type: queue-scorer}}, {{type: kv-cache-utilization-scorer}}, "
      "{{type: prefix-cache-scorer}}, {{type: max-score-picker}}], schedulingProfiles: "
      "[{{name: default, plugins: [{{pluginRef: queue-scorer, weight: {}}}, "
      "{{pluginRef: kv-cache-utilization-scorer, weight: {}}}, "
      "{{pluginRef: prefix-cache-scorer, weight: {}}}, {{pluginRef: max-score-picker}}]}}]}}",
      format_double(config.queue_weight), format_double(config.kv_cache_weight),
      format_double(config.prefix_weight));
}

}  // namespace

const RouterInfo kLlmDRouter = {.name = "llm_d",
                                .summary = "the highest weighted score of queue, KV use and prefix",
                                .source = "llm-d inference scheduler",
                                .evidence = RouterEvidence::Read,
                                .visit = visit_settings_of<LlmDConfig>,
                                .report_ms = 50,
                                .command = llm_d_configuration,
                                .make = make_llm_d};

}  // namespace metronome
