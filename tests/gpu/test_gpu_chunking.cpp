// SPDX-License-Identifier: Apache-2.0
// Chunked prefill changes no result on the GPU: three architectures, both caches, neighbours in
// the same steps.
#include <numeric>
#include <stdexcept>

#include "gpu/engine/self_test.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::int32_t kLongPrompt = 300;

// The prompt, and others that come and go beside it. It has an index of its own in every case.
struct Crowd {
  std::vector<LabPrompt> prompts;
  std::uint32_t place = 0;  // of the prompt
};

Crowd draw_crowd(const GpuLab& lab, const LabPrompt& prompt, std::uint64_t seed) {
  Rng rng(seed, "gpu crowd");
  Crowd crowd;
  for (int i = draw(rng, 1, 4); i > 0; --i) {
    const std::int32_t num_tokens = draw(rng, 1, 90);
    crowd.prompts.push_back({lab.ids(rng(), num_tokens), draw(rng, 1, 12), draw(rng, 0, 3)});
  }
  std::sort(crowd.prompts.begin(), crowd.prompts.end(),
            [](const LabPrompt& a, const LabPrompt& b) { return a.arrival_step < b.arrival_step; });
  LabPrompt late = prompt;
  late.arrival_step = 2;
  const auto at = std::find_if(crowd.prompts.begin(), crowd.prompts.end(),
                               [](const LabPrompt& other) { return other.arrival_step > 2; });
  crowd.place = static_cast<std::uint32_t>(at - crowd.prompts.begin());
  crowd.prompts.insert(at, late);
  return crowd;
}

LabSettings roomy(bool is_slotted) {
  LabSettings settings;
  settings.is_slotted = is_slotted;
  settings.block_size = 16;
  settings.num_blocks = 64;
  settings.max_model_len = 400;
  return settings;
}

// Of a prompt with one token of output, everything; of the prompt alone, in one piece.
void check_prompt_in_crowds(const ModelConfig& model, const std::vector<std::int64_t>& chunks,
                            const std::vector<std::int64_t>& slotted_chunks,
                            GpuOptions options = {}) {
  GpuLab lab(lab_source(model));
  options.invariance = Invariance::Chunk;
  options.prefill_span = 128;
  const std::int32_t unit = options.attends_by_wgmma ? 8 : 1;  // of block sizes
  const LabPrompt prompt = {lab.ids(1, kLongPrompt), 1};
  for (const bool is_slotted : {false, true}) {
    const LabSettings settings = roomy(is_slotted);
    const LabRun alone = lab.run(settings, {prompt}, options);
    REQUIRE(alone.journal.prefill_chunks(RequestId{0}) == std::vector<int>{kLongPrompt});
    for (const std::int64_t chunk : is_slotted ? slotted_chunks : chunks) {
      INFO(model.name << ", chunk " << chunk << (is_slotted ? ", slotted" : ", paged"));
      const Crowd crowd = draw_crowd(lab, prompt, static_cast<std::uint64_t>(chunk));
      LabSettings crowded = settings;
      crowded.chunk = chunk;
      if (!is_slotted) crowded.block_size = chunk == 64 ? unit : chunk == 257 ? 104 : 16;
      crowded.num_blocks = 1024 / crowded.block_size;
      const LabRun run = lab.run(crowded, crowd.prompts, options);
      CHECK(run.journal.prefill_chunks(RequestId{crowd.place}).size() ==
            static_cast<std::size_t>(ceil_div(kLongPrompt, chunk)));
      CHECK(is_same(run, crowd.place, alone, 0));
    }
  }
}

void check_self_test(GpuLab& lab, const LabSettings& settings, const GpuOptions& options) {
  const auto engine = lab.make_engine(setup_of(settings), options);
  CHECK(chunking_faults(*engine).empty());
}

}  // namespace

