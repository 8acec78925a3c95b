// SPDX-License-Identifier: Apache-2.0
// Scenarios that a caller has as a text.
#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "core/scenario/unplaced_scenario.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/small_scenario.h"

namespace metronome::TEST_FILE {
namespace {

using testing::kSmallScenario;

const std::string kFault = std::string(kSmallScenario) + "engine: {max_num_seqs: 0}\n";

// Names a text until the end of a test.
struct Named {
  explicit Named(GivenScenario scenario) { set_given_scenario(std::move(scenario)); }
  ~Named() { set_given_scenario({}); }
};

TEST_CASE("a scenario is read from a text as from a file", "[core][scenario]") {
  const ScenarioFile file =
      parse_given_scenario({"mine", kSmallScenario}, {"workload.num_requests=7"}, 9, "sim");
  CHECK(file.name == "mine");
  CHECK(file.variants.at(0).seed == 9);
  CHECK(file.variants.at(0).workload.num_requests == 7);
}

TEST_CASE("an error in a text names its line, where the caller can look it up",
          "[core][scenario]") {
  const auto error_in = [](bool has_lines) {
    return testing::error_of<ConfigError>([&] {
      parse_given_scenario({"mine", kFault, has_lines}, {}, std::nullopt, "sim");
    });
  };
  CHECK(error_in(true).starts_with("mine:8: engine.max_num_seqs: "));
  CHECK(error_in(false).starts_with("mine: engine.max_num_seqs: "));
}

TEST_CASE("a text has a name for all who load scenarios, until it has none", "[core][scenario]") {
  const auto load = [] { return load_scenario("no such file", {"seed=3"}, std::nullopt); };
  {
    const Named named({"no such file", kSmallScenario});
    CHECK(load().variants.at(0).seed == 3);
    CHECK(load().name == "no such file");
    CHECK(find_given_scenario("another") == nullptr);
  }
  CHECK(find_given_scenario("no such file") == nullptr);
  CHECK(find_given_scenario("") == nullptr);
  CHECK_THROWS_AS(load(), ConfigError);
}

}  // namespace
}  // namespace metronome::TEST_FILE
