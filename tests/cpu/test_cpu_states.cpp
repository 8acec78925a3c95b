// SPDX-License-Identifier: Apache-2.0
// A model with recurrent states (Qwen3-Next) under a real engine: tokens, logits, KV and states of
// a request are the same bits in every chunking, batch, cache and thread, after preemptions, and
// after a prefix hit at another request's state. LabRun::kv has the states, too.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/random_serving.h"

namespace metronome::testing::TEST_FILE {
namespace {

LabSettings vllm_settings(std::int32_t num_groups, bool caches_prefixes) {
  return {.policy = "vllm", .caches_prefixes = caches_prefixes, .num_state_groups = num_groups};
}

std::vector<TokenId> joined(std::vector<TokenId> prefix, const std::vector<TokenId>& rest) {
  prefix.insert(prefix.end(), rest.begin(), rest.end());
  return prefix;
}

// A case that a model with states can have. Most are of the policy that caches states; nobody else
// caches prefixes.
RandomServing draw_state_serving(Rng& rng, std::int64_t vocab_size) {
  const bool is_vllm = rng.uniform_int(0, 9) < 6;
  RandomServing random = draw_serving(rng, Family::Qwen3Next, vocab_size);
  while (is_vllm ? random.policy->name != "vllm"
                 : random.policy->prefix_caching == PrefixCaching::Always) {
    random = draw_serving(rng, Family::Qwen3Next, vocab_size);
  }
  LabSettings& settings = random.settings;
  if (random.policy->name != "vllm") {
    settings.caches_prefixes = false;
  } else if (!settings.is_slotted) {
    settings.num_state_groups = static_cast<std::int32_t>(rng.uniform_int(1, 4));
    settings.num_blocks += 1 + 3 * settings.num_state_groups;
  }
  return random;
}

}  // namespace

TEST_CASE("states are the same bits for every chunk size, mixed and separate",
          "[cpu][states][chunking]") {
  Lab lab(Family::Qwen3Next);
  const std::vector<LabPrompt> prompts = {{lab.ids(1, 41), 6}, {lab.ids(2, 9), 12, 1}};
  const LabRun whole = lab.run({}, prompts);
  REQUIRE(whole.tokens[0].size() == 6);
  CHECK(lab.run({}, {{lab.ids(3, 41), 6}}).tokens[0] != whole.tokens[0]);
  for (std::int64_t chunk = 1; chunk <= 41; ++chunk) {
    for (const StepShape shape : {StepShape::Mixed, StepShape::Separate}) {
      INFO("chunk " << chunk << (shape == StepShape::Separate ? ", separate" : ", mixed"));
      LabSettings settings = {.chunk = chunk, .shape = shape};
      const LabRun run = lab.run(settings, prompts);
      CHECK(is_same(run, whole, 0));
      CHECK(is_same(run, whole, 1));
    }
  }
  for (const char* policy : {"continuous", "token_budget", "sarathi", "sglang", "fastgen"}) {
    for (const std::int32_t async_depth : {1, 2}) {
      INFO(policy << ", async_depth " << async_depth);
      LabSettings settings = {.policy = policy, .chunk = 12, .async_depth = async_depth};
      settings.adjust = [](SchedulerConfig& config) { set_own_budget(config, 12, 0); };
      const LabRun run = lab.run(settings, prompts);
      CHECK(is_same_text(run, 0, whole, 0));
      CHECK(is_same_text(run, 1, whole, 1));
    }
  }
}

TEST_CASE("states in groups of KV blocks hold the same bits", "[cpu][states][chunking]") {
  Lab lab(Family::Qwen3Next);
  const std::vector<LabPrompt> prompts = {{lab.ids(4, 37), 9}, {lab.ids(5, 18), 9, 2}};
  const LabRun whole = lab.run({}, prompts);
  for (const bool caches_prefixes : {false, true}) {
    for (const std::int32_t num_groups : {1, 2, 3, 4}) {
      for (const std::int32_t block_size : {1, 4, 7, 16, 32, 100}) {
        for (const std::int64_t budget : {3, 9, 20, 512}) {
          INFO(num_groups << " groups, blocks of " << block_size << ", budget " << budget
                          << (caches_prefixes ? ", cached" : ""));
          LabSettings settings = vllm_settings(num_groups, caches_prefixes);
          settings.block_size = block_size;
          settings.budget = budget;
          settings.max_num_seqs = 3;
          const LabRun run = lab.run(settings, prompts);
          CHECK(is_same(run, whole, 0));
          CHECK(is_same(run, whole, 1));
          CHECK(run.num_free_blocks == run.num_blocks);
        }
      }
    }
  }
}

TEST_CASE("threads change no bit of a state", "[cpu][states]") {
  const std::vector<LabPrompt> prompts = {{Lab(Family::Qwen3Next).ids(6, 60), 10}};
  Lab one(Family::Qwen3Next, 1);
  const LabRun expected = one.run({.chunk = 25}, prompts);
  for (const int num_threads : {2, 3, 4}) {
    INFO(num_threads << " threads");
    Lab lab(Family::Qwen3Next, num_threads);
    CHECK(is_same(lab.run({.chunk = 25}, prompts), expected));
    CHECK(is_same(lab.run(vllm_settings(2, true), prompts), expected));
  }
}

TEST_CASE("a preempted request computes its state again", "[cpu][states]") {
  Lab lab(Family::Qwen3Next);
  std::vector<LabPrompt> prompts;
  for (std::uint64_t i = 0; i < 4; ++i) prompts.push_back({lab.ids(10 + i, 30), 30});
  const LabRun whole = lab.run({}, prompts);
  for (const bool caches_prefixes : {false, true}) {
    for (const std::int64_t budget : {7, 30}) {
      INFO("budget " << budget << (caches_prefixes ? ", cached" : ""));
      // Prompts fit side by side, outputs do not. With little budget, a prompt is in the middle
      // when it loses its blocks.
      LabSettings settings = vllm_settings(2, caches_prefixes);
      settings.num_blocks = 45;
      settings.budget = budget;
      settings.max_num_seqs = 4;
      settings.adjust = [](SchedulerConfig& config) {
        config.edit<VllmConfig>().scheduler_reserve_full_isl = false;
      };
      const LabRun run = lab.run(settings, prompts);
      CHECK(run.num_preemptions > 0);
      CHECK(run.num_free_blocks == run.num_blocks);
      for (std::uint32_t i = 0; i < 4; ++i) CHECK(is_same(run, whole, i));
    }
  }
  // Here the states are beside the blocks.
  LabSettings settings = {.policy = "chunked", .chunk = 7, .num_blocks = 34, .max_num_seqs = 4};
  const LabRun run = lab.run(settings, prompts);
  CHECK(run.num_preemptions > 0);
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(is_same(run, whole, i));
}

TEST_CASE("a prefix hit resumes from the state at its end", "[cpu][states]") {
  Lab lab(Family::Qwen3Next);
  const std::vector<TokenId> prefix = lab.ids(20, 29);
  const std::vector<LabPrompt> prompts = {{joined(prefix, lab.ids(21, 4)), 5},
                                          {joined(prefix, lab.ids(22, 9)), 8, 12},
                                          {joined(prefix, lab.ids(21, 4)), 5, 30}};
  const LabRun whole = lab.run({}, prompts);
  for (const std::int32_t num_groups : {1, 3}) {
    for (const std::int32_t async_depth : {1, 2}) {
      for (const std::int64_t budget : {9, 17, 512}) {
        INFO(num_groups << " groups, async_depth " << async_depth << ", budget " << budget);
        LabSettings settings = vllm_settings(num_groups, true);
        settings.block_size = 8;
        settings.budget = budget;
        settings.async_depth = async_depth;
        const LabRun run = lab.run(settings, prompts);
        // The first prompt, 33 tokens, leaves the state of 32. Only the same prompt has it.
        CHECK(run.prefix_hits[2] == 32);
        for (std::uint32_t i = 0; i < 3; ++i) {
          INFO("request " << i);
          CHECK(is_same_text(run, i, whole, i));
          if (async_depth == 1) CHECK(is_same(run, i, whole, i));
        }
      }
    }
  }
}

TEST_CASE("a failed step leaves no state that another request finds", "[cpu][states]") {
  Lab lab(Family::Qwen3Next);
  const std::vector<TokenId> ids = lab.ids(30, 33);
  const LabRun whole = lab.run({}, {{ids, 5}});
  for (int failing = 1; failing <= 6; ++failing) {
    for (const std::int32_t async_depth : {1, 2}) {
      INFO("pass " << failing << " fails, async_depth " << async_depth);
      LabSettings settings = vllm_settings(2, true);
      settings.block_size = 8;
      settings.budget = 11;
      settings.async_depth = async_depth;
      int num_passes = 0;
      settings.hook = [&](const ForwardBatch&) {
        if (++num_passes == failing) throw std::runtime_error("injected");
      };
      const LabRun run = lab.run(settings, {{ids, 5}, {ids, 5, failing}});
      CHECK(run.ends[0] == EndReason::StepFailed);
      CHECK(run.num_free_blocks == run.num_blocks);
      if (run.ends[1] == EndReason::Length) CHECK(is_same_text(run, 1, whole, 0));
    }
  }
}

TEST_CASE("random serving of a model with states gives every request what it gets alone",
          "[cpu][states][property]") {
  Lab lab(Family::Qwen3Next);
  const std::int64_t vocab_size = lab.model().vocab_size;
  const Coverage least = {{"preemptions", 10}, {"prefix hits", 3}, {"failed steps", 20},
                          {"kv", 150},         {"logits", 2'000},  {"vllm", 20}};
  const ServeFn serve = [&](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
    return lab.run(settings, prompts);
  };
  check_random_servings(0, 300, least, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "states property");
    const RandomServing random = draw_state_serving(rng, vocab_size);
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random) << ", "
                                    << random.settings.num_state_groups << " groups");
    check_serving(random, ServingLimits{}, serve, serve, coverage);
  });
}

}  // namespace metronome::testing::TEST_FILE
