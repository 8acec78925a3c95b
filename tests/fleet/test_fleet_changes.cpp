// SPDX-License-Identifier: Apache-2.0
// Queues in front of fleets, replicas that fail, and replicas that come and go. The scripted runs
// have steps of 100 ms, so that every time can be worked out by hand.
#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "fleet/fleet_loop.h"
#include "fleet/fleet_run.h"
#include "fleet/router_registry.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr TimeNs kMs = 1'000'000;

class EqualSteps final : public CostModel {
 public:
  StepCost step_cost(const StepPlan&) override {
    return {.total_ns = 100 * kMs, .linear_ns = 100 * kMs};
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 0; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 1000; }
};

Scenario scenario_of(const std::string& text) {
  return parse_scenario(text, "fleet.yaml", {}).variants.front();
}

// A fleet of replicas with equal steps, and requests at these times.
class Script {
 public:
  explicit Script(const std::string& fleet, std::int32_t max_num_seqs = 8)
      : scenario_(scenario_of(fmt::format(
            "model: llama-3.1-8b\nhardware: h100-sxm\n"
            "engine: {{max_num_seqs: {}, max_model_len: 512}}\nkv_cache: {{num_blocks: 1000}}\n"
            "scheduler: {{policy: continuous}}\nworkload: {{num_requests: 1, arrivals: {{process: "
            "poisson, rate: 1}}, prompt_tokens: {{value: 8}}, output_tokens: {{value: 8}}}}\n"
            "fleet: {}\n",
            max_num_seqs, fleet))) {
    workload.class_names = {"gold", "bulk"};
  }

  // A request of `num_steps` steps.
  void add(double seconds, std::int32_t num_steps, std::uint16_t class_number = 0) {
    RequestSpec spec;
    spec.arrival = static_cast<TimeNs>(seconds * 1e9 + 0.5);
    spec.num_prompt_tokens = 8;
    spec.max_output_tokens = num_steps;
    spec.class_number = class_number;
    workload.requests.push_back(spec);
  }

  void run() {
    Simulation simulation = prepare_simulation(fleet_of_one());
    simulation.cost_model = std::make_unique<EqualSteps>();
    FleetSetup setup;
    setup.simulations.assign(static_cast<std::size_t>(scenario_.fleet.replicas), &simulation);
    setup.router = find_router(scenario_.fleet.router);
    setup.gateway = GatewayRules::of(scenario_);
    setup.scaling = ScalingRules::of(scenario_);
    setup.failures = planned_failures(scenario_);
    setup.slo = scenario_.slo;
    RunRecorder recorder;
    EventSink* const sinks[] = {&recorder};
    FleetLoop loop(setup, workload, sinks);
    REQUIRE(loop.run({}));
    first_refusal = loop.first_refusal();
    record = recorder.finish();
  }

  double end_s(std::size_t i) const { return to_seconds(record.requests[i].ended); }
  EndReason reason(std::size_t i) const { return record.requests[i].reason; }

  Workload workload;
  RunRecord record;
  std::string first_refusal;

 private:
  Scenario fleet_of_one() const {
    Scenario alone = scenario_;
    alone.fleet = {};
    return alone;
  }
  Scenario scenario_;
};

}  // namespace

TEST_CASE("requests of a replica that fails begin anew at another one", "[fleet]") {
  Script script("{replicas: 2, failures: [{replica: 1, at_s: 0.55, down_s: 1}]}");
  script.add(0, 10);     // replica 0: steps end at 0.1, ..., 1.0
  script.add(0, 10);     // replica 1, which fails in its sixth step
  script.add(1.25, 2);   // replica 1 is down
  script.add(1.65, 1);   // both are there
  script.add(1.651, 1);  // the other one
  script.run();
  const std::vector<RequestRecord>& requests = script.record.requests;
  CHECK(script.record.replica_of == std::vector<std::int32_t>{0, 0, 0, 0, 1});
  CHECK(script.end_s(0) == 1.0);
  // It joins the step of replica 0 that begins at 0.6.
  CHECK(requests[1].first_scheduled == 600 * kMs);
  CHECK(requests[1].first_token == 700 * kMs);
  CHECK(script.end_s(1) == 1.6);
  CHECK(requests[1].num_output_tokens == 10);
  CHECK(requests[1].arrival == 0);
  CHECK(script.end_s(2) == 1.5);
  CHECK(requests[4].first_token == 1751 * kMs);
  const std::vector<FleetEvent> events = {
      {550 * kMs, FleetChange::Failed, 1, "planned", 1, 0},
      {1550 * kMs, FleetChange::Recovered, 1},
  };
  CHECK(script.record.fleet_events == events);
  const Summary summary = summarize(script.record, {});
  CHECK(summary.completed == 5);
  CHECK(summary.num_retried == 1);
  CHECK(summary.present_share == 1);
}

