// SPDX-License-Identifier: Apache-2.0
// The balancer of a data-parallel vLLM server (0.32, core_client.py). Each API server knows the
// coordinator's last snapshot, and adds its own requests to it until the next one comes.
#include <algorithm>

#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "fleet/decisions/router_case_format.h"
#include "fleet/routers/routers.h"

namespace metronome {

struct VllmDataParallelConfig {
  std::int64_t client_count = 1;
  std::int64_t client_index = 0;
};

void visit_fields(FieldVisitor& visitor, VllmDataParallelConfig& config) {
  visitor.integer("client_count", config.client_count, 1, 1024, "API servers before the ranks");
  visitor.integer("client_index", config.client_index, 0, 1023,
                  "which of them this is; it decides with which rank it begins");
}

namespace {

class VllmDataParallel final : public Router {
 public:
  explicit VllmDataParallel(const RouterContext& context)
      : Router(context),
        num_clients_(context.settings.get<VllmDataParallelConfig>().client_count),
        start_(
            num_replicas() *
            static_cast<std::size_t>(context.settings.get<VllmDataParallelConfig>().client_index) /
            static_cast<std::size_t>(num_clients_)),
        reports_(num_replicas()) {}

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    report_of(replica).num_waiting += num_clients_;
  }
  void reported(std::span<const ReplicaReport> reports) override {
    reports_.assign(reports.begin(), reports.end());
  }

 private:
  ReplicaReport& report_of(ReplicaId replica) {
    return reports_[static_cast<std::size_t>(replica)];
  }

  double score(ReplicaId replica) {
    const ReplicaReport& report = report_of(replica);
    const std::int64_t load =
        std::max(num_clients_ * in_flight(replica), report.num_waiting + report.num_running);
    // A full KV cache makes those that wait there count for more, up to four times.
    const double penalty =
        static_cast<double>(report.num_waiting) * 6 * std::max(0.0, report.kv_usage - 0.5);
    return static_cast<double>(load) + penalty;
  }

  void decide(const RoutedRequest&) override {
    const std::size_t count = listed().size();
    ReplicaId best = listed()[start_ % count];
    for (std::size_t i = 1; i < count; ++i) {
      const ReplicaId replica = listed()[(start_ + i) % count];
      if (score(replica) < score(best)) best = replica;
    }
    start_ = (start_ + 1) % count;
    choices().push_back(best);
  }

  std::int64_t num_clients_;
  std::size_t start_;
  std::vector<ReplicaReport> reports_;
};

std::unique_ptr<Router> make_vllm_data_parallel(const RouterContext& context) {
  return std::make_unique<VllmDataParallel>(context);
}

Json balancer_settings(const JsonPlace& c) {
  return {{"client_count", c.at("client_count").json()},
          {"client_index", c.at("client_index").json()}};
}

constexpr RouterCaseFormat kVllmDataParallelCases = {
    .choice_key = "rank", .replicas_key = "ranks", .settings = balancer_settings};

}  // namespace

const RouterInfo kVllmDataParallel = {
    .name = "vllm_dp",
    .summary = "the rank with the fewest requests by the last snapshot and its own since then",
    .source = "vLLM 0.32, data-parallel balancer",
    .evidence = RouterEvidence::Recorded,
    .visit = visit_settings_of<VllmDataParallelConfig>,
    .report_ms = 100,
    .cases = &kVllmDataParallelCases,
    .make = make_vllm_data_parallel};

}  // namespace metronome
