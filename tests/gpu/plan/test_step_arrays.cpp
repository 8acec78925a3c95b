// SPDX-License-Identifier: Apache-2.0
// Passes laid out for the device: known answers, and random passes against what they were made of.
#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/policies/registry.h"
#include "core/model/attention_mask.h"
#include "core/run/forward_batch.h"
#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "gpu/plan/graph_buckets.h"
#include "gpu/plan/step_arrays.h"
#include "tests/catch.h"
#include "tests/core/engine/step_walk.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

BlockTable draw_table(Rng& rng, std::int64_t num_blocks, std::int32_t block_size,
                      const BlockTable& shared) {
  // Slots are 32-bit numbers.
  const std::int32_t last_id = std::min(100'000, INT32_MAX / block_size - 1);
  BlockTable table;
  if (chance(rng, 0.4)) table = shared;
  const auto num_shared = std::min(num_blocks, static_cast<std::int64_t>(table.size()));
  table.resize(static_cast<std::size_t>(rng.uniform_int(0, num_shared)));
  while (static_cast<std::int64_t>(table.size()) < num_blocks) {
    table.push_back(BlockId{draw(rng, 1, last_id)});
  }
  return table;
}

constexpr std::int32_t kLongContext = 3000;

StepGeometry draw_geometry(Rng& rng) {
  constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 7, 8, 16, 20, 100};
  StepGeometry geometry;
  geometry.max_model_len = chance(rng, 0.3) ? draw(rng, 1, 100) : draw(rng, 100, kLongContext);
  if (chance(rng, 0.2)) geometry.max_model_len *= 64;
  geometry.block_size = chance(rng, 0.2) ? geometry.max_model_len : draw(rng, 1, 64);
  geometry.group = kGroups[draw(rng, 0, 9)];
  if (chance(rng, 0.5)) {
    geometry.tile_rows = kWgmmaTileRows;
    geometry.n_kv_heads = draw(rng, 1, 8);
    geometry.num_processors = draw(rng, 0, 200);
    geometry.span_size = draw(rng, 1, 4) * 128;
    geometry.max_parts = draw(rng, 0, 300);
  }
  if (chance(rng, 0.5)) geometry.window = draw(rng, 1, chance(rng, 0.5) ? 600 : 40);
  geometry.has_window_tables = geometry.window > 0 && chance(rng, 0.6);
  geometry.splits_decodes = chance(rng, 0.75);
  geometry.max_items = chance(rng, 0.3) ? draw(rng, 64, 200) : 8192;
  return geometry;
}

// A plan of one pass: prompts and decodes, or decodes alone.
StepPlan draw_plan(Rng& rng, const StepGeometry& geometry, RequestTable& requests) {
  StepPlan plan;
  const bool only_decodes = chance(rng, 0.5);
  const std::int32_t num_sequences = draw(rng, 1, chance(rng, 0.1) ? 60 : 8);
  const std::int32_t longest =
      std::min(geometry.max_model_len, chance(rng, 0.5) ? kLongContext : 200);
  for (std::int32_t s = 0; s < num_sequences; ++s) {
    Request& request = requests.add(RequestSpec{});
    const std::int32_t first = chance(rng, 0.1) ? longest - 1 : draw(rng, 0, longest - 1);
    const bool is_decode = only_decodes || chance(rng, 0.5);
    const std::int32_t room = std::min(geometry.max_model_len - first, 40);
    const std::int32_t num_tokens = is_decode ? 1 : draw(rng, 1, room);
    plan.chunks.push_back({request.id, first, num_tokens,
                           is_decode ? ChunkKind::Decode : ChunkKind::Prefill,
                           is_decode || chance(rng, 0.5)});
    const std::int64_t num_blocks = ceil_div(first + num_tokens, geometry.block_size);
    const BlockTable shared = requests[plan.chunks.front().request].block_table;
    request.block_table = draw_table(rng, num_blocks, geometry.block_size, shared);
    if (!geometry.has_window_tables) continue;
    request.group_tables = {draw_table(rng, num_blocks, geometry.block_size, {})};
    const std::int32_t num_behind = first_attended(first, geometry.window) / geometry.block_size;
    std::fill_n(request.group_tables[0].begin(), num_behind, kNullBlock);
  }
  plan.passes = {{0, num_sequences}};
  return plan;
}

