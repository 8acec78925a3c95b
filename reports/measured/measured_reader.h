// SPDX-License-Identifier: Apache-2.0
// Reads what benchmarks' clients wrote about a server: vLLM's and SGLang's benchmarks, AIPerf,
// guidellm, inference-perf, llmperf, genai-perf. The content of a file tells its format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/measured/measured_run.h"

namespace metronome {

// "a result of vLLM's benchmark, SGLang's benchmark, AIPerf, ...".
std::string measured_formats_text();

// Whether a file, or a file in the folder, has a value of a known format, or marks of one that is
// cut short. False for what cannot be opened, for pipes, which can be read once, and for folders
// with results of this program.
bool is_measured(const std::string& path);

// All runs of a file or of the files of a folder, in their order; at least one. Throws ConfigError
// with the file and the key, or with what was recognised of a file that is not complete.
std::vector<MeasuredRun> read_measured_runs(const std::string& path);

// The run of that number, from 1. Without one there must be a single run. Throws ConfigError, which
// lists the runs, if there are several, or none of that number.
MeasuredRun read_measured_run(const std::string& path, std::optional<std::int64_t> number);

// "AIPerf 0.13.0, run 2 of 3, 4.00 requests/s, 100 requests (2 failed: ...)".
std::string measured_run_text(const MeasuredRun& run);

}  // namespace metronome
