// SPDX-License-Identifier: Apache-2.0
// Block bookkeeping: order of reuse, back-pressure, reference counts, what free blocks keep, and
// that check_integrity sees what it claims to see.
#include <deque>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/kv/block_pool.h"
#include "tests/core/engine/kv/cache_bench.h"

namespace metronome::TEST_FILE {
namespace {

using testing::table_of;

BlockHash hash_for(int i) { return BlockHash{0x1000 + static_cast<std::uint64_t>(i)}; }

// A pool's behaviour, written down plainly.
class Model {
 public:
  explicit Model(const BlockPoolOptions& options)
      : options_(options),
        references_(static_cast<std::size_t>(options.num_blocks), 0),
        hashes_(static_cast<std::size_t>(options.num_blocks), kNoHash) {
    for (std::int32_t i = options.has_null_block ? 1 : 0; i < options.num_blocks; ++i) {
      free_.push_back(BlockId{i});
    }
  }

  bool allocate(std::int64_t count, BlockTable& table) {
    if (count > static_cast<std::int64_t>(free_.size())) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      const BlockId id = free_.front();
      free_.pop_front();
      references_[index(id)] = 1;
      hashes_[index(id)] = kNoHash;
      table.push_back(id);
    }
    return true;
  }

  void retain(BlockId id) {
    if (references_[index(id)]++ == 0) std::erase(free_, id);
  }

  void release(BlockTable& table) {
    std::vector<BlockId> first;
    std::vector<BlockId> last;
    for (std::size_t i = table.size(); i-- > 0;) {
      const BlockId id = table[i];
      if (options_.has_null_block && id == kNullBlock) continue;
      if (--references_[index(id)] > 0) continue;
      const bool goes_first = options_.reuses_unhashed_first && hashes_[index(id)] == kNoHash;
      (goes_first ? first : last).push_back(id);
    }
    free_.insert(free_.begin(), first.begin(), first.end());
    free_.insert(free_.end(), last.begin(), last.end());
    table.clear();
  }

  void insert(BlockId id, BlockHash hash) {
    if (options_.duplicates == DuplicateRule::KeepLatest) {
      std::replace(hashes_.begin(), hashes_.end(), hash, kNoHash);
    }
    hashes_[index(id)] = hash;
  }
  void erase(BlockId id) { hashes_[index(id)] = kNoHash; }

  const std::deque<BlockId>& free_blocks() const { return free_; }
  std::int32_t references(BlockId id) const { return references_[index(id)]; }
  BlockHash hash_of(BlockId id) const { return hashes_[index(id)]; }

 private:
  BlockPoolOptions options_;
  std::deque<BlockId> free_;
  std::vector<std::int32_t> references_;
  std::vector<BlockHash> hashes_;
};

// A pool and its model, made to do the same.
class Pair {
 public:
  explicit Pair(std::uint64_t seed) : rng_(seed, "block_pool") {
    options_.has_null_block = flip();
    options_.num_blocks = draw(options_.has_null_block ? 2 : 1, draw(0, 9) == 0 ? 300 : 24);
    options_.caches_prefixes = flip();
    options_.duplicates = static_cast<DuplicateRule>(draw(0, 2));
    options_.reuses_unhashed_first = flip();
    is_churning_ = draw(0, 3) == 0;
    pool_.emplace(options_);
    model_.emplace(options_);
  }

  void act() {
    // Blocks leave the free list from anywhere and come back; hardly any is handed out.
    if (is_churning_ && draw(0, 15) > 0) return flip() ? retain() : release();
    switch (draw(0, 4)) {
      case 0: return allocate();
      case 1: return retain();
      case 2: return release();
      case 3: return flip() ? hash() : forget();
      default: return flip() ? allocate() : hash();
    }
  }

