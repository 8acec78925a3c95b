// SPDX-License-Identifier: Apache-2.0
// Blocks of prompts that routers sent, and the routers that look at them. Answers of the routers
// are worked out by hand from the rules in their files.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fleet/router_registry.h"
#include "fleet/sent_blocks.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::vector<std::uint64_t> hashes_of(const std::vector<ContentRun>& prompt, const BlockRule& rule) {
  std::vector<std::uint64_t> hashes;
  hash_blocks(prompt, rule, hashes);
  return hashes;
}

struct Bench {
  Bench(std::string_view name, std::int32_t num_replicas)
      : router(find_router(name)->make({.num_replicas = num_replicas})) {}

  RoutedRequest request(std::vector<ContentRun> content, TimeNs now = 0) {
    prompt = std::move(content);
    return {.number = next++,
            .now = now,
            .prompt = prompt,
            .num_prompt_tokens = count_tokens(prompt)};
  }
  std::vector<ReplicaId> choices(std::vector<ContentRun> content, TimeNs now = 0) {
    const auto found = router->choose(request(std::move(content), now));
    return {found.begin(), found.end()};
  }
  std::int64_t send(std::vector<ContentRun> content, ReplicaId replica, TimeNs now = 0) {
    const RoutedRequest one = request(std::move(content), now);
    router->sent(one, replica);
    return one.number;
  }

  std::unique_ptr<Router> router;
  std::vector<ContentRun> prompt;
  std::int64_t next = 0;
};

using Ids = std::vector<ReplicaId>;

}  // namespace

TEST_CASE("a block's hash names all tokens up to its end", "[fleet]") {
  const BlockRule rule = {.num_tokens = 4};
  const auto whole = hashes_of({{7, 0, 10}}, rule);
  CHECK(whole.size() == 3);
  // The same tokens in pieces, and more of them.
  CHECK(hashes_of({{7, 0, 3}, {7, 3, 7}}, rule) == whole);
  const auto longer = hashes_of({{7, 0, 12}}, rule);
  CHECK(std::equal(whole.begin(), whole.begin() + 2, longer.begin()));
  CHECK(whole[2] != longer[2]);
  // Another token in the first block changes all that follow.
  const auto other = hashes_of({{9, 0, 1}, {7, 1, 11}}, rule);
  for (std::size_t i = 0; i < 3; ++i) CHECK(other[i] != longer[i]);
  CHECK(hashes_of({{7, 0, 10}}, {.num_tokens = 4, .keeps_last_part = false}).size() == 2);
  CHECK(hashes_of({{7, 0, 100}}, {.num_tokens = 4, .max_blocks = 5}).size() == 5);
  CHECK(hashes_of({}, rule).empty());
}

TEST_CASE("sent blocks match as a plain list of prompts does", "[fleet]") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, "sent blocks");
    INFO("seed " << seed);
    SentBlocks blocks(3, {});
    std::vector<std::pair<std::vector<std::uint64_t>, ReplicaId>> sent;
    for (int i = 0; i < 60; ++i) {
      const std::vector<ContentRun> prompt = {
          {static_cast<std::uint64_t>(draw(rng, 1, 2)), 0, draw(rng, 1, 20)},
          {static_cast<std::uint64_t>(draw(rng, 3, 5)), 0, draw(rng, 1, 20)}};
      const auto hashes = hashes_of(prompt, {.num_tokens = 4});
      std::vector<std::int64_t> matched(3), expected(3);
      blocks.match(hashes, 0, matched);
      for (const auto& [other, replica] : sent) {
        const auto end = std::mismatch(hashes.begin(), hashes.end(), other.begin(), other.end());
        std::int64_t& own = expected[static_cast<std::size_t>(replica)];
        own = std::max<std::int64_t>(own, end.first - hashes.begin());
      }
      CHECK(matched == expected);
      const ReplicaId replica = draw(rng, 0, 2);
      blocks.add(hashes, replica, 0);
      sent.emplace_back(hashes, replica);
      if (!chance(rng, 0.05)) continue;
      blocks.forget(1);
      std::erase_if(sent, [](const auto& one) { return one.second == 1; });
    }
  }
}

