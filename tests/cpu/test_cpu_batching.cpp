// SPDX-License-Identifier: Apache-2.0
// Promises of continuous batching, on real arithmetic: a request's logits, KV and tokens
// are its own, whoever it shares steps, blocks and threads with.
#include <stdexcept>

#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"

namespace metronome::testing::TEST_FILE {
TEST_CASE("a batched decode gives what each request decodes alone", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, const LabSettings& settings) {
    // Decodes at positions 10 and 20 in one pass.
    const std::vector<LabPrompt> prompts = {{lab.ids(1, 10), 6}, {lab.ids(2, 20), 6}};
    const LabRun together = lab.run(settings, prompts);
    REQUIRE(together.journal.tokens_per_step() == std::vector<int>{30, 2, 2, 2, 2, 2});
    for (std::uint32_t i = 0; i < 2; ++i) {
      CHECK(is_same(together, i, lab.run(settings, {prompts[i]}), 0));
    }
  });
}

TEST_CASE("a decode is the prefill of one more token", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, const LabSettings& settings) {
    std::vector<TokenId> ids = lab.ids(3, 14);
    const LabRun decoded = lab.run(settings, {{ids, 9}});
    for (std::int32_t k = 0; k < 8; ++k) {
      ids.push_back(decoded.tokens[0][static_cast<std::size_t>(k)]);
      const LabRun prefilled = lab.run(settings, {{ids, 1}});
      const std::int32_t position = 15 + k;
      CHECK(has_same_bits(prefilled.logits.at({RequestId{0}, position}),
                          decoded.logits.at({RequestId{0}, position})));
    }
  });
}

TEST_CASE("a batched prefill then decodes at each request's own position", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, const LabSettings& settings) {
    const std::vector<LabPrompt> prompts = {
        {lab.ids(4, 5), 7}, {lab.ids(5, 10), 7}, {lab.ids(6, 1), 7}};
    const LabRun batched = lab.run(settings, prompts);
    REQUIRE(batched.journal.tokens_per_step().front() == 16);
    for (std::uint32_t i = 0; i < 3; ++i) {
      CHECK(is_same(batched, i, lab.run(settings, {prompts[i]}), 0));
    }
  });
}

TEST_CASE("requests that join and leave change nothing for the others", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.max_num_seqs = 3;
    const std::vector<LabPrompt> prompts = {{lab.ids(7, 9), 12, 0},  {lab.ids(8, 21), 2, 0},
                                            {lab.ids(9, 4), 20, 1},  {lab.ids(10, 30), 5, 3},
                                            {lab.ids(11, 13), 9, 4}, {lab.ids(12, 2), 3, 9}};
    const LabRun busy = lab.run(settings, prompts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("request " << i);
      LabPrompt alone = prompts[i];
      alone.arrival_step = 0;
      CHECK(is_same(busy, i, lab.run(settings, {alone}), 0));
    }
  });
}

TEST_CASE("a slot or block used before holds nothing of its last owner", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.max_num_seqs = 1;
    settings.num_blocks = 24;
    const std::vector<LabPrompt> prompts = {{lab.ids(13, 50), 10}, {lab.ids(14, 30), 10}};
    const LabRun one_by_one = lab.run(settings, prompts);
    CHECK(is_same(one_by_one, 1, lab.run(settings, {prompts[1]}), 0));
  });
}

TEST_CASE("mixed and separate steps give the same bits", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.policy = "token_budget";
    settings.budget = 12;
    const std::vector<LabPrompt> prompts = {
        {lab.ids(15, 40), 9, 0}, {lab.ids(16, 11), 9, 1}, {lab.ids(17, 26), 9, 2}};
    const LabRun mixed = lab.run(settings, prompts);
    settings.shape = StepShape::Separate;
    const LabRun separate = lab.run(settings, prompts);
    settings.policy = "single_prefill";  // completes a prompt and decodes it in one step
    const LabRun single = lab.run(settings, prompts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      CHECK(is_same(mixed, separate, i));
      CHECK(is_same(mixed, single, i));
    }
  });
}

