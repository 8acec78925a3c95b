// SPDX-License-Identifier: Apache-2.0
// The KV router of NVIDIA Dynamo 1.6.1: prefill work still to do plus KV blocks of running
// requests, less what the replica's cache holds of the prompt.
#include <algorithm>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/active_blocks.h"
#include "fleet/block_index.h"
#include "fleet/decisions/router_case_format.h"
#include "fleet/routers/routers.h"

namespace metronome {

struct DynamoConfig {
  double overlap_score_credit = 1;
  double overlap_score_credit_decay = 0;
  double prefill_load_scale = 1;
  double decode_active_request_weight = 0;
};

void visit_fields(FieldVisitor& visitor, DynamoConfig& config) {
  visitor.number("overlap_score_credit", config.overlap_score_credit, 0, 1e6,
                 "blocks of prefill that a block in the cache saves");
  visitor.number("overlap_score_credit_decay", config.overlap_score_credit_decay, 0, 1e6,
                 "how fast this credit falls with the replica's prefill tokens");
  visitor.number("prefill_load_scale", config.prefill_load_scale, 0, 1e6,
                 "weight of a block still to be computed, beside a block of a running request");
  visitor.number("decode_active_request_weight", config.decode_active_request_weight, 0, 1e6,
                 "blocks that each running request counts for, beside its own");
}

namespace {

class DynamoRouter final : public Router {
 public:
  explicit DynamoRouter(const RouterContext& context);

  void sent(const RoutedRequest& request, ReplicaId replica) override;
  void answered(std::int64_t request) override;
  void ended(std::int64_t request, ReplicaId replica) override;
  void stored(ReplicaId replica, std::span<const std::uint64_t> blocks,
              std::size_t first) override {
    index_.stored(replica, blocks, first);
  }
  void removed(ReplicaId replica, std::uint64_t block) override { index_.removed(replica, block); }

  // ---- What it knows, by replica ----

  // Full blocks at the prompt's start that the replica's cache holds.
  std::span<const std::int64_t> overlaps(const RoutedRequest& request);
  // Prompt tokens without a first token of the answer, less those found in the cache.
  std::int64_t num_prefill_tokens(ReplicaId replica) const { return load(replica).prefill_tokens; }
  // Different full blocks of the prompts of requests that have not ended.
  std::int64_t num_blocks(ReplicaId replica) const { return active_.num_blocks(replica); }

 private:
  struct Load {
    std::int64_t prefill_tokens = 0;
  };
  struct Booking {
    ReplicaId replica = 0;
    std::int64_t prefill_tokens = 0;
    ActiveBlocks::NodeId blocks = ActiveBlocks::kRoot;
  };

  void decide(const RoutedRequest& request) override;
  void forget(ReplicaId replica) override;
  double cost(const RoutedRequest& request, ReplicaId replica, std::int64_t least_prefill) const;
  Load& load(ReplicaId replica) { return loads_[static_cast<std::size_t>(replica)]; }
  const Load& load(ReplicaId replica) const { return loads_[static_cast<std::size_t>(replica)]; }

