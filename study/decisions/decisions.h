// SPDX-License-Identifier: Apache-2.0
// Decision logs: a scheduler's decisions step by step on a small workload. The schema is that of
// the logs recorded from real engines. Metronome replays the same cases with its own decisions.
//
// A log is JSON Lines, one case per line: {"seed", "config", "requests", "steps"}. Step t first
// adds the requests with arrival_step == t in list order, then plans, then returns the sampled
// tokens. Token k of request number i is 100000 + 1000 * i + k. A request ends at max_tokens or at
// max_model_len.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// The engines whose logs can be replayed, in the order of their registration.
std::vector<std::string_view> decision_engines();

// Reads cases from `path` and writes them to `out` with Metronome's steps instead of the recorded
// ones. Keys have the order of the recorded logs. Throws ConfigError ("file:line: case.key: what;
// allowed") for an unreadable file, malformed JSON, an unknown engine or version, an unknown or
// missing config key, or an invalid request. `version`: by whose rules all cases are
// decided; empty: as the cases say.
void write_decisions(std::string_view engine, const std::string& path, std::ostream& out,
                     std::string_view version = {});

// The first difference between a case and its record.
struct DecisionDifference {
  std::size_t line = 0;   // of the case in the file, from 1
  std::int64_t seed = 0;  // of the case
  std::size_t step = 0;   // from 0; of a router's case: the event
  std::string field;     // "scheduled", "block_tables", ...; "number of steps" if one log is longer
  std::string expected;  // JSON; empty: the record has no such field
  std::string got;       // JSON; empty: the replay has no such field
  std::string name = {};  // of a router's case, which has no seed
};

struct DecisionCheck {
  std::size_t num_cases = 0;
  std::vector<DecisionDifference> differences;  // at most one per case, in the order of the file
};

// Replays every case and compares each step with the record, field by field. Throws as
// write_decisions() does, and for a case without steps.
DecisionCheck check_decisions(std::string_view engine, const std::string& path,
                              std::string_view version = {});

}  // namespace metronome
