// SPDX-License-Identifier: Apache-2.0
// The client of a scenario: its front end and its lengths.
#include <string>

#include "core/engine/front_end.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

Scenario scenario_of(const std::string& lines,
                     const std::string& lengths = "prompt_tokens: 1000, output_tokens: 100") {
  return parse_scenario("model: llama-3.1-8b\nhardware: h200\n" + lines +
                            "\nworkload: {num_requests: 50, arrivals: {process: closed_loop, "
                            "concurrency: 4}, " +
                            lengths + "}\n",
                        "s.yaml", {})
      .variants.front();
}

bool are_same(const Workload& first, const Workload& second) {
  if (first.requests.size() != second.requests.size()) return false;
  for (std::size_t i = 0; i < first.requests.size(); ++i) {
    const RequestSpec& a = first.requests[i];
    const RequestSpec& b = second.requests[i];
    if (a.num_prompt_tokens != b.num_prompt_tokens || a.max_output_tokens != b.max_output_tokens) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("every preset of a client has a source", "[scenario][client]") {
  CHECK(client_presets().front().name == "none");
  for (const ClientPreset& preset : client_presets()) CHECK_FALSE(preset.source.empty());
}

TEST_CASE("without a client requests have their named lengths", "[scenario][client]") {
  const Workload workload = make_workload(scenario_of(""));
  for (const RequestSpec& request : workload.requests) {
    CHECK(request.num_prompt_tokens == 1000);
    CHECK(request.max_output_tokens == 100);
  }
}

TEST_CASE("a client draws fixed lengths as a uniform distribution does", "[scenario][client]") {
  const char* const uniform =
      "prompt_tokens: {distribution: uniform, min: 800, max: 1000}, "
      "output_tokens: {distribution: uniform, min: 80, max: 100}";
  CHECK(are_same(make_workload(scenario_of("client: {preset: inferencex}")),
                 make_workload(scenario_of("", uniform))));
  const char* const scattered =
      "prompt_tokens: 1000, output_tokens: {distribution: uniform, min: 90, max: 110}";
  // Of 64 clients and more the preset's scatter is the whole tenth; here are four.
  CHECK(are_same(
      make_workload(
          scenario_of("client: {preset: aiperf}", "prompt_tokens: 1000, output_tokens: 1600")),
      make_workload(scenario_of(
          "",
          "prompt_tokens: 1000, output_tokens: {distribution: uniform, min: 1590, max: 1610}"))));
  CHECK(are_same(make_workload(scenario_of("client: {output_scatter: 0.1}")),
                 make_workload(scenario_of("", scattered))));
  // Drawn lengths stay.
  CHECK(are_same(make_workload(scenario_of("client: {preset: inferencex}", uniform)),
                 make_workload(scenario_of("", uniform))));
}

TEST_CASE("a client may send the same prompts again", "[scenario][client]") {
  const Workload workload = make_workload(scenario_of("client: {distinct_prompts: 3}"));
  const Workload shared = make_workload(
      scenario_of("",
                  "prompt_tokens: 1, output_tokens: 100, prefix: {kind: groups, num_groups: 3, "
                  "prefix_tokens: 999}"));
  CHECK(are_same(workload, shared));
  CHECK(workload.requests.front().num_prompt_tokens == 1000);
}

TEST_CASE("keys of a client override its preset", "[scenario][client]") {
  const FrontEnd known = front_end_of(scenario_of("client: {preset: bench}"));
  CHECK(known.fixed_ns == 4'400'000);
  CHECK(known.ns_per_prompt_token == 4900);
  const FrontEnd given =
      front_end_of(scenario_of("client: {preset: bench, frontend: {fixed_ms: 1}}"));
  CHECK(given.fixed_ns == 1'000'000);
  CHECK(given.ns_per_prompt_token == 4900);
  const FrontEnd other = front_end_of(scenario_of("cost_model: {frontend: {fixed_ms: 2}}"));
  CHECK(other.fixed_ns == 2'000'000);
}

TEST_CASE("a run has one front end", "[scenario][client]") {
  const std::string both = "cost_model: {frontend: {fixed_ms: 2}}\nclient: {preset: bench}";
  CHECK(error_of([&] { scenario_of(both); }) ==
        "s.yaml:3: cost_model.frontend: client has a front end, too; allowed: one of the two, or "
        "client.preset none");
  CHECK_NOTHROW(scenario_of("cost_model: {frontend: {fixed_ms: 0}}\nclient: {preset: bench}"));
}

}  // namespace metronome::testing::TEST_FILE
