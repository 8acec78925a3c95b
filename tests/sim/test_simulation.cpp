// SPDX-License-Identifier: Apache-2.0
// The simulated device and host, and what is refused before a simulation starts.
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/metrics/run_record.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "sim/sim_executor.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/engine_harness.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Steps of 10 ms for every prefill and 4 ms for decodes alone, a host that needs `gap`.
class FixedCosts final : public CostModel {
 public:
  explicit FixedCosts(TimeNs gap) : gap_(gap) {}
  StepCost step_cost(const StepPlan& plan) override {
    StepCost cost;
    cost.total_ns = (plan.num_prefill_tokens > 0 ? 10 : 4) * kNsPerMs;
    cost.linear_ns = cost.total_ns;
    return cost;
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return gap_; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 1000; }

 private:
  TimeNs gap_;
};

// Start and end of each step of one request of four tokens, in ms.
std::vector<std::pair<double, double>> timeline(std::int32_t async_depth, TimeNs gap) {
  EngineSetup setup = make_setup("continuous");
  setup.async_depth = async_depth;
  FixedCosts costs(gap);
  SimExecutor executor(costs);
  VirtualClock clock;
  Journal journal;
  EventSink* sinks[] = {&journal};
  BenchEngine engine(setup, executor, clock, sinks);
  engine.submit({0, 8, 4, 0});
  engine.drain();
  std::vector<std::pair<double, double>> steps;
  for (const Journal::Step& step : journal.steps) {
    steps.emplace_back(to_ms(step.record.started_at), to_ms(step.record.finished_at));
  }
  return steps;
}

using Timeline = std::vector<std::pair<double, double>>;

std::string refusal_of(const std::string& text) {
  const ScratchFolder folder;
  const std::string path = folder.write("s.yaml", text);
  try {
    const ScenarioFile file = load_scenario(path, {}, std::nullopt);
    prepare_simulation(file.variants.back());
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    return what.starts_with(path) ? what.substr(path.size() - 6) : "no place: " + what;
  }
  return "accepted";
}

constexpr const char* kWorkload =
    "workload: {num_requests: 1, arrivals: {process: burst},\n"
    "  prompt_tokens: {distribution: fixed, value: 8},\n"
    "  output_tokens: {distribution: fixed, value: 8}}\n";

}  // namespace

TEST_CASE("one step in flight: the host gap lies between steps", "[sim][executor]") {
  CHECK(timeline(1, kNsPerMs) == Timeline{{1, 11}, {12, 16}, {17, 21}, {22, 26}});
  CHECK(timeline(1, 0) == Timeline{{0, 10}, {10, 14}, {14, 18}, {18, 22}});
}

TEST_CASE("two steps in flight: the host gap hides behind the step before", "[sim][executor]") {
  CHECK(timeline(2, kNsPerMs) == Timeline{{1, 11}, {11, 15}, {15, 19}, {19, 23}});
  // A host slower than the device sets the pace: the plan of a step begins when the one before the
  // last has ended (6 ms gap against decodes of 4 ms).
  CHECK(timeline(2, 6 * kNsPerMs) == Timeline{{6, 16}, {16, 20}, {22, 26}, {26, 30}});
}

TEST_CASE("a result stays valid until the next collect", "[sim][executor]") {
  FixedCosts costs(0);
  SimExecutor executor(costs);
  RequestTable requests;
  StepPlan plan;
  plan.num_decode_tokens = 1;
  executor.launch(plan, requests, 0);
  plan.step_index = 1;
  executor.launch(plan, requests, 0);
  const StepResult& first = executor.collect();
  plan.step_index = 2;
  executor.launch(plan, requests, 0);
  CHECK(first.step_index == 0);
  CHECK(first.finished_at == 4 * kNsPerMs);
  CHECK(executor.collect().step_index == 1);
}

