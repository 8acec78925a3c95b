// SPDX-License-Identifier: Apache-2.0
// Schedules a scenario's requests along a log of iterations. vLLM logs the number of requests and
// tokens of each step and its time. It does not log the request ids or context lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/metrics/run_record.h"
#include "engines/vllm/iteration_log.h"

namespace metronome {

struct Scenario;

struct LoggedRun {
  // Each step takes its logged time, and the next step begins at its end. A request arrives when
  // the log needs it, so waiting times have no meaning.
  RunRecord record;
  // Index into the log's iterations of the one that the record's first step stands for.
  std::size_t first = 0;
  // Number of leading steps of the record that match the logged iterations.
  std::int64_t num_equal = 0;
  // Iterations behind the last request of the workload; the first of them begins with a prompt.
  std::int64_t num_after = 0;
  // LogStart::Found: iterations that may be a better first one, but were not tried to save time.
  std::int64_t num_untried = 0;

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
std::string composition_text(const LoggedIteration& logged);
// Of the simulated step.
std::string simulated_text(const LoggedRun::Difference& difference);
// "iteration 3 has ..., but NAME gives ...".
std::string difference_text(const LoggedRun::Difference& difference, const std::string& name);
// The parts of the log that were left out before and behind the workload's requests, and the starts
// that were not tried; empty: none.
std::string left_out_text(const LoggedRun& run, const IterationLog& log);

enum class LogStart : std::uint8_t {
  First,  // with the first iteration
  // With the first one, or with a later one from which more iterations match, and not only a few:
  // real logs begin with a warm-up, and have probes and other tests between.
  Found,
};

// The requests of the scenario's workload arrive in order, each when the log first needs another
// prompt. Everything else is the scheduler's decision. The run ends at the first iteration where
// the scheduler decides differently, behind the last request, or at the end of the log. A resumed
// request is counted as the log's model runner does; if the log does not name it, as the one that
// agrees longer. The scenario needs no hardware if it has a number of KV blocks. Throws ConfigError
// for a closed-loop workload, where requests wait for others, and for a log of several engines.
LoggedRun run_logged(const Scenario& scenario, const IterationLog& log,
                     LogStart start = LogStart::First);

}  // namespace metronome
