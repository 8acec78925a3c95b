// SPDX-License-Identifier: Apache-2.0
// Fleets on one simulated time. Each replica must do exactly what it does alone with the requests
// that it was given, and routers must know exactly what had happened by then.
#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <vector>

#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "fleet/fleet_run.h"
#include "fleet/router_registry.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

Scenario scenario_of(const std::string& text, const std::vector<std::string>& changes = {}) {
  return parse_scenario(text, "fleet.yaml", changes).variants.front();
}

constexpr std::string_view kPlain =
    "model: llama-3.1-8b\n"
    "hardware: h100-sxm\n"
    "engine: {max_num_seqs: 32, max_model_len: 4096}\n"
    "kv_cache: {num_blocks: 4000}\n"
    "scheduler: {policy: token_budget, max_num_batched_tokens: 1024}\n"
    "workload: {num_requests: 120, arrivals: {process: poisson, rate: 40},\n"
    "  prompt_tokens: {distribution: uniform, min: 20, max: 900},\n"
    "  output_tokens: {distribution: uniform, min: 1, max: 120}}\n";

struct FleetResult {
  RunRecord record;
  std::string digest;
  Workload workload;
};

FleetResult run(const Scenario& scenario, std::int32_t num_threads = 1) {
  FleetResult result;
  result.workload = make_workload(scenario);
  const std::unique_ptr<PreparedRun> prepared = FleetBackend(num_threads).prepare(scenario);
  RunRecorder recorder(result.workload.requests.size(), prepared->front_end);
  EventDigest digest;
  EventSink* const sinks[] = {&digest, &recorder};
  VirtualClock clock;
  REQUIRE(prepared->run(result.workload, clock, sinks, {}).completed);
  result.record = recorder.finish();
  result.digest = digest.hex();
  return result;
}

// The same times and counts, wherever the request was.
void check_equal(const RequestRecord& a, const RequestRecord& b) {
  CHECK(a.arrival == b.arrival);
  CHECK(a.first_scheduled == b.first_scheduled);
  CHECK(a.first_token == b.first_token);
  CHECK(a.last_token == b.last_token);
  CHECK(a.ended == b.ended);
  CHECK(a.num_output_tokens == b.num_output_tokens);
  CHECK(a.num_preemptions == b.num_preemptions);
  CHECK(a.num_prefix_hit_tokens == b.num_prefix_hit_tokens);
  CHECK(a.max_itl_ns == b.max_itl_ns);
  CHECK(a.min_itl_ns == b.min_itl_ns);
  CHECK(a.reason == b.reason);
}

// The requests that a replica had, in their order.
std::vector<std::size_t> requests_of(const RunRecord& record, std::int32_t replica) {
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (record.replica_of[i] == replica) own.push_back(i);
  }
  return own;
}

// The workload with these of its requests.
Workload part_of(const Workload& workload, const std::vector<std::size_t>& kept) {
  Workload part;
  part.mode = workload.mode;
  for (const std::size_t i : kept) {
    part.requests.push_back(workload.requests[i]);
    if (workload.segment_begin.empty()) continue;
    part.segment_begin.push_back(static_cast<std::uint32_t>(part.segments.size()));
    for (const PromptSegment& segment : workload.prompt_segments(RequestId(i))) {
      part.segments.push_back(segment);
    }
  }
  if (!workload.segment_begin.empty()) {
    part.segment_begin.push_back(static_cast<std::uint32_t>(part.segments.size()));
  }
  return part;
}

// Every replica alone, with the requests that the fleet's router gave it.
void check_replicas_alone(const Scenario& scenario, const FleetResult& fleet) {
  Scenario alone = scenario;
  alone.fleet = {};
  for (std::size_t r = 0; r < fleet.record.replicas.size(); ++r) {
    INFO("replica " << r);
    const std::vector<std::size_t> own = requests_of(fleet.record, static_cast<std::int32_t>(r));
    if (own.empty()) continue;
    const Workload part = part_of(fleet.workload, own);
    const std::unique_ptr<PreparedRun> prepared = FleetBackend().prepare(alone);
    RunRecorder recorder(own.size(), prepared->front_end);
    EventSink* const sinks[] = {&recorder};
    VirtualClock clock;
    REQUIRE(prepared->run(part, clock, sinks, {}).completed);
    const RunRecord record = recorder.finish();
    REQUIRE(record.steps.size() == fleet.record.replicas[r].num_steps);
    for (std::size_t k = 0; k < own.size(); ++k) {
      INFO("request " << own[k]);
      check_equal(fleet.record.requests[own[k]], record.requests[k]);
    }
  }
}

