// SPDX-License-Identifier: Apache-2.0
// Rules of routers on small fleets, with answers worked out by hand; and what holds for all of
// them.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "fleet/router_registry.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Bench {
  explicit Bench(std::string_view name, std::int32_t num_replicas, RouterContext context = {}) {
    context.num_replicas = num_replicas;
    router = find_router(name)->make(context);
  }

  RoutedRequest request(std::uint64_t content, std::int64_t num_tokens, std::uint64_t session = 0) {
    prompt = {{content, 0, num_tokens}};
    return {
        .number = next++, .prompt = prompt, .num_prompt_tokens = num_tokens, .session = session};
  }
  // Its replica, by the first choice.
  ReplicaId send(const RoutedRequest& request) {
    const ReplicaId replica = router->choose(request).front();
    router->sent(request, replica);
    return replica;
  }

  std::unique_ptr<Router> router;
  std::vector<ContentRun> prompt;
  std::int64_t next = 0;
};

}  // namespace

TEST_CASE("round robin skips a replica that is down", "[fleet]") {
  Bench bench("round_robin", 3);
  std::vector<ReplicaId> went;
  for (int i = 0; i < 4; ++i) went.push_back(bench.send(bench.request(1, 8)));
  bench.router->set_up(1, false);
  for (int i = 0; i < 4; ++i) went.push_back(bench.send(bench.request(1, 8)));
  CHECK(went == std::vector<ReplicaId>{0, 1, 2, 0, 0, 2, 0, 2});
}

TEST_CASE("the least loaded replica is the first in the router's order", "[fleet]") {
  Bench bench("least_loaded", 3, {.order = {2, 0, 1}});
  CHECK(bench.send(bench.request(1, 8)) == 2);
  CHECK(bench.send(bench.request(1, 8)) == 0);
  CHECK(bench.send(bench.request(1, 8)) == 1);
  bench.router->ended(1, 0);
  CHECK(bench.send(bench.request(1, 8)) == 0);
}

TEST_CASE("a session moves only if its replica goes", "[fleet]") {
  Bench bench("session", 5);
  std::map<std::uint64_t, ReplicaId> home;
  for (std::uint64_t session = 1; session <= 50; ++session) {
    home[session] = bench.send(bench.request(1, 8, session));
  }
  bench.router->set_up(3, false);
  for (const auto& [session, replica] : home) {
    const ReplicaId now = bench.send(bench.request(1, 8, session));
    CHECK((replica == 3 ? now != 3 : now == replica));
  }
}

TEST_CASE("two of SGLang's and vLLM's rules differ on a prefix that two replicas have", "[fleet]") {
  for (const auto& [name, expected] :
       {std::pair{"sglang_router", 0}, std::pair{"vllm_router", 1}}) {
    CAPTURE(name);
    Bench bench(name, 2);
    const RoutedRequest first = bench.request(7, 100);
    bench.router->sent(first, 0);
    const RoutedRequest second = bench.request(7, 100);
    bench.router->sent(second, 1);
    bench.router->ended(second.number, 1);
    // Both have all of it, replica 0 is busy, but it had it first.
    CHECK(bench.send(bench.request(7, 100)) == expected);
  }
}

TEST_CASE("loads that differ too much go before prefixes", "[fleet]") {
  for (const char* name : {"sglang_router", "vllm_router"}) {
    CAPTURE(name);
    Bench bench(name, 2);
    for (int i = 0; i < 64; ++i) bench.router->sent(bench.request(7, 100), 0);
    CHECK(bench.send(bench.request(7, 100)) == 0);  // 64 more are not too many
    CHECK(bench.send(bench.request(7, 100)) == 1);  // 65 are
  }
}

TEST_CASE("Dynamo's router weighs prefill to do against cached blocks", "[fleet]") {
  Bench bench("dynamo", 2);
  const std::vector<std::uint64_t> blocks = {11, 12, 13, 14};
  const auto request = [&] {
    RoutedRequest made = bench.request(7, 64);
    made.blocks = blocks;
    return made;
  };
  const auto tie = bench.router->choose(request());
  CHECK(std::vector<ReplicaId>(tie.begin(), tie.end()) == std::vector<ReplicaId>{0, 1});
  bench.router->stored(1, blocks, 0);
  CHECK(bench.send(request()) == 1);
  // Its blocks are there, and shared: 4 of prefill less 4 cached, and 4; the other 4 and 4.
  CHECK(bench.send(request()) == 1);
  bench.router->removed(1, 12);  // 13 and 14 continue it
  // 4 of prefill less 1, and 4: still less than 8.
  CHECK(bench.send(request()) == 1);
  // Now 3 are to be computed there: 3 + 4 - 1 + 4 = 10.
  CHECK(bench.send(request()) == 0);
}