TEST_CASE("preemption and recomputation give the same bits", "[cpu][batching]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    INFO(name_of(family));
    std::vector<LabPrompt> prompts;
    for (std::uint64_t i = 0; i < 4; ++i) prompts.push_back({lab.ids(20 + i, 12), 30});
    LabSettings settings = {.policy = "vllm", .budget = 16, .num_blocks = 22};
    const LabRun tight = lab.run(settings, prompts);
    REQUIRE(tight.num_preemptions >= 2);
    settings.num_blocks = 512;
    const LabRun roomy = lab.run(settings, prompts);
    REQUIRE(roomy.num_preemptions == 0);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("request " << i);
      CHECK(is_same(tight, roomy, i));
    }
  }
}

TEST_CASE("every policy gives a request the same bits", "[cpu][batching]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    std::vector<LabPrompt> prompts;
    for (std::int32_t i = 0; i < 5; ++i) {
      const std::vector<TokenId> ids = lab.ids(50 + static_cast<std::uint64_t>(i), 10 + 7 * i);
      prompts.push_back({ids, 14, i});
    }
    std::vector<LabRun> alone;
    for (const LabPrompt& prompt : prompts) {
      alone.push_back(lab.run({.policy = "continuous"}, {{prompt.ids, 14}}));
    }
    for (const PolicyInfo& policy : all_policies()) {
      for (const std::int32_t async_depth : {1, 2}) {
        INFO(name_of(family) << ", " << policy.name << ", async_depth " << async_depth);
        const LabRun run =
            lab.run({.policy = std::string(policy.name),
                     .chunk = 8,
                     .budget = 64,
                     .num_blocks = 40,
                     .shape = policy.requires_separate ? StepShape::Separate : StepShape::Mixed,
                     .async_depth = async_depth,
                     .caches_prefixes = policy.prefix_caching == PrefixCaching::Always},
                    prompts);
        for (std::uint32_t i = 0; i < prompts.size(); ++i) {
          INFO("request " << i << ", " << run.tokens[i].size() << " tokens, "
                          << to_string(run.ends[i]));
          // Sarathi's kin give an evicted request its whole output again; llama.cpp gives up on
          // requests it has no cells for.
          const std::vector<TokenId>& tokens = run.tokens[i];
          REQUIRE((tokens.size() >= 14 || policy.name == "llama_cpp"));
          const std::size_t num_shared = std::min<std::size_t>(14, tokens.size());
          CHECK(std::equal(tokens.begin(), tokens.begin() + static_cast<long>(num_shared),
                           alone[i].tokens[0].begin()));
          for (const auto& [key, logits] : alone[i].logits) {
            const auto found = run.logits.find({RequestId{i}, key.second});
            if (found != run.logits.end()) CHECK(has_same_bits(found->second, logits));
          }
        }
      }
    }
  }
}

TEST_CASE("a step that fails with the next one in flight hurts its own requests only",
          "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.async_depth = 2;
    for (std::int32_t failing = 2; failing <= 8; ++failing) {
      INFO("pass " << failing << " fails");
      LabSettings faulty = settings;
      std::int32_t num_passes = 0;
      faulty.hook = [&](const ForwardBatch&) {
        if (++num_passes == failing) throw std::runtime_error("injected");
      };
      // Decodes in both steps in flight; the last request comes when all is over.
      const std::vector<LabPrompt> prompts = {
          {lab.ids(60, 9), 12, 0}, {lab.ids(61, 20), 12, 0}, {lab.ids(62, 15), 6, 30}};
      const LabRun run = lab.run(faulty, prompts);
      CHECK(run.ends == std::vector<EndReason>{EndReason::StepFailed, EndReason::StepFailed,
                                               EndReason::Length});
      CHECK(run.num_free_blocks == run.num_blocks);
      const LabRun alone = lab.run(settings, {{prompts[2].ids, 6}});
      CHECK(is_same(run, 2, alone, 0));
      const LabRun whole = lab.run(settings, prompts);
      for (std::uint32_t i = 0; i < 2; ++i) {
        REQUIRE(run.tokens[i].size() < 12);
        CHECK(std::equal(run.tokens[i].begin(), run.tokens[i].end(), whole.tokens[i].begin()));
      }
    }
  });
}