// A scenario by lot, of one engine.
std::string draw_scenario(Rng& rng) {
  constexpr std::string_view kSchedulers[] = {
      "{policy: token_budget, max_num_batched_tokens: 512}", "{policy: continuous}",
      "{policy: vllm, max_num_batched_tokens: 768}", "{policy: sglang, chunked_prefill_size: 512}"};
  const auto scheduler = static_cast<std::size_t>(draw(rng, 0, 3));
  const bool caches = chance(rng, 0.6);
  const std::int32_t depth = scheduler == 2 ? draw(rng, 1, 2) : 1;
  const std::int32_t num_blocks = draw(rng, 220, 1500);
  const std::int32_t rate = draw(rng, 10, 200);
  const std::int32_t num_requests = draw(rng, 40, 160);
  const std::int32_t most_output = draw(rng, 2, 150);
  std::string text = fmt::format(
      "seed: {}\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
      "engine: {{max_num_seqs: 16, max_model_len: 2048, async_depth: {}}}\n"
      "kv_cache: {{num_blocks: {}, enable_prefix_caching: {}}}\nscheduler: {}\n",
      draw(rng, 0, 1000), depth, num_blocks, caches, kSchedulers[scheduler]);
  text += fmt::format(
      "workload: {{num_requests: {}, arrivals: {{process: gamma, rate: {}, burstiness: 0.3}}, "
      "prompt_tokens: {{distribution: uniform, min: 1, max: 700}}, "
      "output_tokens: {{distribution: uniform, min: 1, max: {}}}, "
      "prefix: {{kind: groups, num_groups: 5, prefix_tokens: 256}}}}\n",
      num_requests, rate, most_output);
  if (chance(rng, 0.3)) text += "cost_model: {frontend: {fixed_ms: 3, us_per_prompt_token: 2}}\n";
  return text;
}

std::string draw_fleet(Rng& rng) {
  const auto routers = all_routers();
  const RouterInfo& router = routers[static_cast<std::size_t>(
      draw(rng, 0, static_cast<std::int32_t>(routers.size()) - 1))];
  const std::int32_t replicas = draw(rng, 1, 9);
  const bool shuffles = chance(rng, 0.5);
  return fmt::format("fleet: {{replicas: {}, router: {}, shuffle_replicas: {}}}\n", replicas,
                     router.name, shuffles);
}

}  // namespace

TEST_CASE("a fleet of one replica does what the engine does alone", "[fleet]") {
  const FleetResult fleet =
      run(scenario_of(std::string(kPlain) + "fleet: {replicas: 1, router: least_loaded}\n"));
  CHECK(fleet.record.replicas.size() == 1);
  check_replicas_alone(scenario_of(std::string(kPlain)), fleet);
}

TEST_CASE("each replica of a random fleet does what it does alone", "[fleet]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "fleet");
    const std::string text = draw_scenario(rng);
    const std::string fleet = draw_fleet(rng);
    INFO("seed " << seed << "\n" << text << fleet);
    const Scenario scenario = scenario_of(text + fleet);
    const FleetResult result = run(scenario);
    CHECK(std::ssize(result.record.requests) == std::ssize(result.workload.requests));
    for (const RequestRecord& request : result.record.requests) CHECK(request.ended != kNoTime);
    check_replicas_alone(scenario, result);
    CHECK(run(scenario, 1 + static_cast<std::int32_t>(seed % 4)).digest == result.digest);
  }
}

TEST_CASE("a large fleet gives the same on any number of threads", "[fleet]") {
  for (const std::string_view router : {"round_robin", "least_loaded", "dynamo", "vllm_dp"}) {
    INFO(router);
    const Scenario scenario =
        scenario_of(fmt::format("{}fleet: {{replicas: 60, router: {}}}\n", kPlain, router),
                    {"workload.num_requests=3000", "workload.arrivals.rate=900"});
    const FleetResult one = run(scenario);
    for (const std::int32_t num_threads : {2, 3, 4}) {
      const FleetResult other = run(scenario, num_threads);
      CHECK(other.digest == one.digest);
      CHECK(other.record.replica_of == one.record.replica_of);
    }
  }
}

TEST_CASE("a router knows the requests in flight at each arrival", "[fleet]") {
  for (const std::int32_t replicas : {2, 5}) {
    const FleetResult fleet =
        run(scenario_of(std::string(kPlain) +
                        fmt::format("fleet: {{replicas: {}, router: least_loaded}}\n", replicas)));
    const std::vector<RequestRecord>& all = fleet.record.requests;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<std::int64_t> loads(static_cast<std::size_t>(replicas));
      for (std::size_t k = 0; k < i; ++k) {
        if (all[k].ended < all[i].arrival) continue;
        ++loads[static_cast<std::size_t>(fleet.record.replica_of[k])];
      }
      const auto least = std::min_element(loads.begin(), loads.end()) - loads.begin();
      CHECK(fleet.record.replica_of[i] == least);
    }
  }
}

TEST_CASE("a closed loop sends the next request when one ends, to any replica", "[fleet]") {
  const FleetResult fleet = run(
      scenario_of(std::string(kPlain) + "fleet: {replicas: 3, router: least_loaded}\n",
                  {"workload.arrivals.process=closed_loop", "workload.arrivals.concurrency=6"}));
  std::vector<TimeNs> ends;
  for (const RequestRecord& request : fleet.record.requests) ends.push_back(request.ended);
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = 6; i < fleet.record.requests.size(); ++i) {
    CHECK(fleet.record.requests[i].arrival == ends[i - 6]);
  }
}

