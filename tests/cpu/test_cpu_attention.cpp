// SPDX-License-Identifier: Apache-2.0
// The attention kernel: to the bit against its definition written plainly, whatever the tiles, the
// rows beside, the instruction set and whatever lies where a row does not attend.
#include <cmath>
#include <limits>

#include "core/model/attention_mask.h"
#include "tests/catch.h"
#include "tests/cpu/kernel_reference.h"

#define METRONOME_KERNELS kernels_of_attention_test
#include "cpu/lanes.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float exp_of(float x) {
  return kernels_of_attention_test::exp(kernels_of_attention_test::broadcast(x))[0];
}

// Keys and values of one head by position, and queries of some rows.
struct Case {
  std::int32_t head_dim;
  std::int32_t window;
  std::vector<std::int32_t> positions;
  Floats1d queries;
  Floats1d keys;
  Floats1d values;
  Floats1d sinks;  // of each row; empty = none

  Case(Rng& rng, std::int32_t dim, std::int32_t mask_window, std::vector<std::int32_t> rows,
       std::int32_t num_positions)
      : head_dim(dim), window(mask_window), positions(std::move(rows)) {
    // Scores of a few units: neither a flat softmax nor a single position.
    const double scale = 4.0 / std::sqrt(static_cast<double>(dim));
    queries = random_floats(rng, static_cast<std::int64_t>(positions.size()) * dim, scale);
    keys = random_floats(rng, std::int64_t{num_positions} * dim, 3.0);
    values = random_floats(rng, std::int64_t{num_positions} * dim);
  }

  std::int32_t num_positions() const { return static_cast<std::int32_t>(keys.size()) / head_dim; }
  const float* query(std::size_t row) const {
    return queries.data() + row * static_cast<std::size_t>(head_dim);
  }
  const float* key(std::int32_t position) const { return keys.data() + position * head_dim; }
  const float* value(std::int32_t position) const { return values.data() + position * head_dim; }
  void poison(std::int32_t position) {
    std::fill_n(keys.begin() + position * head_dim, head_dim, kNan);
    std::fill_n(values.begin() + position * head_dim, head_dim, kNan);
  }
};

// The definition: segments of 256 positions in order, merged by their maxima.
Floats1d reference_row(const Case& attention, std::size_t row) {
  const std::int32_t position = attention.positions[row];
  const std::int32_t first = first_attended(position, attention.window);
  const auto dim = static_cast<std::size_t>(attention.head_dim);
  Floats1d out(dim, 0.0f);
  float maximum = 0;
  float total = 0;
  for (std::int32_t begin = first; begin <= position; begin = (begin / 256 + 1) * 256) {
    const std::int32_t end = std::min((begin / 256 + 1) * 256, position + 1);
    Floats1d scores;
    for (std::int32_t p = begin; p < end; ++p) {
      float score = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        score = std::fma(attention.query(row)[d], attention.key(p)[d], score);
      }
      scores.push_back(score);
    }
    const float peak = *std::max_element(scores.begin(), scores.end());
    const float new_maximum = begin == first ? peak : std::max(maximum, peak);
    const float correction = begin == first ? 0.0f : exp_of(maximum - new_maximum);
    float lanes[16] = {};
    Floats1d sums(dim, 0.0f);
    for (std::int32_t p = begin; p < end; ++p) {
      const float weight = exp_of(scores[static_cast<std::size_t>(p - begin)] - new_maximum);
      lanes[p % 16] += weight;
      for (std::size_t d = 0; d < dim; ++d)
        sums[d] = std::fma(weight, attention.value(p)[d], sums[d]);
    }
    const float sum = reference_tree(lanes);
    total = begin == first ? sum : total * correction + sum;
    for (std::size_t d = 0; d < dim; ++d) {
      out[d] = begin == first ? sums[d] : out[d] * correction + sums[d];
    }
    maximum = new_maximum;
  }
  if (!attention.sinks.empty()) total += exp_of(attention.sinks[row] - maximum);
  for (float& element : out) element /= total;
  return out;
}

