// vLLM's log of iterations (--enable-logging-iteration-details): what each step computed and how
// long it took, without requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace metronome {

struct LoggedIteration {
  std::int64_t number = 0;  // as logged: counted by each engine
  std::int32_t engine = 0;  // data-parallel rank, from the logger's prefix; 0 where it says none
  std::int32_t num_context_requests = 0;
  std::int32_t num_context_tokens = 0;
  std::int32_t num_generation_requests = 0;
  std::int32_t num_generation_tokens = 0;
  TimeNs elapsed_ns = 0;
  std::int64_t line = 0;  // in the file, from 1

  // Long enough to launch the kernels of a model.
  bool is_plausible() const { return elapsed_ns >= kNsPerMs / 5; }
};

struct IterationLog {
  std::string path;
  std::vector<LoggedIteration> iterations;  // in the file's order, one with no token left out
  // Too quick for any GPU. Under asynchronous scheduling vLLM logs how long it
  // waited for a result, which may have been there already (its pull request 35072).
  std::int64_t num_implausible = 0;
};

// Reads lines that have, behind any prefix,
//   Iteration(12): 3 context requests, 1536 context tokens, 21 generation requests, 21 generation
//   tokens, iteration elapsed time: 12.34 ms
// in one line, whatever follows; other lines are skipped, and so is a last line that was cut
// short. Throws ConfigError naming file and line where such a line is malformed, or when there is
// none.
IterationLog read_iteration_log(const std::string& path);

// Whether one of the file's lines has an iteration, whole or malformed. False for what cannot be
// read.
bool is_iteration_log(const std::string& path);

}  // namespace metronome
