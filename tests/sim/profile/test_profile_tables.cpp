// SPDX-License-Identifier: Apache-2.0
// Interpolation in measured times, and blocks on multiprocessors against a plain simulation.
#include <algorithm>
#include <queue>
#include <vector>

#include "core/base/rng.h"
#include "sim/profile/profile_blocks.h"
#include "sim/profile/profile_tables.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::TEST_FILE {
namespace {

using testing::draw;

double at(const Curve& curve, double x) {
  bool is_outside = false;
  return curve.at(x, is_outside);
}

bool is_outside(const Curve& curve, double x) {
  bool outside = false;
  curve.at(x, outside);
  return outside;
}

// The same device in real time: every running block gets its share of a tile per `rate`.
double simulated_us(const std::vector<double>& tiles, std::int64_t heads, std::size_t num_sms,
                    const BlockTimes& times) {
  std::queue<double> waiting;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (const double work : tiles) waiting.push(work + times.block_tiles);
  }
  std::vector<double> running;
  double now = times.launch_us;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && running.size() < num_sms) {
      running.push_back(waiting.front());
      waiting.pop();
    }
    const double us_per_tile =
        std::max(times.tile_us, times.busy_tile_us * static_cast<double>(running.size()) /
                                    static_cast<double>(num_sms));
    const double least = *std::min_element(running.begin(), running.end());
    now += least * us_per_tile;
    for (double& work : running) work -= least;
    std::erase_if(running, [](double work) { return work < 1e-9; });
  }
  return now;
}

}  // namespace

TEST_CASE("a curve holds its first time below, and its last slope above", "[profile]") {
  const Curve curve{{2, 4, 8}, {10, 20, 60}};
  CHECK(at(curve, 2) == 10);
  CHECK(at(curve, 3) == 15);
  CHECK(at(curve, 4) == 20);
  CHECK(at(curve, 8) == 60);
  CHECK(at(curve, 10) == 80);
  CHECK(at(curve, 1) == 10);
  CHECK_FALSE(is_outside(curve, 1));  // a tile is larger
  CHECK_FALSE(is_outside(curve, 8));
  CHECK(is_outside(curve, 8.5));
  CHECK(at({{2, 4}, {10, 8}}, 100) == 8);  // never downwards
  // The last points lie on one tread; the slope of the last doubling is 10 in 6.
  CHECK(at({{4, 8, 9, 10}, {10, 20, 20, 20}}, 16) == 30);
  CHECK(is_outside({{128, 256}, {1, 2}}, 64));
}

TEST_CASE("sums of curves are exact at the points of each", "[profile]") {
  const Curve a{{1, 3}, {1, 5}};
  const Curve b{{1, 2, 3}, {10, 40, 50}};
  const Curve sum = sum_of(std::vector<WeightedCurve>{{&a, 2}, {&b, 1}});
  CHECK(sum.x == std::vector<double>{1, 2, 3});
  CHECK(sum.us == std::vector<double>{12, 46, 60});
}

TEST_CASE("a chunk longer than measured takes as much longer as it has pairs", "[profile]") {
  AttentionTable table;
  table.prefill.x = {100, 200};
  table.prefill.parts = {{{0, 1000}, {5, 105}}, {{0, 1000}, {20, 220}}};
  bool is_outside = false;
  CHECK(table.prefill_us(200, 1000, is_outside) == 220);
  CHECK_FALSE(is_outside);
  CHECK(table.prefill_us(400, 0, is_outside) == 80);
  CHECK(is_outside);
  // 400 x (1000 + 200) pairs instead of 200 x (1000 + 100).
  CHECK(table.prefill_us(400, 1000, is_outside) == Approx(220 * 480.0 / 220.0));
  // Beside decodes as many microseconds more as without them.
  Grid beside;
  beside.rows = {1, 2};
  beside.columns = {10, 20};
  beside.us = {30, 31, 32, 33};
  table.mixed = {{200}, {{{0}, {beside}}}};
  CHECK(table.mixed_us(400, 0, 2, 20, is_outside) == 33 + 80 - 20);
  table.prefill = {{200, 400}, {{{0}, {20}}, {{0}, {18}}}};  // longer than the mixed table
  is_outside = false;
  CHECK(table.mixed_us(400, 0, 2, 20, is_outside) == 33);
  CHECK(is_outside);
}

