// Schedules a scenario's requests along a log of iterations. vLLM logs the number of requests and
// tokens of each step and its time. It does not log the request ids or context lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "reports/files/iteration_log.h"

namespace metronome {

struct LoggedRun {
  // Each step takes its logged time, and the next step begins at its end. A request arrives when
  // the log needs it, so waiting times have no meaning.
  RunRecord record;
  // Number of leading steps of the record that match the logged iterations.
  std::int64_t num_equal = 0;

  struct Difference {
    LoggedIteration logged;
    std::string simulated;  // "1 context requests, 512 context tokens, ..."; empty: no work
  };
  std::optional<Difference> first_difference;
};

// The content of an iteration in vLLM's wording.
std::string composition_text(std::int64_t num_context_requests, std::int64_t num_context_tokens,
                             std::int64_t num_generation_requests,
                             std::int64_t num_generation_tokens);

// The requests of the scenario's workload arrive in order, each when the log first needs another
// prompt. Everything else is the scheduler's decision. The run ends at the first iteration where
// the scheduler decides differently, or at the end of the log. Throws ConfigError for a closed-loop
// workload, where requests wait for others, and for a log of several engines.
LoggedRun run_logged(const Scenario& scenario, const IterationLog& log);

}  // namespace metronome
