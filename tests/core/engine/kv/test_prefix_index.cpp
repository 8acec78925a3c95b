// SPDX-License-Identifier: Apache-2.0
// The index of block contents: duplicates under each rule, probing across the end of the table, and
// random operations against a plain map.
#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/kv/prefix_index.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

constexpr DuplicateRule kRules[] = {DuplicateRule::KeepAll, DuplicateRule::KeepLatest};

constexpr BlockHash kA{0x1111'1111'1111'1111};
constexpr BlockHash kB{0x2222'2222'2222'2222};
constexpr BlockHash kC{0x3333'3333'3333'3333};

// An index of 4 blocks has 8 slots; the top 3 bits of a hash say where its search begins.
constexpr BlockHash from_slot(std::uint64_t slot, std::uint64_t which) {
  return BlockHash{slot << 61 | which};
}

// An index's behaviour, written down plainly.
class Model {
 public:
  Model(std::int64_t num_blocks, DuplicateRule rule)
      : rule_(rule), hashes_(static_cast<std::size_t>(num_blocks), kNoHash) {}

  void insert(BlockId block, BlockHash hash) {
    std::vector<BlockId>& blocks = blocks_[hash];
    if (rule_ == DuplicateRule::KeepLatest && !blocks.empty()) erase(blocks.front());
    blocks.push_back(block);
    hashes_[index(block)] = hash;
  }
  void erase(BlockId block) {
    if (hash_of(block) == kNoHash) return;
    std::vector<BlockId>& blocks = blocks_[hash_of(block)];
    blocks.erase(std::find(blocks.begin(), blocks.end(), block));
    hashes_[index(block)] = kNoHash;
  }
  BlockId find(BlockHash hash) const {
    const auto found = blocks_.find(hash);
    return found == blocks_.end() || found->second.empty() ? kNoBlock : found->second.front();
  }
  BlockHash hash_of(BlockId block) const { return hashes_[index(block)]; }
  std::int64_t size() const {
    return std::count_if(hashes_.begin(), hashes_.end(), [](BlockHash h) { return h != kNoHash; });
  }

 private:
  DuplicateRule rule_;
  std::map<BlockHash, std::vector<BlockId>> blocks_;  // in order of insertion
  std::vector<BlockHash> hashes_;
};

struct RandomCase {
  std::int32_t num_blocks = 0;
  DuplicateRule rule{};
  double insert_chance = 0;
  std::vector<BlockHash> hashes;  // those that are inserted and looked up
};

// Few hashes for many duplicates, or many; starting anywhere, or all near the end of the table.
RandomCase draw_case(Rng& rng) {
  RandomCase random;
  random.num_blocks = static_cast<std::int32_t>(rng.uniform_int(1, 40));
  random.rule = kRules[rng.uniform_int(0, std::size(kRules) - 1)];
  random.insert_chance = 0.3 + 0.6 * rng.uniform();
  const std::int64_t num_hashes = rng.uniform_int(1, 3 * random.num_blocks);
  const bool is_clustered = rng.uniform() < 0.5;
  for (std::int64_t i = 0; i < num_hashes; ++i) {
    const auto start = static_cast<std::uint64_t>(rng.uniform_int(0, 3)) - 2;
    const std::uint64_t drawn = rng();
    random.hashes.push_back(BlockHash{is_clustered ? start << 58 | drawn >> 8 : drawn});
  }
  return random;
}

void require_same(const PrefixIndex& index, const Model& model, const RandomCase& random) {
  index.check_integrity();
  REQUIRE(index.size() == model.size());
  for (const BlockHash hash : random.hashes) REQUIRE(index.find(hash) == model.find(hash));
  for (std::int32_t i = 0; i < random.num_blocks; ++i) {
    REQUIRE(index.hash_of(BlockId{i}) == model.hash_of(BlockId{i}));
  }
}

void run_case(std::uint64_t seed, std::int64_t& num_full) {
  Rng rng(seed, "prefix_index");
  const RandomCase random = draw_case(rng);
  PrefixIndex index(random.num_blocks, random.rule);
  Model model(random.num_blocks, random.rule);
  const auto any_hash = [&] {
    const auto last = static_cast<std::int64_t>(random.hashes.size()) - 1;
    return random.hashes[static_cast<std::size_t>(rng.uniform_int(0, last))];
  };
  for (int i = 0; i < 300; ++i) {
    const BlockId block{static_cast<std::int32_t>(rng.uniform_int(0, random.num_blocks - 1))};
    if (model.hash_of(block) == kNoHash && rng.uniform() < random.insert_chance) {
      const BlockHash hash = any_hash();
      index.insert(block, hash);
      model.insert(block, hash);
    } else {
      index.erase(block);
      model.erase(block);
    }
    if (i % 4 == 0) require_same(index, model, random);
    if (index.size() == random.num_blocks) ++num_full;
  }
  for (std::int32_t i = 0; i < random.num_blocks; ++i) {
    index.erase(BlockId{i});
    model.erase(BlockId{i});
    require_same(index, model, random);
  }
}

}  // namespace

TEST_CASE("an index finds what was inserted and not erased", "[core][kv][prefix]") {
  for (const DuplicateRule rule : kRules) {
    PrefixIndex index(3, rule);
    CHECK(index.find(kA) == kNoBlock);
    CHECK(index.find(kNoHash) == kNoBlock);
    CHECK(index.hash_of(BlockId{2}) == kNoHash);
    index.insert(BlockId{2}, kA);
    index.insert(BlockId{0}, kB);
    CHECK(index.find(kA) == BlockId{2});
    CHECK(index.find(kB) == BlockId{0});
    CHECK(index.hash_of(BlockId{2}) == kA);
    CHECK(index.size() == 2);
    index.erase(BlockId{2});
    index.erase(BlockId{1});  // not hashed
    CHECK(index.find(kA) == kNoBlock);
    CHECK(index.find(kB) == BlockId{0});
    CHECK(index.hash_of(BlockId{2}) == kNoHash);
    CHECK(index.size() == 1);
    index.check_integrity();
  }
}

TEST_CASE("the block hashed first is found until it is erased", "[core][kv][prefix]") {
  PrefixIndex index(5, DuplicateRule::KeepAll);
  for (const int block : {3, 1, 4, 0}) index.insert(BlockId{block}, kA);
  CHECK(index.find(kA) == BlockId{3});
  CHECK(index.size() == 4);
  index.erase(BlockId{4});  // in the middle: 3 1 0
  CHECK(index.find(kA) == BlockId{3});
  index.check_integrity();
  index.erase(BlockId{3});  // the first: 1 0
  CHECK(index.find(kA) == BlockId{1});
  index.insert(BlockId{3}, kA);  // again, as the last: 1 0 3
  CHECK(index.find(kA) == BlockId{1});
  index.erase(BlockId{3});  // the last: 1 0
  index.check_integrity();
  index.erase(BlockId{1});
  CHECK(index.find(kA) == BlockId{0});
  index.erase(BlockId{0});
  CHECK(index.find(kA) == kNoBlock);
  CHECK(index.size() == 0);
  index.check_integrity();
}

TEST_CASE("KeepLatest forgets the older block of the same content", "[core][kv][prefix]") {
  PrefixIndex index(3, DuplicateRule::KeepLatest);
  index.insert(BlockId{0}, kA);
  index.insert(BlockId{1}, kB);
  index.insert(BlockId{2}, kA);
  CHECK(index.find(kA) == BlockId{2});
  CHECK(index.hash_of(BlockId{0}) == kNoHash);
  CHECK(index.size() == 2);
  index.check_integrity();
  index.erase(BlockId{0});  // forgotten before
  CHECK(index.find(kA) == BlockId{2});
  index.insert(BlockId{0}, kB);
  CHECK(index.find(kB) == BlockId{0});
  CHECK(index.hash_of(BlockId{1}) == kNoHash);
  index.erase(BlockId{2});
  CHECK(index.find(kA) == kNoBlock);  // the older one does not come back
  CHECK(index.size() == 1);
  index.check_integrity();
}

TEST_CASE("a search goes on across the end of the table and over erased blocks",
          "[core][kv][prefix]") {
  PrefixIndex index(4, DuplicateRule::KeepAll);
  // In slots 7, 0, 1 and 2; only the last one could lie in its own, if 0 were free.
  index.insert(BlockId{0}, from_slot(7, 1));
  index.insert(BlockId{1}, from_slot(7, 2));
  index.insert(BlockId{2}, from_slot(7, 3));
  index.insert(BlockId{3}, from_slot(0, 4));
  CHECK(index.find(from_slot(7, 3)) == BlockId{2});
  CHECK(index.find(from_slot(0, 4)) == BlockId{3});
  CHECK(index.find(from_slot(7, 9)) == kNoBlock);
  index.check_integrity();
  index.erase(BlockId{0});
  CHECK(index.find(from_slot(7, 1)) == kNoBlock);
  CHECK(index.find(from_slot(7, 2)) == BlockId{1});
  CHECK(index.find(from_slot(7, 3)) == BlockId{2});
  CHECK(index.find(from_slot(0, 4)) == BlockId{3});
  index.check_integrity();
  index.erase(BlockId{2});
  CHECK(index.find(from_slot(7, 2)) == BlockId{1});
  CHECK(index.find(from_slot(0, 4)) == BlockId{3});
  index.check_integrity();
}

TEST_CASE("hashing a block twice or without a hash is a bug", "[core][kv][prefix]") {
  PrefixIndex index(2, DuplicateRule::KeepAll);
  index.insert(BlockId{0}, kA);
  CHECK_THROWS_AS(index.insert(BlockId{0}, kB), InvariantError);
  CHECK_THROWS_AS(index.insert(BlockId{1}, kNoHash), InvariantError);
  CHECK(index.find(kB) == kNoBlock);
  CHECK(index.size() == 1);
  index.check_integrity();
  CHECK_THROWS_AS(PrefixIndex(0, DuplicateRule::KeepAll), InvariantError);
}

TEST_CASE("an index does what a plain map does", "[core][kv][prefix][property]") {
  std::int64_t num_full = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    CAPTURE(seed);
    REQUIRE_NOTHROW(run_case(seed, num_full));
  }
  CHECK(num_full > 5'000);
}

TEST_CASE("a block is found by the hash of each position", "[core][kv][prefix]") {
  PrefixIndex index(4, 4);  // of four units each
  const BlockId a{3};
  const BlockId b{1};
  index.insert(a, kA, 6);  // the second unit of the second block of a request
  CHECK(index.find(kA) == a);
  CHECK(index.hash_of(a) == kA);
  CHECK(index.position_of(a) == 6);
  index.insert(a, kA, 6);  // again
  index.insert_inside(a, kB, 5);
  CHECK(index.find(kB) == a);
  CHECK(index.hash_of(a) == kA);  // the first one
  CHECK(index.has(a, kB, 5));
  CHECK_FALSE(index.has(a, kB, 6));
  CHECK(index.size() == 2);
  index.check_integrity();
  index.insert(b, kB, 5);
  CHECK(index.find(kB) == a);  // hashed first
  index.move(a, BlockId{0});
  CHECK(index.find(kA) == BlockId{0});
  CHECK(index.find(kB) == b);  // moved behind it
  CHECK(index.hash_of(BlockId{0}) == kA);
  CHECK(index.position_of(BlockId{0}) == 6);
  CHECK(index.position_of(a) == 0);
  index.check_integrity();
  index.insert_inside(BlockId{0}, kC, 8);  // further: what it had is gone
  CHECK(index.find(kA) == kNoBlock);
  CHECK(index.hash_of(BlockId{0}) == kC);
  CHECK(index.size() == 2);
  index.erase(BlockId{0});
  index.erase(b);
  CHECK(index.size() == 0);
  index.check_integrity();
  CHECK_THROWS_AS(index.insert(a, kA), InvariantError);  // without its position
}

// As a map from hashes to blocks, and one from blocks to their hashes.
TEST_CASE("an index with positions does what plain maps do", "[core][kv][prefix][property]") {
  std::int64_t num_shared = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "positions");
    const std::int64_t num_blocks = rng.uniform_int(1, 12);
    const std::int64_t num_units = rng.uniform_int(1, 4);
    PrefixIndex index(num_blocks, num_units);
    std::map<BlockHash, std::vector<BlockId>> blocks_of;
    std::map<BlockId, std::vector<std::pair<std::int64_t, BlockHash>>> hashes_of;
    const auto erase = [&](BlockId block) {
      for (const auto& [position, hash] : hashes_of[block]) std::erase(blocks_of[hash], block);
      hashes_of[block].clear();
    };
    for (int i = 0; i < 200; ++i) {
      const BlockId block{static_cast<std::int32_t>(rng.uniform_int(0, num_blocks - 1))};
      if (rng.uniform() < 0.2) {
        index.erase(block);
        erase(block);
      } else {
        const std::int64_t position = rng.uniform_int(1, num_units);  // of a first block
        const auto content = static_cast<std::uint64_t>(position * 10 + rng.uniform_int(0, 2));
        const BlockHash hash{mix64(content)};
        auto& hashes = hashes_of[block];
        const auto same = [&, at = position](const auto& entry) { return entry.first == at; };
        const auto found = std::find_if(hashes.begin(), hashes.end(), same);
        if (found != hashes.end() && found->second != hash) continue;  // one content a block
        const bool is_new = found == hashes.end();
        if (is_new && !hashes.empty() && hashes.front().first < position) erase(block);
        if (is_new) {
          hashes.emplace_back(position, hash);
          blocks_of[hash].push_back(block);
        }
        index.insert_inside(block, hash, position);
      }
      index.check_integrity();
      for (const auto& [hash, blocks] : blocks_of) {
        REQUIRE(index.find(hash) == (blocks.empty() ? kNoBlock : blocks.front()));
        num_shared += blocks.size() > 1 ? 1 : 0;
      }
      for (const auto& [id, hashes] : hashes_of) {
        REQUIRE(index.hash_of(id) == (hashes.empty() ? kNoHash : hashes.front().second));
        REQUIRE(index.position_of(id) == (hashes.empty() ? 0 : hashes.front().first));
      }
    }
  }
  CHECK(num_shared > 10'000);
}

TEST_CASE("a full index of many blocks", "[core][kv][prefix]") {
  constexpr std::int32_t kNumBlocks = 1 << 16;  // a power of two: the table is exactly half full
  PrefixIndex index(kNumBlocks, DuplicateRule::KeepAll);
  const auto hash = [](std::int32_t i) { return BlockHash{mix64(static_cast<std::uint64_t>(i))}; };
  for (std::int32_t i = 0; i < kNumBlocks; ++i) index.insert(BlockId{i}, hash(i));
  for (std::int32_t i = 0; i < kNumBlocks; i += 2) index.erase(BlockId{i});
  index.check_integrity();
  std::int64_t num_wrong = 0;
  for (std::int32_t i = 0; i < kNumBlocks; ++i) {
    if (index.find(hash(i)) != (i % 2 == 0 ? kNoBlock : BlockId{i})) ++num_wrong;
  }
  CHECK(num_wrong == 0);
  CHECK(index.size() == kNumBlocks / 2);
}

}  // namespace metronome::TEST_FILE
