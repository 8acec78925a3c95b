// SPDX-License-Identifier: Apache-2.0
// Attention of chunks over the paged cache, by both kernels: against its definition in double, to
// known means, and to the bit under every chunking, whatever stands beside a row and wherever its
// cache lies.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "tests/catch.h"
#include "tests/gpu/attention_reference.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

enum class Kernel { Mma, Wgmma };

// The kernels that the device has: the generator of every case here.
std::vector<Kernel> kernels() {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
             "cudaDeviceGetAttribute");
  if (major == 9) return {Kernel::Mma, Kernel::Wgmma};
  WARN("no compute capability 9.0 here: the wgmma kernel is skipped");
  return {Kernel::Mma};
}

std::int32_t tile_rows_of(Kernel kernel) {
  return kernel == Kernel::Mma ? kPrefillTileRows : kWgmmaTileRows;
}

// All tiles of the sequences, in random order: results do not depend on it.
std::vector<PrefillTile> tiles_of(Kernel kernel, Rng& rng, const PagedProblem& problem) {
  std::vector<PrefillTile> tiles;
  const std::int32_t group = problem.shape.n_heads / problem.shape.n_kv_heads;
  for (std::int32_t s = 0; s < problem.num_sequences(); ++s) {
    for (std::int32_t row = 0; row < problem.query_len(s) * group; row += tile_rows_of(kernel)) {
      tiles.push_back({s, row});
    }
  }
  for (std::size_t left = tiles.size(); left > 1; --left) {
    const auto i = static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(left) - 1));
    std::swap(tiles[left - 1], tiles[i]);
  }
  return tiles;
}

// How the wgmma kernel sums up, and whether it is one CTA that does all spans of a tile.
struct Spans {
  std::int32_t size = kPrefillSpan;
  bool are_apart = false;
};

// The tiles of `tiles` with each span by itself, and how they come together again.
struct ApartTiles {
  std::vector<PrefillTile> tiles;
  std::vector<PrefillMerge> merges;
  std::int32_t num_parts = 0;

  ApartTiles(const PagedProblem& problem, const std::vector<PrefillTile>& whole,
             std::int32_t span_size) {
    const std::int32_t group = problem.shape.n_heads / problem.shape.n_kv_heads;
    for (PrefillTile tile : whole) {
      const std::int32_t query_len = problem.query_len(tile.sequence);
      const std::int32_t last_row =
          std::min(tile.first_row + kWgmmaTileRows, query_len * group) - 1;
      const std::int32_t num_spans =
          problem.position(tile.sequence, last_row / group) / span_size + 1;
      merges.push_back({tile.sequence, tile.first_row, num_parts, num_spans});
      for (tile.span = 0; tile.span < num_spans; ++tile.span) {
        tile.part = num_parts++;
        tiles.push_back(tile);
      }
    }
  }
};

// [num_tokens][n_heads][head_dim]; NaN where the kernel stored nothing.
std::vector<bf16> run(Kernel kernel, const PagedProblem& problem,
                      const std::vector<PrefillTile>& whole_tiles, const Spans& spans = {}) {
  const DevicePagedProblem device(problem);
  const ApartTiles apart(problem, spans.are_apart ? whole_tiles : std::vector<PrefillTile>{},
                         spans.size);
  const std::vector<PrefillTile>& tiles = spans.are_apart ? apart.tiles : whole_tiles;
  const auto device_tiles = on_device(tiles);
  const auto merges = on_device(apart.merges);
  const std::size_t num_parts = std::max(tiles.size(), static_cast<std::size_t>(apart.num_parts));
  const auto parts = on_device(
      std::vector<float>(num_parts * static_cast<std::size_t>(prefill_part_floats(problem.shape)),
                         std::numeric_limits<float>::quiet_NaN()));
  const auto out = on_device(std::vector<bf16>(problem.queries.size(), bf16_nan()));
  const PrefillAttentionArgs args = device.prefill_args(problem.shape, device_tiles, out);
  const Stream stream = make_stream();
  if (kernel == Kernel::Mma) {
    launch_prefill_attention(args, stream.get());
  } else {
    launch_wgmma_attention(args,
                           {.parts = parts.data(),
                            .span_size = spans.size,
                            .merges = merges.data(),
                            .num_merges = static_cast<std::int32_t>(apart.merges.size())},
                           device.tensors(problem.shape), stream.get());
  }
  check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return out.download();
}

