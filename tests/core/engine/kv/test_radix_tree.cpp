// SPDX-License-Identifier: Apache-2.0
// The radix tree of cached prefixes: what is found, what is evicted, in which order; and random
// operations against a tree of tokens that is written down as SGLang's is.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/kv/radix_tree.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The chain of a text, a block for each letter.
HashChain chain_of(const std::string& text) {
  HashChain chain;
  std::uint64_t hash = 1;
  for (const char letter : text) {
    hash = mix64(hash * 256 + static_cast<std::uint64_t>(letter)) | 1;
    chain.push_back(BlockHash{hash});
  }
  return chain;
}

struct TreeBench {
  explicit TreeBench(std::int64_t num_blocks) : pool({.num_blocks = num_blocks}), tree(pool) {}

  // A request computes the text with blocks of its own, caches it and ends.
  BlockTable cache(const std::string& text) {
    BlockTable table;
    REQUIRE(pool.allocate(static_cast<std::int64_t>(text.size()), table));
    tree.insert(chain_of(text), static_cast<std::int64_t>(text.size()), table);
    check();
    return table;
  }
  std::int64_t match(const std::string& text) {
    const std::int64_t found =
        tree.match(chain_of(text), static_cast<std::int64_t>(text.size())).num_blocks;
    check();
    return found;
  }
  void check() {
    tree.check_integrity();
    const BlockTable blocks = tree.blocks();
    pool.check_integrity({&blocks});
  }

  BlockPool pool;
  RadixTree tree;
};

BlockTable table_of(const std::vector<int>& ids) {
  BlockTable table;
  for (const int id : ids) table.push_back(BlockId{id});
  return table;
}

}  // namespace

TEST_CASE("a walk of the radix tree takes the part first in which more ends lie", "[core][kv]") {
  TreeBench bench(20);
  for (const char* text : {"d", "ab", "ac"}) bench.cache(text);  // a has the children b and c
  const auto walk = [&](const std::vector<std::string>& texts) {
    std::vector<RadixTree::Node> ends;
    for (const std::string& text : texts) {
      const auto num_blocks = static_cast<std::int64_t>(text.size());
      ends.push_back(bench.tree.match(chain_of(text), num_blocks).node);
    }
    std::vector<std::string> order;
    for (const std::size_t i : bench.tree.depth_first_order(ends)) order.push_back(texts[i]);
    return order;
  };
  using Texts = std::vector<std::string>;
  CHECK(walk({"x", "ac", "d"}) == Texts{"d", "ac", "x"});  // one end each: the older part first
  CHECK(walk({"d", "a", "ac", "ab"}) == Texts{"ab", "ac", "a", "d"});
  CHECK(walk({"ab", "ac", "acx", "d"}) == Texts{"ac", "acx", "ab", "d"});
  CHECK(walk({}).empty());
}

TEST_CASE("the longest cached prefix is found, wherever it ends", "[core][kv][radix]") {
  TreeBench bench(20);
  CHECK(bench.match("abc") == 0);
  CHECK(bench.cache("abcd") == table_of({0, 1, 2, 3}));
  CHECK(bench.match("abcd") == 4);
  CHECK(bench.match("abce") == 3);
  CHECK(bench.match("b") == 0);
  CHECK(bench.match("abcdef") == 4);
  const RadixTree::Match match = bench.tree.match(chain_of("abxx"), 4);
  BlockTable blocks;
  bench.tree.append_blocks(match.node, blocks);
  CHECK(blocks == table_of({0, 1}));
}

TEST_CASE("a second copy of a cached block is given back", "[core][kv][radix]") {
  TreeBench bench(20);
  bench.cache("abcd");
  CHECK(bench.pool.num_free() == 16);
  CHECK(bench.cache("abxy") == table_of({0, 1, 6, 7}));
  CHECK(bench.pool.num_free() == 14);
  CHECK(bench.tree.num_evictable_blocks() == 6);
}

TEST_CASE("whole leaves are evicted, the one first that was touched longest ago",
          "[core][kv][radix]") {
  TreeBench bench(20);
  bench.cache("abcd");
  bench.cache("abxyz");  // nodes ab, cd, xyz
  bench.match("abcd");
  CHECK(bench.tree.evict(1) == 3);  // xyz
  CHECK(bench.match("abxyz") == 2);
  CHECK(bench.match("abcd") == 4);
  CHECK(bench.tree.evict(3) == 4);  // cd, and ab, which is a leaf then
  CHECK(bench.match("abcd") == 0);
  CHECK(bench.pool.num_free() == 20);
  CHECK(bench.tree.evict(1) == 0);
}