TEST_CASE("a prompt has the same bits in chunks of any size beside others: Llama",
          "[gpu][chunking]") {
  check_prompt_in_crowds(small_gpu_model(Family::Llama), {7, 64}, {128});
}
TEST_CASE("a prompt has the same bits in chunks of any size beside others: Qwen 3",
          "[gpu][chunking]") {
  check_prompt_in_crowds(small_gpu_model(Family::Qwen3), {64, 257}, {7});
}
TEST_CASE("a prompt has the same bits in chunks of any size beside others: Gemma 3",
          "[gpu][chunking]") {
  check_prompt_in_crowds(small_gpu_model(Family::Gemma3), {7, 64}, {257});
}
TEST_CASE("a prompt has the same bits in chunks of any size beside others: 20 query heads",
          "[gpu][chunking]") {
  check_prompt_in_crowds(many_heads_model(), {64}, {7});
}
TEST_CASE("a prompt has the same bits in chunks of any size beside others: by wgmma",
          "[gpu][chunking]") {
  const GpuOptions options = {.attends_by_wgmma = true};
  for (const Family family : kFamilies) {
    check_prompt_in_crowds(small_gpu_model(family), {7, 64}, {100}, options);
  }
  check_prompt_in_crowds(many_heads_model(), {257}, {7}, options);
}
TEST_CASE("a prompt has the same bits in chunks of any size beside others: products by wgmma",
          "[gpu][chunking]") {
  check_prompt_in_crowds(small_gpu_model(Family::Llama), {64}, {7}, {.multiplies_by_wgmma = true});
  check_prompt_in_crowds(small_gpu_model(Family::Gemma3), {257}, {},
                         {.attends_by_wgmma = true, .multiplies_by_wgmma = true});
}
TEST_CASE("a prompt has the same bits in chunks of many sizes beside others",
          "[gpu][chunking][slow]") {
  const std::vector<std::int64_t> chunks = {1, 7, 64, 128, 257, 512};
  for (const Family family : kFamilies) {
    check_prompt_in_crowds(small_gpu_model(family), chunks, chunks);
  }
  check_prompt_in_crowds(many_heads_model(), chunks, chunks);
}

TEST_CASE("passes that are cut for lack of memory give the same bits", "[gpu][chunking]") {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    INFO(name_of(family));
    const std::vector<LabPrompt> prompts = {
        {lab.ids(1, 130), 5, 0}, {lab.ids(2, 9), 8, 0}, {lab.ids(3, 70), 5, 1}};
    const LabSettings settings = {.policy = "continuous", .max_model_len = 200};
    const LabRun whole = lab.run(settings, prompts);
    for (const std::int32_t max_tokens : {16, 37}) {
      INFO("passes of " << max_tokens);
      LabSettings cut = settings;
      cut.async_depth = max_tokens == 16 ? 1 : 2;
      std::int32_t most = 0;
      cut.hook = [&](const ForwardBatch& batch) { most = std::max(most, batch.num_tokens()); };
      const LabRun run = lab.run(cut, prompts, {.max_pass_tokens = max_tokens});
      CHECK(most == max_tokens);
      CHECK(run.journal.tokens_per_step() == whole.journal.tokens_per_step());
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(run.tokens[i] == whole.tokens[i]);
        CHECK(has_same_logits(run, i, whole, i));
        if (cut.async_depth == 1) CHECK(is_same(run, whole, i));
      }
    }
  }
}

TEST_CASE("caches of any block size hold the same bits", "[gpu][chunking]") {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    INFO(name_of(family));
    const std::vector<LabPrompt> prompts = {{lab.ids(1, 75), 10}, {lab.ids(2, 7), 10}};
    const LabRun slotted = lab.run({.chunk = 11, .is_slotted = true}, prompts);
    for (const std::int32_t block_size : {1, 3, 16, 100}) {
      INFO("block size " << block_size);
      const LabRun paged =
          lab.run({.chunk = 11, .block_size = block_size, .num_blocks = 200}, prompts);
      CHECK(is_same(paged, slotted, 0));
      CHECK(is_same(paged, slotted, 1));
    }
  }
}

TEST_CASE("window layers are right at the edge of their window on the GPU", "[gpu][chunking]") {
  GpuLab lab(Family::Gemma3);
  REQUIRE(lab.model().sliding_window == 12);
  for (const std::int32_t length : {11, 12, 13, 25, 76}) {
    const std::vector<LabPrompt> prompts = {{lab.ids(4, length), 6}};
    const LabRun whole = lab.run({}, prompts);
    for (const std::int64_t chunk : {1, 11, 12, 13}) {
      INFO("prompt " << length << ", chunk " << chunk);
      CHECK(is_same(lab.run({.chunk = chunk}, prompts), whole));
    }
  }
  // The window is really there: with only window layers, what lies before it cannot be seen, in a
  // prompt or by a decode.
  ModelConfig model = small_gpu_model(Family::Gemma3);
  model.n_layers = 1;
  GpuLab one_layer(lab_source(model));
  std::vector<TokenId> ids = one_layer.ids(4, 20);
  const auto last_logits = [&] {
    const GpuOptions options = {.invariance = Invariance::Chunk};
    return one_layer.run({}, {{ids, 2}}, options).logits;
  };
  const RequestId request{0};
  const auto before = last_logits();
  ids[7] = ids[7] == TokenId{0} ? TokenId{1} : TokenId{0};  // position 19 sees 8 to 19
  const auto without_7 = last_logits();
  CHECK(has_same_bits(without_7.at({request, 20}), before.at({request, 20})));
  CHECK(has_same_bits(without_7.at({request, 21}), before.at({request, 21})));
  ids[8] = ids[8] == TokenId{0} ? TokenId{1} : TokenId{0};
  const auto without_8 = last_logits();
  CHECK_FALSE(has_same_bits(without_8.at({request, 20}), before.at({request, 20})));
}

