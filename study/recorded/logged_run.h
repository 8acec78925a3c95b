// A scenario's requests scheduled along a log of iterations: vLLM logs how many requests and tokens
// each step computed and how long it took, but not which requests, nor how long their contexts are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "reports/files/iteration_log.h"

namespace metronome {

struct LoggedRun {
  // Each step takes the time that was logged, and the next begins at its end. Arrivals are when a
  // request was needed, so waiting times mean nothing.
  RunRecord record;
  // Iterations that are as they were logged: the record's first steps.
  std::int64_t num_equal = 0;

  struct Difference {
    LoggedIteration logged;
    std::string simulated;  // "1 context requests, 512 context tokens, ..."; empty: nothing to do
  };
  std::optional<Difference> first_difference;
};

// What an iteration computed, as vLLM words it.
std::string composition_text(std::int64_t num_context_requests, std::int64_t num_context_tokens,
                             std::int64_t num_generation_requests,
                             std::int64_t num_generation_tokens);

// The requests of the scenario's workload come in its order, each when the log first needs another
// prompt; from then on everything is the scheduler's decision. Ends at the first iteration that it
// decides otherwise, or with the log. Throws ConfigError for a workload whose requests wait for
// others (closed loop), and for a log of several engines.
LoggedRun run_logged(const Scenario& scenario, const IterationLog& log);

}  // namespace metronome
