// SPDX-License-Identifier: Apache-2.0
// Speculative decoding changes no token, whatever proposes the drafts and however many are right.
#include <memory>

#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/draws.h"
#include "tests/random_serving.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Few tokens, so that texts repeat themselves and models agree by chance.
ModelConfig drawn_model(Rng& rng, Family family, std::int64_t vocab_size) {
  ModelConfig model = small_model(family);
  model.n_layers = draw(rng, 1, 3);
  model.hidden_dim = draw(rng, 12, 48);
  model.head_dim = 2 * draw(rng, 4, 9);
  model.ffn_dim = draw(rng, 20, 70);
  model.vocab_size = vocab_size;
  return model;
}

// A case of policy vllm with its own chunk sizes.
RandomServing draw_vllm_serving(Rng& rng, Family family, std::int64_t vocab_size, bool is_ngram) {
  RandomServing random = draw_serving(rng, family, vocab_size);
  random.policy = find_policy("vllm");
  LabSettings& settings = random.settings;
  settings.policy = "vllm";
  settings.is_slotted = false;
  settings.caches_prefixes = chance(rng, 0.6);
  if (is_ngram) settings.async_depth = 1;
  if (family == Family::Gemma3 && settings.sliding_window == 0 && chance(rng, 0.5)) {
    settings.sliding_window = static_cast<std::int32_t>(kGemmaWindow);
    settings.num_blocks *= 2;
  }
  const std::int32_t threshold = chance(rng, 0.5) ? draw(rng, 1, 20) : 0;
  std::vector<std::int32_t> by_size;  // drafts by the number of requests in a step
  if (chance(rng, 0.25)) {
    for (int i = 0; i <= settings.max_num_seqs; ++i) by_size.push_back(draw(rng, 0, 8));
  }
  settings.adjust = [threshold, by_size](SchedulerConfig& config) {
    config.edit<VllmConfig>().long_prefill_token_threshold = threshold;
    config.drafts.by_batch_size = by_size;
  };
  if (chance(rng, 0.3)) settings.sampling.num_logprobs = draw(rng, 0, 4);
  return random;
}

// KV that was written behind a stop token is none of the request's.
void forget_stopped(LabRun& run) {
  for (std::uint32_t i = 0; i < run.ends.size(); ++i) {
    if (run.ends[i] == EndReason::Stop) run.kv.erase(RequestId{i});
  }
}

void check_random_drafts(std::uint64_t begin, std::uint64_t end, bool is_ngram) {
  const Coverage least = {{"preemptions", 20}, {"prefix hits", 50},  {"stop", 25},
                          {"length", 150},     {"failed steps", 15}, {"aborted", 3},
                          {"logits", 2'000},   {"window runs", 10},  {"kv", 90},
                          {"proposed", 1'500}, {"accepted", 100}};
  check_random_servings(begin, end, least, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, is_ngram ? "ngram property" : "draft model property");
    const Family family = kFamilies[draw(rng, 0, 2)];
    const Family drafter_family = kFamilies[draw(rng, 0, 2)];
    const std::int32_t vocab_size = draw(rng, 5, 40);
    Lab lab(drawn_model(rng, family, vocab_size), 1, seed);
    Lab drafter(drawn_model(rng, drafter_family, vocab_size), 1, seed + 1);
    const RandomServing random = draw_vllm_serving(rng, family, vocab_size, is_ngram);
    LabDrafts drafts = {.num_tokens = draw(rng, 1, 8), .min_length = draw(rng, 1, 2)};
    drafts.max_length = draw(rng, drafts.min_length, 4);
    if (!is_ngram) drafts.drafter = chance(rng, 0.5) ? &drafter : &lab;
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random) << ", " << drafts.num_tokens
                                    << " drafts, drafter " << name_of(drafter_family));
    DraftTally counts;
    check_serving(
        random, ServingLimits{.keeps_all_kv = false},
        [&](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
          LabRun run = lab.run_drafting(settings, prompts, drafts, counts);
          forget_stopped(run);
          return run;
        },
        [&](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
          return lab.run(settings, prompts);
        },
        coverage);
    coverage["proposed"] += counts.num_proposed;
    coverage["accepted"] += counts.num_accepted;
  });
}

}  // namespace

TEST_CASE("looked-up drafts change nothing of random serving", "[cpu][drafts][property]") {
  check_random_drafts(0, 64, true);
}

TEST_CASE("a draft model changes nothing of random serving", "[cpu][drafts][property]") {
  check_random_drafts(0, 64, false);
}

