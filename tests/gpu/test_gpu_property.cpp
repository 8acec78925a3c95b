// SPDX-License-Identifier: Apache-2.0
// Random serving on the GPU (tests/random_serving.h), with invariance `full`. A violation prints
// the seed; setting METRONOME_PROPERTY_SEED to it replays that one case.
#include <memory>
#include <set>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/random_serving.h"

namespace metronome::testing::TEST_FILE {
namespace {

// About half of what was seen when this was written, in 100 cases.
const Coverage kLeastCoverage = {{"preemptions", 10},
                                 {"prefix hits", 20},
                                 {"stop", 15},
                                 {"step_failed", 30},
                                 {"aborted", 5},
                                 {"window runs", 2},
                                 {"kv", 40},
                                 {"failed steps", 15},
                                 {"logits", 1'500},
                                 {"length", 120},
                                 {"failed steps, async", 5}};

void check_random_cases(std::uint64_t begin, std::uint64_t end) {
  constexpr ServingLimits kLimits = {.has_window_kv = true, .keeps_all_kv = false};
  std::map<Family, std::unique_ptr<GpuLab>> labs;
  check_random_servings(begin, end, kLeastCoverage, [&](std::uint64_t seed, Coverage& coverage) {
    Rng rng(seed, "gpu property");
    const Family family = kFamilies[rng.uniform_int(0, std::size(kFamilies) - 1)];
    const RandomServing random = draw_serving(rng, family, small_gpu_model(family).vocab_size);
    const GpuOptions options = {.uses_graphs = chance(rng, 0.6),
                                .max_pass_tokens = chance(rng, 0.3) ? 16 : 512};
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random)
                                    << (options.uses_graphs ? ", graphs" : "") << ", passes of "
                                    << options.max_pass_tokens);
    std::unique_ptr<GpuLab>& lab = labs[family];
    if (lab == nullptr) lab = std::make_unique<GpuLab>(family);
    const auto serve = [&](const GpuOptions& by) -> ServeFn {
      return [&lab, by](const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
        return lab->run(settings, prompts, by);
      };
    };
    check_serving(random, kLimits, serve(options), serve({.uses_graphs = false}), coverage);
  });
}

// A server under memory pressure for a long time.
struct Marathon {
  std::string policy;
  std::int32_t async_depth = 1;
  bool is_slotted = false;
  bool caches_prefixes = false;
  bool uses_graphs = true;
};

constexpr std::int32_t kNumDistinct = 40;

ModelConfig marathon_model() {
  ModelConfig model = small_gpu_model(Family::Llama);
  model.n_layers = 1;
  model.n_heads = 2;
  model.n_kv_heads = 1;
  return model;
}

void run_marathon(GpuLab& lab, const std::vector<LabPrompt>& distinct, const LabRun& alone,
                  const Marathon& marathon, std::int32_t num_requests) {
  INFO(marathon.policy << ", async_depth " << marathon.async_depth);
  Rng rng(static_cast<std::uint64_t>(num_requests), "marathon " + marathon.policy);
  std::vector<LabPrompt> prompts;
  std::vector<std::uint32_t> kinds;
  for (std::int32_t i = 0; i < num_requests; ++i) {
    kinds.push_back(static_cast<std::uint32_t>(draw(rng, 0, kNumDistinct - 1)));
    prompts.push_back(distinct[kinds.back()]);
    prompts.back().arrival_step = i / 3;
  }
  LabSettings settings;
  settings.policy = marathon.policy;
  settings.chunk = 16;
  settings.budget = 40;
  settings.adjust = [](SchedulerConfig& config) { set_own_budget(config, 40, 3); };
  settings.is_slotted = marathon.is_slotted;
  settings.async_depth = marathon.async_depth;
  settings.caches_prefixes = marathon.caches_prefixes;
  settings.max_num_seqs = 12;
  settings.max_model_len = 48;
  settings.num_blocks = 40;  // of 160 tokens: some five requests
  int num_injected = 0;
  settings.hook = [&](const ForwardBatch&) {
    if (!chance(rng, 0.004)) return;
    ++num_injected;
    throw std::runtime_error("injected");
  };
  std::set<std::uint32_t> aborted;
  settings.between_steps = [&](Engine& engine) {
    if (!chance(rng, 0.01)) return;
    const auto id = static_cast<std::uint32_t>(
        draw(rng, 0, static_cast<std::int32_t>(engine.requests().size()) - 1));
    if (engine.abort(RequestId{id})) aborted.insert(id);
  };
  const LabRun run =
      lab.run(settings, prompts, {.uses_graphs = marathon.uses_graphs, .keeps_logits = false});
  CHECK(run.num_free_blocks == run.num_blocks);
  CHECK(num_injected > 0);
  std::int32_t num_complete = 0;
  std::int32_t num_wrong = 0;
  for (std::uint32_t i = 0; i < prompts.size(); ++i) {
    const std::vector<TokenId>& expected = alone.tokens[kinds[i]];
    const bool is_complete = run.ends[i] == EndReason::Length;
    num_complete += is_complete ? 1 : 0;
    const bool is_right =
        run.tokens[i].size() <= expected.size() &&
        (!is_complete || run.tokens[i].size() == expected.size()) &&
        std::equal(run.tokens[i].begin(), run.tokens[i].end(), expected.begin()) &&
        (is_complete || run.ends[i] == EndReason::StepFailed || aborted.contains(i));
    num_wrong += is_right ? 0 : 1;
  }
  CHECK(num_wrong == 0);
  CHECK(num_complete * 10 >= num_requests * 7);

  CHECK((run.num_preemptions > 0) == !marathon.is_slotted);
}

}  // namespace

TEST_CASE("random serving on the GPU gives every request what it gets alone", "[gpu][property]") {
  check_random_cases(0, 20);
}

TEST_CASE("more random serving on the GPU gives every request what it gets alone",
          "[gpu][property][slow]") {
  check_random_cases(20, 110);
}

TEST_CASE("ten thousand requests under memory pressure: no block lost, no token wrong",
          "[gpu][property][slow]") {
  GpuLab lab(lab_source(marathon_model()));
  Rng rng(1, "marathon prompts");
  std::vector<LabPrompt> distinct;
  const std::vector<TokenId> shared = lab.ids(100, 20);
  for (std::int32_t i = 0; i < kNumDistinct; ++i) {
    std::vector<TokenId> ids(shared.begin(), shared.begin() + draw(rng, 0, 20));
    const std::int32_t num_own = draw(rng, 1, 16);
    const std::vector<TokenId> own = lab.ids(rng(), num_own);
    ids.insert(ids.end(), own.begin(), own.end());
    distinct.push_back({ids, draw(rng, 1, 10)});
  }
  const LabRun alone = lab.run({.policy = "continuous", .is_slotted = true, .max_num_seqs = 1},
                               distinct, {.keeps_kv = false});
  for (const Marathon& marathon :
       {Marathon{"vllm", 2, false, true}, Marathon{"sglang", 1, false, true},
        Marathon{"chunked", 2, false, false}, Marathon{"token_budget", 1, true, false, false},
        Marathon{"vllm", 1, false, false}}) {
    run_marathon(lab, distinct, alone, marathon, 2000);
  }
}

}  // namespace metronome::testing::TEST_FILE
