// SPDX-License-Identifier: Apache-2.0
// Metronome chooses the replica that real routers chose. A planted difference is found and named, a
// bad record is refused.
#include <string>

#include "study/decisions/router_decisions.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"
#include "tests/shared_data.h"

namespace metronome::testing::TEST_FILE {
namespace {

const std::string kCase =
    R"({"case":"c0","policy":"cache_aware","config":{"cache_threshold":0.5},"workers":2,)"
    R"("order":[1,0],"events":[{"op":"arrive","id":0,"text":"abcd","loads":[0,0],"worker":1},)"
    R"({"op":"arrive","id":1,"text":"abcé","loads":[0,1],"worker":1},{"op":"finish","id":0},)"
    R"({"op":"arrive","id":2,"text":"xyz","loads":[0,1],"worker":0}]})";

std::string checked(const std::string& text, const std::string& router = "sglang_router") {
  const ScratchFolder folder;
  const std::string path = folder.write("cases.jsonl", text + "\n");
  std::string shown;
  const DecisionCheck check = check_router_decisions(router, path);
  for (const DecisionDifference& difference : check.differences) {
    shown += difference.name + ", event " + std::to_string(difference.step) + ", " +
             difference.field + ": " + difference.expected + ", " + difference.got;
  }
  return shown;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("recorded choices of running routers", "[fleet]") {
  for (const std::string_view router : decision_routers()) {
    const std::string name = router == "dynamo" ? "dynamo_select" : std::string(router);
    CAPTURE(router);
    if (const auto path = shared_path("goldens/fleet/" + name + ".given.jsonl")) {
      const DecisionCheck check = check_router_decisions(router, *path);
      CHECK(check.num_cases == 60);
      CHECK(check.differences.empty());
    }
  }
}

TEST_CASE("a record of a router is checked field by field", "[fleet]") {
  CHECK(checked(kCase).empty());
  CHECK(checked(replaced(kCase, R"([0,1],"worker":1)", R"([0,1],"worker":0)")) ==
        "c0, event 1, worker: 0, 1");
  CHECK(checked(replaced(kCase, R"("loads":[0,1],"worker":0)", R"("loads":[1,1],"worker":0)")) ==
        "c0, event 3, loads: [1,1], [0,1]");
  // Three of four characters agree: of five bytes they would be more than half, too, but not of
  // this threshold.
  CHECK(checked(replaced(kCase, "0.5", "0.74")).empty());
  CHECK(checked(replaced(kCase, "0.5", "0.75")) == "c0, event 1, worker: 1, 0");
}

TEST_CASE("a bad record of a router is refused", "[fleet]") {
  const auto refused = [](const std::string& from, const std::string& to) {
    const std::string text = replaced(kCase, from, to);
    const std::string error = error_of<ConfigError>([&] { checked(text); });
    return error.substr(error.find("cases.jsonl") + std::string("cases.jsonl").size());
  };
  CHECK(refused(R"("workers":2)", R"("workers":0)") ==
        ":1: workers: 0 is out of range; allowed: 1 to 100000");
  CHECK(refused("[1,0]", "[1,1]") == ":1: order: must name each worker once");
  CHECK(refused(R"("op":"finish","id":0)", R"("op":"finish","id":9)") ==
        ":1: events[2]: id: no such request is there; allowed: one that has arrived");
  CHECK(refused("finish", "finnish")
            .starts_with(":1: events[2]: op: unknown event 'finnish'; allowed: arrive, "));
  CHECK(refused("cache_threshold", "cash_threshold")
            .starts_with(":1: config.cash_threshold: unknown key"));
}

TEST_CASE("the command compares and writes decisions of routers", "[fleet]") {
  const ScratchFolder folder;
  const std::string path = folder.write("cases.jsonl", kCase + "\n");
  CHECK(run_metronome("decisions --router sglang_router " + path + " --check").out ==
        "1 of 1 cases identical\n");
  CHECK(run_metronome("decisions --router sglang_router " + path).out == kCase + "\n");
  CHECK(run_metronome("decisions --router nginx " + path).exit_code == 2);
  CHECK(run_metronome("decisions --router vllm_dp --engine vllm " + path).exit_code == 2);
}

}  // namespace metronome::testing::TEST_FILE
