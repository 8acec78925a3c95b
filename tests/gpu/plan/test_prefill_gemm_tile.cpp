// SPDX-License-Identifier: Apache-2.0
// How launch_prefill_gemm divides a product: by hand for the layers of a model; for random sizes,
// as many times one round as there are when tiles are handed out one by one.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "gpu/plan/prefill_gemm_tile.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::vector<PrefillGemmTile> all_tiles() {
  std::vector<PrefillGemmTile> tiles;
  for (const std::int32_t rows : kPrefillGemmRows) {
    for (const std::int32_t columns : kPrefillGemmColumns) {
      for (const std::int32_t cluster : {1, 2}) tiles.push_back({columns, cluster, rows});
    }
  }
  return tiles;
}

constexpr double kLaunch = 2000;  // cycles that each product takes besides its rounds

struct Rounds {
  std::int64_t num_rounds = 0;
  std::int32_t num_busy = 0;  // processors of the first one
};

// Counted by handing out the tiles one by one.
Rounds count_rounds(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                    std::int32_t num_processors) {
  Rounds counted;
  std::int32_t free = 0;  // processors of the round
  for (std::int64_t token = 0; token < size.num_tokens; token += tile.rows * tile.cluster) {
    for (std::int64_t output = 0; output < size.n; output += tile.columns) {
      if (free < tile.cluster) {
        ++counted.num_rounds;
        free = num_processors;
      }
      free -= tile.cluster;
      if (counted.num_rounds == 1) counted.num_busy += tile.cluster;
    }
  }
  return counted;
}

// A product of one round of `tile`, in which `num_busy` processors have work.
PrefillGemmSize one_round(const PrefillGemmSize& size, const PrefillGemmTile& tile,
                          std::int32_t num_busy) {
  return {.num_tokens = std::min<std::int64_t>(size.num_tokens, tile.rows * tile.cluster),
          .n = std::int64_t{tile.columns} * (num_busy / tile.cluster),
          .k = size.k,
          .has_gates = size.has_gates};
}

PrefillGemmSize random_size(Rng& rng) {
  return {.num_tokens = chance(rng, 0.3) ? draw(rng, 1, 200) : draw(rng, 1, 5000),
          .n = chance(rng, 0.3) ? draw(rng, 1, 300) : draw(rng, 1, 20000),
          .k = draw(rng, 64, 16384),
          .has_gates = chance(rng, 0.3)};
}

TEST_CASE("cycles of a tile are rounds of the longest of products and bytes", "[gpu_plan]") {
  // 300 tokens are 3 tiles, or 2 clusters with one CTA that has nothing to do; 700 rows of weights
  // 3 tiles of 256. Products take 128 * 256 / 1600 = 20.48 cycles a k, bytes 2 * 384 / 36 = 64 / 3;
  // where two share them, 2 * 256 / 36 = 128 / 9. 128 * 256 / 48 = 2048 / 3 cycles for the sums.
  const PrefillGemmSize size = {.num_tokens = 300, .n = 700, .k = 900};
  const auto cycles = [&](const PrefillGemmTile& tile, std::int32_t num_processors) {
    return prefill_gemm_cycles(size, tile, num_processors);
  };
  CHECK(cycles({256, 1}, 9) == Approx(900.0 * 64 / 3 + 2048 / 3.0 + 2000));
  CHECK(cycles({256, 1}, 8) == Approx(2 * (900.0 * 64 / 3 + 2048 / 3.0) + 2000));
  CHECK(cycles({256, 1}, 1) == Approx(9 * (900.0 * 64 / 3 + 2048 / 3.0) + 2000));
  CHECK(cycles({256, 2}, 12) == Approx(900.0 * 20.48 + 2048 / 3.0 + 2000));
  CHECK(cycles({256, 2}, 11) == Approx(2 * (900.0 * 20.48 + 2048 / 3.0) + 2000));
  // A processor that has no partner is of no use: five are as good as four.
  CHECK(cycles({256, 2}, 5) == cycles({256, 2}, 4));
  CHECK(cycles({256, 2}, 3) == Approx(6 * (900.0 * 20.48 + 2048 / 3.0) + 2000));
  // 9 tiles on 18 processors may read 64 bytes a cycle each, and multiply for longer.
  CHECK(cycles({256, 1}, 18) == Approx(900.0 * 20.48 + 2048 / 3.0 + 2000));
  // 11 tiles of 64 rows of weights, read in 2 * (128 + 32) / 36 = 80 / 9 cycles a k. Of 43
  // processors 42 read.
  CHECK(cycles({64, 2}, 44) == Approx(900.0 * 80 / 9 + 512 / 3.0 + 2000));
  CHECK(cycles({64, 2}, 43) == Approx(2 * (900.0 * 80 / 9 * 42 / 43 + 512 / 3.0) + 2000));
  // Gates take three times as long as sums that are stored as they are.
  CHECK(prefill_gemm_cycles({300, 700, 900, true}, {256, 1}, 9) ==
        Approx(900.0 * 64 / 3 + 2048 + 2000));
  // 5 tiles of 64 tokens, or 3 clusters. 320 * 2 bytes into shared memory and 320 * 2 from there.
  CHECK(cycles({256, 2, 64}, 18) == Approx(900.0 * 1280 / 115 + 1024 / 3.0 + 2000));
  CHECK(cycles({256, 1, 64}, 14) == Approx(2 * (900.0 * 160 / 9 + 1024 / 3.0) + 2000));
  // One token is read, of however many rows the tile is.
  CHECK(prefill_gemm_cycles({1, 256, 900}, {256, 1, 64}, 1) ==
        Approx(900.0 * 514 / 36 + 1024 / 3.0 + 2000));
}

