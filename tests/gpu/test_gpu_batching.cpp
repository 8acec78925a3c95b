// SPDX-License-Identifier: Apache-2.0
// Promises of continuous batching on the GPU: a request's logits, KV and tokens are its
// own, whoever it shares steps, blocks and graphs with.
#include "tests/catch.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::int32_t kOutput = 9;

std::vector<LabPrompt> five_prompts(const GpuLab& lab) {
  std::vector<LabPrompt> prompts;
  for (std::int32_t i = 0; i < 5; ++i) {
    prompts.push_back({lab.ids(50 + static_cast<std::uint64_t>(i), 10 + 17 * i), kOutput, i});
  }
  return prompts;
}

}  // namespace

TEST_CASE("every policy gives a request the same bits on the GPU", "[gpu][batching]") {
  std::size_t num_cases = 0;
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    const std::vector<LabPrompt> prompts = five_prompts(lab);
    std::vector<LabRun> alone;
    for (const LabPrompt& prompt : prompts) {
      alone.push_back(
          lab.run({.policy = "continuous"}, {{prompt.ids, kOutput}}, {.keeps_kv = false}));
    }
    for (const PolicyInfo& policy : all_policies()) {
      // Every policy with one of the models, and every other one with two steps in flight.
      const std::size_t place = static_cast<std::size_t>(&policy - all_policies().data());
      if (place % std::size(kFamilies) != static_cast<std::size_t>(family)) continue;
      const std::int32_t async_depth = num_cases++ % 2 == 0 ? 2 : 1;
      INFO(name_of(family) << ", " << policy.name << ", async_depth " << async_depth);
      const LabRun run =
          lab.run({.policy = std::string(policy.name),
                   .chunk = 8,
                   .budget = 128,  // of those that prefill a prompt and its output at once
                   .num_blocks = 50,
                   .shape = policy.requires_separate ? StepShape::Separate : StepShape::Mixed,
                   .async_depth = async_depth,
                   .caches_prefixes = policy.prefix_caching == PrefixCaching::Always},
                  prompts, {.uses_graphs = num_cases % 3 != 0, .keeps_kv = false});
      CHECK(run.num_free_blocks == run.num_blocks);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        INFO("request " << i << ", " << run.tokens[i].size() << " tokens, "
                        << to_string(run.ends[i]));
        // Sarathi's kin give an evicted request its whole output again; llama.cpp gives up on
        // requests it has no cells for.
        const std::vector<TokenId>& tokens = run.tokens[i];
        REQUIRE((tokens.size() >= kOutput || policy.name == "llama_cpp"));
        const std::size_t num_shared = std::min<std::size_t>(kOutput, tokens.size());
        CHECK(std::equal(tokens.begin(), tokens.begin() + static_cast<long>(num_shared),
                         alone[i].tokens[0].begin()));
        for (const auto& [key, logits] : alone[i].logits) {
          const auto found = run.logits.find({RequestId{i}, key.second});
          if (found != run.logits.end()) CHECK(has_same_bits(found->second, logits));
        }
      }
    }
  }
  CHECK(num_cases == all_policies().size());
}

TEST_CASE("a replayed graph gives the bits of the same kernels launched one by one",
          "[gpu][batching][slow]") {
  for_all_gpu_families("continuous", [](GpuLab& lab, LabSettings settings) {
    // From one decode to seven, each number for some steps: buckets of 1, 2, 4 and 8.
    std::vector<LabPrompt> prompts;
    for (std::int32_t i = 0; i < 7; ++i) {
      prompts.push_back({lab.ids(60 + static_cast<std::uint64_t>(i), 3 + 15 * i), 11 - i, i});
    }
    for (const Invariance invariance : {Invariance::None, Invariance::Chunk, Invariance::Full}) {
      INFO("invariance " << static_cast<int>(invariance));
      settings.async_depth = invariance == Invariance::Chunk ? 2 : 1;
      const LabRun eager =
          lab.run(settings, prompts, {.invariance = invariance, .uses_graphs = false});
      const LabRun graph =
          lab.run(settings, prompts, {.invariance = invariance, .uses_graphs = true});
      const LabRun early =
          lab.run(settings, prompts,
                  {.invariance = invariance, .uses_graphs = true, .launches_early = true});
      const LabRun early_eager =
          lab.run(settings, prompts,
                  {.invariance = invariance, .uses_graphs = false, .launches_early = true});
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same_text(eager, i, graph, i));
        CHECK(is_same_text(eager, i, early, i));
        CHECK(is_same_text(eager, i, early_eager, i));
        if (settings.async_depth > 1) continue;
        CHECK(is_same(eager, graph, i));
        CHECK(is_same(eager, early, i));
        CHECK(is_same(eager, early_eager, i));
      }
    }
  });
}

TEST_CASE("products by wgmma have the same bits in graphs and launched early", "[gpu][batching]") {
  for_all_gpu_families("continuous", [](GpuLab& lab, LabSettings settings) {
    const std::vector<LabPrompt> prompts = {{lab.ids(60, 3), 4, 0}, {lab.ids(61, 90), 3, 1}};
    for (const Invariance invariance : {Invariance::None, Invariance::Full}) {
      INFO("invariance " << static_cast<int>(invariance));
      GpuOptions options = {
          .invariance = invariance, .uses_graphs = false, .multiplies_by_wgmma = true};
      const LabRun eager = lab.run(settings, prompts, options);
      options.uses_graphs = true;
      const LabRun graph = lab.run(settings, prompts, options);
      options.launches_early = true;
      const LabRun early = lab.run(settings, prompts, options);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same(eager, graph, i));
        CHECK(is_same(eager, early, i));
      }
    }
  });
}

