// SPDX-License-Identifier: Apache-2.0
// An engine's promises to its requests when the GPU computes them: the scheduler's steps, the
// sampler's tokens, and failures that stay where they are.
#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>

#include "core/run/workload_input.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "sim/sim_executor.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Weights whose embedding of one token is not a number.
class PoisonedWeights final : public WeightSource {
 public:
  PoisonedWeights(const ModelConfig& model, TokenId token) : weights_(model, 3), token_(token) {}

  TensorType type(const WeightSpec& spec) const override { return weights_.type(spec); }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    weights_.read(spec, row_begin, row_end, out);
    const std::int64_t row = value(token_);
    if (spec.role != WeightRole::Embedding || row < row_begin || row >= row_end) return;
    if (spec.name.find("embed_tokens") == std::string::npos) return;
    std::fill_n(out + (row - row_begin) * spec.cols, spec.cols,
                std::numeric_limits<float>::quiet_NaN());
  }

 private:
  LabWeights weights_;
  TokenId token_;
};

// Every step as it was planned and recorded, without times.
std::vector<std::string> decisions_of(const Journal& journal) {
  std::vector<std::string> decisions;
  for (const Journal::Step& step : journal.steps) {
    const StepRecord& record = step.record;
    std::string text = std::to_string(record.step_index) + ": running " +
                       std::to_string(record.num_running) + ", waiting " +
                       std::to_string(record.num_waiting) + ", blocks " +
                       std::to_string(record.num_used_blocks) + ", preempted " +
                       std::to_string(record.num_preempted);
    for (const ScheduledChunk& chunk : step.chunks) {
      text += "; " + std::to_string(index(chunk.request)) + " at " +
              std::to_string(chunk.first_position) + " + " + std::to_string(chunk.num_tokens) +
              (chunk.kind == ChunkKind::Decode ? " decode" : "") +
              (chunk.samples_token ? " samples" : "") + (chunk.num_emitted > 0 ? " emitted" : "");
    }
    decisions.push_back(text);
  }
  for (const Event& event : journal.events) {
    decisions.push_back("event " + std::to_string(static_cast<int>(event.kind)) + " of " +
                        std::to_string(index(event.request)) + ", " +
                        std::string(to_string(event.reason)));
  }
  return decisions;
}

// All steps take as long.
class FixedCost final : public CostModel {
 public:
  StepCost step_cost(const StepPlan&) override { return {.total_ns = kNsPerMs}; }
  TimeNs host_gap_ns(const StepPlan&) const override { return 0; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 1 << 20; }
};

std::vector<Scenario> shipped_variants() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(source_dir()) / "scenarios")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Scenario> variants;
  for (const std::filesystem::path& path : paths) {
    const ScenarioFile file = load_scenario(path.string(), {}, std::nullopt);
    variants.insert(variants.end(), file.variants.begin(), file.variants.end());
  }
  // Only the settings of engines are used.
  for (Scenario& variant : variants) variant.workload.images = {};
  return variants;
}

// A shipped variant with contexts of 150 tokens and budgets to match, and so few blocks that
// requests are preempted.
EngineSetup shrunk_setup(const Scenario& scenario, ModelConfig model) {
  model.max_position_embeddings = 1 << 20;
  EngineSetup setup =
      make_engine_setup(scenario, model, [](std::int64_t) { return std::int64_t{1} << 20; });
  SchedulerConfig& scheduler = setup.scheduler;
  scheduler.prefill_chunk_size = 20;
  scheduler.max_num_batched_tokens = 256;
  scheduler.batch_wait_ms = 0;
  scheduler.edit<SarathiConfig>().chunk_size = 24;
  scheduler.edit<SglangConfig>().chunked_prefill_size = 40;
  scheduler.edit<TensorRtLlmConfig>().max_num_tokens = 64;
  scheduler.edit<FastGenConfig>().max_ragged_batch_size = 64;
  scheduler.edit<LlamaCppConfig>().n_batch = 64;
  setup.max_num_seqs = std::min(setup.max_num_seqs, 6);
  setup.max_model_len = 150;
  const bool is_slotted = scenario.kv_cache.backend == KvBackend::Slotted;
  setup.kv_cache.block_size = is_slotted ? setup.max_model_len : 8;
  setup.kv_cache.num_blocks = is_slotted ? setup.max_num_seqs : 24;
  if (!is_slotted) metronome::arrange_cache(*find_policy(scheduler.policy), setup);
  return setup;
}