TEST_CASE("the tiles of Llama-3.2-3B's products on 132 processors", "[gpu_plan]") {
  struct Case {
    PrefillGemmSize size;
    PrefillGemmTile tile;
    double cycles;
  };
  // With 66 clusters at once. 128 tokens and 160 columns take 12.8 cycles a k, 192 take 15.36, 256
  // take 20.48. 64 tokens take as long as shared memory: 1024 / 115 with 192 columns, 640 / 115
  // with 96, 512 / 115 with 64.
  const Case cases[] = {
      // 8 x 32 clusters in 4 rounds; 8 x 20 of 256 columns would need 3, of 63,597 cycles.
      {{2048, 5120, 3072}, {160, 2}, 4 * (3072 * 12.8 + 1280 / 3.0) + 2000},
      // 8 x 16 in 2.
      {{2048, 3072, 3072}, {192, 2}, 2 * (3072 * 15.36 + 1536 / 3.0) + 2000},
      // 8 x 64 in 8.
      {{2048, 16384, 3072, true}, {256, 2}, 8 * (3072 * 20.48 + 2048) + 2000},
      {{2048, 3072, 8192}, {192, 2}, 2 * (8192 * 15.36 + 1536 / 3.0) + 2000},
      // 2 x 32 in one round, 2 x 35 of 144 columns would not be.
      {{512, 5120, 3072}, {160, 2}, 3072 * 12.8 + 1280 / 3.0 + 2000},
      // 4 x 16 in one round, 2 x 32 of 96 columns and 128 tokens, too, but those read more.
      {{512, 3072, 3072}, {192, 2, 64}, 3072 * 1024 / 115.0 + 768 / 3.0 + 2000},
      {{512, 16384, 3072, true}, {256, 2}, 2 * (3072 * 20.48 + 2048) + 2000},
      {{512, 3072, 8192}, {192, 2, 64}, 8192 * 1024 / 115.0 + 768 / 3.0 + 2000},
      // 1 x 54 in one round; 1 x 64 of 80 columns read more, as more do.
      {{128, 5120, 3072}, {96, 2, 64}, 3072 * 640 / 115.0 + 384 / 3.0 + 2000},
      {{128, 3072, 8192}, {64, 2, 64}, 8192 * 512 / 115.0 + 256 / 3.0 + 2000},
  };
  for (const Case& c : cases) {
    CAPTURE(c.size.num_tokens, c.size.n, c.size.k);
    const PrefillGemmTile tile = choose_prefill_gemm_tile(c.size, 132);
    CAPTURE(tile.rows, tile.columns, tile.cluster);
    CHECK(tile == c.tile);
    CHECK(prefill_gemm_cycles(c.size, tile, 132) == Approx(c.cycles));
  }
}

TEST_CASE("tiles of small products and of few processors", "[gpu_plan]") {
  // One round whatever the tile: the one that moves least.
  CHECK(choose_prefill_gemm_tile({1, 8, 64}, 132) == PrefillGemmTile{32, 2, 64});
  CHECK(choose_prefill_gemm_tile({1, 1, 1}, 2) == PrefillGemmTile{32, 2, 64});
  // Three processors do three tiles at once, or one cluster, of which two are needed.
  CHECK(choose_prefill_gemm_tile({300, 64, 64}, 3) == PrefillGemmTile{64, 1});
  // Two do one cluster, which is as much, and reads less.
  CHECK(choose_prefill_gemm_tile({256, 64, 64}, 2) == PrefillGemmTile{64, 2});
  // One does no cluster. 256 columns in one round are 64 / 3 cycles a k, 128 in two 2 * 128 / 9.
  CHECK(choose_prefill_gemm_tile({1, 8, 64}, 1) == PrefillGemmTile{32, 1, 64});
  CHECK(choose_prefill_gemm_tile({128, 256, 64}, 1) == PrefillGemmTile{256, 1});
  CHECK(choose_prefill_gemm_tile({4096, 16384, 3072}, 1) == PrefillGemmTile{256, 1});
}

