// SPDX-License-Identifier: Apache-2.0
// Decode attention on the GPU: against its definition in double, and bit by bit against itself with
// other neighbours, layouts and grids.
#include <array>

#include "tests/catch.h"
#include "tests/gpu/attention_reference.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr std::int32_t kPadding = -1;

Rng make_rng(std::int32_t seed) { return {static_cast<std::uint64_t>(seed), "decode attention"}; }

// How the decodes of a problem are launched.
struct DecodeLaunch {
  std::vector<std::int32_t> sequences;  // those with one query, in any order, and kPadding
  std::int32_t split_size = 64;
  std::int32_t num_ctas = 3;
  // The first block id on the device. The pools begin that much earlier: offsets
  // as in a large cache, without one.
  std::int32_t first_block = 0;
};

struct Items {
  std::vector<std::int32_t> start;   // [num_decodes + 1]
  std::vector<std::int32_t> decode;  // [number of items]
};

Items make_items(const PagedProblem& problem, const DecodeLaunch& decodes) {
  Items items{{0}, {}};
  for (std::size_t d = 0; d < decodes.sequences.size(); ++d) {
    std::int32_t num_items = 0;
    if (decodes.sequences[d] != kPadding) {
      const std::int32_t position = problem.position(decodes.sequences[d], 0);
      const std::int32_t first = first_attended(position, problem.shape.window);
      num_items = position / decodes.split_size - first / decodes.split_size + 1;
    }
    for (std::int32_t i = 0; i < num_items; ++i) {
      items.decode.push_back(static_cast<std::int32_t>(d));
    }
    items.start.push_back(static_cast<std::int32_t>(items.decode.size()));
  }
  return items;
}

// A NaN that no arithmetic makes: what was not written still has it.
bf16 unwritten() { return bf16_of_bits(0x7fa5); }

const bf16* moved_back(const bf16* pool, std::int64_t num_elements) {
  const auto num_bytes = static_cast<std::uintptr_t>(num_elements) * sizeof(bf16);
  return reinterpret_cast<const bf16*>(reinterpret_cast<std::uintptr_t>(pool) - num_bytes);
}

// The output of the launch, `unwritten` where it has none. The scratch is NaN before it, and behind
// its end afterwards, too.
Bf16s run(const PagedProblem& problem, const DecodeLaunch& decodes) {
  const DevicePagedProblem device(problem);
  const Items items = make_items(problem, decodes);
  const auto sequences = on_device(decodes.sequences);
  const auto item_start = on_device(items.start);
  const auto item_decode = on_device(items.decode);
  const auto part_floats = static_cast<std::size_t>(decode_partial_floats(problem.shape));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto partials = on_device(std::vector<float>((items.decode.size() + 1) * part_floats, nan));
  const auto out = on_device(Bf16s(problem.queries.size(), unwritten()));

  DecodeAttentionArgs args;
  args.shape = problem.shape;
  args.kv = device.kv();
  std::vector<std::int32_t> block_tables = problem.block_tables;
  for (std::int32_t& block : block_tables) block += decodes.first_block;
  device.block_tables.upload(block_tables);
  const std::int64_t num_skipped = std::int64_t{decodes.first_block} * problem.shape.n_kv_heads *
                                   problem.block_size * problem.shape.head_dim;
  args.kv.keys = moved_back(args.kv.keys, num_skipped);
  args.kv.values = moved_back(args.kv.values, num_skipped);
  args.queries = device.queries.data();
  args.query_start = device.query_start.data();
  args.context_lens = device.context_lens.data();
  args.sequences = sequences.data();
  args.item_start = item_start.data();
  args.item_decode = item_decode.data();
  args.num_decodes = static_cast<std::int32_t>(decodes.sequences.size());
  args.split_size = decodes.split_size;
  args.num_ctas = decodes.num_ctas;
  args.partials = partials.data();
  args.out = out.data();
  const Stream stream = make_stream();
  launch_decode_attention(args, stream.get());
  check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");

  const std::vector<float> scratch = partials.download();
  for (std::size_t i = items.decode.size() * part_floats; i < scratch.size(); ++i) {
    if (!std::isnan(scratch[i])) FAIL("written behind the scratch's end: " << i);
  }
  return out.download();
}

