// SPDX-License-Identifier: Apache-2.0
// Runs with drafts, from the scenario to the record: what requests receive, what is counted, and
// that nothing depends on chance.
#include <numeric>

#include "core/engine/front_end.h"
#include "core/metrics/digest.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kScenario = R"(seed: 11
model: llama-3.1-8b
hardware: h100-sxm
engine: {max_num_seqs: 16, max_model_len: 4096}
kv_cache: {num_blocks: 400}
scheduler: {policy: vllm, max_num_batched_tokens: 512}
workload:
  num_requests: 60
  arrivals: {process: poisson, rate: 20}
  prompt_tokens: {distribution: uniform, min: 10, max: 900}
  output_tokens: {distribution: uniform, min: 1, max: 120}
)";

struct DraftRun {
  RunRecord record;
  Summary summary;
  std::uint64_t digest = 0;
};

DraftRun run_with(const std::vector<std::string>& assignments) {
  const ScratchFolder folder;
  const ScenarioFile file =
      load_scenario(folder.write("s.yaml", kScenario), assignments, std::nullopt);
  Simulation simulation = prepare_simulation(file.variants.front());
  const Workload workload = make_workload(file.variants.front().workload, 11);
  RunRecorder recorder(workload.requests.size(), simulation.front_end);
  EventDigest digest;
  EventSink* sinks[] = {&recorder, &digest};
  VirtualClock clock;
  simulation.run(workload, clock, sinks);
  DraftRun run;
  run.record = recorder.finish();
  run.summary = summarize(run.record, {});
  run.digest = digest.value();
  return run;
}

std::vector<std::string> drafts(const std::string& method, int num_tokens) {
  return {"speculative.method=" + method,
          "speculative.num_speculative_tokens=" + std::to_string(num_tokens)};
}

}  // namespace

TEST_CASE("a threshold that cuts drafts, with which vLLM may end, is warned of", "[sim][drafts]") {
  const auto warning = [](const std::string& threshold) {
    const ScratchFolder folder;
    const ScenarioFile file =
        load_scenario(folder.write("s.yaml", kScenario),
                      {"speculative.method=eagle", "speculative.num_speculative_tokens=3",
                       "scheduler.long_prefill_token_threshold=" + threshold},
                      std::nullopt);
    return prepare_simulation(file.variants.front()).warning;
  };
  CHECK(contains(warning("3"), "long_prefill_token_threshold 3 cuts the 3 drafts of a decode"));
  CHECK(!contains(warning("4"), "cuts"));
  CHECK(!contains(warning("0"), "cuts"));
}

TEST_CASE("every request receives what it asked for, whatever is accepted", "[sim][drafts]") {
  for (const char* method : {"eagle", "mtp", "ngram"}) {
    for (const int depth : {1, 2}) {
      if (depth == 2 && std::string(method) == "ngram") continue;
      for (const double rate : {0.0, 0.6, 1.0}) {
        CAPTURE(method, depth, rate);
        std::vector<std::string> settings = drafts(method, 3);
        settings.push_back("engine.async_depth=" + std::to_string(depth));
        settings.push_back("speculative.acceptance.rate=[" + std::to_string(rate) + "]");
        const DraftRun run = run_with(settings);
        CHECK(run.summary.completed == 60);
        std::int64_t num_tokens = 0;
        for (std::size_t i = 0; i < run.record.requests.size(); ++i) {
          const RequestRecord& request = run.record.requests[i];
          CHECK(request.num_output_tokens == request.max_output_tokens);
          const auto counts = run.record.counts_of(i);
          std::int32_t num_steps = 0;
          for (const TokenRun& token_run : run.record.runs_of(i)) num_steps += token_run.num_steps;
          CHECK(counts.size() == static_cast<std::size_t>(num_steps));
          CHECK(std::accumulate(counts.begin(), counts.end(), 0) == request.num_output_tokens);
          num_tokens += request.num_output_tokens;
        }
        std::int64_t num_emitted = 0;
        for (const StepEntry& step : run.record.steps) {
          num_emitted += step.num_emitted;
          CHECK(step.num_accepted_tokens <= step.num_draft_tokens);
          CHECK(step.num_draft_tokens < std::max(step.num_decode_tokens, 1));
        }
        CHECK(num_emitted == num_tokens);
        REQUIRE(run.summary.drafts.has_value());
        const double length = run.summary.drafts->acceptance_length;
        if (rate == 0) CHECK(length == 1);
        if (rate == 1) CHECK(length > 3.5);  // fewer drafts at a request's end
      }
    }
  }
}

