// Block bookkeeping: order of reuse, back-pressure, reference counts, and that check_integrity
// sees what it claims to see.
#include "core/block_pool.h"
#include "core/error.h"
#include "core/kv_cache.h"
#include "tests/catch.h"

namespace metronome {
namespace {

BlockTable table_of(std::initializer_list<int> ids) {
  BlockTable table;
  for (const int id : ids) table.push_back(BlockId{id});
  return table;
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
  REQUIRE(pool.allocate(4, a));
  CHECK(a == table_of({5, 2, 1, 0}));
  CHECK(pool.num_free() == 0);
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

TEST_CASE("grow takes blocks only at their borders", "[core][kv]") {
  KvCacheManager kv({.num_blocks = 4, .block_size = 16});
  RequestTable requests;
  Request& request = requests.add({0, 40, 10, 0});
  REQUIRE(kv.admit(request, 16, 0));
  CHECK(request.block_table.size() == 1);
  CHECK(request.kv_ready_tokens == 16);
  REQUIRE(kv.grow(request, 16));
  CHECK(request.block_table.size() == 1);
  REQUIRE(kv.grow(request, 17));
  CHECK(request.block_table.size() == 2);
  REQUIRE(kv.grow(request, 64));
  CHECK(kv.num_free_blocks() == 0);
  CHECK_FALSE(kv.grow(request, 65));
  CHECK(request.kv_ready_tokens == 64);
  kv.check_integrity(requests);
  kv.release(request);
  CHECK(kv.num_used_blocks() == 0);
  kv.check_integrity(requests);
}

}  // namespace metronome