double worst_error_ratio(const PagedProblem& problem, const std::vector<bf16>& out) {
  double worst = 0;
  for (std::int32_t s = 0; s < problem.num_sequences(); ++s) {
    for (std::int32_t query = 0; query < problem.query_len(s); ++query) {
      for (std::int32_t head = 0; head < problem.shape.n_heads; ++head) {
        const ExactRow exact = exact_attention(problem, s, query, head);
        const bf16* row = out.data() + problem.query_offset(s, query, head);
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
          const double got = to_double(row[d]);
          const double ratio = std::abs(got - exact.out[d]) / attention_tolerance(exact, d);
          if (!(ratio <= worst)) worst = ratio;  // NaN counts
          if (std::isnan(worst)) return worst;
        }
      }
    }
  }
  return worst;
}

// Runs a pass and compares every row with the definition.
void check_pass(Kernel kernel, Rng& rng, const AttentionShape& shape, std::int32_t block_size,
                const std::vector<PagedChunk>& chunks) {
  const PagedProblem problem = make_paged_problem(rng, shape, block_size, chunks);
  CHECK(worst_error_ratio(problem, run(kernel, problem, tiles_of(kernel, rng, problem))) <= 1);
}

std::int32_t one_of(Rng& rng, const std::vector<std::int32_t>& values) {
  return values[static_cast<std::size_t>(
      draw(rng, 0, static_cast<std::int32_t>(values.size()) - 1))];
}

// Boxes of the bulk copy engine have eight rows at least.
std::vector<std::int32_t> block_sizes(Kernel kernel) {
  if (kernel == Kernel::Mma) return {1, 7, 16, 64, 100, 1000};
  return {8, 16, 24, 64, 128, 1000};
}
const std::vector<std::int32_t> kWindows = {kNoWindow, 1, 5, 64, 100, 512};

// The attention of a sequence, chunk by chunk: [num_positions][n_heads][head_dim].
struct Collected {
  std::vector<bf16> out;
  std::size_t row_elements;

  Collected(const AttentionShape& shape, std::int32_t num_positions)
      : row_elements(static_cast<std::size_t>(shape.n_heads * shape.head_dim)) {
    out.assign(static_cast<std::size_t>(num_positions) * row_elements, bf16_nan());
  }
  void take(const PagedProblem& problem, std::int32_t sequence, const std::vector<bf16>& pass) {
    const std::int32_t first = problem.position(sequence, 0);
    const auto count = static_cast<std::size_t>(problem.query_len(sequence)) * row_elements;
    std::copy_n(
        pass.begin() + static_cast<std::ptrdiff_t>(problem.query_offset(sequence, 0, 0)), count,
        out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * row_elements));
  }
};

using testing::first_difference;  // of outputs of kernels

// The first position whose bits differ, or -1.
std::int32_t first_difference(const Collected& a, const Collected& b) {
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    if (std::memcmp(&a.out[i], &b.out[i], sizeof(bf16)) != 0) {
      return static_cast<std::int32_t>(i / a.row_elements);
    }
  }
  return -1;
}

// The sequence in chunks, each in a pass with neighbours before and behind it, in blocks of a size
// drawn for the pass.
Collected chunked(Kernel kernel, Rng& rng, const AttentionShape& shape,
                  const SequenceContent& content, std::int32_t chunk_size) {
  Collected collected(shape, content.num_positions);
  for (std::int32_t first = 0; first < content.num_positions; first += chunk_size) {
    const std::int32_t end = std::min(first + chunk_size, content.num_positions);
    std::vector<SequenceContent> neighbours;
    for (std::int32_t i = draw(rng, 0, 1); i >= 0; --i) {
      neighbours.push_back(random_content(rng, shape, draw(rng, 1, 20)));
    }
    std::vector<PagedChunk> chunks;
    for (const SequenceContent& neighbour : neighbours) {
      const std::int32_t length = neighbour.num_positions;
      chunks.push_back({&neighbour, length, draw(rng, 1, length)});
    }
    const std::int32_t place = draw(rng, 0, static_cast<std::int32_t>(chunks.size()));
    chunks.insert(chunks.begin() + place, PagedChunk{&content, end, end - first});
    const PagedProblem problem =
        make_paged_problem(rng, shape, one_of(rng, block_sizes(kernel)), chunks);
    collected.take(problem, place, run(kernel, problem, tiles_of(kernel, rng, problem)));
  }
  return collected;
}