Floats1d reference(const Case& attention) {
  Floats1d out;
  for (std::size_t row = 0; row < attention.positions.size(); ++row) {
    const Floats1d one = reference_row(attention, row);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

// Positions in blocks of block_size, blocks in tiles of 16 slots, from the block of `first` on.
// Slots behind a tile's positions hold NaN.
struct Tiles {
  std::vector<Floats1d> memory;
  std::vector<const float*> keys;
  std::vector<const float*> values;
  std::vector<std::int32_t> positions;

  Tiles(const Case& attention, std::int32_t block_size, std::int32_t first) {
    const auto dim = static_cast<std::size_t>(attention.head_dim);
    std::int32_t begin = first / block_size * block_size;
    positions.push_back(begin);
    while (begin < attention.num_positions()) {
      const std::int32_t block_end = (begin / block_size + 1) * block_size;
      const std::int32_t end = std::min({begin + 16, block_end, attention.num_positions()});
      Floats1d tile(32 * dim, kNan);
      for (std::int32_t p = begin; p < end; ++p) {
        const auto slot = static_cast<std::size_t>(p - begin);
        for (std::size_t d = 0; d < dim; ++d) {
          tile[d * 16 + slot] = attention.key(p)[d];
          tile[(16 + slot) * dim + d] = attention.value(p)[d];
        }
      }
      memory.push_back(std::move(tile));
      positions.push_back(end);
      begin = end;
    }
    for (const Floats1d& tile : memory) {
      keys.push_back(tile.data());
      values.push_back(tile.data() + 16 * dim);
    }
  }
};

// Rows [begin, end) in tasks of `rows_per_task`.
Floats1d attended(const Kernels& set, const Case& attention, const Tiles& tiles,
                  std::size_t rows_per_task) {
  const auto dim = static_cast<std::size_t>(attention.head_dim);
  const std::size_t num_rows = attention.positions.size();
  Floats1d out(num_rows * dim, kNan);
  for (std::size_t begin = 0; begin < num_rows; begin += rows_per_task) {
    const std::size_t end = std::min(num_rows, begin + rows_per_task);
    std::vector<const float*> queries;
    std::vector<float*> outputs;
    for (std::size_t row = begin; row < end; ++row) {
      queries.push_back(attention.query(row));
      outputs.push_back(out.data() + row * dim);
    }
    AttentionTask task;
    task.queries = queries.data();
    task.outputs = outputs.data();
    task.positions = attention.positions.data() + begin;
    task.num_rows = static_cast<std::int32_t>(end - begin);
    task.head_dim = attention.head_dim;
    task.window = attention.window;
    task.key_tiles = tiles.keys.data();
    task.value_tiles = tiles.values.data();
    task.tile_positions = tiles.positions.data();
    task.num_tiles = static_cast<std::int32_t>(tiles.keys.size());
    if (!attention.sinks.empty()) task.sinks = attention.sinks.data() + begin;
    Floats1d scratch(static_cast<std::size_t>(attention_scratch_floats(task)), kInfinity);
    set.attend(task, scratch.data());
  }
  return out;
}

// `count` rows from `first` on, each position `times` over (query heads of one KV head).
std::vector<std::int32_t> rows(std::int32_t first, std::int32_t count, std::int32_t times) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count * times; ++i) result.push_back(first + i / times);
  return result;
}

void check_layouts(const Case& attention, std::uint64_t seed) {
  const Floats1d expected = reference(attention);
  const std::int32_t first = first_attended(attention.positions[0], attention.window);
  for (const std::int32_t block_size : {1, 7, 16, 24, 48, 4096}) {
    const Tiles tiles(attention, block_size, first);
    for (const std::size_t rows_per_task : {std::size_t{1}, std::size_t{4}, std::size_t{5000}}) {
      for (const Kernels* set : kernel_sets()) {
        INFO(set->name << " seed " << seed << " head_dim " << attention.head_dim << " window "
                       << attention.window << " first row " << attention.positions[0] << " rows "
                       << attention.positions.size() << " block " << block_size << " per task "
                       << rows_per_task);
        const Floats1d actual = attended(*set, attention, tiles, rows_per_task);
        REQUIRE(first_difference(actual, expected) == -1);
      }
    }
  }
}

}  // namespace

TEST_CASE("attention has the bits of its definition in any layout", "[cpu_attention]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "attention");
  for (const std::int32_t head_dim : {2, 6, 16, 24, 64, 80, 128}) {
    for (const std::int32_t window : {kNoWindow, 1, 5, 100, 256, 300}) {
      check_layouts(Case(rng, head_dim, window, rows(0, 20, 1), 20), seed);
      check_layouts(Case(rng, head_dim, window, rows(250, 9, 3), 259), seed);
      check_layouts(Case(rng, head_dim, window, rows(511, 1, 4), 512), seed);
      // Rows far apart, and tiles with positions nobody attends to.
      check_layouts(Case(rng, head_dim, window, {3, 3, 254, 256, 530, 531, 600}, 607), seed);
    }
  }
}

