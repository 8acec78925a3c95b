// SPDX-License-Identifier: Apache-2.0
// Drafts do not change how tokens are distributed: counts of many seeds against the probabilities
// of the model.
#include <cmath>

#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::int64_t kVocab = 5;
constexpr int kNumRequests = 2'000;

// The probabilities of the token at `position` of a request.
std::vector<double> probabilities(const LabRun& run, std::uint32_t request, std::int32_t position) {
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : run.logits.at({RequestId{request}, position})) {
    weights.push_back(std::exp(static_cast<double>(logit)));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Of the first two tokens behind the prompt: [first * kVocab + second].
std::vector<double> pair_probabilities(Lab& lab, const std::vector<TokenId>& prompt) {
  std::vector<LabPrompt> prompts = {{prompt, 1}};
  for (std::int32_t id = 0; id < kVocab; ++id) {
    prompts.push_back({prompt, 1});
    prompts.back().ids.push_back(TokenId{id});
  }
  const LabRun run = lab.run({.policy = "continuous"}, prompts);
  const auto size = static_cast<std::int32_t>(prompt.size());
  const std::vector<double> first = probabilities(run, 0, size);
  std::vector<double> pairs;
  for (std::uint32_t id = 0; id < kVocab; ++id) {
    for (const double second : probabilities(run, 1 + id, size + 1)) {
      pairs.push_back(first[id] * second);
    }
  }
  return pairs;
}

double chi_square(const LabRun& run, const std::vector<double>& expected) {
  std::vector<int> counts(expected.size());
  for (const std::vector<TokenId>& tokens : run.tokens) {
    ++counts[static_cast<std::size_t>(value(tokens[0]) * kVocab + value(tokens[1]))];
  }
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * kNumRequests;
    sum += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return sum;
}

// The value that chi-square exceeds with probability 1e-4 (Wilson and Hilferty's approximation).
double critical_value(double degrees) {
  constexpr double kNormalQuantile = 3.719;
  const double v = 2 / (9 * degrees);
  return degrees * std::pow(1 - v + kNormalQuantile * std::sqrt(v), 3);
}

}  // namespace

TEST_CASE("drafts leave the distribution of tokens as it is", "[cpu][drafts][distribution]") {
  ModelConfig model = small_model(Family::Llama);
  model.vocab_size = kVocab;
  Lab lab(model, 1, 3);
  Lab other(model, 1, 4);
  std::vector<TokenId> prompt;
  for (const int id : {0, 1, 2, 3, 4, 1, 0, 2}) prompt.push_back(TokenId{id});
  const std::vector<double> expected = pair_probabilities(lab, prompt);
  const double limit = critical_value(static_cast<double>(expected.size() - 1));
  const std::vector<LabPrompt> prompts(kNumRequests, {prompt, 3});
  LabSettings settings = {.policy = "vllm", .num_blocks = 64};
  settings.sampling.temperature = 1;
  for (Lab* drafter : {static_cast<Lab*>(nullptr), &other, &lab}) {
    for (const std::uint64_t seed : {71u, 72u}) {
      settings.sampling.seed = seed;
      DraftTally counts;
      const LabDrafts drafts = {.num_tokens = 2, .drafter = drafter};
      const LabRun run = lab.run_drafting(settings, prompts, drafts, counts);
      INFO("seed " << seed << (drafter == nullptr ? ", lookup" : ", draft model") << ", "
                   << counts.num_accepted << " of " << counts.num_proposed << " drafts accepted");
      CHECK(chi_square(run, expected) < limit);
      CHECK(counts.num_accepted > kNumRequests / 10);
      CHECK(counts.num_proposed > 2 * counts.num_accepted);
    }
  }
  // The test notices another distribution.
  settings.sampling.temperature = 0.8;
  CHECK(chi_square(lab.run(settings, prompts), expected) > limit);
}

}  // namespace metronome::testing::TEST_FILE
