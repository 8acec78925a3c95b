// SPDX-License-Identifier: Apache-2.0
// Chunked prefill changes no result, on real arithmetic: three architectures, both caches.
#include <stdexcept>

#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

LabSettings with_chunk(LabSettings settings, std::int64_t chunk) {
  settings.chunk = chunk;
  return settings;
}

std::size_t num_emitted_before(const LabRun& run, std::size_t num_steps, RequestId request) {
  std::size_t num_tokens = 0;
  for (std::size_t i = 0; i < num_steps; ++i) {
    for (const ScheduledChunk& chunk : run.journal.steps[i].chunks) {
      num_tokens += chunk.request == request && chunk.num_emitted > 0 ? 1u : 0u;
    }
  }
  return num_tokens;
}

}  // namespace

TEST_CASE("chunked prefill generates the same tokens as whole prefill", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    const std::vector<LabPrompt> prompts = {{lab.ids(1, 32), 20}};
    const LabRun whole = lab.run(settings, prompts);
    REQUIRE(whole.tokens[0].size() == 20);
    const LabRun chunked = lab.run(with_chunk(settings, 16), prompts);
    CHECK(chunked.journal.prefill_chunks(RequestId{0}) == std::vector<int>{16, 16});
    CHECK(chunked.tokens == whole.tokens);
    // The model has something to say: tokens depend on the prompt.
    CHECK(lab.run(settings, {{lab.ids(2, 32), 20}}).tokens != whole.tokens);
  });
}

TEST_CASE("logits and KV are bit-identical for every chunk size", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    const std::vector<LabPrompt> prompts = {{lab.ids(1, 61), 6}};
    const LabRun whole = lab.run(settings, prompts);
    REQUIRE(whole.logits.size() == 6);
    for (const std::int64_t chunk : {1, 2, 3, 5, 7, 12, 16, 17, 31, 32, 60, 61, 512}) {
      INFO("chunk " << chunk);
      CHECK(is_same(lab.run(with_chunk(settings, chunk), prompts), whole));
    }
  });
}

TEST_CASE("slotted and paged caches of any block size hold the same bits", "[cpu][chunking]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    INFO(name_of(family));
    const std::vector<LabPrompt> prompts = {{lab.ids(1, 45), 10}, {lab.ids(2, 7), 10}};
    const LabRun slotted = lab.run({.chunk = 11, .is_slotted = true}, prompts);
    for (const std::int32_t block_size : {1, 3, 4, 8, 16, 24, 32, 100}) {
      INFO("block size " << block_size);
      const LabRun paged = lab.run({.chunk = 11, .block_size = block_size}, prompts);
      CHECK(is_same(paged, slotted, 0));
      CHECK(is_same(paged, slotted, 1));
    }
  }
}

TEST_CASE("window layers are right at the edge of their window", "[cpu][chunking]") {
  // Prompts and chunk ends around the window of 12, where one more token makes the first one fall
  // out of sight.
  Lab lab(Family::Gemma3);
  REQUIRE(lab.model().sliding_window == 12);
  for (const bool is_slotted : {false, true}) {
    for (const std::int32_t length : {11, 12, 13, 14, 23, 24, 25, 36, 37}) {
      const std::vector<LabPrompt> prompts = {{lab.ids(4, length), 15}};
      const LabRun whole = lab.run({.is_slotted = is_slotted}, prompts);
      for (const std::int64_t chunk : {1, 11, 12, 13}) {
        INFO("prompt " << length << ", chunk " << chunk << (is_slotted ? ", slotted" : ""));
        CHECK(is_same(lab.run({.chunk = chunk, .is_slotted = is_slotted}, prompts), whole));
      }
    }
  }
  // The window is really there: with only window layers, what lies before it cannot be seen.
  ModelConfig model = small_model(Family::Gemma3);
  model.n_layers = 1;
  Lab one_layer(model, 1, 3);
  std::vector<TokenId> ids = one_layer.ids(4, 20);
  const auto last_logits = [&] {
    return one_layer.run({}, {{ids, 1}}).logits.at({RequestId{0}, 20});
  };
  const std::vector<float> before = last_logits();
  ids[7] = ids[7] == TokenId{0} ? TokenId{1} : TokenId{0};  // position 19 sees 8 to 19
  CHECK(has_same_bits(last_logits(), before));
  ids[8] = ids[8] == TokenId{0} ? TokenId{1} : TokenId{0};
  CHECK_FALSE(has_same_bits(last_logits(), before));
}

TEST_CASE("prompts that the chunk size does not divide", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    struct Case {
      std::int32_t length;
      std::vector<int> chunks;
    };
    for (const Case& c : {Case{20, {8, 8, 4}}, Case{17, {8, 8, 1}}, Case{9, {8, 1}}}) {
      INFO("prompt " << c.length);
      const std::vector<LabPrompt> prompts = {{lab.ids(5, c.length), 10}};
      const LabRun chunked = lab.run(with_chunk(settings, 8), prompts);
      CHECK(chunked.journal.prefill_chunks(RequestId{0}) == c.chunks);
      CHECK(is_same(chunked, lab.run(settings, prompts)));
    }
  });
}