TEST_CASE("a sink takes its share of a row's softmax", "[cpu_attention]") {
  Rng rng(8, "attention");
  for (const std::int32_t window : {kNoWindow, 5, 300}) {
    Case attention(rng, 24, window, rows(250, 40, 3), 290);
    attention.sinks = random_floats(rng, 120, 6.0);
    check_layouts(attention, 8);
  }
  // Far below the scores it changes nothing, and far above it leaves nothing.
  Case attention(rng, 6, kNoWindow, {40, 41}, 42);
  const Floats1d without = reference(attention);
  attention.sinks = {-1e30f, 1e30f};
  for (const Kernels* set : kernel_sets()) {
    const Floats1d out = attended(*set, attention, Tiles(attention, 16, 0), 2);
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(out[i] == without[i]);
      CHECK(out[6 + i] == 0.0f);
    }
  }
}

TEST_CASE("attention of the widest heads", "[cpu_attention]") {
  Rng rng(3, "attention");
  check_layouts(Case(rng, 256, 40, rows(300, 7, 2), 307), 3);
  check_layouts(Case(rng, 512, kNoWindow, rows(255, 4, 1), 259), 3);
}

TEST_CASE("attention never reads what a row does not attend to", "[cpu_attention]") {
  Rng rng(4, "attention");
  for (const std::int32_t window : {kNoWindow, 20}) {
    for (const std::int32_t head_dim : {10, 64}) {
      const Case clean(rng, head_dim, window, rows(262, 12, 2), 290);
      const Floats1d expected = reference(clean);
      for (std::size_t row = 0; row < clean.positions.size(); ++row) {
        // Every other position is poison: only the other rows may notice.
        Case poisoned = clean;
        const std::int32_t position = clean.positions[row];
        for (std::int32_t p = 0; p < clean.num_positions(); ++p) {
          if (!attends(position, p, window)) poisoned.poison(p);
        }
        const std::size_t begin = row * static_cast<std::size_t>(head_dim);
        const std::size_t end = begin + static_cast<std::size_t>(head_dim);
        for (const Kernels* set : kernel_sets()) {
          const Floats1d actual = attended(*set, poisoned, Tiles(poisoned, 24, 0), 5000);
          INFO(set->name << " window " << window << " row " << row);
          for (std::size_t i = begin; i < end; ++i) REQUIRE(actual[i] == expected[i]);
        }
      }
    }
  }
}

TEST_CASE("a NaN that a row attends to reaches its output", "[cpu_attention]") {
  Rng rng(5, "attention");
  Case attention(rng, 16, kNoWindow, {40, 300}, 301);
  attention.poison(100);
  for (const Kernels* set : kernel_sets()) {
    const Floats1d out = attended(*set, attention, Tiles(attention, 16, 0), 2);
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK_FALSE(std::isnan(out[i]));
      CHECK(std::isnan(out[16 + i]));
    }
  }
}

TEST_CASE("attention is a softmax over what a row attends to", "[cpu_attention]") {
  Rng rng(6, "attention");
  const std::int32_t window = GENERATE(as<std::int32_t>{}, kNoWindow, 700);
  const Case attention(rng, 64, window, {1900, 2047}, 2048);
  const Floats1d out = attended(kernels(), attention, Tiles(attention, 16, 0), 2);
  for (std::size_t row = 0; row < 2; ++row) {
    std::vector<double> sums(64, 0.0);
    double total = 0;
    for (std::int32_t p = 0; p <= attention.positions[row]; ++p) {
      if (!attends(attention.positions[row], p, window)) continue;
      double score = 0;
      for (int d = 0; d < 64; ++d) {
        score += static_cast<double>(attention.query(row)[d]) * attention.key(p)[d];
      }
      total += std::exp(score);
      for (std::size_t d = 0; d < 64; ++d) sums[d] += std::exp(score) * attention.value(p)[d];
    }
    for (std::size_t d = 0; d < 64; ++d) {
      CHECK(std::abs(out[row * 64 + d] - sums[d] / total) < 2e-6);
    }
  }
}

TEST_CASE("scores far apart leave one position, or the mean of equals", "[cpu_attention]") {
  // Keys of one element: the scores are the keys.
  Rng rng(7, "attention");
  Case attention(rng, 2, kNoWindow, {599}, 600);
  attention.queries = {1, 0};
  for (std::int32_t p = 0; p < 600; ++p) {
    attention.keys[static_cast<std::size_t>(2 * p)] = p == 77 ? 500.0f : -500.0f;
    attention.values[static_cast<std::size_t>(2 * p)] = static_cast<float>(p);
  }
  for (const Kernels* set : kernel_sets()) {
    CHECK(attended(*set, attention, Tiles(attention, 7, 0), 1)[0] == 77.0f);
  }
  for (std::size_t i = 0; i < 1200; i += 2) attention.keys[i] = 3000.0f;
  for (const Kernels* set : kernel_sets()) {
    CHECK(attended(*set, attention, Tiles(attention, 7, 0), 1)[0] == Approx(299.5).epsilon(1e-6));
  }
}

}  // namespace TEST_FILE