// Bit-equality of all rows of a prompt over chunk sizes.
void check_chunkings(Kernel kernel, Rng& rng, const AttentionShape& shape,
                     std::int32_t num_positions, double score_stddev,
                     const std::vector<std::int32_t>& chunk_sizes) {
  CAPTURE(shape.head_dim, shape.n_heads, shape.n_kv_heads, shape.window, num_positions);
  const SequenceContent content = random_content(rng, shape, num_positions, score_stddev);
  const Collected whole = chunked(kernel, rng, shape, content, num_positions);
  for (const std::int32_t chunk_size : chunk_sizes) {
    CAPTURE(chunk_size);
    CHECK(first_difference(chunked(kernel, rng, shape, content, chunk_size), whole) == -1);
  }
}

}  // namespace

TEST_CASE("Prefill attention around the borders of tiles", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng(1, "prefill attention borders");
  const AttentionShape shape = attention_shape(1, 1, head_dim);
  const SequenceContent content = random_content(rng, shape, 130);
  // One pass of many sequences: contexts and chunks that end, and begin, around multiples of 32
  // and 64.
  std::vector<PagedChunk> chunks;
  for (const std::int32_t context : {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    for (const std::int32_t length : {1, 2, 63, 64, 65, context}) {
      if (length <= context) chunks.push_back({&content, context, length});
    }
  }
  CAPTURE(head_dim);
  check_pass(kernel, rng, shape, 16, chunks);
}

TEST_CASE("Prefill attention of every group size, block size and window", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  Rng rng(2, "prefill attention groups");
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t group : {1, 2, 3, 4, 5, 7, 8, 16, 20, 65}) {
      const std::int32_t n_kv_heads = draw(rng, 1, 2);
      const std::int32_t block_size = one_of(rng, block_sizes(kernel));
      const AttentionShape shape =
          attention_shape(group * n_kv_heads, n_kv_heads, head_dim, one_of(rng, kWindows));
      const SequenceContent content = random_content(rng, shape, 70);
      CAPTURE(head_dim, group, n_kv_heads, block_size, shape.window);
      check_pass(kernel, rng, shape, block_size, {{&content, 70, 14}, {&content, 9, 9}});
    }
  }
  for (const std::int32_t block_size : block_sizes(kernel)) {
    for (const std::int32_t window : kWindows) {
      const AttentionShape shape = attention_shape(2, 1, one_of(rng, {64, 128, 256}), window);
      const SequenceContent content = random_content(rng, shape, 150);
      CAPTURE(shape.head_dim, block_size, window);
      check_pass(kernel, rng, shape, block_size, {{&content, 150, 40}, {&content, 67, 3}});
    }
  }
}

TEST_CASE("Prefill attention of random batches", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 32)));
  CAPTURE(seed);
  Rng rng(seed, "prefill attention batches");
  const std::int32_t n_kv_heads = draw(rng, 1, 3);
  const AttentionShape shape =
      attention_shape(n_kv_heads * draw(rng, 1, 6), n_kv_heads, one_of(rng, {64, 128, 256}),
                      chance(rng, 0.4) ? kNoWindow : draw(rng, 1, 130));
  std::vector<SequenceContent> contents;
  for (std::int32_t i = draw(rng, 1, 4); i > 0; --i) {
    const double score_stddev = chance(rng, 0.2) ? 30 : draw(rng, 0, 4);
    contents.push_back(random_content(rng, shape, draw(rng, 1, 200), score_stddev));
  }
  std::vector<PagedChunk> chunks;
  for (const SequenceContent& content : contents) {
    const std::int32_t context = content.num_positions;
    chunks.push_back({&content, context, draw(rng, 1, std::min(context, 50))});
  }
  const std::int32_t block_size = chance(rng, 0.5)        ? one_of(rng, block_sizes(kernel))
                                  : kernel == Kernel::Mma ? draw(rng, 1, 80)
                                                          : 8 * draw(rng, 1, 10);
  CAPTURE(shape.head_dim, shape.n_heads, n_kv_heads, shape.window, block_size, chunks.size());
  check_pass(kernel, rng, shape, block_size, chunks);
}

// With queries of zeros all weights are exactly 1. With small integers as values every sum is exact
// too, so the mean is off by the roundings of a division and of the result alone: no position too
// many or too few gets by.
TEST_CASE("Prefill attention without preferences is the mean of what a row attends to", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng(3, "prefill attention means");
  for (const std::int32_t window : {kNoWindow, 1, 2, 31, 33, 64, 65, 100, 300}) {
    const AttentionShape shape = attention_shape(3, 1, head_dim, window);
    SequenceContent content = random_content(rng, shape, 420, 0);
    for (bf16& value : content.values) {
      value = to_bf16(draw(rng, 1, 100));
    }
    const std::vector<PagedChunk> chunks = {
        {&content, 420, 23}, {&content, 192, 22}, {&content, 33, 33}};
    const PagedProblem problem =
        make_paged_problem(rng, shape, one_of(rng, block_sizes(kernel)), chunks);
    const std::vector<bf16> out = run(kernel, problem, tiles_of(kernel, rng, problem));
    double worst = 0;
    for (std::int32_t s = 0; s < problem.num_sequences(); ++s) {
      for (std::int32_t query = 0; query < problem.query_len(s); ++query) {
        const ExactRow exact = exact_attention(problem, s, query, 1);
        const bf16* row = out.data() + problem.query_offset(s, query, 1);
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
          const double got = to_double(row[d]);
          worst = std::max(worst, std::abs(got - exact.out[d]) / exact.out[d]);
        }
      }
    }
    CAPTURE(head_dim, window);
    CHECK(worst <= 0x1.01p-8);
  }
}

