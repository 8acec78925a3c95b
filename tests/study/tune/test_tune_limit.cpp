// SPDX-License-Identifier: Apache-2.0
// The limits that keep a setting from carrying more load.
#include <string>

#include "core/engine/budget_terms.h"
#include "core/metrics/run_record.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/saturation.h"
#include "study/run/variant_run.h"
#include "study/tune/tune_limit.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace TEST_FILE {
using namespace metronome;

TEST_CASE("the binding limit is what most bad requests broke, and why they waited", "[tune]") {
  SloConfig slo;
  slo.ttft_ms = 500;
  slo.itl_ms = 25;
  StepBounds bounds;
  bounds.full_step_ms = 20;
  bounds.longest_prompt_ms = 100;
  TuneTrial trial;
  trial.summary.busy_share = 0.9;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::None);

  trial.misses.itl = 5;
  trial.misses.ttft = 4;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Itl);
  bounds.full_step_ms = 30;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::FullStep);

  trial.misses.ttft = 6;
  trial.waits = {.kv_cache = 3, .max_num_seqs = 2, .steps = 1};
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::KvCache);
  trial.waits.max_num_seqs = 4;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::MaxNumSeqs);
  trial.waits.steps = 5;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Throughput);
  trial.summary.busy_share = 0.1;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Throughput);
  bounds.longest_prompt_ms = 600;  // on an idle device
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::PromptAlone);

  trial.misses.tpot = 7;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Tpot);
  trial.misses.not_completed = 8;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::NotCompleted);
}

TEST_CASE("a load far beyond what steps carry is said to be", "[tune]") {
  StepBounds bounds;
  TuneTrial trial;
  trial.load = 20;
  trial.summary.busy_share = 1;
  CHECK(overload_advice(trial, TuneLimit::Throughput, bounds).empty());  // unknown
  bounds.capacity = 8.1;  // may be enough, as far as the closed form tells
  CHECK(overload_advice(trial, TuneLimit::Throughput, bounds).empty());
  bounds.capacity = 4;
  CHECK(overload_advice(trial, TuneLimit::FullStep, bounds).empty());  // at any load
  CHECK(overload_advice(trial, TuneLimit::Throughput, bounds) ==
        "At 20.00 requests/s the load is 5.0 times the capacity (about 4.00 requests/s). "
        "A lower load, a faster GPU or more GPUs may help.");
  bounds.num_cached_requests = 9;
  CHECK(overload_advice(trial, TuneLimit::KvCache, bounds) ==
        "At 20.00 requests/s the load is 5.0 times the capacity (about 4.00 requests/s). Requests "
        "wait for blocks of the KV cache, which holds about 9 requests. A lower load, a larger "
        "cache, kv_cache.dtype fp8, weights of fewer bits or more GPUs may help.");
  trial.summary.busy_share = 0.2;
  CHECK(overload_advice(trial, TuneLimit::Throughput, bounds).empty());
}

TEST_CASE("advice names no change that was compared in vain", "[tune]") {
  SloConfig slo;
  slo.ttft_ms = 500;
  Scenario small;
  small.scheduler.policy = "token_budget";
  small.scheduler.max_num_batched_tokens = 512;
  small.hardware = "a100-80gb";
  const auto advice = [&](TuneLimit limit, const Scenario& other) {
    return limit_advice(limit, slo, {}, compared_remedies(small, {{"other", &other}}, "In vain"));
  };
  Scenario other = small;
  CHECK(advice(TuneLimit::Throughput, other) ==
        "Requests wait for room in a step. A larger token budget, a faster GPU or more GPUs may "
        "help.");
  other.scheduler.max_num_batched_tokens = 2048;
  CHECK(advice(TuneLimit::Throughput, other) ==
        "Requests wait for room in a step. A faster GPU or more GPUs may help. In vain: a larger "
        "token budget (other).");
  other.scheduler.max_num_batched_tokens = 256;  // tells nothing of larger ones
  CHECK(advice(TuneLimit::Throughput, other).find("In vain") == std::string::npos);
  other.hardware = "h200";
  other.cost_model.tensor_parallel_size = 2;
  CHECK(advice(TuneLimit::Throughput, other) ==
        "Requests wait for room in a step. A larger token budget may help. In vain: a faster GPU "
        "(other), more GPUs (other).");
  other.hardware = "l40s";  // a slower one
  CHECK(advice(TuneLimit::Throughput, other).find("A larger token budget or a faster GPU may") !=
        std::string::npos);
  // A single remedy that was compared leaves no other sentence.
  other.engine.max_num_seqs = small.engine.max_num_seqs + 1;
  CHECK(advice(TuneLimit::MaxNumSeqs, other) ==
        "Requests wait because max_num_seqs requests are running. In vain: a higher max_num_seqs "
        "(other).");
  // The setting has it already, or has no budget.
  small.kv_dtype = KvDtype::Fp8;
  small.scheduler.policy = "continuous";
  CHECK(advice(TuneLimit::KvCache, small).find("fp8") == std::string::npos);
  CHECK(advice(TuneLimit::Throughput, small).find("budget") == std::string::npos);
}

