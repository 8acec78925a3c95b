// SPDX-License-Identifier: Apache-2.0
// The KV cache of a hybrid model, whose sliding-window layers have block tables of their own; and
// that asking the cache only when it has something to do changes nothing.
#include <algorithm>
#include <optional>

#include "core/base/rng.h"
#include "tests/core/engine/kv/cache_bench.h"

namespace metronome::testing::TEST_FILE {
namespace {

// A hybrid model: a window of 8 tokens, blocks of 4; block 0 is the null block.
KvCacheLayout hybrid(std::int64_t num_usable) {
  KvCacheLayout layout = caching(num_usable + 1, 4);
  layout.has_null_block = true;
  layout.windows.num_tokens = 8;
  return layout;
}

}  // namespace

TEST_CASE("blocks behind a sliding window are given back as soon as nobody looks at them",
          "[core][kv][window]") {
  // The token at position c looks at c - 7 .. c. Block 0 (positions 0 to 3) is needed up to c = 10,
  // block 1 up to 14, block 2 up to 18.
  for (const bool is_caching : {false, true}) {
    KvCacheLayout layout = hybrid(40);
    layout.enable_prefix_caching = is_caching;
    CacheBench bench(layout, {{{kA, 8}}});
    Request& request = bench[0];
    bench.compute(0, 8);
    request.output_tokens = 50;
    for (std::int32_t c = 8; c < 30; ++c) {
      CAPTURE(is_caching, c);
      bench.compute(0, c + 1);
      const std::size_t num_gone = c < 11   ? 0
                                   : c < 15 ? 1
                                   : c < 19 ? 2
                                   : c < 23 ? 3
                                   : c < 27 ? 4
                                            : 5;
      REQUIRE(request.group_tables[0].size() == static_cast<std::size_t>(c) / 4 + 1);
      for (std::size_t i = 0; i < request.group_tables[0].size(); ++i) {
        CHECK(bench.kv.pool().is_null(request.group_tables[0][i]) == (i < num_gone));
      }
      CHECK(bench.kv.num_used_blocks() ==
            static_cast<std::int64_t>(2 * request.group_tables[0].size() - num_gone));
    }
    bench.release(0);
    CHECK(bench.kv.num_used_blocks() == 0);
    CHECK(bench.kv.num_free_blocks() == 40);
  }
}

TEST_CASE("a window slides as far after a long chunk as token by token", "[core][kv][window]") {
  // c tokens are computed in one step; the next one looks at c - 7 .. c.
  for (const auto& [c, num_gone] :
       {std::pair{7, 0}, {10, 0}, {11, 1}, {14, 1}, {15, 2}, {26, 4}, {27, 5}, {30, 5}, {31, 6}}) {
    CAPTURE(c);
    CacheBench bench(hybrid(40), {{{kA, 40}}});
    bench.compute(0, c);
    bench.compute(0, c + 4);
    const BlockTable& table = bench[0].group_tables[0];
    CHECK(std::count(table.begin(), table.end(), kNullBlock) == num_gone);
  }
}

TEST_CASE("a window that slides over several blocks gives back the last of them first",
          "[core][kv][window]") {
  // Six blocks each: 1 to 6 for all tokens, 7 to 12 for the window. With 24 tokens computed the
  // next sees positions 17 to 24: blocks 0 to 3 are behind it.
  CacheBench bench(hybrid(14), {{{kA, 60}}});
  Request& request = bench[0];
  bench.compute(0, 24);
  REQUIRE(request.group_tables[0] == table_of({7, 8, 9, 10, 11, 12}));
  REQUIRE(bench.kv.pool().free_blocks() == table_of({13, 14}));
  SECTION("before new ones are taken") {
    REQUIRE(bench.kv.grow(request, 34));  // 3 + 3 more, of 2 + 4
    CHECK(request.block_table == table_of({1, 2, 3, 4, 5, 6, 13, 14, 10}));
    CHECK(request.group_tables[0] == table_of({0, 0, 0, 0, 11, 12, 9, 8, 7}));
    CHECK(bench.kv.num_free_blocks() == 0);
  }
  SECTION("even if there are too few new ones") {
    CHECK_FALSE(bench.kv.grow(request, 37));  // 4 + 4 more
    CHECK(request.block_table == table_of({1, 2, 3, 4, 5, 6}));
    CHECK(request.group_tables[0] == table_of({0, 0, 0, 0, 11, 12}));
    CHECK(bench.kv.pool().free_blocks() == table_of({13, 14, 10, 9, 8, 7}));
  }
  bench.kv.check_integrity(bench.requests);
}

TEST_CASE("blocks behind the window that nobody can find are reused first", "[core][kv][window]") {
  // Blocks 10 9 8 7 have no hashes. Given back together, they stand before 13 and 14.
  KvCacheLayout layout = hybrid(14);
  layout.enable_prefix_caching = false;
  layout.reuses_unhashed_first = true;
  CacheBench bench(layout, {{{kA, 60}}});
  bench.compute(0, 24);
  CHECK_FALSE(bench.kv.grow(bench[0], 37));
  CHECK(bench.kv.pool().free_blocks() == table_of({10, 9, 8, 7, 13, 14}));
}

TEST_CASE("a hybrid hit ends where the window before it is cached", "[core][kv][window]") {
  // A window of 8 looks back at 7 tokens: ceil(7 / 4) = 2 blocks. Window blocks are 7 to 12.
  CacheBench bench(hybrid(20), {{{kA, 24}}, {{kA, 24}, {kB, 8}}});
  bench.compute(0, 24);
  bench.release(0);
  const auto found = [&] { return bench.kv.find_prefix(bench[1]); };
  REQUIRE(found().num_tokens == 24);
  CHECK(found().blocks == table_of({1, 2, 3, 4, 5, 6}));
  CHECK(found().group_blocks[0] == table_of({0, 0, 0, 0, 11, 12}));
  // Eight blocks of all tokens, six of them hit but free; of the window the four behind it are not
  // needed, two are hit but free, and two are new.
  CHECK(bench.kv.num_blocks_to_take(bench[1], found(), 32) == 8 + 4);

  bench.kv.forget(table_of({12}));
  CHECK(found().group_blocks[0] == table_of({0, 0, 0, 10, 11}));
  CHECK(found().blocks == table_of({1, 2, 3, 4, 5}));
  CHECK(found().num_tokens == 20);
  bench.kv.forget(table_of({10}));  // 11 alone is too short
  CHECK(found().group_blocks[0] == table_of({0, 8, 9}));
  CHECK(found().num_tokens == 12);
  bench.kv.forget(table_of({8}));  // nowhere two: the run from the start
  CHECK(found().group_blocks[0] == table_of({7}));
  CHECK(found().blocks == table_of({1}));
  CHECK(found().num_tokens == 4);
  bench.kv.forget(table_of({7}));
  CHECK(found().num_tokens == 0);
  CHECK(found().blocks.empty());
}

TEST_CASE("a window of one token hits blocks that nobody will look at", "[core][kv][window]") {
  KvCacheLayout layout = hybrid(20);
  layout.windows.num_tokens = 1;
  CacheBench bench(layout, {{{kA, 8}}, {{kA, 8}, {kB, 8}}});
  bench.compute(0, 8);  // 1 and 2, of the window 3 and 4
  bench.release(0);
  CHECK(bench.hit(1) == 8);
  CHECK(bench.kv.find_prefix(bench[1]).group_blocks[0] == table_of({0, 0}));
  bench.kv.forget(table_of({4}));
  CHECK(bench.hit(1) == 4);
  CHECK(bench.kv.find_prefix(bench[1]).group_blocks[0] == table_of({0}));
}

TEST_CASE("a hybrid hit is no longer than what full attention finds", "[core][kv][window]") {
  CacheBench bench(hybrid(20), {{{kA, 24}}, {{kA, 24}, {kB, 8}}});
  bench.compute(0, 24);
  bench.release(0);
  bench.kv.forget(table_of({4}));  // its fourth block
  const PrefixHit& hit = bench.kv.find_prefix(bench[1]);
  CHECK(hit.num_tokens == 12);
  CHECK(hit.group_blocks[0] == table_of({0, 8, 9}));
  bench.compute(1, 32);
  CHECK(bench[1].block_table.size() == 8);
  CHECK(bench[1].group_tables[0].size() == 8);
  CHECK(bench.kv.pool().is_null(bench[1].group_tables[0][0]));
}

TEST_CASE("one request holds a limited number of window blocks", "[core][kv][window]") {
  KvCacheLayout layout = hybrid(40);
  layout.windows.max_blocks = 5;
  CacheBench bench(layout, {{{kA, 24}}, {{kA, 24}, {kB, 20}}});
  // 40 tokens are ten blocks.
  CHECK(bench.kv.num_blocks_to_take(bench[0], PrefixHit{}, 40) == 10 + 10);
  CHECK(bench.kv.num_blocks_to_take(bench[0], PrefixHit{}, 40, true) == 10 + 5);
  CHECK(bench.kv.num_blocks_to_take(bench[0], PrefixHit{}, 16, true) == 4 + 4);
  CHECK(bench.kv.max_blocks_of(40) == 15);
  CHECK(bench.kv.max_blocks_of(16) == 8);
  bench.compute(0, 24);
  bench.release(0);
  // Six hit, all free. Of the window two are hit; the other four of them count as the cap's.
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 40, true) == 10 + 2);
}

