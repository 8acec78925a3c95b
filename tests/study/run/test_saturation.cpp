// SPDX-License-Identifier: Apache-2.0
// The most that an engine does of a workload.
#include <algorithm>
#include <string>
#include <vector>

#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/saturation.h"
#include "study/run/variant_run.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

PreparedVariant variant_of(const std::string& workload) {
  SimulatedBackend backend;
  ScenarioFile file = parse_scenario(
      "model: llama-3.2-1b\nhardware: h100-sxm\nscheduler: {policy: continuous}\n"
      "engine: {max_num_seqs: 1, max_model_len: 4096}\nworkload: " +
          workload + "\n",
      "s.yaml", {});
  return std::move(prepare_variants(backend, std::move(file.variants)).front());
}

double seconds_of(PreparedVariant variant) {
  VirtualClock clock;
  variant.run->run(*variant.workload, clock, {}, {});
  return to_seconds(clock.now());
}

constexpr const char* kLengths = "prompt_tokens: {value: 300}, output_tokens: {value: 20}";

// One request at a time: the next begins when the one before has ended.
TEST_CASE("an engine of one sequence does one request after the other", "[study]") {
  const std::string lengths = kLengths;
  const double alone =
      seconds_of(variant_of("{num_requests: 1, arrivals: {process: burst}, " + lengths + "}"));
  PreparedVariant many = variant_of("{num_requests: 40, arrivals: {rate: 0.1}, " + lengths + "}");
  CHECK(saturation_of(many).requests_per_s == Approx(1 / alone).epsilon(0.02));
  PreparedVariant one = variant_of("{num_requests: 1, arrivals: {rate: 0.1}, " + lengths + "}");
  CHECK(saturation_of(one).requests_per_s > 0);
}

TEST_CASE("pauses of sessions do not count, and none fits is zero", "[study]") {
  const std::string sessions =
      "arrivals: {rate: 0.1}, sessions: {kind: chat, num_sessions: 20, turns: {value: 2}, "
      "think_time_ms: {value: 60000}}";
  PreparedVariant chat = variant_of("{" + sessions + ", " + kLengths + "}");
  CHECK(saturation_of(chat).requests_per_s > 1);  // with the pauses: fewer than 40 in a minute
  PreparedVariant none = variant_of(
      "{num_requests: 4, arrivals: {rate: 1}, prompt_tokens: {value: 5000}, output_tokens: {value: "
      "1}}");
  CHECK(saturation_of(none).requests_per_s == 0);
}

TEST_CASE("the capacity hardly depends on which requests were drawn", "[study]") {
  const std::string workload =
      "{num_requests: 3000, arrivals: {rate: 10}, "
      "prompt_tokens: {distribution: lognormal, median: 400, p99: 4000, max: 4000}, "
      "output_tokens: {distribution: lognormal, median: 100, p99: 1000, max: 1500}}";
  std::vector<double> rates;
  for (const int seed : {1, 2, 3, 4, 5, 6}) {
    SimulatedBackend backend;
    ScenarioFile file = parse_scenario("seed: " + std::to_string(seed) +
                                           "\nmodel: llama-3.2-1b\nhardware: h100-sxm\n"
                                           "scheduler: {policy: vllm}\nengine: {max_num_seqs: 64, "
                                           "max_model_len: 8192}\nworkload: " +
                                           workload + "\n",
                                       "s.yaml", {});
    std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(file.variants));
    rates.push_back(saturation_of(variants.front()).requests_per_s);
    CHECK(saturation_of(variants.front()).num_served == 1000);
  }
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  CAPTURE(rates);
  CHECK(*most < 1.2 * *least);
}

TEST_CASE("the capacity is the rate of a long burst, also where requests go in waves", "[study]") {
  for (const char* policy : {"static", "continuous", "vllm"}) {
    SimulatedBackend backend;
    const std::string scenario =
        std::string("model: llama-3.2-1b\nhardware: h100-sxm\nscheduler: {policy: ") + policy +
        "}\nengine: {max_num_seqs: 100, max_model_len: 1024, max_waiting_requests: 2000}\n"
        "workload: {num_requests: 2000, arrivals: {process: burst}, prompt_tokens: {value: 128}, "
        "output_tokens: {value: 200}}\n";
    ScenarioFile file = parse_scenario(scenario, "s.yaml", {});
    std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(file.variants));
    PreparedVariant& variant = variants.front();
    VirtualClock clock;
    variant.run->run(*variant.workload, clock, {}, {});
    INFO(policy);
    CHECK(saturation_of(variant).requests_per_s ==
          Approx(2000 / to_seconds(clock.now())).epsilon(0.05));
    variant.run->setup.max_waiting_requests = 50;  // a limit of the queue is none of the engine's
    CHECK(saturation_of(variant).num_served == 1000);
    CHECK(variant.run->setup.max_waiting_requests == 50);
  }
}

TEST_CASE("requests that cannot be served are no part of the capacity", "[study]") {
  const std::string prompts = ", prompt_tokens: {distribution: uniform, min: 2000, max: 6000}";
  const std::string outputs = ", output_tokens: {value: 20}";
  PreparedVariant variant =
      variant_of("{num_requests: 400, arrivals: {rate: 1}" + prompts + outputs + "}");
  const Saturation saturation = saturation_of(variant);
  CHECK(saturation.num_tried == 400);
  CHECK(saturation.num_served > 160);
  CHECK(saturation.num_served < 240);  // 4096 - 20 is about the middle
  CHECK(saturation.prompt_tokens > 2900);
  CHECK(saturation.prompt_tokens < 3150);
  CHECK(saturation.output_tokens == 20);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