TEST_CASE("Prefill attention of slotted caches with thousands of positions a block", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  Rng rng(4, "prefill attention slots");
  const AttentionShape shape = attention_shape(4, 2, 64);
  const SequenceContent a = random_content(rng, shape, 90);
  const SequenceContent b = random_content(rng, shape, 1);
  check_pass(kernel, rng, shape, 5000, {{&a, 90, 20}, {&b, 1, 1}, {&a, 65, 65}});
}

TEST_CASE("Prefill attention stores rows of its tiles alone", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  Rng rng(5, "prefill attention rows");
  const AttentionShape shape = attention_shape(3, 1, 64);
  const SequenceContent content = random_content(rng, shape, 60);
  const PagedProblem problem = make_paged_problem(
      rng, shape, 16, {{&content, 60, 60}, {&content, 40, 1}, {&content, 50, 43}});
  // Of the first sequence the second tile, of the second nothing, of the third the second tile
  // again, which is cut short.
  const std::int32_t tile_rows = tile_rows_of(kernel);
  const std::vector<bf16> out = run(kernel, problem, {{0, tile_rows}, {2, tile_rows}});
  const std::vector<bf16> whole = run(kernel, problem, tiles_of(kernel, rng, problem));
  const auto row_of = [&](std::int32_t sequence, std::int32_t row) {
    return problem.query_offset(sequence, row / 3, row % 3);
  };
  for (std::int32_t s = 0; s < 3; ++s) {
    for (std::int32_t row = 0; row < problem.query_len(s) * 3; ++row) {
      const bool is_stored = s != 1 && row >= tile_rows && row < 2 * tile_rows;
      const std::vector<bf16>& expected = is_stored ? whole : std::vector<bf16>(64, bf16_nan());
      const std::size_t from = is_stored ? row_of(s, row) : 0;
      CAPTURE(s, row);
      CHECK(std::memcmp(&out[row_of(s, row)], &expected[from], 64 * sizeof(bf16)) == 0);
    }
  }
  CHECK(run(kernel, problem, {}).size() == out.size());
}

TEST_CASE("Prefill attention has the same bits under every chunking", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng(6, "prefill attention chunkings");
  check_chunkings(kernel, rng, attention_shape(2, 1, head_dim), 200, 2, {7, 64, 100});
  check_chunkings(kernel, rng, attention_shape(3, 1, head_dim, 70), 200, 2, {64, 100});
}

TEST_CASE("Prefill attention has the same bits in many chunks, and over several tiles",
          "[gpu][slow]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng(9, "prefill attention many chunks");
  check_chunkings(kernel, rng, attention_shape(2, 1, head_dim), 200, 2, {1});
  check_chunkings(kernel, rng, attention_shape(2, 1, head_dim), 420, 2, {64, 100, 300});
  check_chunkings(kernel, rng, attention_shape(3, 1, head_dim, 70), 200, 2, {7});
}

TEST_CASE("Prefill attention has the same bits for random shapes and chunk sizes", "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 12)));
  CAPTURE(seed);
  Rng rng(seed, "prefill attention bits");
  const std::int32_t n_kv_heads = draw(rng, 1, 2);
  const AttentionShape shape =
      attention_shape(n_kv_heads * one_of(rng, {1, 3, 4, 5, 8, 20}), n_kv_heads,
                      one_of(rng, {64, 128, 256}), one_of(rng, kWindows));
  // Scores far apart, too: corrections that bring sums down to 0 and to -0.
  check_chunkings(kernel, rng, shape, draw(rng, 60, 160), one_of(rng, {1, 3, 100}),
                  {draw(rng, 3, 30), draw(rng, 20, 70)});
}

