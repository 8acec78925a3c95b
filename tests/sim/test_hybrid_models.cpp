// SPDX-License-Identifier: Apache-2.0
// Simulations of models with states: memory, and long contexts.
#include <algorithm>
#include <string>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/metrics/run_record.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

Scenario hybrid_scenario(const std::string& model, const std::string& rest) {
  const ScratchFolder folder;
  const std::string path = folder.write("s.yaml", "model: " + model + "\n" + rest);
  return load_scenario(path, {}, std::nullopt).variants.front();
}

std::string workload_of(int num_requests, int prompt_tokens) {
  return "workload:\n"
         "  num_requests: " +
         std::to_string(num_requests) +
         "\n"
         "  arrivals: {process: closed_loop, concurrency: 1}\n"
         "  prompt_tokens: {distribution: fixed, value: " +
         std::to_string(prompt_tokens) +
         "}\n"
         "  output_tokens: {distribution: fixed, value: 16}\n";
}

// Bytes of an H200 beside the weights of Qwen3.5-9B and the reserve.
double room_bytes() {
  const double memory = static_cast<double>(find_hardware("h200", {}).memory_bytes);
  return memory * CostModelConfig{}.gpu_memory_utilization -
         static_cast<double>(find_model("qwen3.5-9b", {}).weight_bytes()) - 2e9;
}

RunRecord record_of(const Scenario& scenario, Simulation& simulation) {
  RunRecorder recorder;
  EventSink* sinks[] = {&recorder};
  VirtualClock clock;
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  REQUIRE(simulation.run(workload, clock, sinks).completed);
  return recorder.finish();
}

// The shortest step of decodes alone, ms.
double decode_ms(const std::string& model, int prompt_tokens) {
  const Scenario scenario =
      hybrid_scenario(model,
                      "hardware: h200\nengine: {max_num_seqs: 4, max_model_len: 131072}\n"
                      "scheduler: {policy: vllm}\nkv_cache: {enable_prefix_caching: false}\n" +
                          workload_of(2, prompt_tokens));
  Simulation simulation = prepare_simulation(scenario);
  const RunRecord record = record_of(scenario, simulation);
  TimeNs least = kNever;
  for (const StepEntry& step : record.steps) {
    if (step.num_prefill_tokens > 0) continue;
    least = std::min(least, step.duration_ns());
  }
  REQUIRE(least != kNever);
  return to_ms(least);
}