TEST_CASE("the largest image counts in every step", "[tune]") {
  SimulatedBackend backend;
  const std::string path = testing::source_dir() + "/scenarios/images.yaml";
  const auto bounds_of = [&](const std::string& share) {
    ScenarioFile file = load_scenario(path, {"workload.images.share=" + share}, {});
    std::vector<Scenario> scenarios = {file.variants.front()};
    const std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(scenarios));
    const PreparedVariant& variant = variants.front();
    return step_bounds(variant.scenario, *variant.run, *variant.workload);
  };
  const StepBounds text = bounds_of("0");
  const StepBounds images = bounds_of("0.125");
  CHECK(text.encode_ms == 0);
  CHECK(text.fitting_tokens > 0);
  CHECK(images.encode_ms == Approx(24.0).margin(0.2));  // docs/guide/images.md
  // Images make prompts longer, and so the context of the last token.
  CHECK(images.one_token_ms == Approx(text.one_token_ms + images.encode_ms).epsilon(0.01));
  CHECK(images.fitting_tokens == 0);  // 24.0 ms and a decode are more than 25
  CHECK(images.capacity < text.capacity);
  SloConfig slo;
  slo.itl_ms = 25;
  CHECK(limit_advice(TuneLimit::FullStep, slo, images).find("Only smaller images, a faster GPU") !=
        std::string::npos);
  CHECK(limit_advice(TuneLimit::Itl, slo, images).find("24.0 ms to encode") != std::string::npos);
}

TEST_CASE("the budget that keeps a limit counts the context before the last chunk", "[tune]") {
  SimulatedBackend backend;
  ScenarioFile file =
      load_scenario(testing::source_dir() + "/scenarios/quickstart.yaml",
                    {"engine.max_model_len=65536", "slo.itl_ms=100", "workload.num_requests=1",
                     "workload.prompt_tokens={distribution: fixed, value: 60000}"},
                    {});
  std::vector<Scenario> scenarios;
  for (Scenario& variant : file.variants) {
    if (largest_prefill(variant.scheduler) > 0) scenarios.push_back(std::move(variant));
  }
  REQUIRE(!scenarios.empty());
  for (const PreparedVariant& variant : prepare_variants(backend, std::move(scenarios))) {
    CAPTURE(variant.scenario.name);
    const StepBounds bounds = step_bounds(variant.scenario, *variant.run, *variant.workload);
    REQUIRE(bounds.fitting_tokens > 0);
    // The steps of one prompt alone: the last one has the most context, and is the longest.
    RunRecorder recorder(variant.workload->requests.size());
    EventSink* const sink = &recorder;
    VirtualClock clock;
    variant.run->run(*variant.workload, clock, {&sink, 1}, {});
    TimeNs longest = 0;
    for (const StepEntry& step : recorder.finish().steps) {
      if (step.num_prefill_tokens == bounds.full_step_tokens) {
        longest = std::max(longest, step.duration_ns());
      }
    }
    CHECK(bounds.full_step_ms == Approx(to_ms(longest)).epsilon(0.1));
  }
}

TEST_CASE("the capacity in closed form is about what a full engine carries", "[tune]") {
  SimulatedBackend backend;
  std::size_t num_variants = 0;
  for (const char* name : {"quickstart", "policies", "random"}) {
    for (const char* hardware : {"h200", "a100-80gb", "l40s"}) {
      ScenarioFile file = load_scenario(testing::source_dir() + "/scenarios/" + name + ".yaml",
                                        {std::string("hardware=") + hardware}, {});
      for (PreparedVariant& variant : prepare_variants(backend, std::move(file.variants))) {
        CAPTURE(name, hardware, variant.scenario.name);
        const double carried = saturation_of(variant).requests_per_s;
        const double capacity =
            step_bounds(variant.scenario, *variant.run, *variant.workload).capacity;
        CHECK(capacity > carried / 2.5);
        CHECK(capacity < carried * 2.5);
        ++num_variants;
      }
    }
  }
  CHECK(num_variants > 15);
}

}  // namespace TEST_FILE