// Against the definition, and to the bit whoever does the spans.
TEST_CASE("Spans of a tile are summed up alike by one CTA and by several", "[gpu]") {
  if (kernels().size() < 2) return;
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 16)));
  CAPTURE(seed);
  Rng rng(seed, "prefill attention spans");
  const std::int32_t n_kv_heads = draw(rng, 1, 2);
  const AttentionShape shape =
      attention_shape(n_kv_heads * draw(rng, 1, 5), n_kv_heads, one_of(rng, {64, 128, 256}));
  std::vector<SequenceContent> contents;
  for (std::int32_t i = draw(rng, 1, 3); i > 0; --i) {
    contents.push_back(random_content(rng, shape, draw(rng, 1, 500), one_of(rng, {1, 3, 100})));
  }
  std::vector<PagedChunk> chunks;
  for (const SequenceContent& content : contents) {
    const std::int32_t context = content.num_positions;
    chunks.push_back({&content, context, draw(rng, 1, std::min(context, 150))});
  }
  const PagedProblem problem =
      make_paged_problem(rng, shape, one_of(rng, block_sizes(Kernel::Wgmma)), chunks);
  const std::vector<PrefillTile> tiles = tiles_of(Kernel::Wgmma, rng, problem);
  const std::int32_t span_size = 128 * draw(rng, 1, 3);
  CAPTURE(shape.head_dim, shape.n_heads, n_kv_heads, span_size, chunks.size());
  const std::vector<bf16> whole = run(Kernel::Wgmma, problem, tiles, {span_size, false});
  CHECK(worst_error_ratio(problem, whole) <= 1);
  CHECK(first_difference(run(Kernel::Wgmma, problem, tiles, {span_size, true}), whole) == -1);
}

// A window may begin and end in different spans, and only whole tiles have one.
TEST_CASE("Windows reach over the borders of spans", "[gpu]") {
  if (kernels().size() < 2) return;
  Rng rng(8, "prefill attention window spans");
  for (const std::int32_t window : {1, 100, 128, 300}) {
    const AttentionShape shape = attention_shape(4, 1, one_of(rng, {64, 128, 256}), window);
    const SequenceContent content = random_content(rng, shape, 450);
    const PagedProblem problem = make_paged_problem(rng, shape, 16, {{&content, 450, 140}});
    const std::vector<bf16> out =
        run(Kernel::Wgmma, problem, tiles_of(Kernel::Wgmma, rng, problem), {128, false});
    CAPTURE(window, shape.head_dim);
    CHECK(worst_error_ratio(problem, out) <= 1);
  }
}

// A correction of 0 makes -0 of a negative sum, and -0 stays as long as only -0 is added to it. A
// tile behind the row adds 0 times its values, which is +0.
TEST_CASE("Prefill attention knows no negative zero that a tile behind the row would change",
          "[gpu]") {
  const Kernel kernel = GENERATE(from_range(kernels()));
  CAPTURE(kernel);
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng(7, "prefill attention zeros");
  const AttentionShape shape = attention_shape(1, 1, head_dim);
  SequenceContent content = random_content(rng, shape, 200);
  std::fill(content.queries.begin(), content.queries.end(), to_bf16(8));
  for (std::size_t i = 0; i < content.keys.size(); ++i) {
    const std::size_t position = i / static_cast<std::size_t>(head_dim);
    content.keys[i] = to_bf16(position < 64 ? -8 : 8);
    content.values[i] = to_bf16(position < 64 ? -1 : position < 128 ? -0.0 : 1);
  }
  // Position 127 ends a KV tile. It is the last row of the first chunk, and one of a tile of rows
  // of the second chunk that goes on to position 177.
  std::vector<bf16> rows;
  for (const PagedChunk& chunk : {PagedChunk{&content, 128, 1}, PagedChunk{&content, 200, 86}}) {
    const PagedProblem problem = make_paged_problem(rng, shape, 16, {chunk});
    const std::vector<bf16> out = run(kernel, problem, tiles_of(kernel, rng, problem));
    const std::size_t from = problem.query_offset(0, 127 - problem.position(0, 0), 0);
    for (std::size_t d = 0; d < 64; ++d) rows.push_back(out[from + d]);
  }
  for (std::size_t d = 0; d < 64; ++d) CHECK(bits_of(rows[d]) == bits_of(rows[64 + d]));
}

TEST_CASE("Prefill attention refuses head sizes it was not compiled for", "[gpu]") {
  PrefillAttentionArgs args;
  args.shape = attention_shape(1, 1, 96);
  CHECK_THROWS_AS(launch_prefill_attention(args, nullptr), InvariantError);
  CHECK_THROWS_AS(launch_wgmma_attention(args, {}, {}, nullptr), InvariantError);
}

}  // namespace TEST_FILE