TEST_CASE("window layers with blocks of their own hold the same bits", "[gpu][chunking]") {
  GpuLab lab(Family::Gemma3);
  const std::vector<LabPrompt> prompts = {
      {lab.ids(5, 90), 20, 0}, {lab.ids(6, 30), 30, 1}, {lab.ids(7, 5), 30, 2}};
  for (const Invariance invariance : {Invariance::Full, Invariance::Chunk}) {
    for (const std::int32_t block_size : {1, 16}) {
      INFO("block size " << block_size << (invariance == Invariance::Full ? ", full" : ", chunk"));
      LabSettings settings = {
          .policy = "vllm", .budget = 25, .block_size = block_size, .num_blocks = 800 / block_size};
      const LabRun one_table = lab.run(settings, prompts, {.invariance = invariance});
      settings.sliding_window = static_cast<std::int32_t>(kGemmaWindow);
      const LabRun two_tables = lab.run(settings, prompts, {.invariance = invariance});
      CHECK(two_tables.num_free_blocks == two_tables.num_blocks);
      REQUIRE(two_tables.journal.tokens_per_step() == one_table.journal.tokens_per_step());
      for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(two_tables, one_table, i));
    }
  }
}

TEST_CASE("tables with gaps between them reach the device", "[gpu][chunking]") {
  // Ten decodes with blocks of one token: a graph's room for tables is mostly empty, and only what
  // is in use of them is copied.
  GpuLab lab(Family::Gemma3);
  std::vector<LabPrompt> prompts;
  for (std::uint64_t i = 0; i < 10; ++i) prompts.push_back({lab.ids(20 + i, 15), 6});
  LabSettings settings = {.policy = "vllm",
                          .block_size = 1,
                          .num_blocks = 600,
                          .max_num_seqs = 16,
                          .sliding_window = static_cast<std::int32_t>(kGemmaWindow)};
  for (const Invariance invariance : {Invariance::Full, Invariance::Chunk}) {
    const GpuOptions options = {.invariance = invariance};
    const LabRun together = lab.run(settings, prompts, options);
    LabSettings coarse = settings;
    coarse.block_size = 16;
    coarse.num_blocks = 100;
    const LabRun eager = lab.run(coarse, prompts, {.invariance = invariance, .uses_graphs = false});
    for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(together, eager, i));
  }
}

TEST_CASE("a failure in the middle of a chunked prefill leaks nothing on the GPU",
          "[gpu][chunking]") {
  for_all_gpu_families("chunked", [](GpuLab& lab, LabSettings settings) {
    settings.chunk = 8;
    const LabRun alone = lab.run(settings, {{lab.ids(11, 30), 5}});
    for (const int async_depth : {1, 2}) {
      for (const int failing : {1, 4, 5, 6}) {
        if (async_depth == 1 && failing == 1) continue;
        INFO("pass " << failing << " fails, async_depth " << async_depth);
        LabSettings faulty = settings;
        faulty.async_depth = async_depth;
        int num_passes = 0;
        faulty.hook = [&](const ForwardBatch&) {
          if (++num_passes == failing) throw std::runtime_error("injected");
        };
        // The second request arrives when the first has failed, and takes its place.
        const std::vector<LabPrompt> prompts = {{lab.ids(10, 30), 5},
                                                {lab.ids(11, 30), 5, failing + 1}};
        const LabRun run = lab.run(faulty, prompts);
        CHECK(run.ends[0] == EndReason::StepFailed);
        CHECK(run.failure == "request 0: injected");
        CHECK(run.tokens[0].size() == static_cast<std::size_t>(std::max(0, failing - 4)));
        CHECK(run.ends[1] == EndReason::Length);
        CHECK(run.num_free_blocks == run.num_blocks);
        CHECK(run.tokens[1] == alone.tokens[0]);
        CHECK(has_same_logits(run, 1, alone, 0));
      }
    }
  });
}

TEST_CASE("the self-test finds no fault, however little room there is", "[gpu][chunking]") {
  GpuLab llama(Family::Llama);
  LabSettings single = roomy(true);
  single.max_num_seqs = 1;  // one slot: there is no neighbour
  check_self_test(llama, single, {.max_pass_tokens = 16});
  single.is_slotted = false;
  single.num_blocks = 2;
  check_self_test(llama, single, {.invariance = Invariance::Chunk});
  GpuLab qwen(Family::Qwen3);
  check_self_test(qwen, roomy(true), {.invariance = Invariance::Chunk});
  GpuLab lab(Family::Gemma3);
  LabSettings hybrid = roomy(false);
  hybrid.policy = "vllm";
  hybrid.sliding_window = static_cast<std::int32_t>(kGemmaWindow);
  check_self_test(lab, hybrid, {.invariance = Invariance::Chunk});
}

}  // namespace metronome::testing::TEST_FILE