// The bits of a sequence's only row of the output.
std::vector<std::uint16_t> row_bits(const PagedProblem& problem, const Bf16s& out,
                                    std::int32_t sequence) {
  std::vector<std::uint16_t> bits;
  const std::size_t begin = problem.query_offset(sequence, 0, 0);
  const auto size = static_cast<std::size_t>(problem.shape.n_heads * problem.shape.head_dim);
  for (std::size_t i = begin; i < begin + size; ++i) bits.push_back(bits_of(out[i]));
  return bits;
}

// The largest error of a decode as a part of what attention_tolerance allows; infinite for NaN.
double worst_error(const PagedProblem& problem, const Bf16s& out, std::int32_t sequence) {
  double worst = 0;
  for (std::int32_t head = 0; head < problem.shape.n_heads; ++head) {
    const ExactRow row = exact_attention(problem, sequence, 0, head);
    const std::size_t begin = problem.query_offset(sequence, 0, head);
    for (std::size_t d = 0; d < row.out.size(); ++d) {
      const double got = to_double(out[begin + d]);
      const double error = std::abs(got - row.out[d]) / attention_tolerance(row, d);
      if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
    }
  }
  return worst;
}

// Every decode of the launch has its result, and nothing else is written.
void check(const PagedProblem& problem, const DecodeLaunch& decodes) {
  const Bf16s out = run(problem, decodes);
  for (std::int32_t s = 0; s < problem.num_sequences(); ++s) {
    CAPTURE(s, problem.context_lens[static_cast<std::size_t>(s)]);
    const bool is_decoded =
        std::find(decodes.sequences.begin(), decodes.sequences.end(), s) != decodes.sequences.end();
    if (is_decoded) {
      REQUIRE(worst_error(problem, out, s) <= 1);
      continue;
    }
    const std::size_t begin = problem.query_offset(s, 0, 0);
    const auto size = static_cast<std::size_t>(problem.query_len(s) * problem.shape.n_heads *
                                               problem.shape.head_dim);
    for (std::size_t i = begin; i < begin + size; ++i) {
      if (bits_of(out[i]) != bits_of(unwritten())) FAIL("written although it is no decode: " << i);
    }
  }
}

std::vector<std::int32_t> all_sequences(const PagedProblem& problem) {
  std::vector<std::int32_t> sequences;
  for (std::int32_t s = 0; s < problem.num_sequences(); ++s) sequences.push_back(s);
  return sequences;
}

// One decode for each context length, all with a prefix of the same content.
PagedProblem decodes_of(Rng& rng, const AttentionShape& shape, std::int32_t block_size,
                        const std::vector<std::int32_t>& context_lens) {
  const std::int32_t longest = *std::max_element(context_lens.begin(), context_lens.end());
  const SequenceContent content = random_content(rng, shape, longest);
  std::vector<PagedChunk> chunks;
  for (const std::int32_t context_len : context_lens) chunks.push_back({&content, context_len, 1});
  return make_paged_problem(rng, shape, block_size, chunks);
}

constexpr std::array<std::int32_t, 6> kBlockSizes = {1, 7, 16, 64, 100, 1000};
constexpr std::array<std::int32_t, 3> kSplitSizes = {64, 128, 512};
constexpr std::array<std::int32_t, 7> kGroups = {1, 2, 3, 4, 5, 8, 16};
constexpr std::array<std::int32_t, 3> kHeadDims = {64, 128, 256};

template <std::size_t kSize>
std::int32_t one_of(Rng& rng, const std::array<std::int32_t, kSize>& values) {
  return values[static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(kSize) - 1))];
}

}  // namespace