TEST_CASE("what only model or memory can refuse names file, line and key", "[sim][config]") {
  const std::string base = "model: llama-3.2-1b\nhardware: h200\n" + std::string(kWorkload);
  CHECK(refusal_of(base) == "accepted");
  CHECK(refusal_of(base + "engine:\n  max_num_seqs: 4\n  max_model_len: 1000000\n") ==
        "s.yaml:8: engine.max_model_len: 1000000 is more than llama-3.2-1b supports; allowed: at "
        "most 131072");
  CHECK(refusal_of(base + "cost_model: {tensor_parallel_size: 3}\n")
            .starts_with("s.yaml:6: cost_model.tensor_parallel_size: 3 cannot be used with"));
  CHECK(refusal_of("model: llama-3.1-70b\nhardware: l40s\n" + std::string(kWorkload))
            .starts_with("s.yaml:1: model: llama-3.1-70b does not fit on l40s"));
  CHECK(refusal_of(base + "kv_cache: {backend: slotted}\n")
            .starts_with("s.yaml:6: kv_cache.backend: slotted needs engine.max_num_seqs = 256"));
  CHECK(refusal_of(base + "engine: {max_num_seqs: 32768}\nscheduler: {policy: continuous}\n")
            .starts_with("s.yaml:6: engine.max_num_seqs: 32768 prompts of engine.max_model_len"));
  CHECK(refusal_of(base + "engine: {max_num_seqs: 32768}\nscheduler: {policy: token_budget, "
                          "max_num_batched_tokens: 40000}\n") == "accepted");
  CHECK(refusal_of(base + "engine: {max_num_seqs: 32768}\nscheduler: {policy: tensorrt_llm}\n") ==
        "accepted");
  CHECK(refusal_of(base + "engine: {max_num_seqs: 32768}\nscheduler: {policy: sglang}\n") ==
        "accepted");
  CHECK(refusal_of(base + "engine: {max_model_len: 4096}\n"
                          "scheduler: {policy: vllm, enable_chunked_prefill: false, "
                          "max_num_batched_tokens: 2048}\n") ==
        "s.yaml:7: scheduler.max_num_batched_tokens: 2048 is less than engine.max_model_len 4096, "
        "but without enable_chunked_prefill a prompt is computed in one step; allowed: at least "
        "4096");
  // The key of a variant, and a key left out: the place of its section or file.
  CHECK(refusal_of(base + "variants:\n  - name: a\n    engine: {max_model_len: 1000000}\n")
            .starts_with("s.yaml:8: engine.max_model_len: 1000000 is more"));
}

TEST_CASE("the host gap is the scenario's, else the hardware's, else the engine's",
          "[sim][config]") {
  const ScratchFolder folder;
  const std::string own =
      folder.write("own.yaml",
                   "own: {peak_flops: 9e14, peak_bandwidth: 4e12, memory_bytes: 150000000000, "
                   "host_gap_us: 123}\n");
  using Gaps = std::pair<TimeNs, TimeNs>;  // before steps of no and of three requests, us
  const auto gaps = [&](const std::string& policy, const std::string& hardware,
                        const std::string& more = {}) {
    const std::string path = folder.write(
        "s.yaml", "model: llama-3.2-1b\nhardware: " + hardware + "\n" + std::string(kWorkload) +
                      "engine: {max_model_len: 4096}\nscheduler: {policy: " + policy + "}\n" +
                      more);
    const Simulation simulation =
        prepare_simulation(load_scenario(path, {}, std::nullopt).variants.front());
    StepPlan plan;
    plan.chunks.resize(3);
    return Gaps(simulation.cost_model->host_gap_ns({}) / 1000,
                simulation.cost_model->host_gap_ns(plan) / 1000);
  };
  CHECK(gaps("vllm", "h200") == Gaps(400, 400));
  CHECK(gaps("vllm_prefill_first", "h200") == Gaps(4000, 4300));
  CHECK(gaps("sglang", "h200") == Gaps(0, 0));
  CHECK(gaps("tensorrt_llm", "h200") == Gaps(580, 580));
  CHECK(gaps("chunked", "h200") == Gaps(400, 400));
  CHECK(gaps("sglang", own) == Gaps(123, 123));
  CHECK(gaps("vllm_prefill_first", own) == Gaps(123, 123));
  CHECK(gaps("sglang", own, "cost_model: {host_gap_us: 7}\n") == Gaps(7, 7));
  CHECK(gaps("vllm_prefill_first", "h200", "cost_model: {host_gap_us: 7}\n") == Gaps(7, 7));
  CHECK(gaps("vllm", "h200", "cost_model: {host_gap_us: 7, host_gap_us_per_request: 2.5}\n") ==
        Gaps(7, 14));
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.host_gap) CHECK(!policy.host_gap->source.empty());
  }
  CHECK(refusal_of("model: llama-3.2-1b\nhardware: h200\n" + std::string(kWorkload) +
                   "cost_model:\n  host_gap_us_per_request: 2\n") ==
        "s.yaml:7: cost_model.host_gap_us_per_request: is added to cost_model.host_gap_us, which "
        "is not given; allowed: 0, or with that key");
}