  void require_same() const {
    std::vector<const BlockTable*> tables;
    for (const BlockTable& table : tables_) tables.push_back(&table);
    pool_->check_integrity(tables);
    const std::vector<BlockId> free = pool_->free_blocks();
    REQUIRE(std::equal(free.begin(), free.end(), model_->free_blocks().begin(),
                       model_->free_blocks().end()));
    REQUIRE(pool_->num_free() == static_cast<std::int64_t>(free.size()));
    REQUIRE(pool_->num_used() + pool_->num_free() == pool_->num_usable());
    int num_wrong = 0;
    for (std::int32_t i = 0; i < options_.num_blocks; ++i) {
      const BlockId id{i};
      const bool is_touched = i < pool_->num_touched();
      const BlockHash hash =
          options_.caches_prefixes && is_touched ? pool_->contents().hash_of(id) : kNoHash;
      const std::int32_t references = is_touched ? pool_->ref_count(id) : 0;
      if (references != model_->references(id) || hash != model_->hash_of(id)) ++num_wrong;
    }
    REQUIRE(num_wrong == 0);
  }

  std::int64_t num_refused() const { return num_refused_; }
  std::int64_t num_revived() const { return num_revived_; }

 private:
  std::int64_t draw(std::int64_t low, std::int64_t high) { return rng_.uniform_int(low, high); }
  bool flip() { return draw(0, 1) == 1; }
  // kNoBlock: none was handed out yet.
  BlockId any_block() {
    const std::int64_t num_touched = pool_->num_touched();
    return num_touched == 0 ? kNoBlock
                            : BlockId{static_cast<std::int32_t>(draw(0, num_touched - 1))};
  }

  void allocate() {
    const std::int64_t count = draw(0, options_.num_blocks / 3 + 1);
    BlockTable table;
    BlockTable expected;
    if (options_.has_null_block && flip()) table.push_back(kNullBlock);
    expected = table;
    const bool allocated = pool_->allocate(count, table);
    REQUIRE(allocated == model_->allocate(count, expected));
    REQUIRE(table == expected);
    num_refused_ += allocated ? 0 : 1;
    tables_.push_back(table);
  }

  void retain() {
    const BlockId id = any_block();
    if (id == kNoBlock || pool_->is_null(id)) return;
    if (pool_->is_free(id) && !options_.caches_prefixes) return;  // nothing to come back to
    num_revived_ += pool_->is_free(id) ? 1 : 0;
    pool_->retain(id);
    model_->retain(id);
    if (tables_.empty() || flip()) tables_.emplace_back();
    tables_.back().push_back(id);  // sometimes a second time in the same table
  }

  void release() {
    if (tables_.empty()) return;
    const auto at =
        static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(tables_.size()) - 1));
    BlockTable copy = tables_[at];
    if (tables_[at].size() == 1 && flip()) {
      pool_->release(tables_[at].front());
    } else {
      pool_->release(tables_[at]);
      REQUIRE(tables_[at].empty());
    }
    model_->release(copy);
    tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void hash() {
    const BlockId id = any_block();
    if (id == kNoBlock || !options_.caches_prefixes || pool_->ref_count(id) == 0) return;
    if (pool_->contents().hash_of(id) != kNoHash) return;
    const BlockHash hash = hash_for(static_cast<int>(draw(0, options_.num_blocks)));
    pool_->contents().insert(id, hash);
    model_->insert(id, hash);
  }

  void forget() {
    const BlockId id = any_block();
    if (id == kNoBlock || !options_.caches_prefixes) return;
    pool_->contents().erase(id);
    model_->erase(id);
  }

  Rng rng_;
  BlockPoolOptions options_;
  bool is_churning_ = false;
  std::optional<BlockPool> pool_;
  std::optional<Model> model_;
  std::vector<BlockTable> tables_;
  std::int64_t num_refused_ = 0;
  std::int64_t num_revived_ = 0;
};

// Six blocks, all taken; those at `hashed` have a content.
BlockPool full_pool(bool reuses_unhashed_first, std::initializer_list<int> hashed,
                    BlockTable& table) {
  BlockPool pool(
      {.num_blocks = 6, .caches_prefixes = true, .reuses_unhashed_first = reuses_unhashed_first});
  REQUIRE(pool.allocate(6, table));
  for (const int i : hashed) pool.contents().insert(BlockId{i}, hash_for(i));
  return pool;
}

}  // namespace

