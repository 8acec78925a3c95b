// SPDX-License-Identifier: Apache-2.0
// Speed of the simulation loop, on the two workloads whose peer figures are in
// data/peer_vidur/README.md of the shared data, and on synthetic ones that show how the cost of a
// step grows.
//
//   build/release/metronome_bench
#include <benchmark/benchmark.h>

#include <optional>
#include <string>

#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_config.h"
#include "sim/sim_executor.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/shared_data.h"

namespace metronome {
namespace {

// Llama-2-7B on one A100, as the peer simulator was configured.
Scenario peer_scenario() {
  Scenario scenario;
  scenario.model = "llama-2-7b";
  scenario.hardware = "a100-80gb";
  scenario.engine.max_num_seqs = 128;
  scenario.engine.max_model_len = 4096;
  scenario.kv_cache.num_blocks = 7424;
  scenario.scheduler.policy = "token_budget";
  scenario.scheduler.max_num_batched_tokens = 512;
  return scenario;
}

void count_steps(benchmark::State& state, std::size_t num_steps) {
  state.counters["steps"] = static_cast<double>(num_steps);
  state.counters["s_per_step"] = benchmark::Counter(
      static_cast<double>(num_steps),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// One run of the loop, events folded into record and digest on the way. Reading the catalogue
// comes before it and bringing the record into its final form after. `num_blocks` may be more than
// the GPU holds.
void run_loop(benchmark::State& state, const Scenario& scenario, const Workload& workload,
              double peer_loop_seconds, std::optional<std::int64_t> num_blocks = {}) {
  std::size_t num_steps = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Simulation simulation = prepare_simulation(scenario);
    simulation.setup.kv_cache.num_blocks =
        num_blocks.value_or(simulation.setup.kv_cache.num_blocks);
    state.ResumeTiming();
    RunRecorder recorder(workload.requests.size());
    EventDigest digest;
    EventSink* sinks[] = {&recorder, &digest};
    VirtualClock clock;
    simulation.run(workload, clock, sinks);
    benchmark::DoNotOptimize(digest.value());
    state.PauseTiming();
    num_steps = recorder.finish().steps.size();
    state.ResumeTiming();
  }
  count_steps(state, num_steps);
  if (peer_loop_seconds > 0) {
    state.counters["times_faster_than_peer"] =
        benchmark::Counter(peer_loop_seconds, benchmark::Counter::kIsIterationInvariantRate);
  }
}

Workload read_trace(const std::string& path, TraceFormat format = TraceFormat::Vidur) {
  WorkloadConfig config;
  config.trace.file = path;
  config.trace.format = format;
  config.arrivals.process = ArrivalProcess::Trace;
  return make_workload(config, 0);
}

void peer_trace(benchmark::State& state, const std::string& file, double peer_loop_seconds) {
  const auto path = testing::shared_path(file);
  if (!path) {
    state.SkipWithError("the shared trace is not here");
    return;
  }
  run_loop(state, peer_scenario(), read_trace(*path), peer_loop_seconds);
}

void azure_conversation_replay(benchmark::State& state) {
  peer_trace(state, "data/peer_vidur/azure_conv_replay_trace.csv", 22.8);
}
BENCHMARK(azure_conversation_replay)->Unit(benchmark::kMillisecond);

void poisson_4096(benchmark::State& state) {
  peer_trace(state, "data/peer_vidur/sarathi512_poisson3_4096/trace.csv", 8.2);
}
BENCHMARK(poisson_4096)->Unit(benchmark::kMillisecond);

// Long prompts that share prefixes, through vLLM's scheduler with prefix caching: 145 M prompt
// tokens in blocks of 16. The peer has no prefix caching; its step is taken from the Azure replay,
// 22.8 s for 57,557 steps.
void mooncake_conversation(benchmark::State& state) {
  const auto path = testing::shared_path("data/traces/mooncake_conversation.jsonl");
  if (!path) {
    state.SkipWithError("the shared trace is not here");
    return;
  }
  Scenario scenario;
  scenario.model = "llama-3.1-8b";
  scenario.hardware = "h100-sxm";
  scenario.engine.max_num_seqs = 256;
  scenario.scheduler.policy = "vllm";
  scenario.scheduler.max_num_batched_tokens = state.range(0);
  constexpr double kPeerSecondsPerStep = 22.8 / 57'557;
  run_loop(state, scenario, read_trace(*path, TraceFormat::Mooncake), 0);
  state.counters["peer_step_over_ours"] =
      benchmark::Counter(kPeerSecondsPerStep * static_cast<double>(state.counters["steps"]),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(mooncake_conversation)->Arg(512)->Arg(2048)->Arg(8192)->Unit(benchmark::kMillisecond);

Workload equal_requests(std::size_t count, std::int32_t prompt, std::int32_t output) {
  Workload workload;
  workload.requests.assign(count, RequestSpec{0, prompt, output, 0});
  return workload;
}

// Cost of a step against the batch: `batch` decodes, nothing else. At most linear.
void decode_step(benchmark::State& state) {
  const auto batch = static_cast<std::int32_t>(state.range(0));
  Scenario scenario = peer_scenario();
  scenario.engine.max_num_seqs = batch;
  scenario.scheduler.max_num_batched_tokens = std::max(512, batch);
  run_loop(state, scenario, equal_requests(static_cast<std::size_t>(batch), 16, 4000), 0,
           std::int64_t{batch} * 256);
}
BENCHMARK(decode_step)->RangeMultiplier(4)->Range(1, 1024)->Unit(benchmark::kMillisecond);

// Takes its steps one by one.
class SingleSteps final : public Executor {
 public:
  explicit SingleSteps(CostModel& costs) : executor_(costs) {}
  bool takes_runs() const override { return true; }
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    executor_.launch(plan, requests, now);
  }
  const StepResult& collect() override { return executor_.collect(); }

 private:
  SimExecutor executor_;
};

// Cost of a step in which nobody comes, goes or needs a block: `batch` decodes, recorded without a
// digest, which reads every chunk. Steps one by one, or together.
void quiet_step(benchmark::State& state, bool together) {
  const auto batch = static_cast<std::int32_t>(state.range(0));
  Scenario scenario = peer_scenario();
  scenario.engine.max_num_seqs = batch;
  scenario.kv_cache.block_size = 4096;
  scenario.kv_cache.num_blocks = 1;
  scenario.scheduler.max_num_batched_tokens = 16 * batch;
  const Workload workload = equal_requests(static_cast<std::size_t>(batch), 16, 4000);
  std::size_t num_steps = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Simulation simulation = prepare_simulation(scenario);
    simulation.setup.kv_cache.num_blocks = batch;  // more than the GPU holds
    state.ResumeTiming();
    RunRecorder recorder(workload.requests.size());
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    SingleSteps one_by_one(*simulation.cost_model);
    SimExecutor simulated(*simulation.cost_model);
    Executor& executor = together ? static_cast<Executor&>(simulated) : one_by_one;
    run_workload(simulation.setup, executor, clock, workload, sinks, {}, 1);
    state.PauseTiming();
    num_steps = recorder.finish().steps.size();
    state.ResumeTiming();
  }
  count_steps(state, num_steps);
}
void quiet_step_alone(benchmark::State& state) { quiet_step(state, false); }
void quiet_step_of_run(benchmark::State& state) { quiet_step(state, true); }
BENCHMARK(quiet_step_alone)->Arg(8)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);
BENCHMARK(quiet_step_of_run)->Arg(8)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);

// Cost of a step against the number of requests that have already finished: none.
void finished_requests(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  Scenario scenario = peer_scenario();
  scenario.engine.max_num_seqs = 16;
  run_loop(state, scenario, equal_requests(count, 16, 16), 0);
}
BENCHMARK(finished_requests)
    ->RangeMultiplier(10)
    ->Range(1'000, 1'000'000)
    ->Unit(benchmark::kMillisecond);

// Everything after the loop: percentiles and the search for the longest stall.
void summarize_azure(benchmark::State& state) {
  const auto path = testing::shared_path("data/peer_vidur/azure_conv_replay_trace.csv");
  if (!path) {
    state.SkipWithError("the shared trace is not here");
    return;
  }
  const Workload workload = read_trace(*path);
  Simulation simulation = prepare_simulation(peer_scenario());
  RunRecorder recorder;
  EventSink* sinks[] = {&recorder};
  VirtualClock clock;
  simulation.run(workload, clock, sinks);
  const RunRecord record = recorder.finish();
  for (auto _ : state) {
    benchmark::DoNotOptimize(summarize(record, {.slo = {}, .num_blocks = 7424}));
  }
}
BENCHMARK(summarize_azure)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace metronome
