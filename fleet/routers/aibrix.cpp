// SPDX-License-Identifier: Apache-2.0
// AIBrix's prefix-cache routing (pkg/plugins/gateway/algorithms/prefix_cache.go, read in 2026): the
// best matching replica that is not busier than others; of unequal loads, only the idlest match.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/routers/routers.h"
#include "fleet/sent_blocks.h"

namespace metronome {

struct AibrixConfig {
  double imbalance_factor = 2;
  std::int64_t imbalance_min_gap = 8;
  double deviation_factor = 1;
  std::int64_t max_tokens = 200'000;
  double max_age_s = 1200;
};

void visit_fields(FieldVisitor& visitor, AibrixConfig& config) {
  visitor.number("imbalance_factor", config.imbalance_factor, 0, 1e6,
                 "loads are unequal when the highest is above so many times the mean + 1, and");
  visitor.integer("imbalance_min_gap", config.imbalance_min_gap, 0, 1 << 30,
                  "when it is so many requests above the lowest");
  visitor.number("deviation_factor", config.deviation_factor, 0, 1e6,
                 "a replica is too busy above the mean and so many standard deviations");
  visitor.integer("max_tokens", config.max_tokens, 16, std::int64_t{1} << 40,
                  "tokens of prompts that it keeps");
  visitor.number("max_age_s", config.max_age_s, 0, 1e9, "and for so long after their last use");
}

namespace {

class AibrixRouter final : public Router {
 public:
  explicit AibrixRouter(const RouterContext& context)
      : Router(context),
        config_(context.settings.get<AibrixConfig>()),
        sent_(num_replicas(), {.max_blocks = config_.max_tokens / kRule.num_tokens,
                               .max_age = static_cast<TimeNs>(config_.max_age_s * 1e9)}),
        matched_(num_replicas()) {}

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    hash_blocks(request.prompt, kRule, blocks_);
    sent_.add(blocks_, replica, request.now);
  }

 private:
  // The program has blocks of four characters, which are about one token. Larger ones match nearly
  // the same shares, and are fewer.
  static constexpr BlockRule kRule = {.num_tokens = 16, .keeps_last_part = false};

  void decide(const RoutedRequest& request) override {
    const auto load = [this](ReplicaId each) { return in_flight(each); };
    const std::int64_t lowest = in_flight(first_lowest(load));
    const std::int64_t most = highest(load);
    const auto count = static_cast<double>(listed().size());
    double sum = 0;
    for (const ReplicaId each : listed()) sum += static_cast<double>(in_flight(each));
    const double mean = sum / count;
    double squares = 0;
    for (const ReplicaId each : listed()) {
      const double off = static_cast<double>(in_flight(each)) - mean;
      squares += off * off;
    }
    const double limit = mean + config_.deviation_factor * std::sqrt(squares / count);
    const bool is_unequal = static_cast<double>(most) > config_.imbalance_factor * (mean + 1) &&
                            most - lowest >= config_.imbalance_min_gap;
    match(request, is_unequal ? lowest : most);
    std::int64_t best = 0;
    for (const ReplicaId each : listed()) {
      const std::int64_t percent = percent_of(each);
      if (percent == 0 || static_cast<double>(in_flight(each)) > limit) continue;
      const bool is_better =
          percent > best || (percent == best && in_flight(each) < in_flight(choices().front()));
      if (is_better) choices().clear();
      if (is_better || (percent == best && in_flight(each) == in_flight(choices().front()))) {
        choices().push_back(each);
        best = percent;
      }
    }
    if (!choices().empty()) return;
    for (const ReplicaId each : listed()) {
      if (in_flight(each) == lowest) choices().push_back(each);
    }
  }

  // Of replicas with at most so many requests.
  void match(const RoutedRequest& request, std::int64_t most_in_flight) {
    hash_blocks(request.prompt, kRule, blocks_);
    sent_.match(blocks_, request.now, matched_);
    for (const ReplicaId each : listed()) {
      if (in_flight(each) > most_in_flight) matched_[static_cast<std::size_t>(each)] = 0;
    }
  }
  std::int64_t percent_of(ReplicaId replica) const {
    if (blocks_.empty()) return 0;
    return matched_[static_cast<std::size_t>(replica)] * 100 / std::ssize(blocks_);
  }
  void forget(ReplicaId replica) override { sent_.forget(replica); }

  AibrixConfig config_;
  SentBlocks sent_;
  std::vector<std::uint64_t> blocks_;
  std::vector<std::int64_t> matched_;  // by replica
};

std::unique_ptr<Router> make_aibrix(const RouterContext& context) {
  return std::make_unique<AibrixRouter>(context);
}

}  // namespace

const RouterInfo kAibrixRouter = {
    .name = "aibrix",
    .summary = "the longest prefix among replicas that are not busier than others",
    .source = "AIBrix, prefix-cache routing",
    .evidence = RouterEvidence::Read,
    .visit = visit_settings_of<AibrixConfig>,
    .make = make_aibrix};

}  // namespace metronome