TEST_CASE("requests of a replica that fails are lost if the plan says so", "[fleet]") {
  Script script("{replicas: 2, failures: [{replica: 1, at_s: 0.55, requests: lost}]}");
  script.add(0, 10);
  script.add(0, 10);
  script.run();
  CHECK(script.end_s(0) == 1.0);
  CHECK(script.reason(1) == EndReason::Errored);
  CHECK(script.end_s(1) == 0.55);
  CHECK(script.record.requests[1].num_output_tokens == 5);
  const Summary summary = summarize(script.record, {});
  CHECK(summary.completed == 1);
  CHECK(summary.errored == 1);
  CHECK(script.record.fleet_events ==
        std::vector<FleetEvent>{{550 * kMs, FleetChange::Failed, 1, "planned", 0, 1}});
}

TEST_CASE("without any replica requests wait for one, or are lost if none comes back", "[fleet]") {
  Script back("{replicas: 1, failures: [{replica: 0, at_s: 0.25, down_s: 1}]}");
  back.add(0, 5);
  back.add(0.5, 1);
  back.run();
  CHECK(back.record.requests[0].first_scheduled == 1250 * kMs);
  CHECK(back.end_s(0) == 1.75);
  CHECK(back.end_s(1) == 1.35);

  Script gone("{replicas: 1, failures: [{replica: 0, at_s: 0.25}]}");
  gone.add(0, 5);
  gone.add(0.5, 1);
  gone.run();
  CHECK(gone.reason(0) == EndReason::Errored);
  CHECK(gone.end_s(0) == 0.25);
  CHECK(gone.record.replica_of[1] == -1);
  CHECK(gone.reason(1) == EndReason::Errored);
  CHECK(gone.end_s(1) == 0.5);
}

TEST_CASE("a full queue refuses the newest request of the least important class", "[fleet]") {
  Script script(
      "{replicas: 1, gateway: {max_in_flight: 2, max_queue: 2, classes: [{class: gold, importance: "
      "1}]}}");
  script.add(0, 10, 2);    // sent
  script.add(0, 10, 2);    // sent
  script.add(0.1, 10, 2);  // waits
  script.add(0.1, 10, 2);  // waits, until a more important one comes
  script.add(0.2, 10, 2);  // refused: no one is less important
  script.add(0.3, 10, 1);  // waits
  script.run();
  CHECK(script.end_s(0) == 1.0);
  CHECK(script.end_s(1) == 1.0);
  CHECK(script.end_s(2) == 2.0);
  CHECK(script.reason(3) == EndReason::QueueFull);
  CHECK(script.end_s(3) == 0.3);
  CHECK(script.reason(4) == EndReason::QueueFull);
  CHECK(script.end_s(4) == 0.2);
  CHECK(script.end_s(5) == 2.0);
  CHECK(script.first_refusal == "request 4: the gateway's queue holds max_queue = 2");
  // The wait in front of the engine is no wait in its queue.
  CHECK(script.record.front_end_ns(2) == 900 * kMs);
  CHECK(script.record.queue_ns(2) == 0);
  CHECK(script.record.front_end_ns(3) == 200 * kMs);
}

TEST_CASE("classes leave the queue in turn by their shares", "[fleet]") {
  Script script(
      "{replicas: 1, gateway: {max_in_flight: 1, order: fair, classes: [{class: gold, share: "
      "4}]}}");
  script.add(0, 1);
  for (int i = 0; i < 7; ++i) script.add(0.05, 1, 2);  // requests 1 to 7: bulk
  for (int i = 0; i < 7; ++i) script.add(0.06, 1, 1);  // requests 8 to 14: gold
  script.run();
  std::vector<std::size_t> order(script.workload.requests.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return script.record.requests[a].ended < script.record.requests[b].ended;
  });
  // Turns of gold: 0, 1/4, ...; of bulk: 0, 1, ...
  CHECK(order == std::vector<std::size_t>{0, 8, 1, 9, 10, 11, 12, 2, 13, 14, 3, 4, 5, 6, 7});
}