TEST_CASE("decode attention of every head_dim and group is the weighted mean", "[gpu]") {
  Rng rng = make_rng(1);
  std::size_t i = 0;
  for (const std::int32_t head_dim : kHeadDims) {
    for (const std::int32_t group : kGroups) {
      const std::int32_t n_kv_heads = group >= 8 ? 1 : 2;
      const AttentionShape shape = attention_shape(group * n_kv_heads, n_kv_heads, head_dim);
      const std::int32_t block_size = kBlockSizes[i % kBlockSizes.size()];
      const std::int32_t split_size = kSplitSizes[i / 2 % kSplitSizes.size()];
      ++i;
      CAPTURE(head_dim, group, block_size, split_size);
      const auto problem = decodes_of(rng, shape, block_size, {1, 2, 17, 64, 65, 129, 256});
      check(problem, {all_sequences(problem), split_size, 5});
    }
  }
}

TEST_CASE("decode attention of contexts around the borders of tiles and splits", "[gpu]") {
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng = make_rng(head_dim);
  const AttentionShape shape = attention_shape(3, 1, head_dim);
  for (const std::int32_t split_size : kSplitSizes) {
    const std::int32_t block_size = one_of(rng, kBlockSizes);
    CAPTURE(head_dim, block_size, split_size);
    const auto problem = decodes_of(
        rng, shape, block_size,
        {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513});
    check(problem, {all_sequences(problem), split_size, 4});
  }
}

TEST_CASE("decode attention with every block size and split size", "[gpu]") {
  const std::int32_t block_size = GENERATE(1, 7, 16, 64, 100, 1000, 4096);
  Rng rng = make_rng(block_size);
  const auto problem = decodes_of(rng, attention_shape(2, 1, 64), block_size, {1000, 257, 3});
  for (const std::int32_t split_size : {64, 128, 192, 512, 1024}) {
    CAPTURE(block_size, split_size);
    check(problem, {all_sequences(problem), split_size, 3});
  }
}

TEST_CASE("decode attention of many splits", "[gpu]") {
  Rng rng = make_rng(6);
  for (const std::int32_t window : {kNoWindow, 1500}) {
    const auto problem = decodes_of(rng, attention_shape(2, 1, 64, window), 48, {2113, 1024, 1025});
    check(problem, {all_sequences(problem), 64, 10});
  }
}

TEST_CASE("decode attention in a cache of hundreds of gigabytes", "[gpu]") {
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng = make_rng(head_dim + 4);
  const auto problem = decodes_of(rng, attention_shape(4, 2, head_dim), 128, {300, 129});
  // The pool has 2^31 rows, or a few less: 2^38 bytes with head_dim 64.
  for (const std::int32_t first_block : {1 << 17, (1 << 23) - problem.num_blocks}) {
    check(problem, {all_sequences(problem), 64, 3, first_block});
  }
}

TEST_CASE("decode attention in a window reads nothing before it", "[gpu]") {
  // make_paged_problem stores nothing before the window: the cache is NaN there and the table leads
  // far outside of it.
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng = make_rng(head_dim + 1);
  for (const std::int32_t window : {1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 128, 200, 299, 300}) {
    const AttentionShape shape = attention_shape(4, 2, head_dim, window);
    const std::int32_t block_size = one_of(rng, kBlockSizes);
    const std::int32_t split_size = one_of(rng, kSplitSizes);
    CAPTURE(head_dim, window, block_size, split_size);
    const auto problem = decodes_of(rng, shape, block_size, {1, 64, 192, 299, 300});
    check(problem, {all_sequences(problem), split_size, 3});
  }
}

TEST_CASE("padding among decodes and chunks among the sequences stay as they are", "[gpu]") {
  Rng rng = make_rng(7);
  const AttentionShape shape = attention_shape(4, 2, 64);
  const SequenceContent a = random_content(rng, shape, 200);
  const SequenceContent b = random_content(rng, shape, 90);
  const auto problem =
      make_paged_problem(rng, shape, 16, {{&a, 60, 20}, {&a, 200, 1}, {&b, 90, 7}, {&b, 70, 1}});
  for (const std::vector<std::int32_t>& sequences :
       std::vector<std::vector<std::int32_t>>{{1, 3},
                                              {3, 1},
                                              {kPadding, 3, kPadding, kPadding, 1, kPadding},
                                              {1},
                                              {kPadding, kPadding},
                                              {}}) {
    check(problem, {sequences, 64, 2});
  }
}

