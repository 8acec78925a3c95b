// SPDX-License-Identifier: Apache-2.0
// Runs of a small scenario, and what is found for them.
#pragma once

#include <string>

#include "reports/files/result_reader.h"
#include "study/what_if/what_if.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace metronome::testing {

// Long prompts among short ones, one budget for both.
inline constexpr const char* kLongPrompts =
    "--set workload.prompt_tokens.max=4000 --set engine.max_model_len=8192 "
    "--set workload.num_requests=60 --set workload.arrivals.rate=20 "
    "--set workload.output_tokens.value=60 ";

struct Place {
  ScratchFolder scratch;
  std::string file = scratch.write("small.yaml", kSmallScenario);

  StoredRun run(const std::string& options, const std::string& name = "out") const {
    const std::string out = scratch.path() + "/" + name;
    const CommandResult result =
        run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return read_result(out);
  }
};

inline WhatIf find(const StoredRun& run, const WhatIfOptions& options) {
  return find_smallest_change(
      run, options, [](const std::string&) {}, [](const RunProgress&) { return true; });
}
// With a limit for every gap.
inline WhatIf find(const StoredRun& run, double target_ms, const std::string& hardware = "") {
  return find(run, {.goals = {.itl_ms = target_ms}, .hardware = hardware});
}

// Small chunks, long answers, and a KV cache that is too small for what is admitted.
inline constexpr const char* kLongAnswers =
    "--set scheduler.policy=vllm --set scheduler.max_num_batched_tokens=128 "
    "--set workload.output_tokens.value=200 --set workload.arrivals.rate=60 ";

}  // namespace metronome::testing