namespace {

// Two caches that are asked the same. The second is told every time that nothing is ready, and so
// adds, hashes and slides at every call.
class Twins {
 public:
  explicit Twins(std::uint64_t seed) : rng_(seed, "kv_twins") {
    draw_layout();
    std::vector<std::vector<PromptSegment>> contents;
    for (std::uint64_t i = 0; i < kNumRequests; ++i) {
      const auto shared = static_cast<std::int32_t>(draw(1, 40));
      contents.push_back({{static_cast<std::uint64_t>(draw(1, 2)), shared},
                          {10 + i, static_cast<std::int32_t>(draw(1, 10))}});
    }
    lazy_.emplace(layout_, contents);
    eager_.emplace(layout_, contents);
  }

  void act() {
    const auto i = static_cast<std::uint32_t>(draw(0, kNumRequests - 1));
    Request& request = (*lazy_)[i];
    if (request.block_table.empty()) return start(i);
    const std::int64_t action = draw(0, 15);
    if (action == 0) {
      lazy_->release(i);
      eager_->release(i);
    } else if (action < 5) {
      append_token(i);
    } else {
      advance(i);
    }
  }

  void require_same() {
    REQUIRE(lazy_->kv.pool().free_blocks() == eager_->kv.pool().free_blocks());
    for (std::uint32_t i = 0; i < kNumRequests; ++i) {
      REQUIRE((*lazy_)[i].block_table == (*eager_)[i].block_table);
      REQUIRE((*lazy_)[i].group_tables == (*eager_)[i].group_tables);
    }
    if (!layout_.enable_prefix_caching) return;
    const PrefixIndex& lazy = lazy_->kv.pool().contents();
    const PrefixIndex& eager = eager_->kv.pool().contents();
    int num_wrong = 0;
    REQUIRE(lazy_->kv.pool().num_touched() == eager_->kv.pool().num_touched());
    for (std::int32_t i = 0; i < lazy_->kv.pool().num_touched(); ++i) {
      if (lazy.hash_of(BlockId{i}) != eager.hash_of(BlockId{i})) ++num_wrong;
    }
    REQUIRE(num_wrong == 0);
  }