TEST_CASE("the block free for longest is handed out first", "[core][kv]") {
  BlockPool pool({.num_blocks = 6});
  BlockTable a;
  BlockTable b;
  REQUIRE(pool.allocate(3, a));
  REQUIRE(pool.allocate(2, b));
  CHECK(a == table_of({0, 1, 2}));
  CHECK(b == table_of({3, 4}));
  pool.release(a);  // tail first: the free list is 5, 2, 1, 0
  CHECK(a.empty());
  CHECK(pool.free_blocks() == table_of({5, 2, 1, 0}));
  REQUIRE(pool.allocate(4, a));
  CHECK(a == table_of({5, 2, 1, 0}));
  CHECK(pool.num_free() == 0);
  CHECK(pool.free_blocks().empty());
}

TEST_CASE("an exhausted pool takes nothing", "[core][kv]") {
  BlockPool pool({.num_blocks = 4});
  BlockTable a;
  REQUIRE(pool.allocate(3, a));
  BlockTable b;
  CHECK_FALSE(pool.allocate(2, b));
  CHECK(b.empty());
  CHECK(pool.num_free() == 1);
  pool.check_integrity({&a, &b});
  CHECK(pool.allocate(0, b));
}

TEST_CASE("a shared block is freed with its last reference", "[core][kv]") {
  BlockPool pool({.num_blocks = 3});
  BlockTable a;
  REQUIRE(pool.allocate(2, a));
  BlockTable b = table_of({0});
  pool.retain(BlockId{0});
  pool.check_integrity({&a, &b});
  pool.release(a);
  CHECK(pool.num_used() == 1);
  pool.check_integrity({&b});
  pool.release(b);
  CHECK(pool.num_used() == 0);
  BlockTable twice = table_of({1});
  CHECK_THROWS_AS(pool.release(twice), InvariantError);
}

TEST_CASE("check_integrity sees leaks, sharing and strangers", "[core][kv]") {
  BlockPool pool({.num_blocks = 4});
  BlockTable a;
  REQUIRE(pool.allocate(2, a));
  CHECK_NOTHROW(pool.check_integrity({&a}));
  CHECK_THROWS_AS(pool.check_integrity({}), InvariantError);        // leaked
  CHECK_THROWS_AS(pool.check_integrity({&a, &a}), InvariantError);  // in two tables
  const BlockTable stranger = table_of({0, 1, 3});
  CHECK_THROWS_AS(pool.check_integrity({&stranger}), InvariantError);  // holds a free block
  const BlockTable outside = table_of({0, 1, 9});
  CHECK_THROWS_AS(pool.check_integrity({&outside}), InvariantError);
}

TEST_CASE("the null block is never handed out, counted or freed", "[core][kv]") {
  BlockPool pool({.num_blocks = 4, .has_null_block = true});
  CHECK(pool.num_blocks() == 4);
  CHECK(pool.num_usable() == 3);
  CHECK(pool.num_free() == 3);
  CHECK(pool.num_used() == 0);
  CHECK(pool.is_null(kNullBlock));
  CHECK_FALSE(pool.is_free(kNullBlock));
  CHECK(pool.free_blocks() == table_of({1, 2, 3}));
  BlockTable a;
  CHECK_FALSE(pool.allocate(4, a));
  REQUIRE(pool.allocate(3, a));
  CHECK(a == table_of({1, 2, 3}));
  CHECK(pool.num_used() == 3);
  CHECK_THROWS_AS(pool.retain(kNullBlock), InvariantError);

  BlockTable window = table_of({0, 1, 0, 2});  // as a sliding window leaves it
  const BlockTable rest = table_of({3});
  pool.check_integrity({&window, &rest});
  pool.release(window);
  CHECK(window.empty());
  CHECK(pool.free_blocks() == table_of({2, 1}));
  pool.release(kNullBlock);
  CHECK(pool.num_free() == 2);
  CHECK(pool.num_used() == 1);
  pool.check_integrity({&rest});
}

TEST_CASE("a pool has at least one block", "[core][kv]") {
  CHECK_THROWS_AS(BlockPool({.num_blocks = 0}), InvariantError);
  BlockPool only_null({.num_blocks = 1, .has_null_block = true});
  BlockTable table;
  CHECK_FALSE(only_null.allocate(1, table));
  CHECK(only_null.free_blocks().empty());
}