TEST_CASE("padding that has items writes nothing", "[gpu]") {
  // Items of padding are not what a step makes, but sequences alone decide.
  Rng rng = make_rng(8);
  const AttentionShape shape = attention_shape(2, 1, 64);
  const auto problem = decodes_of(rng, shape, 16, {100, 130});
  const DevicePagedProblem device(problem);
  const auto sequences = on_device<std::int32_t>({kPadding, 1});
  const auto item_start = on_device<std::int32_t>({0, 2, 5});
  const auto item_decode = on_device<std::int32_t>({0, 0, 1, 1, 1});
  const auto part_floats = static_cast<std::size_t>(decode_partial_floats(shape));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto partials = on_device(std::vector<float>(5 * part_floats, nan));
  const auto out = on_device(Bf16s(problem.queries.size(), unwritten()));
  for (const std::int32_t num_ctas : {1, 2, 9}) {
    launch_decode_attention({shape, device.kv(), device.queries.data(), device.query_start.data(),
                             device.context_lens.data(), sequences.data(), item_start.data(),
                             item_decode.data(), 2, 64, num_ctas, partials.data(), out.data()},
                            nullptr);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const Bf16s written = out.download();
    CHECK(worst_error(problem, written, 1) <= 1);
    for (const std::uint16_t bits : row_bits(problem, written, 0)) {
      REQUIRE(bits == bits_of(unwritten()));
    }
    const std::vector<float> scratch = partials.download();
    for (std::size_t i = 0; i < 2 * part_floats; ++i) REQUIRE(std::isnan(scratch[i]));
  }
}

TEST_CASE("a decode's bits do not depend on neighbours, layout or grid", "[gpu]") {
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  const std::int32_t window = GENERATE(as<std::int32_t>(), kNoWindow, 150);
  Rng rng = make_rng(head_dim + 2);
  const AttentionShape shape = attention_shape(6, 2, head_dim, window);
  const SequenceContent content = random_content(rng, shape, 333);
  const SequenceContent other = random_content(rng, shape, 200);
  const std::int32_t split_size = one_of(rng, kSplitSizes);
  CAPTURE(head_dim, window, split_size);

  const auto alone = make_paged_problem(rng, shape, 16, {{&content, 333, 1}});
  const auto expected = row_bits(alone, run(alone, {{0}, split_size, 1}), 0);
  for (const std::int32_t num_ctas : {2, 7, 100}) {
    CHECK(row_bits(alone, run(alone, {{0}, split_size, num_ctas}), 0) == expected);
  }
  for (const std::int32_t block_size : kBlockSizes) {
    CAPTURE(block_size);
    const auto problem =
        make_paged_problem(rng, shape, block_size,
                           {{&other, 77, 9}, {&other, 200, 1}, {&content, 333, 1}, {&other, 1, 1}});
    const std::int32_t num_ctas = draw(rng, 1, 8);
    CHECK(row_bits(problem, run(problem, {{3, 2, kPadding, 1}, split_size, num_ctas}), 2) ==
          expected);
  }
}

TEST_CASE("large scores, no scores and negative scales", "[gpu]") {
  const std::int32_t head_dim = GENERATE(64, 128, 256);
  Rng rng = make_rng(head_dim + 3);
  AttentionShape shape = attention_shape(2, 1, head_dim);
  // Scores in the thousands: exp2 of anything but a difference overflows.
  const SequenceContent content = random_content(rng, shape, 200, 1000);
  const auto problem = make_paged_problem(rng, shape, 16, {{&content, 200, 1}, {&content, 90, 1}});
  const Bf16s out = run(problem, {{0, 1}, 64, 2});
  for (const std::int32_t sequence : {0, 1}) {
    for (const std::uint16_t bits : row_bits(problem, out, sequence)) {
      REQUIRE((bits & 0x7f80) != 0x7f80);  // finite
    }
  }
  for (const float scale : {0.0f, -0.1f, 0.03f}) {
    CAPTURE(head_dim, scale);
    shape.scale = scale;
    const auto scaled = decodes_of(rng, shape, 16, {200, 90});
    check(scaled, {{0, 1}, 64, 2});
  }
}