TEST_CASE("a session's next prompt finds its history where the router kept it", "[fleet]") {
  const std::string text =
      "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_num_seqs: 16, max_model_len: 8192}\n"
      "kv_cache: {num_blocks: 4000, enable_prefix_caching: true}\n"
      "scheduler: {policy: vllm, max_num_batched_tokens: 2048}\n"
      "workload: {arrivals: {process: poisson, rate: 4}, prompt_tokens: {value: 300},\n"
      "  output_tokens: {value: 40}, sessions: {kind: chat, num_sessions: 24,\n"
      "  turns: {value: 4}, think_time_ms: {value: 500}}}\n";
  const auto hits = [&text](const std::string& router) {
    const FleetResult fleet =
        run(scenario_of(text + "fleet: {replicas: 4, router: " + router + "}\n"));
    return summarize(fleet.record, {}).prefix_hit_rate;
  };
  // A turn's prompt is 340 tokens longer than the last one, of which whole blocks are found.
  CHECK(hits("session") > 0.55);
  CHECK(hits("dynamo") > 0.5);
  CHECK(hits("round_robin") < 0.4);
}

TEST_CASE("groups of replicas differ, and figures are by replica", "[fleet]") {
  const std::string text =
      std::string(kPlain) +
      "fleet: {replicas: 3, router: round_robin, groups: [{count: 1, hardware: a100-sxm-80gb,\n"
      "  scheduler: {max_num_batched_tokens: 256}}]}\nprice_per_gpu_hour: 3\n";
  const Scenario scenario = scenario_of(text);
  const FleetResult fleet = run(scenario);
  const Summary summary = summarize(fleet.record, {scenario.slo, 4000});
  REQUIRE(summary.replicas.size() == 3);
  for (const ReplicaSummary& replica : summary.replicas) CHECK(replica.requests.num_requests == 40);
  // The slower GPU is busier, and has smaller steps.
  CHECK(summary.replicas[0].busy_share > summary.replicas[1].busy_share);
  for (std::size_t s = 0; s < fleet.record.replicas[0].num_steps; ++s) {
    CHECK(fleet.record.steps.num_tokens(s) <= 256);
  }
  CHECK(summary.replica_imbalance > 1);
  const std::unique_ptr<PreparedRun> prepared = FleetBackend().prepare(scenario);
  CHECK(prepared->num_gpus == 3);
  CHECK(prepared->price_per_gpu_hour == 3.0);
  CHECK(prepared->fleet_text ==
        "3 replicas behind round_robin; 1 with hardware=a100-sxm-80gb "
        "scheduler.max_num_batched_tokens=256");
}

TEST_CASE("a fleet's mistakes name the key", "[fleet]") {
  const auto error = [](const std::string& fleet, const std::vector<std::string>& changes = {}) {
    return error_of([&] { (void)scenario_of(std::string(kPlain) + fleet, changes); });
  };
  CHECK(error("fleet: {router: dynamo}\n") ==
        "fleet.yaml:9: fleet.router: there is one engine and no router; allowed: fleet.replicas of "
        "at least 1, or omit the key");
  CHECK(error("fleet: {replicas: 2, router: dynamo, vllm_router: {cache_threshold: 0.5}}\n")
            .starts_with("fleet.yaml:9: fleet.vllm_router: these are settings of another router"));
  CHECK(error("fleet: {replicas: 2, router: nginx}\n").starts_with("fleet.yaml:9: fleet.router"));
  CHECK(error("fleet: {replicas: 2, groups: [{count: 3}]}\n") ==
        "fleet.yaml:9: fleet.groups: the groups have 3 replicas; allowed: at most 2, which "
        "fleet.replicas says");
  CHECK(error("fleet: {replicas: 2, groups: [{count: 1, seed: 4}]}\n")
            .starts_with("fleet.yaml:9: fleet.groups: group 0 has 'seed', in which replicas cannot "
                         "differ"));
  CHECK(error("fleet: {replicas: 2}\nresults: {trace: true}\n")
            .starts_with("fleet.yaml:10: results.trace: a trace shows one engine"));
}

TEST_CASE("without a fleet, the resolved scenario does not name one", "[fleet]") {
  CHECK(scenario_of(std::string(kPlain)).resolved().find("fleet") == nullptr);
  const Json fleet = scenario_of(std::string(kPlain) + "fleet: {replicas: 2, router: dynamo}\n")
                         .resolved()
                         .at("fleet");
  CHECK(fleet.at("router").string() == "dynamo");
  CHECK(fleet.contains("dynamo"));
  CHECK_FALSE(fleet.contains("vllm_router"));
}

}  // namespace metronome::testing::TEST_FILE