TEST_CASE("of tiles that take as long that of most rows is chosen", "[gpu_plan]") {
  // 66 clusters of 64 x 256, two below each other, or 66 of 128 x 128, through whose shared memory
  // goes as much. All else needs another round or takes longer.
  const PrefillGemmSize size = {.num_tokens = 256, .n = 66 * 128, .k = 3072};
  const double cycles = 3072 * 1280 / 115.0 + 1024 / 3.0 + 2000;
  CHECK(prefill_gemm_cycles(size, {256, 2, 64}, 132) == Approx(cycles));
  CHECK(prefill_gemm_cycles(size, {256, 2, 64}, 132) == prefill_gemm_cycles(size, {128, 2}, 132));
  CHECK(choose_prefill_gemm_tile(size, 132) == PrefillGemmTile{128, 2});
}

TEST_CASE("no other tile takes fewer cycles than the chosen one", "[gpu_plan]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 8)));
  CAPTURE(seed);
  Rng rng(seed, "prefill_gemm_tile");
  for (int round = 0; round < 60; ++round) {
    const PrefillGemmSize size = random_size(rng);
    const std::int32_t num_processors = chance(rng, 0.3) ? draw(rng, 1, 5) : draw(rng, 1, 200);
    const PrefillGemmTile chosen = choose_prefill_gemm_tile(size, num_processors);
    CAPTURE(size.num_tokens, size.n, size.k, num_processors, chosen.rows, chosen.columns,
            chosen.cluster);
    const std::vector<PrefillGemmTile> tiles = all_tiles();
    CHECK(std::find(tiles.begin(), tiles.end(), chosen) != tiles.end());
    REQUIRE(chosen.cluster <= num_processors);
    const double cycles = prefill_gemm_cycles(size, chosen, num_processors);
    for (const PrefillGemmTile& tile : tiles) {
      if (tile.cluster > num_processors) continue;
      const double actual = prefill_gemm_cycles(size, tile, num_processors);
      const Rounds counted = count_rounds(size, tile, num_processors);
      const double round_cycles =
          prefill_gemm_cycles(one_round(size, tile, counted.num_busy), tile, num_processors) -
          kLaunch;
      CHECK(actual == Approx(static_cast<double>(counted.num_rounds) * round_cycles + kLaunch));
      CHECK(cycles <= actual);
      if (cycles == actual) {
        CHECK(std::pair(tile.rows, tile.columns) <= std::pair(chosen.rows, chosen.columns));
      }
    }
  }
}

TEST_CASE("more work takes more cycles, twice the processors no more", "[gpu_plan]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 4)));
  CAPTURE(seed);
  Rng rng(seed, "prefill_gemm_work");
  for (int round = 0; round < 50; ++round) {
    const PrefillGemmSize size = random_size(rng);
    const std::int32_t num_processors = draw(rng, 2, 140);
    CAPTURE(size.num_tokens, size.n, size.k, num_processors);
    const auto more = [&](std::int64_t PrefillGemmSize::*member) {
      PrefillGemmSize larger = size;
      larger.*member += draw(rng, 1, 1000);
      return larger;
    };
    for (const PrefillGemmTile& tile : all_tiles()) {
      const double cycles = prefill_gemm_cycles(size, tile, num_processors);
      const auto of = [&](const PrefillGemmSize& other) {
        return prefill_gemm_cycles(other, tile, num_processors);
      };
      CHECK(of(more(&PrefillGemmSize::k)) > cycles);
      CHECK(of(more(&PrefillGemmSize::n)) >= cycles);
      CHECK(of(more(&PrefillGemmSize::num_tokens)) >= cycles);
      CHECK(prefill_gemm_cycles(size, tile, 2 * num_processors) <= cycles);
    }
  }
}

TEST_CASE("there is no tile for a product of nothing, or by nobody", "[gpu_plan]") {
  CHECK_THROWS_AS(choose_prefill_gemm_tile({0, 8, 64}, 132), InvariantError);
  CHECK_THROWS_AS(choose_prefill_gemm_tile({1, 0, 64}, 132), InvariantError);
  CHECK_THROWS_AS(choose_prefill_gemm_tile({1, 8, 0}, 132), InvariantError);
  CHECK_THROWS_AS(choose_prefill_gemm_tile({-1, 8, 64}, 132), InvariantError);
  CHECK_THROWS_AS(choose_prefill_gemm_tile({1, 8, 64}, 0), InvariantError);
  CHECK_THROWS_AS(prefill_gemm_cycles({1, 8, 64}, {64, 2}, 1), InvariantError);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