void require_coverage(const Coverage& coverage, std::int64_t at_least) {
  for (const auto& [what, count] : coverage.counts) {
    INFO(what);
    CHECK(count >= at_least);
  }
}

TEST_CASE("random passes compute every token and every position once", "[step_arrays]") {
  Coverage coverage;
  StepArrays arrays;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "step_arrays");
    const StepGeometry geometry = draw_geometry(rng);
    RequestTable requests;
    const StepPlan plan = draw_plan(rng, geometry, requests);
    PassCheck check(plan, plan.passes[0], requests, geometry, coverage);
    REQUIRE_NOTHROW(check.run(0, arrays));
    if (!check.fits_a_bucket()) continue;
    const auto num_decodes = static_cast<std::int32_t>(plan.chunks.size());
    REQUIRE_NOTHROW(check.run(num_decodes + draw(rng, 0, 4), arrays));
  }
  CHECK(coverage.counts.size() == 10);
  require_coverage(coverage, 30);
}

// Lays every pass out that an engine launches. Steps take a millisecond.
class LayingExecutor final : public Executor {
 public:
  LayingExecutor(StepGeometry geometry, Coverage& coverage)
      : geometry_(geometry), coverage_(coverage) {}

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    for (const ForwardPass& pass : plan.passes) {
      PassCheck check(plan, pass, requests, geometry_, coverage_);
      check.run(0, arrays_);
      if (check.fits_a_bucket()) check.run(find_bucket(buckets_, pass.end - pass.begin), arrays_);
    }
    StepResult result;
    result.step_index = plan.step_index;
    result.started_at = now;
    result.finished_at = now + kNsPerMs;
    in_flight_.push_back(result);
  }
  const StepResult& collect() override {
    last_ = in_flight_.front();
    in_flight_.pop_front();
    return last_;
  }

 private:
  StepGeometry geometry_;
  Coverage& coverage_;
  std::vector<std::int32_t> buckets_ = graph_buckets(16);
  StepArrays arrays_;
  std::deque<StepResult> in_flight_;
  StepResult last_;
};

EngineSetup draw_setup(Rng& rng) {
  const auto policies = all_policies();
  const PolicyInfo& policy =
      policies[static_cast<std::size_t>(rng.uniform_int(0, std::ssize(policies) - 1))];
  EngineSetup setup = make_setup(std::string(policy.name));
  setup.max_num_seqs = draw(rng, 1, 16);
  setup.max_model_len = draw(rng, 40, 400);
  setup.async_depth = draw(rng, 1, 2);
  setup.kv_cache.block_size = draw(rng, 1, 20);
  const std::int64_t longest = ceil_div(setup.max_model_len, setup.kv_cache.block_size);
  setup.kv_cache.num_blocks = 1 + 2 * longest + draw(rng, 0, 200);
  if (policy.allows_sliding_window && chance(rng, 0.8)) {
    setup.kv_cache.windows.num_tokens = draw(rng, 1, setup.max_model_len / 2);
    setup.kv_cache.num_blocks *= 2;
  }
  const std::int32_t budget = setup.max_num_seqs + draw(rng, 16, 100);
  setup.scheduler.max_num_batched_tokens = budget;
  if (chance(rng, 0.6)) setup.scheduler.prefill_chunk_size = draw(rng, 4, 40);
  setup.scheduler.edit<SarathiConfig>().chunk_size = budget;
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = draw(rng, 8, 60);
  setup.scheduler.edit<SglangConfig>().enable_mixed_chunk = chance(rng, 0.5);
  setup.scheduler.edit<TensorRtLlmConfig>().max_num_tokens = budget;
  setup.scheduler.edit<FastGenConfig>().max_ragged_batch_size = budget;
  setup.scheduler.edit<LlamaCppConfig>().n_batch = budget;
  arrange_cache(setup);
  return setup;
}