TEST_CASE("a request that waited for too long is refused", "[fleet]") {
  Script script("{replicas: 1, gateway: {max_in_flight: 1, max_wait_ms: 450}}");
  script.add(0, 5);
  script.add(0.01, 5);  // may wait until 0.46
  script.add(0.2, 5);   // until 0.65: it is sent at 0.5
  script.run();
  CHECK(script.reason(1) == EndReason::QueueFull);
  CHECK(script.end_s(1) == 0.46);
  CHECK(script.end_s(2) == 1.0);
  CHECK(script.first_refusal ==
        "request 1: it waited in the gateway's queue for max_wait_ms = 450");
}

TEST_CASE("replicas come while requests wait, and go when none does", "[fleet]") {
  Script script(
      "{replicas: 2, router: least_loaded, scaling: {min_replicas: 1, interval_s: 1, start_up_s: "
      "2.5, queue_above: 1, queue_below: 0.5, hold_s: 2}}",
      1);
  for (int i = 0; i < 4; ++i) script.add(0, 10);  // one after the other, until 4.0
  script.add(3.7, 10);                            // replica 1
  script.add(3.7, 10);                            // both have one: replica 0, from 4.0 on
  script.add(8.2, 10);
  script.run();
  CHECK(script.record.replica_of == std::vector<std::int32_t>{0, 0, 0, 0, 1, 0, 0});
  CHECK(script.end_s(3) == 4.0);
  CHECK(script.end_s(4) == 4.7);
  CHECK(script.end_s(5) == 5.0);
  const std::vector<FleetEvent> events = {
      {1000 * kMs, FleetChange::Added, 1,
       "3.0 requests wait for each replica, and queue_above is 1"},
      {3500 * kMs, FleetChange::Ready, 1},
      {7000 * kMs, FleetChange::Draining, 1,
       "0.0 requests wait for each replica, and queue_below is 0.5"},
      {7000 * kMs, FleetChange::Removed, 1},
  };
  CHECK(script.record.fleet_events == events);
  // 9.2 s, and 6 of them with the second replica.
  CHECK(summarize(script.record, {}).present_share == Approx((9.2 + 6) / 18.4));
}

TEST_CASE("a replica that fails while it starts begins its start-up again", "[fleet]") {
  Script script(
      "{replicas: 2, router: least_loaded, failures: [{replica: 1, at_s: 2, down_s: 0.5}], "
      "scaling: "
      "{min_replicas: 1, interval_s: 1, start_up_s: 2.5, queue_above: 1, queue_below: 0.5, hold_s: "
      "2}}",
      1);
  for (int i = 0; i < 4; ++i) script.add(0, 10);  // one after the other, until 4.0
  script.add(8.2, 10);
  script.run();
  const std::vector<FleetEvent> events = {
      {1000 * kMs, FleetChange::Added, 1,
       "3.0 requests wait for each replica, and queue_above is 1"},
      {2000 * kMs, FleetChange::Failed, 1, "planned"},
      {5000 * kMs, FleetChange::Ready, 1},  // 2.5 s after it came back, not at 3.5 s
      {6000 * kMs, FleetChange::Draining, 1,
       "0.0 requests wait for each replica, and queue_below is 0.5"},  // since 4.0 s
      {6000 * kMs, FleetChange::Removed, 1},
  };
  CHECK(script.record.fleet_events == events);
}

TEST_CASE("a replica that goes keeps the requests that it has", "[fleet]") {
  Script script(
      "{replicas: 2, router: least_loaded, scaling: {min_replicas: 1, interval_s: 1, start_up_s: "
      "0, queue_above: 1, queue_below: 0.5, hold_s: 1}}",
      1);
  for (int i = 0; i < 3; ++i) script.add(0, 10);  // two wait at 1.0, one at 2.0, none at 3.0
  script.add(1.1, 40);                            // replica 1, which goes at 4.0
  script.add(9, 1);
  script.run();
  CHECK(script.record.replica_of == std::vector<std::int32_t>{0, 0, 0, 1, 0});
  CHECK(script.end_s(3) == 5.1);
  std::vector<std::pair<TimeNs, FleetChange>> changes;
  for (const FleetEvent& event : script.record.fleet_events) {
    changes.emplace_back(event.time, event.change);
  }
  CHECK(changes == std::vector<std::pair<TimeNs, FleetChange>>{
                       {1000 * kMs, FleetChange::Added},
                       {1000 * kMs, FleetChange::Ready},
                       {4000 * kMs, FleetChange::Draining},
                       {5100 * kMs, FleetChange::Removed},
                   });
}

