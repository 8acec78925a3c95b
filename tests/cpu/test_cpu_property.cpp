// SPDX-License-Identifier: Apache-2.0
// Random serving on the CPU (tests/random_serving.h). A violation prints the seed; setting
// METRONOME_PROPERTY_SEED to it replays that one case.
#include <algorithm>
#include <memory>

#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/random_serving.h"

namespace metronome::testing::TEST_FILE {
namespace {

// About half of what was seen when this was written, in 100 cases.
Coverage least_coverage() {
  Coverage least = {
      {"preemptions", 20},        {"said more", 3},     {"prefix hits", 23}, {"stop", 25},
      {"step_failed", 40},        {"failed steps", 20}, {"window runs", 2},  {"kv", 180},
      {"logits", 2'400},          {"length", 180},      {"never_fits", 3},   {"aborted", 5},
      {"failed steps, async", 10}};
  for (const PolicyInfo& policy : all_policies()) least[std::string(policy.name)] = 3;
  return least;
}

void check_random_cases(std::uint64_t begin, std::uint64_t end) {
  std::map<Family, std::unique_ptr<Lab>> labs;
  check_random_servings(begin, end, least_coverage(), [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "cpu property");
    const Family family = kFamilies[rng.uniform_int(0, std::size(kFamilies) - 1)];
    const RandomServing random = draw_serving(rng, family, small_model(family).vocab_size);
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random));
    std::unique_ptr<Lab>& lab = labs[family];
    if (lab == nullptr) lab = std::make_unique<Lab>(family);
    const ServeFn serve = [&](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
      return lab->run(settings, prompts);
    };
    check_serving(random, ServingLimits{}, serve, serve, coverage);
  });
}

}  // namespace

TEST_CASE("random serving gives every request what it gets alone", "[cpu][property]") {
  check_random_cases(0, 300);
}

TEST_CASE("much more random serving gives every request what it gets alone",
          "[cpu][property][slow]") {
  check_random_cases(300, 6'300);
}

TEST_CASE("random serving of latent attention and a mixture of experts", "[cpu][property]") {
  Lab lab(Family::DeepSeek);
  check_random_servings(0, 60, {}, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "cpu property");
    const RandomServing random =
        draw_serving(rng, Family::DeepSeek, small_model(Family::DeepSeek).vocab_size);
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random));
    const ServeFn serve = [&](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
      return lab.run(settings, prompts);
    };
    check_serving(random, ServingLimits{}, serve, serve, coverage);
  });
}

TEST_CASE("prompts of 32 to 512 tokens complete together in order", "[cpu][property]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    ModelConfig model = small_model(family);
    model.max_position_embeddings = 1024;
    Lab lab(model, 1, 3);
    std::vector<LabPrompt> prompts;
    for (std::int32_t i = 0; i < 4; ++i) {
      const std::vector<TokenId> ids = lab.ids(60 + static_cast<std::uint64_t>(i), 32 << i);
      prompts.push_back({ids, 16 << i});
    }
    const LabSettings settings = {
        .policy = "chunked", .chunk = 64, .block_size = 16, .max_model_len = 1024};
    const LabRun together = lab.run(settings, prompts);
    std::vector<RequestId> ended;
    for (const Event& event : together.journal.events) {
      if (event.kind == EventKind::Ended) ended.push_back(event.request);
    }
    CHECK(ended == std::vector<RequestId>{RequestId{0}, RequestId{1}, RequestId{2}, RequestId{3}});
    for (std::uint32_t i = 0; i < 4; ++i) {
      CHECK(together.ends[i] == EndReason::Length);
      CHECK(together.tokens[i].size() == std::size_t{16} << i);
      CHECK(is_same(together, i, lab.run(settings, {prompts[i]}), 0));
    }
  }
}

TEST_CASE("the model's end-of-text token ends a request in its prefill", "[cpu][property]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    ModelConfig model = small_model(family);
    Lab unaware(model, 1, 3);
    const std::vector<LabPrompt> prompts = {
        {unaware.ids(74, 9), 10}, {unaware.ids(75, 14), 10}, {unaware.ids(76, 23), 10}};
    const LabRun expected = unaware.run({}, prompts);
    const TokenId first = expected.tokens[1][0];
    const TokenId other_end{0};
    for (const std::size_t other : {0u, 2u}) {
      const std::vector<TokenId>& tokens = expected.tokens[other];
      const TokenId ends[] = {first, other_end};
      REQUIRE(std::find_first_of(tokens.begin(), tokens.end(), std::begin(ends), std::end(ends)) ==
              tokens.end());
    }
    model.eos_token_ids = {value(other_end), value(first)};
    Lab lab(model, 1, 3);
    for (const bool is_slotted : {false, true}) {
      INFO((is_slotted ? "slotted" : "paged"));
      LabSettings settings = {.is_slotted = is_slotted};
      CHECK(lab.run(settings, prompts).tokens == expected.tokens);  // ignore_eos
      settings.sampling.ignore_eos = false;
      const LabRun alone = lab.run(settings, {prompts[1]});
      CHECK(alone.ends[0] == EndReason::Stop);
      CHECK(alone.tokens[0] == std::vector<TokenId>{first});
      CHECK(alone.journal.steps.size() == 1);
      const LabRun together = lab.run(settings, prompts);
      CHECK(together.ends ==
            std::vector<EndReason>{EndReason::Length, EndReason::Stop, EndReason::Length});
      CHECK(together.tokens[1] == std::vector<TokenId>{first});
      CHECK(together.journal.end_step.at(RequestId{1}) == 0);
      CHECK(together.num_free_blocks == together.num_blocks);
      for (const std::uint32_t other : {0u, 2u}) CHECK(is_same(together, expected, other));
    }
  }
}

TEST_CASE("requests with the same prompt sample with seeds of their own", "[cpu][property]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    const std::vector<LabPrompt> prompts(2, {lab.ids(73, 20), 25});
    const LabRun greedy = lab.run(settings, prompts);
    CHECK(greedy.tokens[0] == greedy.tokens[1]);
    settings.sampling.temperature = 1.5;
    const LabRun sampled = lab.run(settings, prompts);
    CHECK(sampled.tokens[0] != sampled.tokens[1]);
    CHECK(has_same_bits(sampled.logits.at({RequestId{0}, 20}),
                        sampled.logits.at({RequestId{1}, 20})));
    CHECK(lab.run(settings, prompts).tokens == sampled.tokens);
  });
}

}  // namespace metronome::testing::TEST_FILE
