// SPDX-License-Identifier: Apache-2.0
// `metronome init`: the file that it writes, and what it refuses.
#include <algorithm>
#include <filesystem>
#include <string>

#include "core/scenario/built_in_scenarios.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

namespace {

CommandResult init(const ScratchFolder& folder, const std::string& arguments) {
  return run_metronome("init " + arguments, "cd '" + folder.path() + "' && ");
}

// It ends with the code of bad input, and the error has `text`.
void check_refused(const CommandResult& result, const std::string& text) {
  INFO(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("init writes the starter, and it runs", "[tools]") {
  const ScratchFolder folder;
  const CommandResult result = init(folder, "");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("metronome run scenario.yaml") != std::string::npos);
  const BuiltInScenario* const starter = find_built_in_scenario("starter");
  REQUIRE(starter != nullptr);
  CHECK(read_text_file(fs::path(folder.path()) / "scenario.yaml") == starter->yaml);
  const CommandResult run = run_metronome("run scenario.yaml --set workload.num_requests=5 --quiet",
                                          "cd '" + folder.path() + "' && ");
  INFO(run.err);
  CHECK(run.exit_code == 0);
}

TEST_CASE("init sets model and hardware, and keeps comments", "[tools]") {
  const ScratchFolder folder;
  REQUIRE(init(folder, "a.yaml --model Qwen/Qwen3-8B --hardware h200").exit_code == 0);
  const std::string yaml = read_text_file(fs::path(folder.path()) / "a.yaml");
  CHECK(yaml.find("\nmodel: Qwen/Qwen3-8B\nhardware: h200\n# quantization") != std::string::npos);
  REQUIRE(init(folder, "b.yaml --from agents").exit_code == 0);
  CHECK(read_text_file(fs::path(folder.path()) / "b.yaml") ==
        find_built_in_scenario("agents")->yaml);
}

TEST_CASE("init copies every built-in scenario", "[tools]") {
  const ScratchFolder folder;
  for (const BuiltInScenario& scenario : built_in_scenarios()) {
    const std::string name(scenario.name);
    INFO(name);
    std::string file = name + ".yaml";
    std::replace(file.begin(), file.end(), '/', '_');
    REQUIRE(init(folder, file + " --from " + name).exit_code == 0);
    CHECK(read_text_file(fs::path(folder.path()) / file) == scenario.yaml);
  }
}

TEST_CASE("init overwrites nothing and writes nothing wrong", "[tools]") {
  const ScratchFolder folder;
  folder.write("mine.yaml", "mine");
  check_refused(init(folder, "mine.yaml"), "mine.yaml exists; allowed: a new file");
  CHECK(read_text_file(fs::path(folder.path()) / "mine.yaml") == "mine");
  check_refused(init(folder, "a.yaml --from agnets"), "did you mean 'agents'?");
  check_refused(init(folder, "a.yaml --model llama-3.1-8x"), "a.yaml");
  check_refused(init(folder, "a.yaml --hardware h2000"), "h200");
  check_refused(init(folder, "nowhere/a.yaml"),
                "nowhere/a.yaml: its folder does not exist; allowed: ");
  CHECK_FALSE(fs::exists(fs::path(folder.path()) / "a.yaml"));
}

TEST_CASE("init says what run refuses", "[tools]") {
  const ScratchFolder folder;
  const CommandResult large = init(folder, "a.yaml --model deepseek-v3 --hardware l4");
  CHECK(large.exit_code == 0);
  const std::string start = "metronome: warning: until you edit it, `metronome run` refuses it: ";
  REQUIRE(large.err.starts_with(start));
  const CommandResult run = run_metronome("run a.yaml", "cd '" + folder.path() + "' && ");
  CHECK(run.exit_code == 2);
  CHECK(run.err == "metronome: error: " + large.err.substr(start.size()));
  CHECK(init(folder, "b.yaml").err.empty());
}

}  // namespace TEST_FILE
