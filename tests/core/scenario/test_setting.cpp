// SPDX-License-Identifier: Apache-2.0
// Values of a scenario by key, and the scenario with others.
#include <vector>

#include "core/scenario/scenario.h"
#include "core/scenario/setting.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

Scenario small_scenario() {
  constexpr const char* kText = R"(
model: llama-3.2-1b
hardware: h100-sxm
scheduler: {policy: chunked, prefill_chunk_size: 512}
workload:
  num_requests: 4
  arrivals: {process: burst}
  prompt_tokens: 100
  output_tokens: 10
)";
  return parse_scenario(kText, "small.yaml", {}).variants.front();
}

}  // namespace

TEST_CASE("a value of a scenario is that of its resolved config", "[scenario]") {
  const Scenario scenario = small_scenario();
  CHECK(scenario.value("model") == Json("llama-3.2-1b"));
  CHECK(scenario.value("scheduler.prefill_chunk_size") == Json(512));
  CHECK(scenario.value("kv_cache.num_blocks") == Json("auto"));
  CHECK(scenario.value("workload.prompt_tokens.value") == Json(100));
  CHECK(scenario.value("scheduler") == scenario.resolved().at("scheduler"));
  // Another policy's key, a key of nothing, and a key below a value.
  CHECK(scenario.value("scheduler.max_num_batched_tokens").is_null());
  CHECK(scenario.value("scheduler.no_such_key").is_null());
  CHECK(scenario.value("model.name").is_null());
}

TEST_CASE("a scenario with other settings is the file with --set", "[scenario]") {
  const Scenario scenario = small_scenario();
  CHECK(scenario.with({}).to_json() == scenario.to_json());
  const std::vector<Setting> settings = {{"scheduler.policy", "vllm"},
                                         {"scheduler.max_num_batched_tokens", 1024},
                                         {"kv_cache.num_blocks", "auto"}};
  const Scenario changed = scenario.with(settings);
  CHECK(changed.name == scenario.name);
  CHECK(changed.value("scheduler.policy") == Json("vllm"));
  CHECK(changed.value("scheduler.max_num_batched_tokens") == Json(1024));
  CHECK(changed.value("scheduler.prefill_chunk_size").is_null());  // vLLM's has none
  std::vector<std::string> assignments;
  for (const Setting& setting : settings) assignments.push_back(setting.text());
  const Scenario assigned =
      parse_scenario(scenario.to_json(), "small.json", assignments).variants.front();
  CHECK(changed.to_json() == assigned.to_json());
}

TEST_CASE("a setting that is no key or out of range is refused", "[scenario]") {
  const Scenario scenario = small_scenario();
  const auto error = [&](const Setting& setting) {
    return error_of([&] { static_cast<void>(scenario.with(std::vector<Setting>{setting})); });
  };
  CHECK(error({"scheduler.prefill_chunk_size", 0}).find("--set scheduler.prefill_chunk_size") !=
        std::string::npos);
  CHECK(error({"scheduler.prefil_chunk_size", 8}).find("prefil_chunk_size") != std::string::npos);
  CHECK(!error({"scheduler.prefill_chunk_size", "many"}).empty());
}

TEST_CASE("the text of a setting is that of --set", "[scenario]") {
  CHECK(Setting{"a.b", 512}.text() == "a.b=512");
  CHECK(Setting{"a.b", "auto"}.text() == "a.b=auto");
  CHECK(Setting{"a.b", 0.5}.text() == "a.b=0.5");
  CHECK(Setting{"a.b", nullptr}.text() == "a.b=null");
  CHECK(setting_of("a", "true").value == Json(true));
  CHECK(setting_of("a", "1.3").value == Json(1.3));
  CHECK(setting_of("a", "fcfs").value == Json("fcfs"));
}

}  // namespace metronome::testing::TEST_FILE
