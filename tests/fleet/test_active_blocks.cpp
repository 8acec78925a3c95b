// SPDX-License-Identifier: Apache-2.0
// The blocks of running requests against sets of them: random chains with common beginnings.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fleet/active_blocks.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::size_t kReplicas = 3;

// A hash names all before it.
std::vector<std::uint64_t> draw_chain(Rng& rng) {
  std::vector<std::uint64_t> chain;
  std::uint64_t hash = 1;
  const std::int32_t length = draw(rng, 0, 12);
  for (std::int32_t i = 0; i < length; ++i) {
    hash = mix64(hash + static_cast<std::uint64_t>(chance(rng, 0.8) ? 0 : draw(rng, 1, 3)));
    chain.push_back(hash);
  }
  return chain;
}

struct Running {
  std::vector<std::uint64_t> chain;
  ReplicaId replica;
  ActiveBlocks::NodeId end;
};

void check_counts(const std::vector<Running>& all, const ActiveBlocks& active,
                  const std::vector<std::uint64_t>& chain) {
  std::vector<std::int64_t> known(kReplicas, -1);
  active.count_known(chain, known);
  for (std::size_t r = 0; r < kReplicas; ++r) {
    std::set<std::uint64_t> own;
    for (const Running& one : all) {
      if (one.replica == static_cast<ReplicaId>(r)) own.insert(one.chain.begin(), one.chain.end());
    }
    CHECK(active.num_blocks(static_cast<ReplicaId>(r)) == std::ssize(own));
    std::int64_t num_known = 0;
    for (const std::uint64_t block : chain) num_known += own.contains(block) ? 1 : 0;
    CHECK(known[r] == num_known);
  }
}

}  // namespace

TEST_CASE("blocks of running requests are counted as sets would", "[fleet]") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "active_blocks");
    ActiveBlocks active(kReplicas);
    std::vector<Running> all;
    for (int i = 0; i < 60; ++i) {
      if (!all.empty() && chance(rng, 0.45)) {
        const auto place = static_cast<std::size_t>(draw(rng, 0, static_cast<int>(all.size()) - 1));
        active.remove(all[place].end, all[place].replica);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(place));
      } else {
        const std::vector<std::uint64_t> chain = draw_chain(rng);
        const auto replica = static_cast<ReplicaId>(draw(rng, 0, kReplicas - 1));
        all.push_back({chain, replica, active.add(chain, replica)});
      }
      check_counts(all, active, draw_chain(rng));
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