TEST_CASE("drafts change nothing of much more random serving", "[cpu][drafts][property][slow]") {
  check_random_drafts(64, 1'064, true);
  check_random_drafts(64, 1'064, false);
}

TEST_CASE("every number of drafts and every chunk size gives the tokens of plain decoding",
          "[cpu][drafts]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    Lab other(family, 1, 4);
    std::vector<LabPrompt> prompts = repetitive_prompts(lab.model().vocab_size, 6, 24);
    prompts.resize(3);
    for (const double temperature : {0.0, 1.2}) {
      LabSettings settings = {.policy = "vllm", .budget = 64};
      settings.sampling = {
          .temperature = temperature, .seed = 5, .ignore_eos = true, .num_logprobs = 2};
      const LabRun plain = lab.run(settings, prompts);
      for (std::int32_t k = 1; k <= 8; ++k) {
        constexpr std::int32_t kChunks[] = {1, 2, 3, 5, 8, 13, 21, 0};
        settings.adjust = [chunk = kChunks[k - 1]](SchedulerConfig& config) {
          config.edit<VllmConfig>().long_prefill_token_threshold = chunk;
        };
        settings.async_depth = 1;
        DraftTally counts;
        const LabDrafts lookup = {.num_tokens = k};
        const LabRun looked_up = lab.run_drafting(settings, prompts, lookup, counts);
        settings.async_depth = 1 + k % 2;
        const LabDrafts model = {.num_tokens = k, .drafter = &other};
        const LabRun drafted = lab.run_drafting(settings, prompts, model, counts);
        INFO(name_of(family) << ", temperature " << temperature << ", " << k << " drafts");
        for (std::uint32_t i = 0; i < prompts.size(); ++i) {
          CHECK(is_same(looked_up, plain, i));
          CHECK(is_same(drafted, plain, i));
          CHECK(looked_up.outputs[i].logprobs == plain.outputs[i].logprobs);
          CHECK(drafted.outputs[i].logprobs == plain.outputs[i].logprobs);
        }
      }
    }
  }
}

// Greedy, a model agrees with its own drafts. So one that is rejected shows KV that is wrong.
TEST_CASE("a model accepts every draft of its own", "[cpu][drafts]") {
  struct Case {
    const char* name;
    bool caches_prefixes;
    std::int64_t num_blocks;
    std::int32_t threshold;
  };
  const Case cases[] = {{"roomy", false, 512, 0},
                        {"prefixes", true, 512, 0},
                        {"small cache", false, 30, 7},
                        {"small cache, prefixes", true, 30, 3}};
  for (const Family family : kFamilies) {
    Lab lab(family);
    const std::vector<LabPrompt> prompts = repetitive_prompts(lab.model().vocab_size, 6, 24);
    for (const Case& c : cases) {
      for (const std::int32_t async_depth : {1, 2}) {
        INFO(name_of(family) << ", " << c.name << ", async_depth " << async_depth);
        LabSettings settings = {.policy = "vllm", .budget = 48};
        settings.num_blocks = c.num_blocks;
        settings.caches_prefixes = c.caches_prefixes;
        settings.async_depth = async_depth;
        settings.adjust = [&c](SchedulerConfig& config) {
          config.edit<VllmConfig>().long_prefill_token_threshold = c.threshold;
        };
        DraftTally counts;
        const LabDrafts drafts = {.num_tokens = 3, .drafter = &lab};
        const LabRun run = lab.run_drafting(settings, prompts, drafts, counts);
        CHECK(run.tokens == lab.run({.policy = "continuous"}, prompts).tokens);
        CHECK(counts.num_accepted == counts.num_proposed);
        CHECK(counts.num_proposed > 50);
        if (c.num_blocks < 100) CHECK(run.num_preemptions > 0);
        if (c.caches_prefixes) CHECK(run.prefix_hits.back() > 0);
      }
    }
  }
}

TEST_CASE("two steps in flight verify the drafts of one", "[cpu][drafts]") {
  Lab lab(Family::Llama);
  Lab other(Family::Qwen3, 1, 8);
  const std::vector<LabPrompt> prompts = {{lab.ids(5, 20), 60}};
  LabSettings settings = {.policy = "vllm"};
  settings.sampling = {.temperature = 0.3, .ignore_eos = true};
  DraftTally one;
  DraftTally two;
  const LabDrafts drafts = {.num_tokens = 4, .drafter = &other};
  const LabRun first = lab.run_drafting(settings, prompts, drafts, one);
  settings.async_depth = 2;
  const LabRun second = lab.run_drafting(settings, prompts, drafts, two);
  CHECK(first.tokens == second.tokens);
  CHECK(one.num_accepted == two.num_accepted);
  CHECK(one.num_proposed == two.num_proposed);
}

TEST_CASE("padding at admission is not verified", "[cpu][drafts]") {
  Lab lab(Family::Llama);
  // The second prompt is the first one, but for its last token, which is computed alone.
  std::vector<TokenId> ids = lab.ids(6, 17);
  const std::vector<LabPrompt> prompts = {{ids, 40, 0}, {ids, 12, 4}};
  LabSettings settings = {.policy = "vllm"};
  settings.caches_prefixes = true;
  DraftTally counts;
  const LabDrafts drafts = {.num_tokens = 3, .drafter = &lab};
  const LabRun run = lab.run_drafting(settings, prompts, drafts, counts);
  REQUIRE(run.prefix_hits[1] == 16);
  CHECK(counts.num_rows == counts.num_proposed + 3);
  CHECK(counts.num_accepted == counts.num_proposed);
  CHECK(run.tokens == lab.run({.policy = "continuous"}, prompts).tokens);
}

TEST_CASE("drafts end at max_model_len", "[cpu][drafts]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    LabSettings settings = {.policy = "vllm"};
    settings.max_model_len = 41;
    const std::vector<LabPrompt> prompts = {{lab.ids(7, 20), 21}, {lab.ids(8, 33), 8}};
    const LabRun plain = lab.run(settings, prompts);
    for (const std::int32_t k : {1, 5, 8}) {
      for (const std::int32_t async_depth : {1, 2}) {
        settings.async_depth = async_depth;
        DraftTally counts;
        const LabDrafts drafts = {.num_tokens = k, .drafter = &lab};
        const LabRun run = lab.run_drafting(settings, prompts, drafts, counts);
        INFO(name_of(family) << ", " << k << " drafts, async_depth " << async_depth);
        for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(run, plain, i));
        CHECK(run.num_free_blocks == run.num_blocks);
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