void run_engine(std::uint64_t seed, Coverage& coverage) {
  Rng rng(seed, "step_arrays_engine");
  const EngineSetup setup = draw_setup(rng);
  StepGeometry geometry = draw_geometry(rng);
  geometry.block_size = setup.kv_cache.block_size;
  geometry.max_model_len = setup.max_model_len;
  geometry.has_window_tables = setup.kv_cache.windows.num_tokens > 0;
  if (geometry.has_window_tables) geometry.window = setup.kv_cache.windows.num_tokens;
  std::vector<std::vector<PromptSegment>> prompts;
  std::vector<RequestSpec> specs;
  for (std::int32_t i = 0, end = draw(rng, 1, 12); i < end; ++i) {
    const std::int32_t tokens = draw(rng, 2, setup.max_model_len * 3 / 4);
    const std::int32_t shared = draw(rng, 1, tokens - 1);
    const auto own = static_cast<std::uint64_t>(i);
    prompts.push_back({{content_id(ContentKind::Group, 0), shared},
                       {content_id(ContentKind::Request, own), tokens - shared}});
    specs.push_back({0, tokens, draw(rng, 1, setup.max_model_len / 8), 0});
  }
  const SharedPrompts shared(prompts);
  TestClock clock;
  LayingExecutor executor(geometry, coverage);
  BenchEngine engine(setup, executor, clock, {}, shared.hasher());
  for (RequestSpec& spec : specs) {
    spec.arrival = clock.now();
    engine.submit(spec);
    for (std::int32_t i = 0, end = draw(rng, 0, 3); i < end; ++i) engine.step();
  }
  for (int steps = 0; engine.has_work(); ++steps) {
    require(steps < 20'000, "the requests never end");
    if (!engine.step()) clock.wait_until(engine.wake_time());
  }
}

TEST_CASE("so do the passes of every engine", "[step_arrays]") {
  Coverage coverage;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    REQUIRE_NOTHROW(run_engine(seed, coverage));
  }
  // Contexts of 400 have several splits, and no need of several copies.
  CHECK(coverage.counts.erase("several copies") == 1);
  require_coverage(coverage, 30);
}

// Three requests in blocks of 4: a chunk in the middle of a prompt, a decode, a whole prompt.
struct Mixed {
  RequestTable requests;
  StepPlan plan;
  ForwardBatch batch;
  StepGeometry geometry;
  StepArrays arrays;

  Mixed() {
    const std::vector<BlockTable> tables = {
        {BlockId{7}, BlockId{0}, BlockId{9}}, {BlockId{5}, BlockId{3}, BlockId{6}}, {BlockId{1}}};
    for (const BlockTable& table : tables) requests.add(RequestSpec{}).block_table = table;
    plan.chunks = {{RequestId{0}, 4, 6, ChunkKind::Prefill, false},
                   {RequestId{1}, 8, 1, ChunkKind::Decode, true},
                   {RequestId{2}, 0, 3, ChunkKind::Prefill, true}};
    geometry.block_size = 4;
    geometry.group = 16;
    geometry.max_model_len = 1000;
    flatten_pass(plan, {0, 3}, requests, 4, batch);
  }

  void lay_out(std::int32_t bucket) { lay_out_pass(batch, plan.chunks, geometry, bucket, arrays); }
  Ints ints(const ArraySpan& span) const {
    const auto values = arrays.view<std::int32_t>(span);
    return {values.begin(), values.end()};
  }
  std::vector<std::pair<int, int>> tiles() const {
    std::vector<std::pair<int, int>> pairs;
    for (const PrefillTile& tile : arrays.view<PrefillTile>(arrays.tiles)) {
      pairs.emplace_back(tile.sequence, tile.first_row);
    }
    return pairs;
  }
};