TEST_CASE("random decodes", "[gpu]") {
  const int seed = GENERATE(range(100, 200));
  Rng rng = make_rng(seed);
  const std::int32_t n_kv_heads = draw(rng, 1, 3);
  const std::int32_t group = draw(rng, 1, chance(rng, 0.2) ? 16 : 5);
  const std::int32_t window = chance(rng, 0.5) ? kNoWindow : draw(rng, 1, 260);
  const AttentionShape shape =
      attention_shape(group * n_kv_heads, n_kv_heads, one_of(rng, kHeadDims), window);
  const std::int32_t block_size = chance(rng, 0.5) ? one_of(rng, kBlockSizes) : draw(rng, 1, 300);
  const std::int32_t split_size = 64 * draw(rng, 1, 5);
  CAPTURE(seed, n_kv_heads, group, window, shape.head_dim, block_size, split_size);

  std::vector<SequenceContent> contents;
  for (std::int32_t left = draw(rng, 1, 4); left > 0; --left) {
    contents.push_back(random_content(rng, shape, draw(rng, 1, chance(rng, 0.3) ? 600 : 200)));
  }
  std::vector<PagedChunk> chunks;
  DecodeLaunch decodes{{}, split_size, draw(rng, 1, 12)};
  for (const SequenceContent& content : contents) {
    const std::int32_t context_len = content.num_positions;
    const bool is_decode = chance(rng, 0.8);
    if (chance(rng, 0.2)) decodes.sequences.push_back(kPadding);
    if (is_decode) decodes.sequences.push_back(static_cast<std::int32_t>(chunks.size()));
    chunks.push_back({&content, context_len, is_decode ? 1 : draw(rng, 1, context_len)});
  }
  check(make_paged_problem(rng, shape, block_size, chunks), decodes);
}

TEST_CASE("which shapes the decode kernel takes", "[gpu]") {
  CHECK(can_split_decode(attention_shape(16, 1, 64)));
  CHECK(can_split_decode(attention_shape(24, 8, 128)));
  CHECK(can_split_decode(attention_shape(4, 1, 256)));
  CHECK_FALSE(can_split_decode(attention_shape(17, 1, 64)));
  CHECK_FALSE(can_split_decode(attention_shape(32, 1, 128)));
  CHECK_FALSE(can_split_decode(attention_shape(8, 8, 96)));
  CHECK_FALSE(can_split_decode(attention_shape(9, 8, 64)));

  DecodeAttentionArgs args;
  args.shape = attention_shape(17, 1, 64);
  CHECK_THROWS_AS(launch_decode_attention(args, nullptr), CudaError);
  CHECK_THROWS_AS(decode_attention_ctas(args.shape), CudaError);

  // No decodes: nothing is launched, and nothing is read.
  args.shape = attention_shape(8, 2, 128);
  args.num_ctas = 4;
  CHECK_NOTHROW(launch_decode_attention(args, nullptr));
}

TEST_CASE("how many CTAs and how much scratch the decode kernel wants", "[gpu]") {
  int num_processors = 0;
  check_cuda(cudaDeviceGetAttribute(&num_processors, cudaDevAttrMultiProcessorCount, 0),
             "cudaDeviceGetAttribute");
  for (const std::int32_t head_dim : kHeadDims) {
    CAPTURE(head_dim);
    const std::int32_t num_ctas = decode_attention_ctas(attention_shape(8, 2, head_dim));
    CHECK(num_ctas >= num_processors);
    CHECK(num_ctas % num_processors == 0);
    CHECK(num_ctas == decode_attention_ctas(attention_shape(3, 1, head_dim)));
    // Of every head: head_dim sums, a maximum and a sum of weights.
    for (const std::int32_t n_heads : {1, 2, 7, 32}) {
      const std::int64_t num_floats = decode_partial_floats(attention_shape(n_heads, 1, head_dim));
      CHECK(num_floats >= n_heads * (head_dim + 2));
      CHECK(num_floats % 4 == 0);
    }
  }
}

}  // namespace TEST_FILE