namespace {

std::string draw_engine(Rng& rng) {
  constexpr std::string_view kSchedulers[] = {
      "{policy: token_budget, max_num_batched_tokens: 512}", "{policy: continuous}",
      "{policy: vllm, max_num_batched_tokens: 768}", "{policy: sglang, chunked_prefill_size: 512}"};
  const auto scheduler = static_cast<std::size_t>(draw(rng, 0, 3));
  const std::int32_t depth = scheduler == 2 ? draw(rng, 1, 2) : 1;
  const bool caches = chance(rng, 0.6);
  const std::int32_t num_blocks = draw(rng, 220, 1500);
  const std::int32_t seed = draw(rng, 0, 1000);
  std::string text = fmt::format(
      "seed: {}\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
      "engine: {{max_num_seqs: 8, max_model_len: 2048, async_depth: {}}}\n"
      "kv_cache: {{num_blocks: {}, enable_prefix_caching: {}}}\nscheduler: {}\n",
      seed, depth, num_blocks, caches, kSchedulers[scheduler]);
  if (chance(rng, 0.3)) text += "cost_model: {frontend: {fixed_ms: 3, us_per_prompt_token: 2}}\n";
  return text;
}

std::string draw_workload(Rng& rng) {
  const std::int32_t rate = draw(rng, 10, 200);
  const std::int32_t num_requests = draw(rng, 40, 140);
  const std::int32_t most_output = draw(rng, 2, 150);
  const std::int32_t kind = draw(rng, 0, 3);
  const std::string lengths = fmt::format(
      "prompt_tokens: {{distribution: uniform, min: 1, max: 500}}, output_tokens: {{distribution: "
      "uniform, min: 1, max: {}}}",
      most_output);
  if (kind == 0) {
    return fmt::format(
        "workload: {{arrivals: {{process: poisson, rate: 8}}, {}, sessions: {{kind: chat, "
        "num_sessions: 15, turns: {{value: 3}}, think_time_ms: {{value: 300}}}}}}\n",
        lengths);
  }
  if (kind == 1) {
    return fmt::format(
        "workload: {{num_requests: {}, arrivals: {{process: closed_loop, concurrency: 20}}, {}}}\n",
        num_requests, lengths);
  }
  return fmt::format(
      "workload: {{num_requests: {}, arrivals: {{process: gamma, rate: {}, burstiness: 0.3}}, "
      "classes: [{{name: gold, share: 1, {}}}, {{name: bulk, share: 3, {}}}]}}\n",
      num_requests, rate, lengths, lengths);
}

std::string draw_failures(Rng& rng, std::int32_t replicas) {
  struct Down {
    std::int32_t replica, from_ms, until_ms;
  };
  std::vector<Down> all;
  std::string list;
  const std::int32_t count = draw(rng, 0, 6);
  for (std::int32_t i = 0; i < count; ++i) {
    constexpr std::int32_t kForGood = 1'000'000;
    const std::int32_t replica = draw(rng, 0, replicas - 1);
    const std::int32_t at_ms = draw(rng, 0, 4000);
    const bool is_lost = chance(rng, 0.4);
    const std::int32_t down_ms = chance(rng, 0.7) ? draw(rng, 0, 2000) : kForGood;
    const bool overlaps = std::any_of(all.begin(), all.end(), [&](const Down& other) {
      return other.replica == replica && at_ms <= other.until_ms &&
             other.from_ms <= at_ms + down_ms;
    });
    if (overlaps) continue;
    list += fmt::format("{}{{replica: {}, at_s: {}, requests: {}", all.empty() ? "" : ", ", replica,
                        at_ms / 1e3, is_lost ? "lost" : "retried");
    if (down_ms < kForGood) list += fmt::format(", down_s: {}", down_ms / 1e3);
    list += "}";
    all.push_back({replica, at_ms, at_ms + down_ms});
  }
  return list;
}

std::string draw_changing_fleet(Rng& rng, bool has_classes) {
  const auto routers = all_routers();
  const auto last = static_cast<std::int32_t>(routers.size()) - 1;
  const RouterInfo& router = routers[static_cast<std::size_t>(draw(rng, 0, last))];
  const std::int32_t replicas = draw(rng, 1, 6);
  std::string text = fmt::format("fleet: {{replicas: {}, router: {}, failures: [{}]", replicas,
                                 router.name, draw_failures(rng, replicas));
  if (chance(rng, 0.6)) {
    constexpr std::string_view kOrders[] = {"fcfs", "priority", "fair"};
    const std::int32_t in_flight = draw(rng, 1, 12);
    const auto order = static_cast<std::size_t>(draw(rng, 0, 2));
    text += fmt::format(", gateway: {{max_in_flight: {}, order: {}", in_flight, kOrders[order]);
    if (chance(rng, 0.5)) text += fmt::format(", max_queue: {}", draw(rng, 0, 20));
    if (chance(rng, 0.3)) text += fmt::format(", max_wait_ms: {}", draw(rng, 0, 2000));
    if (has_classes) text += ", classes: [{class: gold, importance: 1, share: 2, max_queue: 9}]";
    text += "}";
  }
  if (chance(rng, 0.5)) {
    const std::int32_t least = draw(rng, 1, replicas);
    const std::int32_t start_up_ms = draw(rng, 0, 900);
    const std::int32_t hold_ms = draw(rng, 0, 600);
    text += fmt::format(
        ", scaling: {{min_replicas: {}, interval_s: 0.25, start_up_s: {}, queue_above: 1, "
        "slo_attainment_below: 0.9, queue_below: 0.8, hold_s: {}}}",
        least, start_up_ms / 1e3, hold_ms / 1e3);
  }
  return text + "}\nslo: {ttft_ms: 200}\n";
}

}  // namespace