TEST_CASE("a mixed pass as the device has it", "[step_arrays]") {
  Mixed pass;
  std::int32_t id = 50;
  for (TokenId& token : pass.batch.token_ids) token = TokenId{id--};
  pass.batch.token_ids[6] = TokenId{-3};
  pass.lay_out(0);
  const StepArrays& arrays = pass.arrays;
  CHECK(pass.ints(arrays.token_ids) == Ints{50, 49, 48, 47, 46, 45, -3, 43, 42, 41});
  CHECK(pass.ints(arrays.positions) == Ints{4, 5, 6, 7, 8, 9, 8, 0, 1, 2});
  CHECK(pass.ints(arrays.slots) == Ints{0, 1, 2, 3, 36, 37, 24, 4, 5, 6});
  CHECK(pass.ints(arrays.query_start) == Ints{0, 6, 7, 10});
  CHECK(pass.ints(arrays.context_lens) == Ints{10, 9, 3});
  CHECK(pass.ints(arrays.table_start) == Ints{0, 3, 6});
  CHECK(pass.ints(arrays.block_tables) == Ints{7, 0, 9, 5, 3, 6, 1});
  CHECK(pass.ints(arrays.logit_tokens) == Ints{6, 9});
  CHECK(pass.ints(arrays.decodes) == Ints{1});
  CHECK(pass.ints(arrays.item_start) == Ints{0, 1});
  CHECK(pass.ints(arrays.item_decode) == Ints{0});
  // 96 rows whose tiles end at positions 7 and 9, and 48 rows up to position 2.
  CHECK(pass.tiles() == std::vector<std::pair<int, int>>{{0, 64}, {0, 0}, {2, 0}});
  CHECK(arrays.has_prefill);
  CHECK(arrays.split_size == 128);
}

TEST_CASE("a bucket is padded with nothing to do", "[step_arrays]") {
  Mixed pass;
  pass.requests[RequestId{1}].block_table.assign(75, BlockId{2});
  pass.plan.chunks = {{RequestId{1}, 299, 1, ChunkKind::Decode, true}};
  pass.geometry.window = 60;
  flatten_pass(pass.plan, {0, 1}, pass.requests, 4, pass.batch);
  pass.lay_out(2);
  const StepArrays& arrays = pass.arrays;
  CHECK(pass.ints(arrays.positions) == Ints{299, 0});
  CHECK(pass.ints(arrays.slots) == Ints{11, -1});
  CHECK(pass.ints(arrays.query_start) == Ints{0, 1, 1});
  CHECK(pass.ints(arrays.context_lens) == Ints{300, 0});
  CHECK(pass.ints(arrays.table_start) == Ints{0, 0});
  CHECK(pass.ints(arrays.logit_tokens) == Ints{0, 0});
  CHECK(pass.ints(arrays.decodes) == Ints{0, -1});
  CHECK(pass.ints(arrays.item_start) == Ints{0, 3, 3});
  CHECK(pass.ints(arrays.item_decode) == Ints{0, 0, 0});
  // Positions 240 to 299: splits 1 and 2.
  CHECK(pass.ints(arrays.window_item_start) == Ints{0, 2, 2});
  CHECK(pass.ints(arrays.window_item_decode) == Ints{0, 0});
  CHECK(pass.arrays.view<SampleRow>(arrays.sample_rows)[1].out == 1);
  CHECK_FALSE(arrays.has_prefill);

  pass.geometry.splits_decodes = false;
  pass.geometry.group = 100;  // two tiles to a token
  pass.lay_out(2);
  CHECK(arrays.num_decodes == 0);
  CHECK(pass.ints(arrays.item_start) == Ints{0});
  CHECK(pass.tiles() == std::vector<std::pair<int, int>>{{0, 0}, {0, 64}, {1, 0}, {1, 64}});
}

// In the order of the block.
std::vector<ArraySpan> spans_of(const StepArrays& a) {
  return {a.token_ids,
          a.positions,
          a.slots,
          a.window_slots,
          a.query_start,
          a.context_lens,
          a.table_start,
          a.window_table_start,
          a.logit_tokens,
          a.sample_rows,
          a.decodes,
          a.item_start,
          a.window_item_start,
          a.tiles,
          a.item_decode,
          a.window_item_decode,
          a.block_tables,
          a.window_block_tables};
}

// `num` decodes of one context length, with tables of their own.
StepPlan plan_decodes(std::int32_t num, std::int32_t context, const StepGeometry& geometry,
                      RequestTable& requests) {
  StepPlan plan;
  for (std::int32_t i = 0; i < num; ++i) {
    Request& request = requests.add(RequestSpec{});
    const auto num_blocks = static_cast<std::size_t>(ceil_div(context, geometry.block_size));
    request.block_table.assign(num_blocks, BlockId{i});
    if (geometry.has_window_tables) request.group_tables = {request.block_table};
    plan.chunks.push_back({request.id, context - 1, 1, ChunkKind::Decode, true});
  }
  plan.passes = {{0, num}};
  return plan;
}

