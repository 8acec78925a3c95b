// tools/gpu_check with programs that only look like those of a build with CUDA: what it makes of
// stages that fail, crash or hang. Measured runs are simulations here.
#include <sys/stat.h>

#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

using namespace metronome::testing;

namespace {

// Runs what it is told to, simulated. $FAULT: an argument it crashes at, or "uneven".
constexpr const char* kMetronome = R"(#!/bin/bash
[[ "$1" == --version ]] && { echo "metronome 0"; exit 0; }
[[ "$FAULT" == uneven && " $* " == *" cuda.invariance=chunk "* ]] && exit 2
[[ "$FAULT" == uneven && " $* " == *" --invariance chunk "* ]] && exit 2
[[ -n "$FAULT" && " $* " == *"$FAULT"* ]] && kill -SEGV $$
if [[ "$1" == bench ]]; then
  scale=10; [[ "$4" == none ]] && scale=8
  echo "{\"model\": \"$2\", \"invariance\": \"$4\", \"points\": [
    {\"decodes\": 1, \"context\": 128, \"chunk\": 0, \"prefix\": 0, \"median_us\": $scale},
    {\"decodes\": 32, \"context\": 128, \"chunk\": 64, \"prefix\": 0,
     \"median_us\": $scale}]}" >"$6"
  exit 0
fi
exec "$REAL" "${@/--backend=cuda/--backend=sim}"
)";
constexpr const char* kTests = R"(#!/bin/bash
[[ "$FAULT" == hang && "$2" == *norm* ]] && sleep 100
[[ "$FAULT" == crash && "$2" == *norm* ]] && kill -SEGV $$
echo "ran $2"
)";

struct Place {
  ScratchFolder scratch;
  std::string out = scratch.path() + "/out";

  Place() {
    for (const auto& [name, text] :
         {std::pair{"metronome", kMetronome}, std::pair{"metronome_gpu_tests", kTests}}) {
      ::chmod(scratch.write(std::string("build/") + name, text).c_str(), 0755);
    }
  }

  CommandResult check(const std::string& only, const std::string& fault,
                      const std::string& options = "") const {
    return run_program("tools/gpu_check",
                       "--build '" + scratch.path() + "/build' --out '" + out +
                           "' --requests 6 --only " + only + " " + options,
                       "FAULT='" + fault + "' REAL='" + metronome_program() + "'");
  }
  std::string text(const std::string& name) const { return read_text_file(out + "/" + name); }
};

}  // namespace

TEST_CASE("gpu_check leaves every stage's results and verdict", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("start,bench,decisions,scenarios,tests", "");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  const std::string readme = place.text("README.md");
  for (const char* stage : {"start", "bench", "decisions", "scenarios", "tests"}) {
    CHECK(contains(readme, "| " + std::string(stage) + " | passed | "));
  }
  CHECK(contains(readme, "mixed steps: 25.0 % longer on average, 25.0 % at most"));
  const std::string decisions = place.text("decisions.log");
  CHECK(contains(decisions, "llama-3.2-3b/chunked_prefill chunked-512"));
  CHECK(contains(decisions, "gemma-3-1b/prefix_caching"));
  CHECK_FALSE(contains(decisions, "differ"));
  CHECK(contains(place.text("tests.log"), "ran [#test_gpu_norm]~[slow]\n"));
  CHECK(place.check("start", "").exit_code == 2);  // the folder is there
}

TEST_CASE("gpu_check goes on without an invariance that does not hold", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("start,bench,decisions", "uneven");
  CHECK(result.exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme, "| start | failed: invariance does not hold; what follows ran with "));
  CHECK(contains(readme, "| bench | passed | "));
  CHECK(contains(readme, "| decisions | passed | "));
}

TEST_CASE("a crash costs gpu_check nothing but itself", "[tools][gpu_check]") {
  SECTION("of a run") {
    const Place place;
    CHECK(place.check("start,bench,decisions", "qwen3-4b").exit_code == 1);
    const std::string readme = place.text("README.md");
    CHECK(contains(readme, "| bench | failed: qwen3-4b (exit status -11) | "));
    CHECK(contains(readme, "| decisions | failed: qwen3-4b chunked_prefill: the measured run | "));
    CHECK(contains(readme, "mixed steps: 25.0 %"));
    CHECK(contains(place.text("decisions.log"), "gemma-3-1b/prefix_caching"));
    CHECK_FALSE(contains(place.text("decisions.log"), "differ"));
  }
  SECTION("of a test") {
    const Place place;
    CHECK(place.check("tests", "crash").exit_code == 1);
    CHECK(
        contains(place.text("README.md"), "| tests | failed: test_gpu_norm (exit status -11) | "));
    CHECK(contains(place.text("tests.log"), "ran [#test_step_timer]~[slow]\n"));
  }
}

TEST_CASE("what hangs is ended, and said, before time is up", "[tools][gpu_check]") {
  const Place place;
  const CommandResult result = place.check("tests,slow", "hang", "--budget 2");
  CHECK(result.exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme, "| tests | failed: test_gpu_norm (longer than "));
  CHECK(contains(readme, "test_step_timer (no time was left)"));
  CHECK(contains(readme, "| slow | failed: "));
}