TEST_CASE("sent blocks forget those that were used longest ago", "[fleet]") {
  std::vector<std::int64_t> matched(2);
  SentBlocks own(2, {.max_blocks_per_replica = 3});
  own.add(std::vector<std::uint64_t>{1, 2}, 0, 0);
  own.add(std::vector<std::uint64_t>{1, 2}, 1, 0);
  own.add(std::vector<std::uint64_t>{5, 6}, 0, 0);  // replica 0 loses block 1
  own.match(std::vector<std::uint64_t>{1, 2}, 0, matched);
  CHECK(matched == std::vector<std::int64_t>{0, 2});
  SentBlocks all(2, {.max_blocks = 3});
  all.add(std::vector<std::uint64_t>{1, 2}, 0, 0);
  all.match(std::vector<std::uint64_t>{1}, 0, matched);  // a use of block 1
  all.add(std::vector<std::uint64_t>{5, 6}, 1, 0);       // block 2 goes
  all.match(std::vector<std::uint64_t>{1, 2}, 0, matched);
  CHECK(matched == std::vector<std::int64_t>{1, 0});
  SentBlocks young(2, {.max_age = 10});
  young.add(std::vector<std::uint64_t>{1}, 0, 0);
  young.match(std::vector<std::uint64_t>{1}, 10, matched);
  CHECK(matched[0] == 1);
  young.match(std::vector<std::uint64_t>{1}, 11, matched);
  CHECK(matched[0] == 0);
}

TEST_CASE("production_stack draws among the longest prefixes, whatever the load", "[fleet]") {
  Bench bench("production_stack", 3);
  CHECK(bench.choices({{1, 0, 100}}) == Ids{0, 1, 2});
  for (int i = 0; i < 20; ++i) bench.send({{1, 0, 100}}, 1);
  bench.send({{1, 0, 64}}, 2);
  CHECK(bench.choices({{1, 0, 100}}) == Ids{1});
  CHECK(bench.choices({{1, 0, 64}, {2, 0, 50}}) == Ids{1, 2});
  CHECK(bench.choices({{3, 0, 10}}) == Ids{0, 1, 2});
}

TEST_CASE("aibrix follows a prefix unless its replica is busier than others", "[fleet]") {
  Bench bench("aibrix", 3);
  bench.send({{1, 0, 160}}, 1);
  // One request: mean 1/3, standard deviation 0.47. Replica 1 is above their sum.
  CHECK(bench.choices({{1, 0, 160}}) == Ids{0, 2});
  bench.send({{2, 0, 16}}, 0);
  // Mean 2/3, deviation 0.47: 1 is within.
  CHECK(bench.choices({{1, 0, 160}}) == Ids{1});
  // Mean 4/3, deviation 0.47: 2 is above.
  bench.send({{1, 0, 160}}, 2);
  bench.send({{3, 0, 16}}, 2);
  CHECK(bench.choices({{1, 0, 160}}) == Ids{1});
  // A block is 16 tokens: nothing to match.
  CHECK(bench.choices({{1, 0, 15}}) == Ids{0, 1});
  // 12 at replica 1, and 2 at the others: the longer match decides.
  for (int i = 0; i < 11; ++i) bench.send({{1, 0, 160}}, 1);
  bench.send({{1, 0, 320}}, 0);
  CHECK(bench.choices({{1, 0, 320}}) == Ids{0});
  // 42 is above 2 * (46 / 3 + 1): only the idlest may match.
  for (int i = 0; i < 30; ++i) bench.send({{1, 0, 160}}, 1);
  CHECK(bench.choices({{1, 0, 160}}) == Ids{0, 2});
}

TEST_CASE("llm_d adds the scores of queue, KV use and prefix", "[fleet]") {
  Bench bench("llm_d", 3);
  CHECK(bench.choices({{1, 0, 64}}) == Ids{0, 1, 2});
  const ReplicaReport reports[] = {{4, 0, 0.5}, {2, 0, 0.25}, {0, 0, 1.0}};
  bench.router->reported(reports);
  // 2 * 0 + 2 * 0.5 = 1; 2 * 0.5 + 2 * 0.75 = 2.5; 2 * 1 + 0 = 2.
  CHECK(bench.choices({{1, 0, 64}}) == Ids{1});
  // Half of the prompt at replica 0 gives 1.5 more, all of it 3: 4.
  bench.send({{1, 0, 32}}, 0);
  CHECK(bench.choices({{1, 0, 64}}) == (Ids{0, 1}));
  CHECK(bench.choices({{1, 0, 32}}) == Ids{0});
}

}  // namespace metronome::testing::TEST_FILE
