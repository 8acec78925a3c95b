// SPDX-License-Identifier: Apache-2.0
// vLLM's log of iterations (--enable-logging-iteration-details): the content and time of each step,
// without request ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "engines/log/engine_log.h"

namespace metronome {

constexpr const char* kIterationLogEngine = "vllm";

struct LoggedIteration {
  std::int64_t number = 0;  // as logged; each engine counts separately
  std::int32_t engine = 0;  // data-parallel rank, from the logger's prefix; 0 if there is none
  std::int32_t num_context_requests = 0;
  std::int32_t num_context_tokens = 0;
  std::int32_t num_generation_requests = 0;
  std::int32_t num_generation_tokens = 0;
  TimeNs elapsed_ns = 0;
  std::int64_t line = 0;  // in the file, from 1

  bool is_empty() const { return num_context_tokens == 0 && num_generation_tokens == 0; }
  // Whether the time is long enough to launch the kernels of a model.
  bool is_plausible() const { return elapsed_ns >= kNsPerMs / 5; }
};

// Which of vLLM's model runners wrote the log. They count a resumed request otherwise.
enum class ModelRunner : std::uint8_t { Unknown, V1, V2 };

struct IterationLog {
  std::string path;
  std::string model;  // as the server was given it; empty: the log does not have its start
  ModelRunner runner = ModelRunner::Unknown;
  std::vector<LoggedIteration> iterations;  // in the file's order; empty ones are left out
  // Iterations too fast for any GPU. Under asynchronous scheduling vLLM logs how long it waited for
  // a result, which may already have been there (its pull request 35072).
  std::int64_t num_implausible = 0;
};

// Reads an iteration at the start of `text`: its counts and its time. False if it is malformed.
bool read_vllm_iteration(std::string_view text, LoggedIteration& iteration);
// The rank in what is before it: "(EngineCore_DP3 pid=77) INFO ...", or in 0.33 "... Engine 003: ".
std::int32_t vllm_rank(std::string_view prefix);

// Reads lines that contain, after any prefix and before any suffix,
//   Iteration(12): 3 context requests, 1536 context tokens, 21 generation requests, 21 generation
//   tokens, iteration elapsed time: 12.34 ms
// on one line. Skips other lines, and a truncated last line. Throws ConfigError with file and line
// if such a line is malformed, or if there is none.
IterationLog read_iteration_log(const std::string& path);

// Leaves out the other iterations. Throws UsageError if none is left.
void keep_iterations(const IterationRange& range, IterationLog& log);

// Whether a line of the file contains an iteration, complete or malformed. False for an unreadable
// file.
bool is_iteration_log(const std::string& path);

// Throws ConfigError, with the engine, if the file is a log without iterations; else does nothing.
// For what needs them, when the file is nothing else that it takes. `also_allowed` names the other
// kinds of files: "; or ...".
void refuse_log_without_iterations(const std::string& path, const std::string& also_allowed);

}  // namespace metronome
