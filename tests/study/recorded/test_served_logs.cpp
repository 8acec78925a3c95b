// SPDX-License-Identifier: Apache-2.0
// Logs of a real vLLM 0.32 server on a CPU, and the requests that it served. `tools/check_vllm
// --write-fixtures` records them. Every iteration follows from the scenario.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "engines/vllm/iteration_log.h"
#include "study/recorded/logged_run.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::vector<std::string> served() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/tests/fixtures/served")) {
    if (entry.path().extension() == ".log") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

LoggedRun follow(const std::string& name, const std::vector<std::string>& assignments) {
  const std::string path = source_dir() + "/tests/fixtures/served/" + name;
  const ScenarioFile file = load_scenario(path + ".yaml", assignments, std::nullopt);
  return run_logged(file.variants.front(), read_iteration_log(path + ".log"));
}

}  // namespace

TEST_CASE("every iteration of a real server is decided alike", "[logged]") {
  const std::vector<std::string> names = served();
  REQUIRE(names.size() >= 3);
  for (const std::string& name : names) {
    INFO(name);
    const LoggedRun run = follow(name, {});
    if (run.first_difference) {
      FAIL_CHECK("iteration " << run.first_difference->logged.number << ": "
                              << run.first_difference->simulated);
    }
    CHECK(run.num_after == 0);
    CHECK(run.num_equal > 100);
    if (name.starts_with("full")) CHECK_FALSE(run.record.preemptions.empty());
  }
}

TEST_CASE("another budget than the real server's is found out", "[logged]") {
  for (const std::string& name : served()) {
    INFO(name);
    CHECK(follow(name, {"scheduler.max_num_batched_tokens=128"}).first_difference);
  }
}

}  // namespace metronome::testing::TEST_FILE