TEST_CASE("a pool stores what was in use, however many blocks it has", "[core][kv]") {
  const bool caches_prefixes = GENERATE(false, true);
  const bool reuses_unhashed_first = GENERATE(false, true);
  const bool shares_blocks = caches_prefixes || GENERATE(false, true);
  CAPTURE(caches_prefixes, reuses_unhashed_first, shares_blocks);
  BlockPool pool({.num_blocks = INT32_MAX - 1,
                  .has_null_block = true,
                  .caches_prefixes = caches_prefixes,
                  .reuses_unhashed_first = reuses_unhashed_first,
                  .shares_blocks = shares_blocks});
  CHECK(pool.num_free() == INT32_MAX - 2);
  BlockTable a;
  BlockTable b;
  REQUIRE(pool.allocate(3, a));
  pool.release(a);
  REQUIRE(pool.allocate(5, b));
  CHECK(b == (reuses_unhashed_first ? table_of({3, 2, 1, 4, 5}) : table_of({4, 5, 6, 7, 8})));
  CHECK(pool.num_touched() == 1 + (reuses_unhashed_first ? 5 : 8));
  CHECK(pool.freed_blocks() == (reuses_unhashed_first ? table_of({}) : table_of({3, 2, 1})));
  CHECK(pool.num_used() == 5);
  pool.check_integrity({&b});
}

TEST_CASE("a free block taken up again keeps its content, an allocated one forgets",
          "[core][kv][prefix]") {
  BlockTable a;
  BlockPool pool = full_pool(false, {0, 1, 2, 3, 4, 5}, a);
  pool.release(a);
  REQUIRE(pool.free_blocks() == table_of({5, 4, 3, 2, 1, 0}));

  BlockTable b = table_of({3, 5, 0});  // from the middle, the front and the back
  for (const BlockId id : b) pool.retain(id);
  CHECK(pool.free_blocks() == table_of({4, 2, 1}));
  CHECK(pool.num_free() == 3);
  CHECK(pool.contents().find(hash_for(3)) == BlockId{3});
  CHECK(pool.contents().size() == 6);
  pool.retain(BlockId{3});  // in use by now: only counted
  CHECK(pool.ref_count(BlockId{3}) == 2);
  CHECK(pool.num_free() == 3);
  pool.release(BlockId{3});

  BlockTable c;
  REQUIRE(pool.allocate(2, c));
  CHECK(c == table_of({4, 2}));
  CHECK(pool.contents().find(hash_for(4)) == kNoBlock);
  CHECK(pool.contents().hash_of(BlockId{2}) == kNoHash);
  CHECK(pool.contents().find(hash_for(1)) == BlockId{1});  // still free
  CHECK(pool.contents().size() == 4);
  pool.check_integrity({&b, &c});
  pool.release(b);  // behind block 1, the tail first
  CHECK(pool.free_blocks() == table_of({1, 0, 5, 3}));
  CHECK(pool.contents().size() == 4);
}

TEST_CASE("more blocks than are fetched ahead are forgotten", "[core][kv][prefix]") {
  BlockPool pool({.num_blocks = 40, .caches_prefixes = true});
  BlockTable table;
  REQUIRE(pool.allocate(40, table));
  for (int i = 0; i < 40; ++i) pool.contents().insert(BlockId{i}, hash_for(i));
  pool.release(table);
  REQUIRE(pool.allocate(25, table));  // 39 down to 15
  CHECK(pool.contents().size() == 15);
  CHECK(pool.contents().find(hash_for(15)) == kNoBlock);
  CHECK(pool.contents().find(hash_for(14)) == BlockId{14});
  pool.check_integrity({&table});
}

