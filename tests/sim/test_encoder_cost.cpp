// SPDX-License-Identifier: Apache-2.0
// The time in which a vision tower encodes images.
#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "sim/encoder_cost.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

VisionTower small_tower() {
  VisionTower tower;
  tower.depth = 2;
  tower.hidden_dim = 8;
  tower.n_heads = 2;
  tower.ffn_dim = 16;
  tower.patch_size = 2;
  tower.temporal_patch_size = 2;
  tower.merge_size = 2;
  tower.out_dim = 12;
  tower.deepstack_layers = {0};
  return tower;
}

HardwareSpec slow_hardware() {
  HardwareSpec hardware;
  hardware.peak_flops = 1e9;
  hardware.peak_bandwidth = 1e12;
  hardware.matmul_efficiency = 0.5;
  hardware.attention_efficiency = 0.25;
  hardware.launch_overhead_us = 3;
  hardware.kernel_overhead_us = 1;
  return hardware;
}

constexpr RequestId kRequest{0};

std::string scenario_text(const std::string& model, const std::string& more) {
  return "model: " + model +
         "\nhardware: h200\nscheduler: {policy: vllm}\nengine: {max_model_len: 8192}\nworkload: "
         "{num_requests: 20, arrivals: {rate: 20}, prompt_tokens: {value: 100}, output_tokens: "
         "{value: 40}, images: {kind: tokens, tokens: {value: 1000}, share: 0.5, max_pixels: "
         "1048576}}\n" +
         more;
}

Scenario scenario_of(const std::string& text) {
  return parse_scenario(text, "s.yaml", {}).variants.front();
}

TEST_CASE("the cost of an encoding is that of its matrices", "[sim][images]") {
  const EncoderCost cost(small_tower(), slow_hardware(), 1, 2);
  // By hand: 3 embeddings are 12 patches of 24 inputs each.
  const double patch = 2 * (24 * 8 + 2 * (4 * 64 + 2 * 8 * 16));
  const double merger = 2 * 2 * (32 * 32 + 32 * 12);
  const double linear = (12 * patch + 3 * merger) / 0.5e9;
  const double attention = 4 * 144 * 8 * 2 / 0.25e9;
  const double expected_ns = (linear + attention) * 1e9 + 5000;
  CHECK(static_cast<double>(cost.time_ns(std::vector<PlannedEncoding>{{kRequest, 0, 3}})) ==
        Approx(expected_ns).margin(1));
  CHECK(cost.time_ns({}) == 0);
}

TEST_CASE("two images attend to themselves, and share launches", "[sim][images]") {
  const EncoderCost cost(small_tower(), slow_hardware(), 1, 2);
  const auto time = [&cost](const std::vector<PlannedEncoding>& encodings) {
    return cost.time_ns(encodings) - 5000;
  };
  const TimeNs one = time({{kRequest, 0, 100}});
  const TimeNs two = time({{kRequest, 0, 100}, {kRequest, 1, 100}});
  CHECK(std::abs(two - 2 * one) <= 2);
  CHECK(time({{kRequest, 0, 200}}) > two);  // one image of that size
  const EncoderCost split(small_tower(), slow_hardware(), 2, 2);
  CHECK(std::abs(2 * (split.time_ns(std::vector<PlannedEncoding>{{kRequest, 0, 100}}) - 5000) -
                 one) <= 2);
}

TEST_CASE("few patches wait for the tower's weights", "[sim][images]") {
  HardwareSpec hardware = slow_hardware();
  hardware.peak_bandwidth = 1e6;
  const VisionTower tower = small_tower();
  const EncoderCost cost(tower, hardware, 1, 2);
  const TimeNs weights = tower.n_params() * 2 * 1000;
  CHECK(cost.time_ns(std::vector<PlannedEncoding>{{kRequest, 0, 1}}) >= weights);
}