TEST_CASE("a captured graph finds its arrays where they were", "[step_arrays]") {
  for (const bool splits : {true, false}) {
    for (const bool has_window : {true, false}) {
      StepGeometry geometry;
      geometry.block_size = 16;
      geometry.group = 4;
      geometry.window = has_window ? 512 : 0;
      geometry.has_window_tables = has_window;
      geometry.splits_decodes = splits;
      geometry.max_model_len = 10'000;
      StepArrays arrays;
      Coverage coverage;
      std::vector<std::vector<ArraySpan>> seen;
      for (const auto& [num, context] : {std::pair{24, 10'000}, {1, 1}, {24, 1}, {5, 129}}) {
        RequestTable requests;
        const StepPlan plan = plan_decodes(num, context, geometry, requests);
        const std::byte* memory = arrays.bytes.data();
        PassCheck(plan, {0, num}, requests, geometry, coverage).run(24, arrays);
        CHECK((memory == nullptr || memory == arrays.bytes.data()));
        CHECK(arrays.block_bytes == max_bucket_bytes(24, geometry));
        seen.push_back(spans_of(arrays));
        constexpr std::size_t kNumFixed = 14;
        for (std::size_t i = 0; i < seen[0].size(); ++i) {
          CHECK(seen.back()[i].offset == seen[0][i].offset);
          if (i < kNumFixed) CHECK(seen.back()[i].count == seen[0][i].count);
        }
      }
    }
  }
}

TEST_CASE("a pass of whole contexts fills its bucket, and its memory never moves again",
          "[step_arrays]") {
  StepGeometry geometry;
  geometry.block_size = 32;
  geometry.window = 129;
  geometry.has_window_tables = true;
  geometry.max_model_len = 2048;
  RequestTable requests;
  const StepPlan plan = plan_decodes(64, 2048, geometry, requests);
  Coverage coverage;
  StepArrays arrays;
  arrays.bytes.resize(max_bucket_bytes(64, geometry));
  const std::byte* const memory = arrays.bytes.data();
  PassCheck check(plan, {0, 64}, requests, geometry, coverage);
  check.run(64, arrays);
  CHECK(arrays.copies == std::vector<CopyRange>{{0, arrays.block_bytes}});
  check.run(0, arrays);
  check.run(64, arrays);
  CHECK(arrays.bytes.data() == memory);
  CHECK(arrays.bytes.size() == arrays.block_bytes);
}

TEST_CASE("a bucket copies what is in use, and small gaps", "[step_arrays]") {
  StepGeometry geometry;
  geometry.block_size = 16;
  geometry.max_model_len = 131'072;
  geometry.window = 1024;
  geometry.has_window_tables = true;
  RequestTable requests;
  const StepPlan plan = plan_decodes(3, 100, geometry, requests);
  Coverage coverage;
  StepArrays arrays;
  PassCheck(plan, {0, 3}, requests, geometry, coverage).run(4, arrays);
  // 4 * 1024 items have 16 KiB between them, 4 * 8192 blocks have 128 KiB.
  const std::size_t tables = arrays.block_tables.offset + 3 * 7 * 4;
  CHECK(arrays.copies ==
        std::vector<CopyRange>{{0, tables}, {arrays.window_block_tables.offset, 3 * 7 * 4}});
}

TEST_CASE("an empty pass has empty arrays", "[step_arrays]") {
  StepGeometry geometry;
  geometry.block_size = 16;
  geometry.max_model_len = 100;
  geometry.window = 10;
  geometry.has_window_tables = true;
  ForwardBatch batch;
  batch.clear();
  StepArrays arrays;
  lay_out_pass(batch, {}, geometry, 0, arrays);
  CHECK(arrays.num_tokens + arrays.num_sequences + arrays.num_rows + arrays.num_decodes == 0);
  CHECK(arrays.block_bytes <= max_pass_bytes(0, 0, 0, geometry));
  CHECK(arrays.view<std::int32_t>(arrays.query_start)[0] == 0);
  CHECK(arrays.view<std::int32_t>(arrays.window_item_start)[0] == 0);
}

TEST_CASE("splits are cut by the number of decodes", "[step_arrays]") {
  StepGeometry geometry;
  geometry.block_size = 16;
  geometry.max_model_len = 8192;
  const auto size = [&](std::int32_t num) { return decode_split_size(num, geometry); };
  CHECK(Ints{size(0), size(1), size(4)} == Ints{128, 128, 128});
  CHECK(Ints{size(5), size(16), size(17), size(64)} == Ints{256, 256, 512, 512});
  CHECK(Ints{size(65), size(1024)} == Ints{1024, 1024});
  // 1025 decodes of 8 splits would be more than 8192.
  CHECK(Ints{size(1025), size(2048), size(2049), size(8192)} == Ints{2048, 2048, 4096, 8192});
  CHECK_THROWS_AS(size(8193), InvariantError);
  geometry.max_model_len = 1 << 30;
  CHECK(size(8192) == 1 << 30);
  CHECK(size(1) == 1 << 17);
}

TEST_CASE("splits never exceed the items, and more decodes never have smaller ones",
          "[step_arrays]") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "splits");
    StepGeometry geometry;
    geometry.block_size = 16;
    geometry.max_model_len = draw(rng, 1, 1 << draw(rng, 1, 20));
    geometry.max_items = draw(rng, 1, 10'000);
    std::int32_t last = 0;
    for (std::int32_t num = 1; num <= geometry.max_items; num += draw(rng, 1, 300)) {
      const std::int32_t size = decode_split_size(num, geometry);
      CHECK((size >= 128 && size >= last && (size & (size - 1)) == 0));
      CHECK(num * ceil_div(geometry.max_model_len, size) <= geometry.max_items);
      last = size;
    }
  }
}