TEST_CASE("every history of a chunk has a grid of its own", "[profile]") {
  AttentionTable table;
  // 100 + tokens + history + 10 decodes + context, on grids that have few points in common.
  const auto us = [](double tokens, double history, double decodes, double context) {
    return 100 + tokens + history + 10 * decodes + context;
  };
  const auto grid = [&](double tokens, double history, std::vector<double> contexts) {
    Grid made{{1, 4}, std::move(contexts), {}};
    for (const double decodes : made.rows) {
      for (const double context : made.columns) {
        made.us.push_back(us(tokens, history, decodes, context));
      }
    }
    return made;
  };
  table.mixed = {
      {16, 24},
      {{{0, 64}, {grid(16, 0, {16, 64}), grid(16, 64, {16, 24, 64})}},
       {{0, 32, 64}, {grid(24, 0, {16, 32, 64}), grid(24, 32, {16, 64}), grid(24, 64, {16, 64})}}}};
  bool outside = false;
  Rng rng(7, "tables");
  for (int i = 0; i < 200; ++i) {
    const double tokens = draw(rng, 16, 24);
    const double history = draw(rng, 0, 64);
    const double decodes = draw(rng, 1, 4);
    const double context = draw(rng, 16, 64);
    INFO(tokens << ' ' << history << ' ' << decodes << ' ' << context);
    CHECK(table.mixed_us(tokens, history, decodes, context, outside) ==
          Approx(us(tokens, history, decodes, context)).epsilon(1e-12));
  }
  CHECK_FALSE(outside);
  table.mixed_us(16, 0, 8, 16, outside);
  CHECK(outside);
}

TEST_CASE("decodes are not interpolated across the side that splits contexts", "[profile]") {
  AttentionTable table;
  table.decode = {{1, 2, 4, 8}, {100}, {10, 20, 400, 800}};
  bool outside = false;
  CHECK(table.decode_us(3, 100, 0, 2, outside) == 30);
  CHECK(table.decode_us(3, 100, 2, 4, outside) == 300);
  CHECK(table.decode_us(1, 100, 2, 4, outside) == 100);
  CHECK_FALSE(outside);
  table.decode_us(9, 100, 2, 4, outside);
  CHECK(outside);
}

TEST_CASE("blocks fill multiprocessors as in a plain simulation", "[profile]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "blocks");
    const int num_sms = draw(rng, 1, 40);
    const int heads = draw(rng, 1, 6);
    const BlockTimes times{1.0 * draw(rng, 0, 20), 0.5 * draw(rng, 1, 8), 0.5 * draw(rng, 1, 20),
                           0.1 * draw(rng, 0, 20), 0.2};
    BlockLaunch launch(num_sms);
    std::vector<double> tiles;
    const int num_decodes = draw(rng, 1, 40);
    for (int i = 0; i < num_decodes; ++i) {
      const double context = draw(rng, 100, 6000);
      launch.add_decode(context);
      tiles.push_back(context / kTileKeys);
    }
    INFO("seed " << seed << ", " << num_sms << " multiprocessors, " << heads << " heads");
    CHECK(launch.time_us(heads, times) ==
          Approx(simulated_us(tiles, heads, static_cast<std::size_t>(num_sms), times))
              .epsilon(0.004));
    const double one_us = launch.time_us(heads, times);
    CHECK(launch.time_us(heads, times) == one_us);  // nothing is left over
  }
}

TEST_CASE("a chunk has a block for every 64 queries, and gives decodes empty ones", "[profile]") {
  const BlockTimes times{3, 2, 2, 0.5, 0.25};
  BlockLaunch launch(16);
  launch.add_chunk(160, 1000);
  const std::vector<double> tiles = {1064 / 128., 1128 / 128., 1160 / 128.};
  CHECK(launch.time_us(2, times) == Approx(simulated_us(tiles, 2, 16, times)).epsilon(0.002));
  launch.clear();
  launch.add_decode(128);
  launch.add_chunk(160, 0);
  // One sequence with one block of three.
  const std::vector<double> both = {1, 64 / 128., 1, 160 / 128.};
  CHECK(launch.time_us(2, times) ==
        Approx(simulated_us(both, 2, 16, times) + 2 * 2 * 0.25 / 16).epsilon(0.002));
}

TEST_CASE("equal blocks are the same in closed form", "[profile]") {
  const BlockTimes times{7, 3, 8, 0.25, 0};
  for (const int num : {1, 5, 16, 17, 31, 64}) {
    BlockLaunch launch(16);
    for (int i = 0; i < num; ++i) launch.add_decode(640);
    INFO(num);
    CHECK(launch.time_us(8, times) ==
          Approx(equal_blocks_us(8 * num, 640, 16, times)).epsilon(1e-3));
  }
}

}  // namespace metronome::TEST_FILE