TEST_CASE("a prompt shorter than the chunk passes in one step", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    const std::vector<LabPrompt> prompts = {{lab.ids(6, 5), 10}};
    const LabRun chunked = lab.run(with_chunk(settings, 8), prompts);
    CHECK(chunked.journal.prefill_chunks(RequestId{0}) == std::vector<int>{5});
    LabSettings unchunked = settings;
    unchunked.policy = "continuous";
    const LabRun whole = lab.run(unchunked, prompts);
    CHECK(chunked.journal.tokens_per_step() == whole.journal.tokens_per_step());
    CHECK(is_same(chunked, whole));
  });
}

TEST_CASE("prompts as long as the chunk, of one token, and shorter", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    for (const std::int32_t length : {1, 7, 8}) {
      INFO("prompt " << length);
      const std::vector<LabPrompt> prompts = {{lab.ids(7, length), 10}};
      const LabRun chunked = lab.run(with_chunk(settings, 8), prompts);
      CHECK(chunked.journal.prefill_chunks(RequestId{0}) == std::vector<int>{length});
      CHECK(is_same(chunked, lab.run(with_chunk(settings, 1), prompts)));
      CHECK(chunked.tokens[0].size() == 10);
    }
  });
}

TEST_CASE("the cached length is the progress after every chunk", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    // The engine checks num_cached_tokens == num_computed_tokens after each step; here, that the
    // cache really holds those positions and no others: each chunk begins where the last one
    // ended, and ends with the prompt.
    const std::vector<LabPrompt> prompts = {{lab.ids(8, 21), 3}};
    std::vector<std::int32_t> context_lens;
    LabSettings watched = with_chunk(settings, 8);
    watched.hook = [&](const ForwardBatch& batch) {
      context_lens.push_back(batch.context_lens[0]);
    };
    const LabRun run = lab.run(watched, prompts);
    CHECK(context_lens == std::vector<std::int32_t>{8, 16, 21, 22, 23});
    std::int32_t progress = 0;
    for (const Journal::Step& step : run.journal.steps) {
      REQUIRE(step.chunks.size() == 1);
      CHECK(step.chunks[0].first_position == progress);
      progress = step.chunks[0].end_position();
    }
    const auto per_position = static_cast<std::size_t>(
        2 * lab.model().n_layers * lab.model().n_kv_heads * lab.model().head_dim);
    CHECK(run.kv.at(RequestId{0}).size() == 23 * per_position);
  });
}

TEST_CASE("nothing is emitted before the last chunk of a prompt", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    const LabRun run = lab.run(with_chunk(settings, 8), {{lab.ids(9, 30), 4}});
    CHECK(num_emitted_before(run, 3, RequestId{0}) == 0);  // 8, 16, 24 of 30
    CHECK(num_emitted_before(run, 4, RequestId{0}) == 1);
    CHECK(run.journal.steps.size() == 7);
    CHECK(run.logits.size() == 4);  // and none is computed for nothing
  });
}

TEST_CASE("a failure in the middle of a chunked prefill leaks nothing", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    for (const std::int32_t failing : {1, 2, 3, 4, 10, 11, 12, 13}) {
      INFO("pass " << failing % 9 << " fails, async_depth " << failing / 9 + 1);
      LabSettings faulty = with_chunk(settings, 8);
      faulty.async_depth = failing / 9 + 1;
      std::int32_t num_passes = 0;
      faulty.hook = [&](const ForwardBatch&) {
        if (++num_passes == failing % 9) throw std::runtime_error("injected");
      };
      // The second request arrives when the first has failed, and takes its place.
      const std::vector<LabPrompt> prompts = {{lab.ids(10, 30), 5},
                                              {lab.ids(11, 30), 5, failing % 9}};
      const LabRun run = lab.run(faulty, prompts);
      CHECK(run.ends[0] == EndReason::StepFailed);
      CHECK(run.failure == "request 0: injected");
      CHECK(run.tokens[0].empty());
      CHECK(run.ends[1] == EndReason::Length);
      CHECK(run.num_free_blocks == run.num_blocks);
      const LabRun alone = lab.run(with_chunk(settings, 8), {{lab.ids(11, 30), 5}});
      CHECK(is_same(run, 1, alone, 0));
    }
  });
}

TEST_CASE("prefills at different progress share a step", "[cpu][chunking]") {
  for_all_caches("chunked", [](Lab& lab, const LabSettings& settings) {
    const std::vector<LabPrompt> prompts = {
        {lab.ids(12, 40), 8, 0}, {lab.ids(13, 25), 8, 1}, {lab.ids(14, 33), 8, 2}};
    const LabRun together = lab.run(with_chunk(settings, 8), prompts);
    CHECK(together.journal.tokens_per_step()[2] == 24);  // three chunks, begun at 16, 8 and 0
    const LabRun whole = lab.run(settings, prompts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("request " << i);
      CHECK(is_same(together, whole, i));
      LabPrompt alone = prompts[i];
      alone.arrival_step = 0;
      CHECK(is_same(together, i, lab.run(settings, {alone}), 0));
    }

    LabSettings capped = with_chunk(settings, 8);
    capped.max_chunks = 2;
    const LabRun with_cap = lab.run(capped, prompts);
    for (const Journal::Step& step : with_cap.journal.steps) {
      CHECK(std::count_if(step.chunks.begin(), step.chunks.end(), [](const ScheduledChunk& chunk) {
              return chunk.kind == ChunkKind::Prefill;
            }) <= 2);
    }
    for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(with_cap, together, i));
  });
}

}  // namespace metronome::testing::TEST_FILE