TEST_CASE("batches that are not what they say break an invariant", "[step_arrays]") {
  Mixed pass;
  CHECK_NOTHROW(pass.lay_out(0));
  CHECK_THROWS_AS(pass.lay_out(4), InvariantError);  // not decodes alone
  CHECK_THROWS_AS(pass.lay_out(-1), InvariantError);

  Mixed longer;
  longer.plan.chunks[0].num_tokens = 5;
  CHECK_THROWS_AS(longer.lay_out(0), InvariantError);
  Mixed elsewhere;
  elsewhere.plan.chunks[1].first_position = 7;
  CHECK_THROWS_AS(elsewhere.lay_out(0), InvariantError);
  Mixed missing;
  missing.plan.chunks.pop_back();
  CHECK_THROWS_AS(missing.lay_out(0), InvariantError);
  Mixed decode;
  decode.plan.chunks[2].kind = ChunkKind::Decode;
  CHECK_THROWS_AS(decode.lay_out(0), InvariantError);
  Mixed too_long;
  too_long.geometry.max_model_len = 9;
  CHECK_THROWS_AS(too_long.lay_out(0), InvariantError);
  Mixed other_blocks;
  other_blocks.geometry.block_size = 3;
  CHECK_THROWS_AS(other_blocks.lay_out(0), InvariantError);
  other_blocks.geometry.block_size = 5;
  CHECK_THROWS_AS(other_blocks.lay_out(0), InvariantError);
  Mixed no_window_tables;
  no_window_tables.geometry.window = 3;
  no_window_tables.geometry.has_window_tables = true;
  CHECK_THROWS_AS(no_window_tables.lay_out(0), InvariantError);

  Mixed crowded;
  crowded.plan.chunks = {{RequestId{1}, 8, 1, ChunkKind::Decode, true},
                         {RequestId{2}, 2, 1, ChunkKind::Decode, true}};
  flatten_pass(crowded.plan, {0, 2}, crowded.requests, 4, crowded.batch);
  CHECK_NOTHROW(crowded.lay_out(2));
  CHECK_THROWS_AS(crowded.lay_out(1), InvariantError);
  crowded.batch.logit_tokens.pop_back();
  CHECK_THROWS_AS(crowded.lay_out(2), InvariantError);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