TEST_CASE("freed blocks that nobody can find are reused first", "[core][kv][prefix]") {
  BlockTable a;
  SECTION("in front of what was free, in the order they are freed") {
    // 3 and then 2 are free. The others are freed as 5, 4, 1, 0; of them 5 and 1 have no hash.
    BlockPool pool = full_pool(true, {0, 2, 3, 4}, a);
    pool.release(BlockId{3});
    pool.release(BlockId{2});
    BlockTable rest = table_of({0, 1, 4, 5});
    pool.release(rest);
    CHECK(pool.free_blocks() == table_of({5, 1, 3, 2, 4, 0}));
    pool.check_integrity({});
  }
  SECTION("also when nothing was free: 5, 3, 0 have a hash") {
    BlockPool pool = full_pool(true, {0, 3, 5}, a);
    pool.release(a);
    CHECK(pool.free_blocks() == table_of({4, 2, 1, 5, 3, 0}));
    pool.check_integrity({});
  }
  SECTION("nothing was free and the first freed has no hash") {
    BlockPool pool = full_pool(true, {0, 4}, a);
    pool.release(a);
    CHECK(pool.free_blocks() == table_of({5, 3, 2, 1, 4, 0}));
  }
  SECTION("those freed later stand before those freed earlier") {
    BlockPool pool = full_pool(true, {}, a);
    BlockTable first = table_of({0, 1, 2});
    BlockTable second = table_of({3, 4, 5});
    pool.release(first);
    pool.release(second);
    CHECK(pool.free_blocks() == table_of({5, 4, 3, 2, 1, 0}));
  }
  SECTION("not without the option") {
    BlockPool pool = full_pool(false, {0, 3, 5}, a);
    pool.release(a);
    CHECK(pool.free_blocks() == table_of({5, 4, 3, 2, 1, 0}));
  }
  SECTION("without prefix caching all of them") {
    BlockPool pool({.num_blocks = 4, .reuses_unhashed_first = true});
    REQUIRE(pool.allocate(2, a));
    pool.release(a);
    CHECK(pool.free_blocks() == table_of({1, 0, 2, 3}));
  }
}

TEST_CASE("blocks that nobody shares move as counted ones do", "[core][kv][property]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "unshared blocks");
    BlockPoolOptions options{.num_blocks = rng.uniform_int(2, 40),
                             .has_null_block = rng.uniform_int(0, 1) == 1,
                             .reuses_unhashed_first = rng.uniform_int(0, 1) == 1};
    BlockPool counted(options);
    options.shares_blocks = false;
    BlockPool pool(options);
    std::vector<BlockTable> tables(4);
    std::vector<BlockTable> expected(4);
    for (int i = 0; i < 200; ++i) {
      const auto t = static_cast<std::size_t>(rng.uniform_int(0, 3));
      const bool at_front = rng.uniform_int(0, 1) == 1;
      if (rng.uniform_int(0, 2) > 0) {
        const std::int64_t count = rng.uniform_int(0, 12);
        REQUIRE(pool.allocate(count, tables[t]) == counted.allocate(count, expected[t]));
      } else {
        if (options.has_null_block && !tables[t].empty()) {  // as when a window moves on
          tables[t].push_back(kNullBlock);
          expected[t].push_back(kNullBlock);
        }
        pool.release(tables[t], at_front);
        counted.release(expected[t], at_front);
      }
      REQUIRE(tables == expected);
      REQUIRE(pool.free_blocks() == counted.free_blocks());
      REQUIRE(pool.num_free() == counted.num_free());
    }
    std::vector<const BlockTable*> all;
    for (const BlockTable& table : tables) all.push_back(&table);
    CHECK_NOTHROW(pool.check_integrity(all));
    if (pool.num_free() == 0) continue;
    const BlockTable stranger{pool.free_blocks().front()};
    all.push_back(&stranger);
    CHECK_THROWS_AS(pool.check_integrity(all), InvariantError);
  }
}

TEST_CASE("a pool does what a plain list does", "[core][kv][property]") {
  std::int64_t num_refused = 0;
  std::int64_t num_revived = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Pair pair(seed);
    for (int i = 0; i < 300; ++i) {
      pair.act();
      pair.require_same();
    }
    num_refused += pair.num_refused();
    num_revived += pair.num_revived();
  }
  CHECK(num_refused > 1'000);
  CHECK(num_revived > 1'000);
}

}  // namespace metronome::TEST_FILE
