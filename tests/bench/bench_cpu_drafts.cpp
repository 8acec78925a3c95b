// SPDX-License-Identifier: Apache-2.0
// Decoding of SmolLM-135M on drawn weights with looked-up drafts, against plain decoding in the
// same run. The prompt repeats a phrase, and drawn weights repeat themselves, so most drafts are
// right: this is what verification costs and saves, not what a text of people gives.
//
//   build/release/metronome_bench --benchmark_filter=drafts
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_backend.h"

namespace metronome {
namespace {

constexpr std::int32_t kNumOutputTokens = 128;

Scenario scenario_of(std::int32_t num_drafts) {
  Scenario scenario;
  scenario.model = "smollm-135m";
  scenario.engine.max_num_seqs = 8;
  scenario.engine.max_model_len = 1024;
  scenario.scheduler.policy = "vllm";
  scenario.sampling.ignore_eos = true;
  scenario.speculative.method = SpeculativeMethod::Ngram;
  scenario.speculative.num_speculative_tokens = num_drafts;
  scenario.speculative.prompt_lookup_min = 2;
  scenario.speculative.prompt_lookup_max = 5;
  return scenario;
}

class SteadyClock final : public Clock {
 public:
  TimeNs now() const override {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
  }
  void wait_until(TimeNs) override {}  // nothing here waits for a time

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Prompts of a phrase of 32 tokens, eight times.
Workload repetitive(std::int64_t num_requests) {
  Workload workload;
  workload.token_begin.push_back(0);
  for (std::int64_t i = 0; i < num_requests; ++i) {
    Rng rng(static_cast<std::uint64_t>(i), "phrase");
    std::vector<TokenId> phrase;
    for (int t = 0; t < 32; ++t) {
      phrase.push_back(TokenId{static_cast<std::int32_t>(rng.uniform_int(0, 49151))});
    }
    for (int repeat = 0; repeat < 8; ++repeat) {
      workload.token_ids.insert(workload.token_ids.end(), phrase.begin(), phrase.end());
    }
    workload.token_begin.push_back(workload.token_ids.size());
    workload.requests.push_back({0, 256, kNumOutputTokens, 0});
  }
  return workload;
}

// The time from the end of the step with the first token, and what was given in it.
class DecodeTimes final : public EventSink {
 public:
  void on_event(const Event&, const Request&) override {}
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable&) override {
    std::int64_t num_emitted = 0;
    for (const ScheduledChunk& chunk : chunks) num_emitted += chunk.num_emitted;
    tokens.insert(tokens.end(), step.result->sampled_tokens.begin(),
                  step.result->sampled_tokens.end());
    last_ = step.finished_at;
    if (first_ == kNever) {
      first_ = last_;
      return;
    }
    num_tokens += num_emitted;
    ++num_steps;
  }
  double seconds() const { return static_cast<double>(last_ - first_) / 1e9; }

  std::int64_t num_tokens = 0;
  std::int64_t num_steps = 0;
  std::vector<TokenId> tokens;

 private:
  TimeNs first_ = kNever;
  TimeNs last_ = 0;
};

DecodeTimes decode(CpuBackend& backend, std::int32_t num_drafts, const Workload& workload) {
  const std::unique_ptr<PreparedRun> run = backend.prepare(scenario_of(num_drafts));
  run->load([] {});
  DecodeTimes times;
  EventSink* sinks[] = {&times};
  SteadyClock clock;
  run->run(workload, clock, sinks, {});
  return times;
}

// Drafts, requests.
void smollm_drafts(benchmark::State& state) {
  const auto num_drafts = static_cast<std::int32_t>(state.range(0));
  const Workload workload = repetitive(state.range(1));
  CpuBackend backend;
  double plain_rate = 0;
  double rate = 0;
  for (auto _ : state) {
    const DecodeTimes plain = decode(backend, 0, workload);
    const DecodeTimes drafted = decode(backend, num_drafts, workload);
    METRONOME_CHECK(state.range(1) > 1 || plain.tokens == drafted.tokens, "the same tokens");
    state.SetIterationTime(drafted.seconds());
    plain_rate = std::max(plain_rate, static_cast<double>(plain.num_tokens) / plain.seconds());
    rate = std::max(rate, static_cast<double>(drafted.num_tokens) / drafted.seconds());
    state.counters["tokens/step"] = static_cast<double>(drafted.num_tokens) /
                                    static_cast<double>(drafted.num_steps * state.range(1));
  }
  state.counters["plain_tokens/s"] = plain_rate;
  state.counters["tokens/s"] = rate;
  state.counters["speedup"] = rate / plain_rate;
}
BENCHMARK(smollm_drafts)
    ->ArgsProduct({{2, 4, 8}, {1, 4}})
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace metronome
