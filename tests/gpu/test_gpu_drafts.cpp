// SPDX-License-Identifier: Apache-2.0
// Drafts of a lookup change nothing on the GPU, with invariance `full`: each test compares them
// with decodes of one token.
#include <map>
#include <memory>
#include <vector>

#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/random_serving.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Few tokens, so that texts repeat themselves.
ModelSource repetitive_source(Family family, std::uint64_t seed) {
  ModelConfig model = small_gpu_model(family);
  model.vocab_size = 16;
  return lab_source(model, seed);
}

// For each family. `drafts`: of each temperature, the numbers of drafts.
void check_drafts(const std::map<double, std::vector<std::int32_t>>& drafts, DraftTally& counts) {
  for (const Family family : kFamilies) {
    GpuLab lab(repetitive_source(family, 3));
    const std::vector<LabPrompt> prompts = repetitive_prompts(lab.model().vocab_size, 4, 16);
    for (const auto& [temperature, ks] : drafts) {
      LabSettings settings = {.policy = "vllm", .budget = 64};
      settings.sampling = {
          .temperature = temperature, .seed = 5, .ignore_eos = true, .num_logprobs = 2};
      const LabRun plain = lab.run(settings, prompts);
      for (const std::int32_t k : ks) {
        const std::int32_t chunk = k == 1 ? 0 : 3 * k;
        settings.adjust = [chunk](SchedulerConfig& config) {
          config.edit<VllmConfig>().long_prefill_token_threshold = chunk;
        };
        // Passes so short that a step of decodes with drafts needs several.
        const GpuOptions options = {.max_pass_tokens = k == 8 ? 16 : 512};
        const LabRun drafted =
            lab.run_drafting(settings, prompts, {.num_tokens = k}, counts, options);
        INFO(name_of(family) << ", temperature " << temperature << ", " << k << " drafts");
        for (std::uint32_t i = 0; i < prompts.size(); ++i) {
          CHECK(is_same(drafted, plain, i));
          CHECK(drafted.outputs[i].logprobs == plain.outputs[i].logprobs);
        }
      }
    }
  }
}

void check_random_drafts(std::uint64_t begin, std::uint64_t end) {
  const Coverage least = {{"preemptions", 2}, {"prefix hits", 5}, {"length", 20},  {"logits", 300},
                          {"kv", 8},          {"proposed", 150},  {"accepted", 15}};
  constexpr ServingLimits kLimits = {.has_window_kv = true, .keeps_all_kv = false};
  std::map<Family, std::unique_ptr<GpuLab>> labs;
  check_random_servings(begin, end, least, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "gpu drafts");
    const Family family = kFamilies[draw(rng, 0, 2)];
    std::unique_ptr<GpuLab>& lab = labs[family];
    if (lab == nullptr) lab = std::make_unique<GpuLab>(repetitive_source(family, 4));
    RandomServing random = draw_serving(rng, family, lab->model().vocab_size);
    random.policy = find_policy("vllm");
    LabSettings& settings = random.settings;
    settings.policy = "vllm";
    settings.is_slotted = false;
    settings.async_depth = 1;
    settings.caches_prefixes = chance(rng, 0.6);
    GpuDrafts drafts = {.num_tokens = draw(rng, 1, GpuLab::kMaxDrafts),
                        .min_length = draw(rng, 1, 2)};
    drafts.max_length = draw(rng, drafts.min_length, 4);
    const GpuOptions options = {.uses_graphs = chance(rng, 0.5),
                                .max_pass_tokens = chance(rng, 0.3) ? 16 : 512};
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random) << ", " << drafts.num_tokens
                                    << " drafts");
    DraftTally counts;
    check_serving(
        random, kLimits,
        [&](const LabSettings& by, const std::vector<LabPrompt>& prompts) {
          LabRun run = lab->run_drafting(by, prompts, drafts, counts, options);
          for (std::uint32_t i = 0; i < run.ends.size(); ++i) {
            // KV that was written behind a stop token is none of the request's.
            if (run.ends[i] == EndReason::Stop) run.kv.erase(RequestId{i});
          }
          return run;
        },
        [&](const LabSettings& by, const std::vector<LabPrompt>& prompts) {
          return lab->run(by, prompts, {.uses_graphs = false});
        },
        coverage);
    coverage["proposed"] += counts.num_proposed;
    coverage["accepted"] += counts.num_accepted;
  });
}

}  // namespace

TEST_CASE("drafts on the GPU give the tokens, logits and KV of plain decoding", "[gpu][drafts]") {
  DraftTally counts;
  check_drafts({{0.0, {1, 8}}, {1.2, {5}}}, counts);
  CHECK(counts.num_proposed > 200);
  CHECK(counts.num_accepted > 40);
  CHECK(counts.num_accepted < counts.num_proposed);
}

TEST_CASE("any number of drafts on the GPU gives what plain decoding does", "[gpu][drafts][slow]") {
  DraftTally counts;
  check_drafts({{0.0, {2, 5}}, {1.2, {1, 2, 8}}}, counts);
  CHECK(counts.num_proposed > 300);
  CHECK(counts.num_accepted > 60);
  CHECK(counts.num_accepted < counts.num_proposed);
}

TEST_CASE("drafts on the GPU change nothing of random serving", "[gpu][drafts][property]") {
  check_random_drafts(0, 6);
}

TEST_CASE("drafts on the GPU change nothing of more random serving",
          "[gpu][drafts][property][slow]") {
  check_random_drafts(6, 24);
}

}  // namespace metronome::testing::TEST_FILE