TEST_CASE("every request of a changing fleet ends once", "[fleet]") {
  std::int64_t num_retried = 0, num_refused = 0, num_lost = 0, num_removed = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(seed, "changing fleet");
    const std::string engine = draw_engine(rng);
    const std::string requests = draw_workload(rng);
    const bool has_classes = requests.find("classes") != std::string::npos;
    const std::string text = engine + requests + draw_changing_fleet(rng, has_classes);
    INFO("seed " << seed << "\n" << text);
    const Scenario scenario = scenario_of(text);
    const Workload workload = make_workload(scenario);
    std::string digests[2];
    for (std::string& digest : digests) {
      const std::unique_ptr<PreparedRun> prepared = FleetBackend().prepare(scenario);
      prepared->check_workload(workload);
      RunRecorder recorder(workload.requests.size(), prepared->front_end);
      EventDigest own;
      EventSink* const sinks[] = {&own, &recorder};
      VirtualClock clock;
      const RunOutcome outcome = prepared->run(workload, clock, sinks, {});
      REQUIRE(outcome.completed);
      digest = own.hex();
      const RunRecord record = recorder.finish();
      const Summary summary = summarize(record, {scenario.slo});
      CHECK(summary.unfinished == 0);
      CHECK(summary.aborted == 0);
      CHECK(summary.completed + summary.failed + static_cast<std::int64_t>(outcome.num_unsent) ==
            std::ssize(workload.requests));
      std::int64_t lost_with_replicas = 0;
      for (const FleetEvent& event : record.fleet_events) {
        lost_with_replicas += event.num_lost;
        num_removed += event.change == FleetChange::Removed ? 1 : 0;
      }
      CHECK(summary.errored >= lost_with_replicas);
      CHECK((summary.present_share > 0 && summary.present_share <= 1));
      for (std::size_t i = 0; i < record.requests.size(); ++i) {
        const RequestRecord& request = record.requests[i];
        CHECK(request.ended >= request.arrival);
        if (request.completed()) {
          CHECK(request.num_output_tokens == request.max_output_tokens);
          CHECK(record.replica_of[i] >= 0);
          CHECK(record.queue_ns(i) >= 0);
        }
      }
      num_retried += summary.num_retried;
      num_refused += summary.refused;
      num_lost += summary.errored;
    }
    CHECK(digests[0] == digests[1]);
  }
  // The cases have all of it.
  CHECK(num_retried > 100);
  CHECK(num_refused > 100);
  CHECK(num_lost > 100);
  CHECK(num_removed > 20);
}