  std::int64_t num_fast() const { return num_fast_; }
  std::int64_t num_refused() const { return num_refused_; }
  std::int64_t num_hits() const { return num_hits_; }

 private:
  static constexpr std::int64_t kNumRequests = 6;

  std::int64_t draw(std::int64_t low, std::int64_t high) { return rng_.uniform_int(low, high); }

  void draw_layout() {
    const auto block_size = static_cast<std::int32_t>(draw(1, 6));
    layout_ = caching(draw(12, 60), block_size);
    layout_.enable_prefix_caching = draw(0, 3) > 0;
    layout_.hash_time = static_cast<HashTime>(draw(0, 2));
    const std::int64_t last_rule = layout_.hash_time == HashTime::Plan ? 1 : 2;
    layout_.duplicates = static_cast<DuplicateRule>(draw(0, last_rule));
    layout_.reuses_unhashed_first = draw(0, 1) == 1;
    layout_.has_null_block = true;
    layout_.plans_ahead = draw(0, 1) == 1;
    if (layout_.hash_time == HashTime::Plan && draw(0, 1) == 1) {
      layout_.windows.num_tokens = static_cast<std::int32_t>(draw(1, 20));
    }
  }

  void start(std::uint32_t i) {
    const PrefixHit hit = lazy_->kv.find_prefix((*lazy_)[i]);
    const PrefixHit& same = eager_->kv.find_prefix((*eager_)[i]);
    REQUIRE(hit.num_tokens == same.num_tokens);
    REQUIRE(hit.blocks == same.blocks);
    REQUIRE(hit.group_blocks == same.group_blocks);
    const auto end = static_cast<std::int32_t>(draw(hit.num_tokens + 1, (*lazy_)[i].num_tokens()));
    if (lazy_->kv.num_blocks_to_take((*lazy_)[i], hit, end) > lazy_->kv.num_free_blocks()) return;
    num_hits_ += hit.num_tokens > 0 ? 1 : 0;
    lazy_->plan(i, end);
    eager_->plan(i, end);
  }

