// SPDX-License-Identifier: Apache-2.0
// `metronome bench` where there is no CUDA executor. tests/gpu/test_gpu_bench.cpp has the rest.
#include <string>

#include "gpu/bench/bench.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace metronome::testing::TEST_FILE {
namespace {

TEST_CASE("metronome bench needs a build with CUDA, and says so", "[cli]") {
  if (make_gpu_bench()) return;  // this build has it
  const CommandResult result = run_metronome("bench x");
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err ==
        "metronome: error: bench: this build has no CUDA executor (tools/build cuda builds it, "
        "with the CUDA toolkit)\n");
}

TEST_CASE("metronome bench reads its options first", "[cli]") {
  const auto error = [](const std::string& arguments) {
    const CommandResult result = run_metronome("bench " + arguments);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(error("") ==
        "metronome: error: bench: give one model, not 0 (see `metronome bench --help`)\n");
  CHECK(error("x --repeats 0") ==
        "metronome: error: --repeats: 0 is out of range; allowed: 1 to 1000\n");
  CHECK(error("x --repeats 1001") ==
        "metronome: error: --repeats: 1001 is out of range; allowed: 1 to 1000\n");
  CHECK(error("x --device -1") == "metronome: error: --device: is negative; allowed: at least 0\n");
  CHECK(error("x --backend=cuda").starts_with("metronome: error: bench: unrecognised option"));
  const CommandResult help = run_metronome("bench --help");
  CHECK(help.exit_code == 0);
  CHECK(help.out.starts_with("usage: metronome bench MODEL [OPTION...]\n"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