// The parts of a setup that shipped scenarios vary and that are told apart here.
std::string kind_of(const EngineSetup& setup) {
  return setup.scheduler.policy + (setup.kv_cache.enable_prefix_caching ? ", prefixes" : "") +
         (setup.step_shape == StepShape::Separate ? ", separate" : ", mixed") + ", depth " +
         std::to_string(setup.async_depth) + ", " + std::to_string(setup.max_num_seqs) +
         " sequences, blocks of " + std::to_string(setup.kv_cache.block_size) +
         (setup.scheduler.settings<SglangConfig>().enable_mixed_chunk ? ", mixed chunks" : "");
}

}  // namespace

TEST_CASE("a step that fails with the next one in flight hurts its own requests only on the GPU",
          "[gpu][serving]") {
  for_all_gpu_families("continuous", [](GpuLab& lab, LabSettings settings) {
    settings.async_depth = 2;
    // Decodes in both steps in flight; the last request comes when all is over.
    const std::vector<LabPrompt> prompts = {
        {lab.ids(60, 9), 12, 0}, {lab.ids(61, 20), 12, 0}, {lab.ids(62, 15), 6, 30}};
    const LabRun alone = lab.run(settings, {{prompts[2].ids, 6}});
    const LabRun whole = lab.run(settings, prompts);
    for (const int failing : {1, 2, 7}) {
      INFO("pass " << failing << " fails");
      LabSettings faulty = settings;
      int num_passes = 0;
      faulty.hook = [&](const ForwardBatch&) {
        if (++num_passes == failing) throw std::runtime_error("injected");
      };
      const LabRun run = lab.run(faulty, prompts);
      CHECK(run.ends == std::vector<EndReason>{EndReason::StepFailed, EndReason::StepFailed,
                                               EndReason::Length});
      CHECK(run.num_free_blocks == run.num_blocks);
      CHECK(is_same_text(run, 2, alone, 0));
      for (std::uint32_t i = 0; i < 2; ++i) {
        REQUIRE(run.tokens[i].size() == static_cast<std::size_t>(failing - 1));
        CHECK(std::equal(run.tokens[i].begin(), run.tokens[i].end(), whole.tokens[i].begin()));
      }
    }
  });
}

TEST_CASE("a logit that is no number fails its step and no other", "[gpu][serving]") {
  const ModelConfig model = small_gpu_model(Family::Llama);
  const TokenId poison{77};
  ModelSource source = lab_source(model);
  source.weights = std::make_shared<PoisonedWeights>(model, poison);
  GpuLab lab(source);
  const auto clean_ids = [&](std::uint64_t seed, std::int32_t count) {
    std::vector<TokenId> ids = lab.ids(seed, count);
    std::replace(ids.begin(), ids.end(), poison, TokenId{78});
    return ids;
  };
  std::vector<TokenId> poisoned = clean_ids(2, 20);
  poisoned[3] = poison;
  // Request 2 fails in step 4, with what it is computed beside; request 3 comes after that step was
  // planned, and takes blocks of those that have failed.
  const std::vector<LabPrompt> prompts = {{clean_ids(1, 9), 12, 0},
                                          {clean_ids(3, 15), 12, 1},
                                          {poisoned, 5, 4},
                                          {clean_ids(4, 30), 6, 5}};
  const LabRun alone = lab.run({.policy = "continuous"}, {{prompts[3].ids, 6}});
  for (const int async_depth : {1, 2}) {
    for (const bool is_slotted : {false, true}) {
      INFO("async_depth " << async_depth << (is_slotted ? ", slotted" : ""));
      const LabRun run = lab.run(
          {.policy = "continuous", .is_slotted = is_slotted, .async_depth = async_depth}, prompts);
      CHECK(run.ends == std::vector<EndReason>{EndReason::StepFailed, EndReason::StepFailed,
                                               EndReason::StepFailed, EndReason::Length});
      CHECK(run.failure == "request 0: a logit of request 2 at position 20 is not finite");
      CHECK(run.tokens[0].size() == 4);
      CHECK(run.tokens[1].size() == 3);
      CHECK(run.tokens[2].empty());
      CHECK(is_same_text(run, 3, alone, 0));
      CHECK(run.num_free_blocks == run.num_blocks);
      CHECK(std::count_if(run.journal.steps.begin(), run.journal.steps.end(),
                          [](const Journal::Step& step) { return step.record.failed; }) == 1);
    }
  }
}

