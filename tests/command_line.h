// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user would.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

// A scenario that runs in a moment, and two variants to append to it.
constexpr const char* kSmallScenario = R"(seed: 3
model: llama-3.2-1b
hardware: h200
engine: {max_num_seqs: 8, max_model_len: 4096}
workload:
  num_requests: 20
  arrivals: {process: poisson, rate: 10}
  prompt_tokens: {distribution: uniform, min: 10, max: 1500}
  output_tokens: {distribution: fixed, value: 20}
)";
constexpr const char* kTwoVariants = R"(variants:
  - {name: whole, scheduler: {policy: continuous}}
  - {name: pieces, scheduler: {policy: chunked, prefill_chunk_size: 128}}
)";

// Throws std::runtime_error if it cannot be read.
std::string read_text_file(const std::filesystem::path& path);

// Every file below `folder`: relative path and content.
std::map<std::string, std::string> folder_content(const std::filesystem::path& folder);

struct CommandResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Runs `program ARGUMENTS` in the repository's folder, without a terminal. `prefix` goes before the
// program (`timeout 5`).
CommandResult run_program(const std::string& program, const std::string& arguments,
                          const std::string& prefix = "");

CommandResult run_metronome(const std::string& arguments, const std::string& prefix = "");

// A prefix: the program gets `signal`, as often as `times`, when it catches it and has computed for
// so many hundredths of a second, however long that takes. Its exit code is that of the whole.
std::string interrupted_by(const std::string& signal, int cpu_hundredths, int times = 1);

}  // namespace metronome::testing
