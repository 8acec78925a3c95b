// SPDX-License-Identifier: Apache-2.0
// The files of a variant's run.
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "reports/files/variant_result.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

namespace fs = std::filesystem;

TEST_CASE("large files are left out unless they are asked for", "[reports][result]") {
  const ScratchFolder scratch;
  VariantOutcome outcome;
  outcome.record.requests.resize(40);
  const auto files = [&](const ResultsConfig& wanted, std::vector<std::string> expected) {
    ResultFolder folder(scratch.path() + "/out");
    CHECK(write_variant(outcome, wanted, folder, "", 4000) == expected);
    const auto has = [&folder](const char* name) { return fs::exists(folder.path(name)); };
    const Json result = Json::parse(read_text_file(folder.path("result.json")));
    const Json& listed = result.at("files");
    CHECK(listed.is_object());
    for (const char* name : {"requests.jsonl", "steps.jsonl"}) {
      INFO(name);
      REQUIRE(listed.contains(name) == has(name));
      if (has(name))
        CHECK(listed.at(name).get<std::uintmax_t>() == fs::file_size(folder.path(name)));
    }
    return std::vector<bool>{has("result.json"), has("requests.jsonl"), has("steps.jsonl")};
  };
  const std::vector<std::string> requests = {"requests.jsonl (results.requests)"};
  CHECK(files({.steps = {}, .requests = {}, .trace = false}, requests) ==
        std::vector<bool>{true, false, true});
  CHECK(files({.steps = {}, .requests = true, .trace = false}, {}) ==
        std::vector<bool>{true, true, true});
  CHECK(files({.steps = false, .requests = false, .trace = false}, {}) ==
        std::vector<bool>{true, false, false});
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