TEST_CASE("tokens and logprobs are those of the host's sampler", "[gpu][serving]") {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    INFO(name_of(family));
    const std::vector<LabPrompt> prompts = {
        {lab.ids(42, 20), 20, 0}, {lab.ids(43, 30), 20, 2}, {lab.ids(42, 20), 20, 3}};
    const Workload workload = workload_of(prompts);
    for (const SamplingParams& sampling :
         {SamplingParams{.ignore_eos = true, .num_logprobs = 0},
          SamplingParams{.temperature = 1.5, .seed = 8, .ignore_eos = true, .num_logprobs = 5},
          SamplingParams{.temperature = 0.7,
          .top_k = 20,
          .top_p = 0.9,
          .seed = 9,
          .ignore_eos = true,
          .num_logprobs = 300},
          SamplingParams{.temperature = 2, .min_p = 0.05, .seed = 10, .ignore_eos = true}}) {
      for (const int async_depth : {1, 2}) {
        if ((async_depth == 2) == (sampling.temperature > 1)) continue;
        const LabRun run = lab.run({.policy = "token_budget",
                                    .budget = 11,
                                    .async_depth = async_depth,
                                    .sampling = sampling},
                                   prompts);
        const WorkloadInput input(workload, 0, lab.model().vocab_size, sampling);
        Sampler sampler;
        for (std::uint32_t i = 0; i < prompts.size(); ++i) {
          REQUIRE(run.tokens[i].size() == 20);
          CHECK((sampling.num_logprobs >= 0) == !run.outputs[i].logprobs.empty());
          for (std::size_t t = 0; t < 20; ++t) {
            const auto position = static_cast<std::int32_t>(prompts[i].ids.size() + t);
            const SampledToken expected = sampler.sample(run.logits.at({RequestId{i}, position}),
                                                         input.sampling(RequestId{i}), position);
            CHECK(run.tokens[i][t] == expected.token);
            if (sampling.num_logprobs >= 0) {
              CHECK(run.outputs[i].logprobs.at(t) == expected.logprobs);
            }
          }
        }
        CHECK((run.tokens[0] == run.tokens[2]) == (sampling.temperature == 0));
      }
    }
  }
}

TEST_CASE("stop and end-of-text tokens end requests with steps in flight", "[gpu][serving]") {
  GpuLab lab(Family::Qwen3);
  const std::vector<LabPrompt> prompts = {{lab.ids(40, 9), 12}, {lab.ids(41, 14), 12}};
  const LabSettings settings = {.policy = "continuous"};
  const LabRun free_run = lab.run(settings, prompts);
  const auto check = [&](const LabRun& run, TokenId end) {
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      const std::vector<TokenId>& all = free_run.tokens[i];
      const auto at = std::find(all.begin(), all.end(), end);
      CHECK(run.ends[i] == (at == all.end() ? EndReason::Length : EndReason::Stop));
      CHECK(run.tokens[i] == std::vector<TokenId>(all.begin(), at + (at != all.end() ? 1 : 0)));
    }
    CHECK(run.num_free_blocks == run.num_blocks);
  };
  for (const std::size_t place : {0u, 6u, 11u}) {
    const TokenId end = free_run.tokens[0][place];
    ModelSource source = lab.source();
    source.config.eos_token_ids = {value(end)};
    GpuLab with_eos(source);
    for (const int async_depth : {1, 2}) {
      INFO("token " << place << ", async_depth " << async_depth);
      LabSettings stopping = settings;
      stopping.async_depth = async_depth;
      check(with_eos.run(stopping, prompts), TokenId{-1});  // ignore_eos
      stopping.sampling.ignore_eos = false;
      check(with_eos.run(stopping, prompts), end);
      stopping.sampling.stop_token_ids = {end};
      check(lab.run(stopping, prompts), end);
    }
  }
}