TEST_CASE("TensorRT-LLM's norms convert activations, but for blocks of fp8", "[sim][config]") {
  const ScratchFolder folder;
  const auto step_us = [&](const std::string& policy, const std::string& format,
                           const std::string& more = {}) {
    const std::string path = folder.write(
        "s.yaml", "model: llama-3.2-1b\nhardware: b200\n" + std::string(kWorkload) +
                      "scheduler: {policy: " + policy + "}\nquantization: " + format + "\n" + more);
    const Simulation simulation =
        prepare_simulation(load_scenario(path, {}, std::nullopt).variants.front());
    StepPlan plan;
    plan.chunks = {{RequestId{0}, 9, 1, ChunkKind::Decode, true}};
    plan.passes.push_back({0, 1});
    return static_cast<double>(simulation.cost_model->step_cost(plan).total_ns) / 1e3;
  };
  const double layers_us = static_cast<double>(find_model("llama-3.2-1b", {}).n_layers) *
                           find_hardware("b200", {}).quantised_overhead_us;
  REQUIRE(layers_us > 100);
  for (const char* format : {"fp8", "nvfp4"}) {
    CHECK(step_us("vllm", format) - step_us("tensorrt_llm", format) == Approx(layers_us));
    CHECK(step_us("vllm", format) == step_us("sglang", format));
    CHECK(step_us("vllm", format, "cost_model: {fuses_conversions: true}\n") ==
          step_us("tensorrt_llm", format));
    CHECK(step_us("tensorrt_llm", format, "cost_model: {fuses_conversions: false}\n") ==
          step_us("vllm", format));
  }
  CHECK(step_us("vllm", "fp8_block") == step_us("tensorrt_llm", "fp8_block"));
  CHECK(step_us("vllm", "none") == step_us("tensorrt_llm", "none"));
}

TEST_CASE("more blocks than the device's memory holds are refused", "[sim][config]") {
  const auto answer = [](const std::string& num_blocks, const std::string& more = "") {
    return refusal_of("model: llama-3.2-1b\nhardware: rtx-4090\n" + std::string(kWorkload) +
                      "kv_cache: {num_blocks: " + num_blocks + more + "}\n");
  };
  // 25,250,627,584 bytes less 2 x 1,235,814,400 of weights; a block of 16 tokens has 524,288.
  CHECK(answer("10000000") ==
        "s.yaml:6: kv_cache.num_blocks: 10000000 blocks do not fit beside the weights into the "
        "memory of rtx-4090; allowed: auto, or 1 to 43447");
  CHECK(answer("43448").starts_with("s.yaml:6: kv_cache.num_blocks: 43448 blocks do not fit"));
  CHECK(answer("43447") == "accepted");
  CHECK(answer("86894", ", dtype: fp8") == "accepted");
  CHECK(answer("86895", ", dtype: fp8").ends_with("1 to 86894"));
  // Weights alone are more than the memory.
  CHECK(refusal_of("model: llama-3.1-70b\nhardware: rtx-4090\n" + std::string(kWorkload) +
                   "kv_cache: {num_blocks: 10}\n") ==
        "s.yaml:6: kv_cache.num_blocks: 10 blocks do not fit beside the weights into the memory of "
        "rtx-4090; allowed: a smaller model, or more memory");
}

TEST_CASE("a pool with nothing but vLLM's null block is refused", "[sim][config]") {
  const std::string start = "model: llama-3.2-1b\nhardware: rtx-4090\n" + std::string(kWorkload);
  const auto answer = [&start](const std::string& policy, const std::string& num_blocks) {
    return refusal_of(start + "kv_cache: {num_blocks: " + num_blocks +
                      "}\nscheduler: {policy: " + policy + "}\n");
  };
  CHECK(answer("vllm", "1") ==
        "s.yaml:6: kv_cache.num_blocks: 1 leaves no block for requests: policy vllm keeps one as "
        "its null block; allowed: auto, or at least 2");
  CHECK(answer("vllm", "2") == "accepted");
  CHECK(answer("chunked", "1") == "accepted");
}