TEST_CASE("memory of a hybrid, known answers", "[sim][states]") {
  const std::string rest =
      "hardware: h200\nengine: {max_num_seqs: 32, max_model_len: 131072}\n"
      "kv_cache: {enable_prefix_caching: false}\n"
      "cost_model: {gpu_memory_utilization: 0.9, reserved_memory_gib: 1.862645149230957}\n" +
      workload_of(1, 100);
  // vLLM: a block holds the KV of 8 layers, or the states of as many. A layer's state has 2,146,304
  // bytes, as many as 524 tokens of 4,096 bytes; blocks of 16 tokens make that 528.
  const Simulation vllm =
      prepare_simulation(hybrid_scenario("qwen3.5-9b", rest + "scheduler: {policy: vllm}\n"));
  CHECK(vllm.setup.kv_cache.block_size == 528);
  CHECK(vllm.setup.kv_cache.states.num_groups == 3);
  CHECK(vllm.setup.kv_cache.num_blocks ==
        static_cast<std::int64_t>(room_bytes() / (528 * 8 * 4'096)));
  // Other policies: states of 32 requests beside the blocks, 24 layers each.
  const Simulation other =
      prepare_simulation(hybrid_scenario("qwen3.5-9b", rest + "scheduler: {policy: chunked}\n"));
  CHECK(other.setup.kv_cache.block_size == 16);
  CHECK(other.setup.kv_cache.num_blocks ==
        static_cast<std::int64_t>(room_bytes() / (16 * 8 * 4'096)) - 32 * 24 * 2'146'304 / 524'288);
}

// The steps of a prompt of 5,000 tokens beside nothing else.
std::vector<std::int32_t> prefill_steps(const std::string& hardware, const std::string& more) {
  const Scenario scenario = hybrid_scenario(
      "qwen3.5-9b", "hardware: " + hardware +
                        "\nengine: {max_num_seqs: 64, max_model_len: 16384, async_depth: 1}\n"
                        "scheduler: {policy: vllm, max_num_batched_tokens: 8192}\n" +
                        more + workload_of(1, 5000));
  Simulation simulation = prepare_simulation(scenario);
  const KvCacheLayout& layout = simulation.setup.kv_cache;
  std::vector<std::int32_t> tokens = {layout.block_size, layout.states.checkpoint_alignment};
  const RunRecord record = record_of(scenario, simulation);
  for (std::size_t i = 0; i < record.prefills.size(); ++i) {
    tokens.push_back(record.prefills[i].num_tokens);
  }
  return tokens;
}

TEST_CASE("vLLM's kernels on Hopper and Blackwell export states from inside a prompt",
          "[sim][states]") {
  using Steps = std::vector<std::int32_t>;
  // Recorded from vLLM 0.33's scheduler with the blocks that its platform derives: one step of
  // 5,000 tokens. Elsewhere a chunk ends where the state is cached.
  for (const char* hardware : {"h100-sxm", "h200", "b200", "rtx-pro-6000"}) {
    CHECK(prefill_steps(hardware, "") == Steps{576, 576, 5000});
  }
  CHECK(prefill_steps("a100-80gb", "") == Steps{528, 0, 4752, 248});
  // Nothing is cached: nothing is exported.
  CHECK(prefill_steps("h200", "kv_cache: {enable_prefix_caching: false}\n") == Steps{528, 0, 5000});
}

// The refusal of a scenario, or "accepted".
std::string refusal_of(const std::string& model, const std::string& rest) {
  const std::string error =
      error_of([&] { prepare_simulation(hybrid_scenario(model, rest + workload_of(1, 100))); });
  return error.empty() ? "accepted" : error;
}

TEST_CASE("vLLM does not start with more sequences than states", "[sim][states]") {
  const auto answer = [](const std::string& engine, const std::string& more = "") {
    return refusal_of("qwen3.5-27b",
                      "hardware: rtx-pro-6000\nscheduler: {policy: vllm}\nengine: {max_model_len: "
                      "32768" +
                          engine + "}\ncost_model: {gpu_memory_utilization: 0.95" + more + "}\n");
  };
  // 0.95 of 102,005,473,280 bytes, less weights and the reserve; a block has 832 tokens of 65,536
  // bytes.
  const double room = 0.95 * 102'005'473'280. -
                      static_cast<double>(find_model("qwen3.5-27b", {}).weight_bytes()) -
                      (0.25 + 1 + 0.18) * kGib - 18. * 1024 * 248'320 - 2. * 16'384 * 5120;
  const std::string most = std::to_string(static_cast<std::int64_t>(room / (832 * 65'536)));
  CHECK(contains(answer(""), "engine.max_num_seqs: 1024 sequences are more than the " + most +
                                 " blocks of states on rtx-pro-6000, with which vLLM does not "
                                 "start: CUDA graphs need a state for each; allowed: at most " +
                                 most +
                                 ", a higher cost_model.gpu_memory_utilization, or "
                                 "cost_model.max_graph_tokens 0"));
  CHECK(answer(", max_num_seqs: 512") == "accepted");
  CHECK(answer("", ", max_graph_tokens: 0") == "accepted");
  // A pool that the user counted is one, too.
  const std::string counted =
      "hardware: h200\nscheduler: {policy: vllm}\nkv_cache: {num_blocks: 100}\n";
  CHECK(refusal_of("qwen3.5-27b", counted + "engine: {max_num_seqs: 100}\n") == "accepted");
  CHECK(contains(refusal_of("qwen3.5-27b", counted + "engine: {max_num_seqs: 101}\n"),
                 "allowed: at most 100,"));
}

// _handle_max_mamba_cache() and resolve_max_num_reqs() of SGLang 0.5.23.
TEST_CASE("SGLang divides memory between states and KV", "[sim][states]") {
  // 48 layers of 3,207,168 bytes, and 65,536 bytes a token in 16 layers.
  const double state = 48. * 3'207'168;
  const ModelConfig model = find_model("qwen3.5-27b", {});
  REQUIRE(static_cast<double>(model.state_bytes()) == state);
  const auto setup_of = [](const std::string& rest) {
    return prepare_simulation(hybrid_scenario(
        "qwen3.5-27b", "scheduler: {policy: sglang}\n" + rest + workload_of(1, 100)));
  };
  const auto room = [&model](double memory, double share) {
    return memory * share - static_cast<double>(model.weight_bytes()) -
           (share * 0.6 + 100. / 1024) * kGib;
  };
  const double memory = static_cast<double>(find_hardware("h100-sxm", {}).memory_bytes);
  const double room_80 = room(memory, 0.8);
  const double states = std::floor(room_80 * 0.9 / 1.9 / state) - 1;
  const double tokens = (room_80 - (states + 1) * state) / 65'536;
  REQUIRE(states == 38);
  const std::string h100 = "hardware: h100-sxm\ncost_model: {gpu_memory_utilization: 0.8}\n";
  // Five states a request: three, and two for prefixes.
  const Simulation simulation = setup_of(h100);
  CHECK(simulation.setup.max_num_seqs == 7);
  CHECK(simulation.setup.kv_cache.num_blocks == static_cast<std::int64_t>(tokens));
  CHECK(contains(simulation.warning,
                 "engine.max_num_seqs is lowered from 2048 to 7: there is memory for their states; "
                 "prefix hits count as if the states of all cached prefixes were kept"));
  CHECK(setup_of(h100 + "engine: {async_depth: 1}\n").setup.max_num_seqs == 38 / 3);
  CHECK(setup_of(h100 + "engine: {max_num_seqs: 4}\n").setup.max_num_seqs == 4);
  // Without cached prefixes, one; as many as the user allows.
  const std::string bare = h100 + "kv_cache: {enable_prefix_caching: false}\n";
  CHECK(setup_of(bare).setup.max_num_seqs == 38);
  const Simulation given = setup_of(bare + "engine: {max_num_seqs: 40}\n");
  CHECK(given.setup.max_num_seqs == 40);
  CHECK(given.setup.kv_cache.num_blocks ==
        static_cast<std::int64_t>((room_80 - 41 * state) / 65'536));
  // The defaults start.
  CHECK(setup_of("hardware: h100-sxm\n").setup.max_num_seqs == 5);
  CHECK(setup_of("hardware: b200\n").setup.max_num_seqs > 50);
}

TEST_CASE("a request that a hybrid's cache cannot hold", "[sim][states]") {
  const std::string error = error_of([] {
    prepare_simulation(
        hybrid_scenario("qwen3.5-9b",
                        "hardware: rtx-4090\nengine: {max_num_seqs: 1, max_model_len: 262144}\n"
                        "scheduler: {policy: vllm}\nkv_cache: {enable_prefix_caching: false}\n" +
                            workload_of(1, 100)));
  });
  CHECK(contains(error,
                 "engine.max_model_len: 262144 tokens of a request are more than the KV "
                 "cache of rtx-4090 holds"));
}

TEST_CASE("a hybrid's decodes cost nearly the same at any context", "[sim][states]") {
  const double text = decode_ms("llama-3.1-8b", 128'000) - decode_ms("llama-3.1-8b", 1'000);
  const double hybrid = decode_ms("qwen3.5-9b", 128'000) - decode_ms("qwen3.5-9b", 1'000);
  CHECK(hybrid > 0);
  CHECK(hybrid < 0.3 * text);
  // 127,000 tokens of 131,072 and of 32,768 bytes.
  const HardwareSpec h200 = find_hardware("h200", {});
  const double per_ms = h200.peak_bandwidth * h200.kv_bandwidth_efficiency / 1e3;
  CHECK(text == Approx(127'000.0 * 131'072 / per_ms).epsilon(0.01));
  CHECK(hybrid == Approx(127'000.0 * 32'768 / per_ms).epsilon(0.01));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
