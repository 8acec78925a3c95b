// SPDX-License-Identifier: Apache-2.0
// Requests rebuilt from a log that has the content of each iteration without request ids: arrivals,
// prompts and outputs. Exact where the log allows one answer, drawn to match elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "engines/log/engine_log.h"

namespace metronome {

constexpr std::size_t kNoIteration = SIZE_MAX;

struct RebuiltRequest {
  TimeNs arrival = 0;               // after the first instant of the log
  bool has_logged_arrival = false;  // a line says that it was received
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_output_tokens = 0;
  bool is_prompt_exact = false;
  bool is_output_exact = false;
  std::int64_t max_output_tokens = 0;  // as logged; 0: unknown
  // Indices of iterations: with its first chunk, with its last chunk and first token, with its last
  // token. kNoIteration: before or behind the log.
  std::size_t first = kNoIteration;
  std::size_t prefilled = kNoIteration;
  std::size_t last = kNoIteration;
  TimeNs ttft_ns = kNoTime;  // from the arrival to the end of the iteration `prefilled`

  bool is_exact() const { return is_prompt_exact && is_output_exact; }
};

// Prompt tokens that an iteration computed of a request.
struct RebuiltChunk {
  std::size_t request = 0;
  std::int64_t first_position = 0;
  std::int64_t num_tokens = 0;  // 0: not known yet, while requests are rebuilt
  bool is_last = false;         // it ends the prompt
};

struct RebuiltLog {
  std::vector<LogObservation> iterations;         // of one engine, without a restart between
  std::vector<std::vector<RebuiltChunk>> chunks;  // of each iteration
  std::vector<bool> is_settled;  // of each iteration: its requests are those that the log counts
  std::vector<TimeNs> ends;      // of each iteration, after the first instant of the log
  // Before each iteration and behind the last: those in which running requests got tokens. In the
  // others they waited for prompts.
  std::vector<std::int64_t> num_token_steps;
  std::vector<RebuiltRequest> requests;  // in the order of their admission
  std::vector<std::string> remarks;      // on what the log does not say: whole sentences

  std::size_t num_exact() const;
};

struct RebuildSetup {
  std::optional<std::int64_t> budget;     // tokens of an iteration; nullopt: not known
  std::optional<std::int64_t> threshold;  // a prompt's longest chunk
  std::optional<std::int64_t> max_running;
  // Tokens of prompts that are known otherwise, in the order of admission; 0 or none: not known.
  std::vector<std::int64_t> prompts;
  std::vector<TimeNs> ends;  // of the iterations, where they are known; empty: by their stamps
  std::uint64_t seed = 1;    // of what is drawn
};

// The engine's arguments, as far as they shape its iterations.
RebuildSetup rebuild_setup(const EngineLog& log);

// Requires iterations. Requests are taken to be admitted in the order of their arrival:
//   - An iteration with the whole budget of tokens cuts its last prompt, which goes on first in the
//     next one. So an iteration with one prompt has its exact tokens; of several the sum is known.
//   - Generation requests that are missing in the next iteration ended in this one. A request that
//     has its `max_tokens` then is the one that ended.
//   - A request arrived between the lines around it, in the second of its stamp, not after its
//     first iteration, and not before the last iteration that had room for it.
// Lengths that remain open are drawn among those that are known, so that sums are kept.
RebuiltLog rebuild_requests(const EngineLog& log, const RebuildSetup& setup);

}  // namespace metronome