TEST_CASE("an aborted request's chunk in flight still fills what a neighbour shares",
          "[cpu][batching]") {
  // Texts of ended requests are forgotten every 256 steps: the abort comes at each step around.
  Lab lab(Family::Llama);
  std::vector<TokenId> aborted = lab.ids(70, 24);
  std::vector<TokenId> sharing = aborted;
  for (const TokenId id : lab.ids(71, 12)) aborted.push_back(id);
  for (const TokenId id : lab.ids(72, 5)) sharing.push_back(id);
  const LabRun alone = lab.run({.policy = "continuous"}, {{sharing, 8}});
  for (std::int64_t arrival = 250; arrival <= 258; ++arrival) {
    INFO("arrival at step " << arrival);
    const std::vector<LabPrompt> prompts = {
        {lab.ids(73, 4), 300, 0}, {aborted, 8, arrival}, {sharing, 8, arrival + 1}};
    LabSettings settings = {.policy = "vllm",
                            .budget = 20,
                            .async_depth = 2,
                            .max_model_len = 512,
                            .caches_prefixes = true};
    settings.between_steps = [](Engine& engine) {
      const bool is_sharing = engine.requests().size() == 3 &&
                              engine.requests()[RequestId{2}].num_prefix_hit_tokens > 0;
      if (is_sharing) engine.abort(RequestId{1});
    };
    const LabRun run = lab.run(settings, prompts);
    REQUIRE(run.ends[1] == EndReason::Aborted);
    REQUIRE(run.prefix_hits[2] > 0);
    CHECK(is_same(run, 2, alone, 0));
  }
}

TEST_CASE("asynchronous scheduling gives the same bits", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.policy = "token_budget";
    settings.budget = 16;
    const std::vector<LabPrompt> prompts = {{lab.ids(30, 40), 15, 0}, {lab.ids(31, 9), 15, 1}};
    const LabRun one = lab.run(settings, prompts);
    settings.async_depth = 2;
    const LabRun two = lab.run(settings, prompts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(one, two, i));
  });
}

TEST_CASE("any number of threads gives the same bits", "[cpu][batching]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    Lab lab(family, 1);
    const std::vector<LabPrompt> prompts = {
        {lab.ids(32, 90), 5, 0}, {lab.ids(33, 17), 5, 0}, {lab.ids(34, 3), 5, 1}};
    const LabSettings settings = {.chunk = 20};
    const LabRun one = lab.run(settings, prompts);
    for (const int num_threads : {2, 3, 5, 8}) {
      INFO(num_threads << " threads");
      Lab other(family, num_threads);
      const LabRun many = other.run(settings, prompts);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) CHECK(is_same(one, many, i));
    }
  }
}

TEST_CASE("a cached prefix gives the same bits as computing it", "[cpu][batching]") {
  for (const Family family : kFamilies) {
    Lab lab(family);
    INFO(name_of(family));
    const std::vector<TokenId> shared = lab.ids(35, 24);
    std::vector<LabPrompt> prompts;
    for (std::uint64_t i = 0; i < 4; ++i) {
      std::vector<TokenId> ids = shared;
      const std::vector<TokenId> own = lab.ids(36 + i, 9);
      ids.insert(ids.end(), own.begin(), own.end());
      prompts.push_back({ids, 8, static_cast<std::int64_t>(i)});
    }
    for (const char* policy : {"vllm", "sglang", "nano_vllm"}) {
      INFO(policy);
      const LabSettings cold = {.policy = policy, .budget = 20};
      LabSettings caching = cold;
      caching.caches_prefixes = true;
      const LabRun hits = lab.run(caching, prompts);
      REQUIRE(hits.prefix_hits.back() > 0);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(is_same(hits, i, lab.run({.policy = "continuous"}, {{prompts[i].ids, 8}}), 0));
      }
    }
  }
}