TEST_CASE("a locked path is not evicted", "[core][kv][radix]") {
  TreeBench bench(20);
  bench.cache("abcd");
  bench.cache("abxy");
  const RadixTree::Node node = bench.tree.match(chain_of("abcd"), 4).node;
  CHECK(bench.tree.num_lockable_blocks(node) == 4);
  bench.tree.lock(node);
  bench.tree.lock(node);
  CHECK(bench.tree.num_lockable_blocks(node) == 0);
  CHECK(bench.tree.num_evictable_blocks() == 2);
  CHECK(bench.tree.evict(10) == 2);
  CHECK(bench.match("abcd") == 4);
  // A locked node that is split stays locked in both parts.
  CHECK(bench.match("abc") == 3);
  CHECK(bench.tree.num_evictable_blocks() == 0);
  bench.tree.unlock(node);
  CHECK(bench.tree.num_evictable_blocks() == 0);
  bench.tree.unlock(node);
  CHECK(bench.tree.num_evictable_blocks() == 4);
  CHECK_THROWS_AS(bench.tree.unlock(node), InvariantError);
}

// Texts as sets of cached strings: what a match finds must be the longest cached prefix.
TEST_CASE("random texts are found as far as they are cached", "[core][kv][radix]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "radix tree");
    TreeBench bench(60);
    std::map<std::string, std::int64_t> cached;  // every cached prefix
    for (int i = 0; i < 60; ++i) {
      std::string text;
      const int length = draw(rng, 1, 12);
      for (int k = 0; k < length; ++k) text += static_cast<char>('a' + draw(rng, 0, 1));
      std::int64_t expected = 0;
      for (std::size_t n = 1; n <= text.size() && cached.contains(text.substr(0, n)); ++n) {
        expected = static_cast<std::int64_t>(n);
      }
      REQUIRE(bench.match(text) == expected);
      if (chance(rng, 0.3)) continue;
      const auto needed = static_cast<std::int64_t>(text.size());
      if (bench.pool.num_free() < needed) {
        bench.tree.evict(needed - bench.pool.num_free());
        // Which are gone is seen by asking, longest first, so that nothing is split.
        std::erase_if(cached, [&](const auto& entry) {
          const auto size = static_cast<std::int64_t>(entry.first.size());
          return bench.tree.match(chain_of(entry.first), size).num_blocks < size;
        });
      }
      REQUIRE(bench.pool.num_free() >= needed);
      bench.cache(text);
      for (std::size_t n = 1; n <= text.size(); ++n) cached[text.substr(0, n)] = 1;
    }
    bench.tree.evict(60);
    REQUIRE(bench.pool.num_free() == 60);
  }
}

TEST_CASE("a pass over known chains is one match after the other", "[core][kv][property]") {
  std::int64_t num_held = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "radix passes");
    TreeBench plain(60);
    TreeBench passes(60);
    const auto text = [&] {
      std::string letters;
      for (std::int32_t i = draw(rng, 1, 9); i > 0; --i) {
        letters += static_cast<char>('a' + draw(rng, 0, 1));
      }
      return letters;
    };
    std::vector<std::string> waiting;
    std::vector<RadixTree::Known> known;
    for (int round = 0; round < 40; ++round) {
      if (chance(rng, 0.7)) {
        waiting.push_back(text());
        known.emplace_back();
      }
      if (chance(rng, 0.6)) {
        const std::string cached = text();
        if (plain.pool.num_free() >= std::ssize(cached)) {
          REQUIRE(plain.cache(cached) == passes.cache(cached));
        }
      }
      if (chance(rng, 0.3)) {
        const std::int32_t num_blocks = draw(rng, 1, 12);
        REQUIRE(plain.tree.evict(num_blocks) == passes.tree.evict(num_blocks));
      }
      std::vector<RadixTree::Node> ends;
      passes.tree.begin_pass();
      std::vector<const RadixTree::Known*> all;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        const HashChain chain = chain_of(waiting[i]);
        ends.push_back(plain.tree.match(chain, std::ssize(chain)).node);
        if (passes.tree.holds(known[i])) {
          passes.tree.follow(known[i]);
          ++num_held;
        } else {
          passes.tree.follow(chain, std::ssize(chain), known[i]);
        }
        all.push_back(&known[i]);
      }
      passes.tree.end_pass(all);
      for (std::size_t i = 0; i < waiting.size(); ++i) REQUIRE(known[i].match.node == ends[i]);
      passes.check();
      REQUIRE(plain.pool.free_blocks() == passes.pool.free_blocks());
    }
    // Leaves go in the order in which they were touched.
    while (plain.tree.num_evictable_blocks() > 0) {
      REQUIRE(plain.tree.evict(1) == passes.tree.evict(1));
      REQUIRE(plain.pool.free_blocks() == passes.pool.free_blocks());
    }
  }
  CHECK(num_held > 10'000);
}

}  // namespace metronome::testing::TEST_FILE
