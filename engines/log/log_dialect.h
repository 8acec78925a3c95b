// SPDX-License-Identifier: Apache-2.0
// The form of one product's log. engines/NAME/log has the row of a product.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engines/arguments/server_arguments.h"
#include "engines/log/engine_log.h"

namespace metronome {

// A part of a line: a marker of the dialect, and what surrounds it.
struct LogPart {
  std::string_view prefix;  // what is before the marker, from the last part on
  std::string_view text;    // from the marker to the next one
  std::string_view rest;    // from the marker to the end of the line
  std::int64_t line = 0;
  bool may_be_cut = false;  // the file ends behind it, without a line break
};

enum class LineOutcome : std::uint8_t {
  Foreign,  // has a marker, but is none of the engine's lines
  Read,
  Broken,   // begins like a line of the engine, and does not go on so
  Lacking,  // is whole, but for a field: EngineLog::num_lacking counts it
};

// An observation with the line and the time of its part.
LogObservation observation(Observed kind, const LogPart& part, std::int32_t rank);
// Adds an observation that is possible; others are broken.
LineOutcome note(LogObservation seen, EngineLog& log);
// Adds the settings behind a marker of Python's arguments, but for those that the log has already.
LineOutcome read_settings(const LogPart& part, std::string_view marker, EngineLog& log);

enum class LogForm : std::uint8_t {
  Iterations,  // each step, with its time; reports between them
  Batches,     // each batch of prompts; some lines about the decodes
};

// The settings that shape the batches and lines of LogForm::Batches.
struct BatchMode {
  bool is_mixed = false;              // batches of prompts also decode
  std::int64_t decode_interval = 40;  // decode steps between two lines of decodes
  std::int64_t chunk = 0;             // prompt tokens of a full batch; 0: unknown
  bool has_pending = false;           // batches say how many prompt tokens waited behind them
  // From so many running requests on, a decode step is between two batches of prompts.
  std::int64_t least_running_for_decode = INT64_MAX;
};

struct LogDialect {
  const ServerArguments* server = nullptr;
  std::string_view log_name;  // "a vLLM log"
  LogForm form = LogForm::Iterations;
  std::span<const std::string_view> markers;
  LineOutcome (*read)(const LogPart& part, EngineLog& log) = nullptr;
  std::string_view looks_for;                               // for messages
  BatchMode (*batch_mode)(const EngineLog& log) = nullptr;  // of LogForm::Batches
  std::string_view numbering;    // a sentence: how to have the log say which step is which
  std::string_view receiving{};  // a sentence: how to have it say when requests were received

  std::string_view budget{};          // the argument with the tokens of a step
  std::string_view shorter_stalls{};  // a sentence: what else shortens stalls behind prompts
  // A sentence with {} for a number of requests: how steps of as many run as a CUDA graph; and the
  // setting that turns graphs off.
  std::string_view more_graphs{}, no_graphs{};
  std::string_view more_memory;  // a sentence: what avoids a full KV cache
  // One that gives steps with at most so many tokens of prompts, while so many requests decode.
  std::string (*smaller_steps)(std::int64_t num_tokens, std::int64_t num_decodes,
                               const EngineArguments& arguments) = nullptr;

  std::string_view name() const { return server->policy; }  // of --engine
  std::string_view title() const { return server->title; }
};

// The dialects of all products that have one, in the order of registration, which is that of
// messages.
std::vector<const LogDialect*> log_dialects();
// nullptr: there is none of this name.
const LogDialect* find_log_dialect(std::string_view name);
// "vllm, sglang".
std::string log_dialect_names();

}  // namespace metronome