TEST_CASE("vLLM's ranks are taken in turn until a snapshot says otherwise", "[fleet]") {
  Bench bench("vllm_dp", 3);
  CHECK(bench.send(bench.request(1, 8)) == 0);
  CHECK(bench.send(bench.request(1, 8)) == 1);
  CHECK(bench.send(bench.request(1, 8)) == 2);
  // 4 + 0, 3 + 3 * 6 * 0.2 and 5 + 0.
  const ReplicaReport reports[] = {{0, 4, 0.9}, {3, 0, 0.7}, {0, 5, 0.1}};
  bench.router->reported(reports);
  CHECK(bench.send(bench.request(1, 8)) == 0);
  // Itself has made it 5 with a full cache: 5 + 1 * 6 * 0.4.
  CHECK(bench.send(bench.request(1, 8)) == 2);
}

TEST_CASE("a router's command has its rule, and what differs from its defaults", "[fleet]") {
  const auto fleet_of = [](const std::string& router, const std::string& settings) {
    const std::string text =
        "model: llama-3.1-8b\nhardware: h100-sxm\nworkload: {num_requests: 4, arrivals: "
        "{process: poisson, rate: 2}, prompt_tokens: {value: 100}, output_tokens: {value: 10}}\n"
        "fleet: {replicas: 2, router: " +
        router + ", " + router + ": {" + settings + "}}\n";
    return parse_scenario(text, "fleet.yaml", {}).variants.front();
  };
  const Scenario scenario = fleet_of("vllm_router", "cache_threshold: 0.5, max_tree_size: 4096");
  CHECK(find_router("vllm_router")->command(scenario.fleet.settings) ==
        "vllm-router --policy cache_aware --cache-threshold 0.5 --max-tree-size 4096");
  CHECK(find_router("sglang_router")->command({}) ==
        "python3 -m sglang_router.launch_router --policy cache_aware");
  CHECK(find_router("dynamo")->command({}) == "python3 -m dynamo.frontend --router-mode kv");
  const Scenario dynamo = fleet_of("dynamo", "overlap_score_credit: 0.8, prefill_load_scale: 3");
  CHECK(find_router("dynamo")->command(dynamo.fleet.settings) ==
        "python3 -m dynamo.frontend --router-mode kv --router-kv-overlap-score-credit 0.8 "
        "--router-prefill-load-scale 3");
  const Scenario llm_d = fleet_of("llm_d", "prefix_weight: 4.5");
  const std::string picker = find_router("llm_d")->command(llm_d.fleet.settings);
  CHECK(picker.find("{pluginRef: prefix-cache-scorer, weight: 4.5}") != std::string::npos);
  CHECK(find_router("production_stack")->command({}) == "vllm-router --routing-logic prefixaware");
}

TEST_CASE("every router sends random requests to replicas that are up, and counts them",
          "[fleet]") {
  for (const RouterInfo& info : all_routers()) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      CAPTURE(info.name, seed);
      Rng rng(seed, "routers");
      const std::int32_t num_replicas = draw(rng, 1, 6);
      Bench bench(info.name, num_replicas, {.seed = seed});
      Bench again(info.name, num_replicas, {.seed = seed});
      std::vector<bool> is_up(static_cast<std::size_t>(num_replicas), true);
      std::vector<std::int64_t> expected(is_up.size(), 0);
      std::map<std::int64_t, ReplicaId> sent;
      for (int i = 0; i < 200; ++i) {
        const auto replica = static_cast<std::size_t>(draw(rng, 0, num_replicas - 1));
        if (chance(rng, 0.05)) is_up[replica] = !is_up[replica];
        if (std::count(is_up.begin(), is_up.end(), true) == 0) is_up[replica] = true;
        for (Bench* each : {&bench, &again}) {
          each->router->set_up(static_cast<ReplicaId>(replica), is_up[replica]);
        }
        const auto content = static_cast<std::uint64_t>(draw(rng, 1, 4));
        const std::int64_t num_tokens = draw(rng, 1, 50);
        const RoutedRequest request = bench.request(content, num_tokens, content);
        const auto choices = bench.router->choose(request);
        const auto same = again.router->choose(again.request(content, num_tokens, content));
        REQUIRE(std::equal(choices.begin(), choices.end(), same.begin(), same.end()));
        const ReplicaId chosen = choices[static_cast<std::size_t>(
            draw(rng, 0, static_cast<std::int32_t>(choices.size()) - 1))];
        REQUIRE(is_up[static_cast<std::size_t>(chosen)]);
        for (Bench* each : {&bench, &again}) each->router->sent(request, chosen);
        sent[request.number] = chosen;
        ++expected[static_cast<std::size_t>(chosen)];
        while (!sent.empty() && chance(rng, 0.5)) {
          const auto [number, from] = *sent.begin();
          sent.erase(sent.begin());
          for (Bench* each : {&bench, &again}) each->router->ended(number, from);
          --expected[static_cast<std::size_t>(from)];
        }
        REQUIRE(
            std::equal(expected.begin(), expected.end(), bench.router->num_in_flight().begin()));
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