TEST_CASE("the simulator and the GPU are given the same steps", "[gpu][serving][slow]") {
  GpuLab lab(Family::Llama);
  std::vector<LabPrompt> prompts;
  const std::vector<TokenId> shared = lab.ids(80, 33);
  for (std::int32_t i = 0; i < 7; ++i) {
    std::vector<TokenId> ids = i % 3 == 0 ? shared : std::vector<TokenId>();
    const std::vector<TokenId> own = lab.ids(81 + static_cast<std::uint64_t>(i), 3 + 37 * i % 71);
    ids.insert(ids.end(), own.begin(), own.end());
    prompts.push_back({ids, 5 + 13 * i % 29, i / 3});
  }
  const Workload workload = workload_of(prompts);
  const LabSettings settings;
  std::set<std::string> kinds;
  std::int32_t num_preemptions = 0;
  for (const Scenario& scenario : shipped_variants()) {
    const EngineSetup simulated_setup = shrunk_setup(scenario, lab.model());
    const std::string kind = kind_of(simulated_setup);
    if (!kinds.insert(kind).second) continue;
    INFO(scenario.name << ": " << kind);
    LabRun simulated;
    {
      FixedCost cost;
      SimExecutor executor(cost);
      TestClock clock;
      serve(settings, simulated_setup, workload, executor, clock, simulated);
    }
    EngineSetup setup = simulated_setup;
    setup.kv_cache.forgets_unfilled_blocks = true;
    LabRun computed;
    {
      const auto engine = lab.make_engine(setup, {.invariance = Invariance::Chunk});
      const WorkloadInput input(workload, 0, lab.model().vocab_size, {.ignore_eos = true});
      TestClock clock;
      CudaExecutor executor(*engine, input, clock);
      serve(settings, setup, workload, executor, clock, computed);
    }
    CHECK(decisions_of(computed.journal) == decisions_of(simulated.journal));
    CHECK(computed.ends == simulated.ends);
    num_preemptions += computed.num_preemptions;
  }
  CHECK(kinds.size() >= 20);
  CHECK(num_preemptions >= 10);
}

TEST_CASE("aborts between steps hurt nobody else", "[gpu][serving]") {
  GpuLab lab(Family::Llama);
  std::vector<LabPrompt> prompts;
  for (std::int32_t i = 0; i < 5; ++i) {
    prompts.push_back({lab.ids(50 + static_cast<std::uint64_t>(i), 10 + 12 * i), 9, i});
  }
  const LabRun expected = lab.run({.policy = "continuous"}, prompts);
  for (const int async_depth : {1, 2}) {
    for (const std::uint32_t aborted : {0u, 1u, 3u}) {
      INFO("request " << aborted << " is aborted, async_depth " << async_depth);
      LabSettings settings = {.chunk = 9, .async_depth = async_depth};
      settings.between_steps = [&](Engine& engine) {
        if (engine.num_steps() >= 7 && engine.requests().size() > aborted) {
          engine.abort(RequestId{aborted});
        }
      };
      const LabRun run = lab.run(settings, prompts);
      CHECK(run.num_free_blocks == run.num_blocks);
      for (std::uint32_t i = 0; i < prompts.size(); ++i) {
        CHECK(run.ends[i] == (i == aborted ? EndReason::Aborted : EndReason::Length));
        if (i != aborted) CHECK(is_same_text(run, i, expected, i));
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
