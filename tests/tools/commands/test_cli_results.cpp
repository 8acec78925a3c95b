// SPDX-License-Identifier: Apache-2.0
// The command line and its result folders: where they go, what they replace, and that signals,
// closed pipes and full disks leave nothing half-written.
#include <filesystem>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using metronome::Json;
using namespace metronome::testing;

namespace {

// Runs for much longer than it takes to send a signal.
constexpr const char* kLong =
    "--set workload.num_requests=300000 --set workload.output_tokens.value=2000";

// A folder to run in, with a scenario.
struct Workplace {
  ScratchFolder folder;
  std::string scenario = folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  std::string out = folder.path() + "/out";

  CommandResult run_here(const std::string& arguments) const {
    return run_metronome("run " + arguments, "cd '" + folder.path() + "' &&");
  }
  CommandResult run(const std::string& options, const std::string& prefix = "") const {
    return run_metronome("run '" + scenario + "' --out '" + out + "' " + options, prefix);
  }
  // Nothing but the scenario: neither results nor a temporary folder.
  bool is_clean() const { return std::distance(fs::directory_iterator(folder.path()), {}) == 1; }
  bool has(const std::string& name) const { return fs::exists(folder.path() + "/" + name); }
};

void check_refused(const CommandResult& result, const std::string& message) {
  INFO("stderr: " << result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(contains(result.err, message));
}

}  // namespace

TEST_CASE("results of different scenarios go to different folders", "[cli]") {
  const Workplace place;
  for (const char* path : {"scenarios/m1/x.yaml", "scenarios/m2/x.yaml", "scenarios/x.yaml",
                           "old/scenarios/m1/scenarios/m3/x.yaml"}) {
    place.folder.write(path, std::string(kSmallScenario) + kTwoVariants);
    const CommandResult result = place.run_here(path);
    REQUIRE(result.exit_code == 0);
    CHECK_FALSE(contains(result.err, "replaced"));
  }
  for (const char* result : {"m1/x", "m2/x", "x", "m3/x"}) {
    CHECK(place.has(std::string("results/") + result + "/whole/result.json"));
  }
  REQUIRE(place.run_here("small.yaml -q").exit_code == 0);
  REQUIRE(place.run_here("small.yaml -q --variant pieces").exit_code == 0);
  REQUIRE(place.run_here("./small.yaml -q --variant pieces --variant whole").exit_code == 0);
  CHECK(place.has("results/small/whole/result.json"));
  CHECK(place.has("results/small/pieces/result.json"));
  CHECK(place.has("results/small.pieces/pieces/result.json"));
  CHECK_FALSE(place.has("results/small.pieces/whole"));
  CHECK(place.has("results/small.whole.pieces/whole/result.json"));
}

TEST_CASE("a result that is replaced is spoken of", "[cli]") {
  const Workplace place;
  CHECK_FALSE(contains(place.run("").err, "replaced"));
  CHECK(contains(place.run("").err, place.out + ": an earlier result was replaced\n"));
  CHECK(place.run("--quiet").err.empty());
  place.folder.write("out/notes.txt", "notes");
  check_refused(place.run(""), "contains 'notes.txt', which is not part of an earlier result");
  CHECK(read_text_file(place.out + "/notes.txt") == "notes");
}

TEST_CASE("a scenario without variants has a summary too", "[cli]") {
  const Workplace place;
  place.folder.write("small.yaml", kSmallScenario);
  REQUIRE(place.run("--quiet").exit_code == 0);
  const auto files = folder_content(place.out);
  CHECK(files.size() == 6);
  const auto summary = Json::parse(files.at("summary.json"));
  REQUIRE(summary.size() == 1);
  CHECK(summary[0].at("label") == "small");
  CHECK(contains(place.run("").err, "replaced"));
}

TEST_CASE("folders and options that make no sense are refused first", "[cli]") {
  const Workplace place;
  const std::string run = "small.yaml --out ";
  check_refused(place.run_here(run + "''"), "--out: is empty; allowed: --out DIR\n");
  check_refused(place.run_here(run + "."), "is the current folder or contains it");
  check_refused(place.run_here(run + ".."), "is the current folder or contains it");
  fs::create_symlink("nothing", place.folder.path() + "/link");
  check_refused(place.run_here(run + "link"), "/link: is a broken link");
  check_refused(place.run_here("''"), "SCENARIO is empty");
  check_refused(place.run_here("small.yaml --trace-steps --quiet"), "--trace-steps");
  check_refused(place.run_here("small.yaml -q -v"),
                "--verbose: has no effect with --quiet; allowed: one of them");
  check_refused(place.run_here("small.yaml --set hardware=."), "--set hardware: . is a folder");
  CHECK_FALSE(place.has("results"));
}

TEST_CASE("an option with an empty text is not one that is not given", "[cli]") {
  const Workplace place;
  const std::string scenario = "'" + place.scenario + "' ";
  const auto refused = [](const std::string& arguments, const std::string& message) {
    INFO(arguments);
    check_refused(run_metronome(arguments), message);
  };
  refused("run " + scenario + "--seed ''", "--seed: is empty; allowed: --seed N\n");
  refused("run " + scenario + "--set seed=1 --set ''", "--set: is empty; allowed: --set KEY=VALUE");
  refused("serve " + scenario + "--host ''", "--host: is empty; allowed: --host ADDRESS");
  refused("serve " + scenario + "--ssl-certfile '' --ssl-keyfile ''", "--ssl-certfile: is empty");
  refused("serve " + scenario + "--api-key ''", "--api-key: is empty");
  refused("sweep " + scenario + "--over seed=1,2 --slurm ''", "--slurm: is empty");
  refused("sweep " + scenario + "--backend ''", "--backend: is empty; allowed: --backend NAME\n");
  refused("calibrate --from x --out ''", "--out: is empty; allowed: --out FILE");
  refused("bench qwen3-4b --predict ''", "--predict: is empty; allowed: --predict HARDWARE");
  refused("chat tiny-llama --variant ''", "--variant: is empty");
  CHECK(run_metronome("chat tiny-llama --system '' --prompt '' --max-tokens 1").exit_code == 0);
}

TEST_CASE("file names and descriptions do not drive the terminal", "[cli]") {
  const Workplace place;
  const std::string text = "description: \"red \\e[31m\"\n" + std::string(kSmallScenario);
  const std::string path = place.folder.write("caf\xe9\x1b[2J.yaml", text);
  const CommandResult result = place.run_here("'" + path + "'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "red \\x1b[31m"));
  CHECK_FALSE(contains(result.out + result.err, "\x1b"));
  CHECK_FALSE(contains(result.out + result.err, "\xe9"));
  const auto files = folder_content(place.folder.path() + "/results");
  CHECK(files.size() == 6);
  for (const auto& [name, content] : files) {
    INFO(name);
    if (name.ends_with("result.json")) {
      CHECK(Json::parse(content).at("label") == "caf\\xe9\\x1b[2J");
    }
  }
  const CommandResult list = run_metronome("list scenarios '" + place.folder.path() + "'");
  CHECK(contains(list.out, "red \\x1b[31m"));
  CHECK_FALSE(contains(list.out, "\x1b"));
}

TEST_CASE("a file that is no scenario does not end the list", "[cli]") {
  const Workplace place;
  place.folder.write("bad.yaml", "services: {}\n");
  const CommandResult list = run_metronome("list scenarios '" + place.folder.path() + "'");
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "bad.yaml    (no scenario: "));
  CHECK(contains(list.out, "bad.yaml:1: services: unknown key"));
  CHECK(contains(list.out, "small.yaml"));
}

TEST_CASE("signals leave nothing half-written", "[cli]") {
  const Workplace place;
  struct SignalCase {
    const char* name;
    int exit_code;
  };
  for (const auto& [name, exit_code] : {SignalCase{"INT", 130}, {"TERM", 143}, {"HUP", 129}}) {
    INFO(name);
    const CommandResult result = place.run(kLong, interrupted_by(name, 30));
    INFO(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(contains(result.err, "interrupted, no results written\n"));
    CHECK(place.is_clean());
  }
  // Who presses Ctrl-C again and again gets the same.
  const CommandResult insisting = place.run(kLong, interrupted_by("INT", 30, 5));
  INFO(insisting.err);
  CHECK(insisting.exit_code == 130);
  CHECK(place.is_clean());
}

TEST_CASE("output that nobody reads ends a run early and quietly", "[cli]") {
  const Workplace place;
  const std::string into_head = "sh -c '{ \"$@\"; echo \"exit code $?\" >&2; } | head -n 1' sh";
  const CommandResult piped = place.run(std::string(kLong) + " --trace-steps", into_head);
  CHECK(piped.err == "exit code 1\n");
  CHECK(place.is_clean());
  if (!fs::exists("/dev/full")) return;
  const CommandResult full = place.run("--trace-steps", "sh -c '\"$@\" >/dev/full' sh");
  CHECK(full.exit_code == 1);
  CHECK(full.err == "metronome: error: cannot write to standard output\n");
  CHECK(place.is_clean());
}

TEST_CASE("a file that may not grow ends a run in order", "[cli]") {
  const Workplace place;
  const CommandResult full = place.run("--quiet", "sh -c 'ulimit -f 8; exec \"$@\"' sh");
  CHECK(full.exit_code == 1);
  CHECK(contains(full.err, "cannot write: File too large"));
  CHECK(place.is_clean());
}

}  // namespace TEST_FILE