TEST_CASE("steps take longer by their encodings, and gaps say so", "[sim][images]") {
  const Scenario scenario = scenario_of(scenario_text("qwen3-vl-8b", ""));
  Simulation simulation = prepare_simulation(scenario);
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  RunRecorder recorder(workload.requests.size());
  EventSink* const sinks[] = {&recorder};
  VirtualClock clock;
  REQUIRE(simulation.run(workload, clock, sinks, {}).completed);
  const RunRecord record = recorder.finish();
  CHECK(record.has_encodings);
  const TimeNs one =
      simulation.encoder_cost->time_ns(std::vector<PlannedEncoding>{{kRequest, 0, 1000}});
  TimeNs encode_ns = 0;
  for (const StepEntry& step : record.steps) {
    CHECK(step.encode_ns <= step.duration_ns() - step.decode_only_ns);
    encode_ns += step.encode_ns;
  }
  const auto num_images = static_cast<TimeNs>(workload.images.size());
  CHECK(num_images > 3);
  CHECK(encode_ns > num_images * one * 8 / 10);  // images of one step share the launches
  CHECK(encode_ns <= num_images * one);
  const GapAnalysis gaps(record);
  const GapParts& total = gaps.total();
  CHECK(total.encode_ns > 0);
  CHECK(total.prefill_ns > 0);
}

TEST_CASE("images are refused where they cannot be", "[sim][images]") {
  const auto error = [](const std::string& model, const std::string& more) {
    return error_of([&] { prepare_simulation(scenario_of(scenario_text(model, more))); });
  };
  CHECK(error("llama-3.1-8b", "") ==
        "s.yaml:5: workload.images.kind: llama-3.1-8b takes text only; allowed: none, or a model "
        "with a vision tower");
  const auto with_scheduler = [](const std::string& scheduler) {
    std::string text = scenario_text("qwen3-vl-8b", "");
    const std::string old = "{policy: vllm}";
    text.replace(text.find(old), old.size(), "{policy: vllm, " + scheduler + "}");
    return error_of([&] { prepare_simulation(scenario_of(text)); });
  };
  CHECK(with_scheduler("version: 0.25") ==
        "s.yaml:3: scheduler.version: the rules of vLLM 0.25 for images are not known; allowed: "
        "0.33 or later");
  CHECK(with_scheduler("disable_chunked_mm_input: true, max_num_batched_tokens: 512")
            .starts_with("s.yaml:3: scheduler.max_num_batched_tokens: 512 is less than 1024"));
  CHECK(with_scheduler("disable_chunked_mm_input: true, long_prefill_token_threshold: 512")
            .starts_with("s.yaml:3: scheduler.long_prefill_token_threshold: 512 is less than"));
  CHECK(with_scheduler("disable_chunked_mm_input: true").empty());
}

// Step times do not say what a tower or a drafter of other layers would take.
TEST_CASE("images and drafts on a GPU without known peaks are refused", "[sim][images][cli]") {
  Json file =
      Json::parse(read_file(source_dir() + "/sim/catalogue/h100-sxm_qwen3-8b.json").value());
  file["hardware"] = "my-gpu";
  const ScratchFolder scratch;
  const std::string times = scratch.write("times.json", file.dump());
  const auto error = [&](const std::string& more) {
    const std::string scenario = scratch.write(
        "s.yaml", "model: qwen3-vl-8b\ncost_model: {file: " + times +
                      "}\nengine: {max_model_len: 2048}\nkv_cache: {num_blocks: 500}\nscheduler: "
                      "{policy: vllm}\nworkload: {num_requests: 2, arrivals: {rate: 1}, "
                      "prompt_tokens: {value: 50}, output_tokens: {value: 4}" +
                      more);
    const CommandResult result =
        run_metronome("run " + scenario + " --quiet --out '" + scratch.path() + "/out'");
    CHECK(result.exit_code == 2);
    return result.err.substr(result.err.find("yaml:"));
  };
  CHECK(error(", images: {kind: pixels, width: {value: 320}, height: {value: 320}}}\n") ==
        "yaml:1: hardware: required key is missing: the peaks of my-gpu are not known, which price "
        "the encoding of images; allowed: a name of the catalogue\n");
  CHECK(
      error("}\nspeculative: {method: eagle, acceptance: {kind: length, mean_length: [1.5], "
            "mean_length_tokens: 2}}\n") ==
      "yaml:7: speculative.cost_file: required key is missing: the peaks of my-gpu are not known; "
      "allowed: step times of qwen3-vl-8b's eagle layer\n");
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