  // A chunk of the prompt, or one decode, whose token may be in flight still.
  void advance(std::uint32_t i) {
    Request& request = (*lazy_)[i];
    const std::int32_t computed = request.num_computed_tokens();
    if (computed > request.num_tokens() || computed > 70) return;
    const std::int64_t num_left = std::max(1, request.num_tokens() - computed);
    const auto end = computed + static_cast<std::int32_t>(draw(1, num_left));
    num_fast_ += end <= request.kv_ready_tokens ? 1 : 0;
    // Without hashes at plan and windows, the blocks alone say how far a request is ready.
    const bool hashes_at_plan =
        layout_.enable_prefix_caching && layout_.hash_time == HashTime::Plan;
    const bool is_plain = !hashes_at_plan && layout_.windows.num_tokens == 0;
    if (!is_plain) (*eager_)[i].kv_ready_tokens = 0;
    const bool grew = lazy_->kv.grow(request, end);
    REQUIRE(grew == eager_->kv.grow((*eager_)[i], end));
    num_refused_ += grew ? 0 : 1;
    if (!grew) return;
    REQUIRE(static_cast<std::int64_t>(request.block_table.size()) * layout_.block_size >= end);
    request.computed_tokens = (*eager_)[i].computed_tokens = end;
  }

  void append_token(std::uint32_t i) {
    for (CacheBench* bench : {&*lazy_, &*eager_}) {
      Request& request = (*bench)[i];
      if (request.num_tokens() <= request.num_computed_tokens()) ++request.output_tokens;
      request.cached_tokens = std::min(request.num_computed_tokens(), request.num_tokens());
      if (bench->kv.hashes_at_commit()) bench->kv.commit(request, true);
      bench->kv.check_integrity(bench->requests);
    }
  }

  Rng rng_;
  KvCacheLayout layout_;
  std::optional<CacheBench> lazy_;
  std::optional<CacheBench> eager_;
  std::int64_t num_fast_ = 0;
  std::int64_t num_refused_ = 0;
  std::int64_t num_hits_ = 0;
};

}  // namespace

TEST_CASE("asking the cache only when it has something to do changes nothing",
          "[core][kv][property]") {
  std::int64_t num_fast = 0;
  std::int64_t num_refused = 0;
  std::int64_t num_hits = 0;
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    CAPTURE(seed);
    Twins twins(seed);
    for (int i = 0; i < 200; ++i) {
      twins.act();
      twins.require_same();
    }
    num_fast += twins.num_fast();
    num_refused += twins.num_refused();
    num_hits += twins.num_hits();
  }
  CHECK(num_fast > 5'000);
  CHECK(num_refused > 1'000);
  CHECK(num_hits > 1'000);
}

}  // namespace metronome::testing::TEST_FILE