TEST_CASE("a replica that comes back has lost its cache", "[fleet]") {
  for (const std::string_view scheduler :
       {"{policy: vllm, max_num_batched_tokens: 2048}", "{policy: sglang}"}) {
    const auto hits = [&](const std::string& failures) {
      const Scenario scenario = scenario_of(fmt::format(
          "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {{max_num_seqs: 8, max_model_len: "
          "4096}}\nkv_cache: {{num_blocks: 4000, enable_prefix_caching: true}}\nscheduler: {}\n"
          "workload: {{num_requests: 2, arrivals: {{process: constant, rate: 0.1}}, prompt_tokens: "
          "{{value: 640}}, output_tokens: {{value: 20}}, prefix: {{kind: groups, num_groups: 1, "
          "prefix_tokens: 512}}}}\nfleet: {{replicas: 1{}}}\n",
          scheduler, failures));
      const Workload workload = make_workload(scenario);
      const std::unique_ptr<PreparedRun> prepared = FleetBackend().prepare(scenario);
      RunRecorder recorder;
      EventSink* const sinks[] = {&recorder};
      VirtualClock clock;
      REQUIRE(prepared->run(workload, clock, sinks, {}).completed);
      return recorder.finish().requests[1].num_prefix_hit_tokens;
    };
    CHECK(hits("") == 512);
    CHECK(hits(", failures: [{replica: 0, at_s: 12, down_s: 1}]") == 0);
  }
}

TEST_CASE("mistakes of failures, gateway and scaling name the key", "[fleet]") {
  const auto error = [](const std::string& fleet, const std::string& more = {}) {
    return error_of([&] {
      (void)scenario_of(
          "model: llama-3.1-8b\nhardware: h100-sxm\nworkload: {num_requests: 4, arrivals: "
          "{process: poisson, rate: 2}, prompt_tokens: {value: 100}, output_tokens: {value: 10}}\n"
          "fleet: {replicas: 2, " +
          fleet + "}\n" + more);
    });
  };
  CHECK(error("failures: [{replica: 2, at_s: 1}]")
            .starts_with("fleet.yaml:4: fleet.failures.0.replica: "));
  CHECK(
      error("failures: [{replica: 1, at_s: 2, down_s: 8}, {replica: 1, at_s: 4, down_s: 1}]") ==
      "fleet.yaml:4: fleet.failures.1.at_s: replica 1 is down at that time, or fails again before "
      "it is back (entry 1); allowed: times apart");
  CHECK(error("failures: [{replica: 1, at_s: 4}, {replica: 1, at_s: 2, down_s: 1}]").empty());
  CHECK(error("failures: [{replica: 1}]") ==
        "fleet.yaml:4: fleet.failures.0.at_s: missing; allowed: a time in seconds");
  CHECK(error("failures: [{replica: 1, at_s: 1, request: lost}]")
            .starts_with("fleet.yaml:4: fleet.failures.0.request: unknown key"));
  CHECK(error("gateway: {max_queue: 3}")
            .starts_with("fleet.yaml:4: fleet.gateway.max_in_flight: missing"));
  CHECK(error("gateway: {max_in_flight: 3, classes: [{share: 2}]}") ==
        "fleet.yaml:4: fleet.gateway.classes.0.class: missing; allowed: the name of a class");
  CHECK(error("scaling: {interval_s: 3}")
            .starts_with("fleet.yaml:4: fleet.scaling.interval_s: the number of replicas"));
  CHECK(error("scaling: {min_replicas: 3, queue_above: 1}") ==
        "fleet.yaml:4: fleet.scaling.min_replicas: more than fleet.replicas; allowed: 1 to 2");
  CHECK(error("scaling: {min_replicas: 1}")
            .starts_with("fleet.yaml:4: fleet.scaling.queue_above: nothing says when"));
  CHECK(error("scaling: {min_replicas: 1, slo_attainment_below: 0.9}")
            .starts_with("fleet.yaml:4: fleet.scaling.slo_attainment_below: no request has"));
  CHECK(error("scaling: {min_replicas: 1, queue_above: 1, queue_below: 2}")
            .starts_with("fleet.yaml:4: fleet.scaling.queue_below: 2 is more than"));
}

}  // namespace metronome::testing::TEST_FILE