TEST_CASE("fused decodes have the same bits in graphs and launched early, and prompts keep theirs",
          "[gpu][batching][slow]") {
  for_all_gpu_families("continuous", [](GpuLab& lab, LabSettings settings) {
    std::vector<LabPrompt> prompts;
    for (std::int32_t i = 0; i < 7; ++i) {
      prompts.push_back({lab.ids(60 + static_cast<std::uint64_t>(i), 3 + 15 * i), 11 - i, i});
    }
    for (const Invariance invariance : {Invariance::None, Invariance::Chunk, Invariance::Full}) {
      INFO("invariance " << static_cast<int>(invariance));
      const LabRun apart =
          lab.run(settings, prompts, {.invariance = invariance, .uses_graphs = false});
      const LabRun eager =
          lab.run(settings, prompts,
                  {.invariance = invariance, .uses_graphs = false, .fuses_decodes = true});
      const LabRun graph =
          lab.run(settings, prompts,
                  {.invariance = invariance, .uses_graphs = true, .fuses_decodes = true});
      const LabRun early = lab.run(settings, prompts,
                                   {.invariance = invariance,
                                    .uses_graphs = true,
                                    .launches_early = true,
                                    .fuses_decodes = true});
      bool is_apart = false;
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same(eager, graph, i));
        CHECK(is_same(eager, early, i));
        const std::pair first = {RequestId{i}, static_cast<std::int32_t>(prompts[i].ids.size())};
        // Where all is computed without regard to the batch there is no fused pass.
        if (invariance == Invariance::Full) CHECK(is_same(apart, eager, i));
        CHECK(has_same_bits(apart.logits.at(first), eager.logits.at(first)));
        is_apart = is_apart || !is_same_text(apart, i, eager, i);
      }
      CHECK(is_apart == (invariance != Invariance::Full));
    }
  });
}

TEST_CASE("asynchronous scheduling and separate steps give the same bits on the GPU",
          "[gpu][batching]") {
  for_all_gpu_families("token_budget", [](GpuLab& lab, LabSettings settings) {
    settings.budget = 16;
    std::vector<LabPrompt> prompts = {
        {lab.ids(30, 30), 15, 0}, {lab.ids(31, 9), 15, 1}, {lab.ids(32, 26), 15, 2}};
    const LabRun expected = lab.run(settings, prompts);
    LabSettings mixed = settings;
    mixed.async_depth = 2;
    LabSettings separate = settings;
    separate.shape = StepShape::Separate;
    LabSettings both = mixed;
    both.shape = StepShape::Separate;
    for (const LabSettings& other : {mixed, separate, both}) {
      const LabRun run = lab.run(other, prompts);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same_text(run, i, expected, i));
      }
    }
    // Completes a prompt and decodes it in one step, where a graph pads three decodes to four: in
    // each of the three regions for what is sampled.
    LabSettings single = both;
    single.policy = "single_prefill";
    for (const std::int64_t arrival : {2, 4, 5}) {
      prompts[2].arrival_step = arrival;
      const LabRun run = lab.run(single, prompts);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same_text(run, i, expected, i));
      }
    }
  });
}

TEST_CASE("preemption and recomputation give the same bits on the GPU", "[gpu][batching]") {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    INFO(name_of(family));
    std::vector<LabPrompt> prompts;
    for (std::uint64_t i = 0; i < 4; ++i) prompts.push_back({lab.ids(20 + i, 12), 22});
    LabSettings settings = {.policy = "vllm", .budget = 16, .num_blocks = 18};
    const LabRun tight = lab.run(settings, prompts);
    REQUIRE(tight.num_preemptions >= 2);
    settings.async_depth = 2;
    const LabRun tight_async = lab.run(settings, prompts);
    REQUIRE(tight_async.num_preemptions >= 2);
    settings.async_depth = 1;
    settings.num_blocks = 512;
    const LabRun roomy = lab.run(settings, prompts);
    REQUIRE(roomy.num_preemptions == 0);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("request " << i);
      CHECK(is_same(tight, roomy, i));
      CHECK(is_same_text(tight_async, i, roomy, i));
    }
  }
}

TEST_CASE("a cached prefix gives the same bits as computing it on the GPU", "[gpu][batching]") {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    INFO(name_of(family));
    const std::vector<TokenId> shared = lab.ids(35, 24);
    std::vector<LabPrompt> prompts;
    for (std::uint64_t i = 0; i < 4; ++i) {
      std::vector<TokenId> ids = shared;
      const std::vector<TokenId> own = lab.ids(36 + i, 9);
      ids.insert(ids.end(), own.begin(), own.end());
      prompts.push_back({ids, 8, static_cast<std::int64_t>(i)});
    }
    std::vector<LabRun> alone;
    for (const LabPrompt& prompt : prompts) {
      alone.push_back(lab.run({.policy = "continuous"}, {{prompt.ids, 8}}));
    }
    for (const char* policy : {"vllm", "sglang", "nano_vllm"}) {
      INFO(policy);
      const LabRun hits =
          lab.run({.policy = policy, .budget = 20, .caches_prefixes = true}, prompts);
      REQUIRE(hits.prefix_hits.back() > 0);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same(hits, i, alone[i], 0));
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