TEST_CASE("a run with drafts repeats to the bit", "[sim][drafts]") {
  const DraftRun first = run_with(drafts("eagle", 4));
  CHECK(first.digest == run_with(drafts("eagle", 4)).digest);
  CHECK(first.digest != run_with(drafts("eagle", 3)).digest);
  std::vector<std::string> other = drafts("eagle", 4);
  other.push_back("speculative.acceptance.rate=[0.5]");
  CHECK(first.digest != run_with(other).digest);
}

TEST_CASE("no draft tokens are no drafts", "[sim][drafts]") {
  const DraftRun plain = run_with({});
  CHECK_FALSE(plain.summary.drafts.has_value());
  CHECK(plain.record.token_counts.empty());
  CHECK(run_with(drafts("eagle", 0)).digest == plain.digest);
}

TEST_CASE("drafts are counted as vLLM counts them", "[sim][drafts]") {
  const DraftRun run = run_with(drafts("eagle", 3));
  const DraftCounts& counts = run.record.drafts;
  REQUIRE(counts.drafted.size() == 3);
  CHECK(counts.drafted[0] == counts.num_drafts);
  CHECK(counts.accepted[0] >= counts.accepted[1]);
  CHECK(counts.accepted[1] >= counts.accepted[2]);
  CHECK(run.summary.drafts->acceptance_length ==
        Approx(1 + static_cast<double>(counts.num_accepted()) /
                       static_cast<double>(counts.num_drafts)));
  // The default: a draft token is accepted with probability 0.7.
  CHECK(static_cast<double>(counts.accepted[0]) / static_cast<double>(counts.drafted[0]) ==
        Approx(0.7).margin(0.05));
  CHECK(run.summary.drafts->num_wasted >= counts.num_drafted() - counts.num_accepted());
}

TEST_CASE("tokens that come at once share their gap", "[sim][drafts]") {
  const DraftRun run = run_with(drafts("eagle", 3));
  const Distribution& per_token = run.summary.drafts->itl_per_token;
  CHECK(per_token.count == run.summary.total_output_tokens - run.summary.completed);
  CHECK(per_token.count > run.summary.itl.count);
  // Both are the same time, divided among more tokens.
  const auto total = [](const Distribution& d) { return d.mean_ms * static_cast<double>(d.count); };
  CHECK(total(per_token) == Approx(total(run.summary.itl)).epsilon(1e-6));
}

TEST_CASE("the drafts of a decode follow the size of the batch before", "[sim][drafts]") {
  std::vector<std::string> settings = drafts("eagle", 5);
  settings.push_back(
      "speculative.num_speculative_tokens_per_batch_size=[[1, 2, 5], [3, 6, 2], [9, 100, 0]]");
  const DraftRun run = run_with(settings);
  std::size_t num_before = 0;  // requests in the step before
  std::size_t num_checked = 0;
  for (const StepEntry& step : run.record.steps) {
    const std::int32_t num_decodes = step.num_decode_tokens - step.num_draft_tokens;
    const std::int32_t most = num_before <= 2 ? 5 : num_before <= 8 ? 2 : 0;
    CHECK(step.num_draft_tokens <= most * num_decodes);
    num_checked += step.num_draft_tokens > 0 && num_before > 2 ? 1u : 0u;
    num_before = static_cast<std::size_t>(num_decodes + step.num_prefill_chunks);
  }
  CHECK(num_checked > 10);
  CHECK(run.summary.completed == 60);
}

}  // namespace metronome::testing::TEST_FILE