  DynamoConfig config_;
  std::int64_t block_size_;
  CacheView* caches_;
  std::int64_t counted_ = -1;  // the request whose overlaps these are
  BlockIndex index_;
  std::vector<Load> loads_;
  ActiveBlocks active_;
  std::vector<std::int64_t> overlaps_;  // scratch
  std::vector<std::int64_t> known_;     // scratch: blocks of running requests
  std::map<std::int64_t, Booking> bookings_;
};

DynamoRouter::DynamoRouter(const RouterContext& context)
    : Router(context),
      config_(context.settings.get<DynamoConfig>()),
      block_size_(context.block_size),
      caches_(context.caches),
      loads_(num_replicas()),
      active_(num_replicas()),
      overlaps_(num_replicas()),
      known_(num_replicas()) {}

std::span<const std::int64_t> DynamoRouter::overlaps(const RoutedRequest& request) {
  if (caches_ != nullptr) {
    if (counted_ != request.number) caches_->count_cached(request, overlaps_);
    counted_ = request.number;
    return overlaps_;
  }
  index_.count_overlaps(request.blocks, overlaps_);
  return overlaps_;
}

double DynamoRouter::cost(const RoutedRequest& request, ReplicaId replica,
                          std::int64_t least_prefill) const {
  const Load& booked = load(replica);
  const auto size = static_cast<double>(block_size_);
  const auto num_prompt_blocks =
      static_cast<double>((request.num_prompt_tokens + block_size_ - 1) / block_size_);
  const double excess = static_cast<double>(booked.prefill_tokens - least_prefill) / size;
  const double decay = 1 / (1 + config_.overlap_score_credit_decay * (excess / num_prompt_blocks));
  const double credit = config_.overlap_score_credit * decay *
                        static_cast<double>(overlaps_[static_cast<std::size_t>(replica)]);
  const double raw = static_cast<double>(booked.prefill_tokens + request.num_prompt_tokens) / size;
  const std::int64_t num_new =
      std::ssize(request.blocks) - known_[static_cast<std::size_t>(replica)];
  return config_.prefill_load_scale * std::max(raw - credit, 0.0) +
         static_cast<double>(num_blocks(replica) + num_new) +
         config_.decode_active_request_weight * static_cast<double>(in_flight(replica));
}

void DynamoRouter::decide(const RoutedRequest& request) {
  overlaps(request);
  active_.count_known(request.blocks, known_);
  const std::int64_t least_prefill =
      num_prefill_tokens(first_lowest([this](ReplicaId each) { return num_prefill_tokens(each); }));
  double lowest = 0;
  for (const ReplicaId replica : listed()) {
    const double own = cost(request, replica, least_prefill);
    if (!choices().empty() && own > lowest) continue;
    if (own < lowest) choices().clear();
    lowest = own;
    choices().push_back(replica);
  }
}

void DynamoRouter::sent(const RoutedRequest& request, ReplicaId replica) {
  Router::sent(request, replica);
  const std::int64_t found = overlaps(request)[static_cast<std::size_t>(replica)] * block_size_;
  METRONOME_CHECK(!bookings_.contains(request.number), "a request is sent once");
  Booking& booking = bookings_[request.number];
  booking = {replica, request.num_prompt_tokens - found, active_.add(request.blocks, replica)};
  load(replica).prefill_tokens += booking.prefill_tokens;
  counted_ = -1;  // it may be sent again, if the replica fails
}

void DynamoRouter::answered(std::int64_t request) {
  const auto found = bookings_.find(request);
  if (found == bookings_.end()) return;
  Booking& booking = found->second;
  load(booking.replica).prefill_tokens -= booking.prefill_tokens;
  booking.prefill_tokens = 0;
}

void DynamoRouter::ended(std::int64_t request, ReplicaId replica) {
  Router::ended(request, replica);
  answered(request);
  const auto found = bookings_.find(request);
  if (found == bookings_.end()) return;
  active_.remove(found->second.blocks, replica);
  bookings_.erase(found);
}

void DynamoRouter::forget(ReplicaId replica) { index_.forget(replica); }

std::unique_ptr<Router> make_dynamo(const RouterContext& context) {
  return std::make_unique<DynamoRouter>(context);
}

Json dynamo_settings(const JsonPlace& c) { return c.at("config").json(); }

std::vector<std::uint64_t> read_tokens(const JsonPlace& event) {
  std::vector<std::uint64_t> tokens;
  event.at("tokens").for_each([&tokens](const JsonPlace& token) {
    tokens.push_back(static_cast<std::uint64_t>(token.integer(0, INT32_MAX)));
  });
  return tokens;
}

Json known_costs(Router& router, const RoutedRequest& request, const JsonPlace&) {
  auto& dynamo = dynamic_cast<DynamoRouter&>(router);
  Json overlaps = Json::array();
  Json prefills = Json::array();
  Json blocks = Json::array();
  for (const std::int64_t overlap : dynamo.overlaps(request)) {
    const auto replica = static_cast<ReplicaId>(overlaps.size());
    overlaps.push_back(overlap);
    prefills.push_back(dynamo.num_prefill_tokens(replica));
    blocks.push_back(dynamo.num_blocks(replica));
  }
  return {{"overlap_blocks", overlaps},
          {"active_prefill_tokens", prefills},
          {"active_decode_blocks", blocks}};
}

// Flags of its frontend (the router's part of docs/components/frontend/configuration-reference.md).
// It takes the replica of the lowest cost at a temperature of 0, which it has without a flag.
std::string dynamo_command(const PolicySettings& settings) {
  const auto config = settings.get<DynamoConfig>();
  const DynamoConfig defaults;
  return "python3 -m dynamo.frontend --router-mode kv" +
         flag_unless_default("--router-kv-overlap-score-credit", config.overlap_score_credit,
                             defaults.overlap_score_credit) +
         flag_unless_default("--router-kv-overlap-score-credit-decay",
                             config.overlap_score_credit_decay,
                             defaults.overlap_score_credit_decay) +
         flag_unless_default("--router-prefill-load-scale", config.prefill_load_scale,
                             defaults.prefill_load_scale) +
         flag_unless_default("--router-decode-active-request-weight",
                             config.decode_active_request_weight,
                             defaults.decode_active_request_weight);
}

constexpr RouterCaseFormat kDynamoCases = {
    .settings = dynamo_settings, .read_prompt = read_tokens, .known = known_costs};

}  // namespace

const RouterInfo kDynamoRouter = {
    .name = "dynamo",
    .summary = "the lowest cost: prefill still to do, less cached blocks, plus running blocks",
    .source = "Dynamo 1.6.1, KV router",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<DynamoConfig>,
    .hears_blocks = true,
    .command = dynamo_command,
    .cases = &kDynamoCases,
    .make = make_dynamo};

}  // namespace metronome