TEST_CASE("a stop token that comes first ends a request in its prefill", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    const std::vector<LabPrompt> prompts = {{lab.ids(40, 9), 10}, {lab.ids(41, 14), 10}};
    const LabRun free_run = lab.run(settings, prompts);
    const TokenId first = free_run.tokens[0][0];
    settings.sampling.stop_token_ids = {first};
    const LabRun stopped = lab.run(settings, prompts);
    CHECK(stopped.ends[0] == EndReason::Stop);
    CHECK(stopped.tokens[0] == std::vector<TokenId>{first});
    CHECK(stopped.num_free_blocks == stopped.num_blocks);
    // The other goes on to decode, to its own end.
    const auto& other = free_run.tokens[1];
    const auto stop = std::find(other.begin(), other.end(), first);
    const auto num_tokens = static_cast<std::size_t>(stop - other.begin()) + (stop != other.end());
    CHECK(stopped.tokens[1] ==
          std::vector<TokenId>(other.begin(), other.begin() + static_cast<long>(num_tokens)));
    CHECK(stopped.ends[1] == (stop == other.end() ? EndReason::Length : EndReason::Stop));
  });
}

TEST_CASE("sampled tokens do not depend on the batch either", "[cpu][batching]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    settings.sampling = {
        .temperature = 1.5, .top_k = 40, .top_p = 0.95, .seed = 9, .ignore_eos = true};
    const std::vector<LabPrompt> prompts = {{lab.ids(42, 20), 25}, {lab.ids(43, 30), 25, 2}};
    const LabRun whole = lab.run(settings, prompts);
    CHECK(whole.tokens[0] != lab.run({.policy = "continuous"}, prompts).tokens[0]);  // not greedy
    settings.policy = "token_budget";
    settings.budget = 7;
    settings.max_num_seqs = 2;
    const LabRun chunked = lab.run(settings, prompts);
    CHECK(whole.tokens == chunked.tokens);
    settings.sampling.seed = 10;
    CHECK(lab.run(settings, prompts).tokens != whole.tokens);
  });
}

TEST_CASE("penalties and a bias look at a request's own text", "[cpu][batching]") {
  Lab lab(Family::Llama);
  const std::vector<LabPrompt> prompts = repetitive_prompts(lab.model().vocab_size, 4, 24);
  for (const double temperature : {0.0, 1.2}) {
    LabSettings settings = {.policy = "vllm", .budget = 64};
    settings.sampling = {.temperature = temperature, .seed = 5, .ignore_eos = true};
    const LabRun plain = lab.run(settings, prompts);
    settings.sampling.presence_penalty = 0.5;
    settings.sampling.frequency_penalty = 1;
    settings.sampling.repetition_penalty = 1.25;
    settings.sampling.logit_bias = {{TokenId{7}, 1}};
    const LabRun roomy = lab.run(settings, prompts);
    settings.num_blocks = 24;
    settings.budget = 16;
    const LabRun tight = lab.run(settings, prompts);
    REQUIRE(tight.num_preemptions >= 2);
    settings.num_blocks = 512;
    settings.async_depth = 2;
    const LabRun ahead = lab.run(settings, prompts);
    DraftTally counts;
    const LabRun drafted = lab.run_drafting(settings, prompts, LabDrafts{.num_tokens = 3}, counts);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("request " << i << ", temperature " << temperature);
      CHECK(is_same(tight, roomy, i));
      CHECK(is_same(ahead, roomy, i));
      CHECK(is_same(drafted, roomy, i));
      CHECK(roomy.tokens[i] != plain.tokens[i]);
      // Each token is the sampler's, from the model's logits and the text before.
      std::vector<TokenId> text = prompts[i].ids;
      SamplingParams params = settings.sampling;
      for (const TokenId token : temperature == 0 ? roomy.tokens[i] : std::vector<TokenId>()) {
        const auto position = static_cast<std::int32_t>(text.size());
        const std::vector<float>& logits = roomy.logits.at({RequestId{i}, position});
        CHECK(Sampler().sample(logits, params, position, {text, prompts[i].ids.size()}).token ==
              token);
        text.push_back(token);
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