TEST_CASE("vllm does not start if its longest request does not fit", "[sim][config]") {
  const auto answer = [](const std::string& policy, const std::string& more) {
    return refusal_of("model: llama-3.1-8b\nhardware: rtx-4090\n" + std::string(kWorkload) +
                      "scheduler: {policy: " + policy +
                      "}\ncost_model: {gpu_memory_utilization: 0.92, reserved_memory_gib: "
                      "1.862645149230957}\n" +
                      more);
  };
  // 0.92 of 25,250,627,584 bytes, less 16,060,522,496 of weights and 2e9, are 2,465 blocks of 16
  // tokens of 131,072 bytes. From 0.30 on one of them is the null block.
  CHECK(answer("vllm", "") ==
        "s.yaml:1: engine.max_model_len: 131072 tokens of a request are more than the KV cache of "
        "rtx-4090 holds, with which vLLM does not start; allowed: at most 39424, a higher "
        "cost_model.gpu_memory_utilization, fewer tokens or sequences in a step, or kv_cache.dtype "
        "fp8");
  CHECK(answer("vllm", "engine: {max_model_len: 39424}\n") == "accepted");
  CHECK(answer("vllm", "engine: {max_model_len: 39425}\n").starts_with("s.yaml:8: engine.max"));
  CHECK(answer("vllm, version: '0.29'", "engine: {max_model_len: 39440}\n") == "accepted");
  CHECK(answer("vllm, version: '0.29'", "engine: {max_model_len: 39441}\n")
            .starts_with("s.yaml:8: engine.max"));
  CHECK(answer("vllm", "engine: {max_model_len: 39445}\nkv_cache: {dtype: fp8}\n") == "accepted");
  CHECK(answer("vllm", "engine: {max_model_len: 39445}\nquantization: fp8\n") == "accepted");
  // Other engines start, and refuse the request.
  CHECK(answer("sglang", "") == "accepted");
  CHECK(answer("token_budget", "") == "accepted");
  // The memory is not known, or was counted in blocks.
  CHECK(answer("vllm", "kv_cache: {num_blocks: 100}\n") == "accepted");
}

TEST_CASE("the formats of a scenario are those of its simulation", "[sim][config]") {
  const ScratchFolder folder;
  const auto simulate = [&](const std::string& model, const std::string& more) {
    const std::string path = folder.write(
        "s.yaml", "model: " + model + "\nhardware: h200\n" + std::string(kWorkload) + more);
    return prepare_simulation(load_scenario(path, {}, std::nullopt).variants.front());
  };
  const Simulation plain = simulate("llama-3.1-8b", "");
  const Simulation fp8 = simulate("llama-3.1-8b", "quantization: fp8\nkv_cache: {dtype: fp8}\n");
  CHECK(plain.model.linear_format == WeightFormat::Plain);
  CHECK(fp8.model.linear_format == WeightFormat::Fp8);
  CHECK(fp8.model.expert_format == WeightFormat::Plain);
  CHECK(fp8.model.bytes_per_kv_element == 1);
  // Of 135,107,859,972 bytes, 16.06 GB are weights in bf16, 9.08 in fp8; 2e9 are reserved.
  CHECK(plain.setup.kv_cache.num_blocks == 55812);
  CHECK(fp8.setup.kv_cache.num_blocks == 118281);
  const Simulation mixed = simulate("qwen3-30b-a3b", "quantization: mxfp4\n");
  CHECK(mixed.model.linear_format == WeightFormat::Plain);
  CHECK(mixed.model.expert_format == WeightFormat::Mxfp4);
  CHECK(simulate("qwen3-30b-a3b", "quantization: nvfp4\n").model.linear_format ==
        WeightFormat::Nvfp4);
  const std::string base = "hardware: h200\n" + std::string(kWorkload);
  CHECK(refusal_of("model: llama-3.1-8b\nquantization: mxfp4\n" + base) ==
        "s.yaml:2: quantization: mxfp4 stores experts, and llama-3.1-8b has none; allowed: auto, "
        "none, fp8, fp8_block, nvfp4, int4");
  CHECK(refusal_of("model: llama-3.1-8b\nquantization: q4\n" + base)
            .starts_with("s.yaml:2: quantization: "));
}

TEST_CASE("a tight cache does not make chunked prefill thrash", "[sim][policies]") {
  const std::string path = source_dir() + "/scenarios/quickstart.yaml";
  const ScenarioFile file = load_scenario(path, {"kv_cache.num_blocks=1500"}, std::nullopt);
  for (const Scenario& scenario : file.variants) {
    CAPTURE(scenario.name);
    Simulation simulation = prepare_simulation(scenario);
    const Workload workload = make_workload(scenario.workload, scenario.seed);
    RunRecorder recorder;
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    REQUIRE(simulation.run(workload, clock, sinks).completed);
    const RunRecord record = recorder.finish();
    std::int64_t num_computed = 0;
    for (const StepEntry& step : record.steps) num_computed += step.num_prefill_tokens;
    // Recomputing after preemptions costs some; it must not become the main work.
    CHECK(num_computed > workload.total_prompt_tokens());
    CHECK(num_computed < workload.total_prompt_tokens() * 11 / 10);
  }
}

}  // namespace metronome::testing::TEST_FILE
