// SPDX-License-Identifier: Apache-2.0
// How one product writes its log, and the names that its server has for settings. engines/NAME/log
// has the row of a product.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/log/arguments.h"
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
  std::string_view name;      // of the policy, and of --engine
  std::string_view title;     // "vLLM"
  std::string_view log_name;  // "a vLLM log"
  LogForm form = LogForm::Iterations;
  std::span<const std::string_view> markers;
  LineOutcome (*read)(const LogPart& part, EngineLog& log) = nullptr;
  std::string_view looks_for;                               // for messages
  BatchMode (*batch_mode)(const EngineLog& log) = nullptr;  // of LogForm::Batches
  std::string_view numbering;  // a sentence: how to have the log say which step is which

  std::string_view model_setting;
  std::string_view pool_setting;   // tokens of the KV cache, which the server chose
  std::string_view block_setting;  // tokens of a block
  // In addition to the policy's own keys, which have the names of the server's settings. An entry
  // without a key is one of them, whose default is not the usual value.
  std::span<const ServerArgument> arguments;
  std::span<const std::string_view> no_arguments{};  // settings that the server has not, so
  // Other names in the log, and the arguments that they mean.
  std::span<const std::pair<std::string_view, std::string_view>> renamed{};
  bool has_negations = false;                    // --no-x switches x off
  std::span<const std::string_view> versions{};  // with rules; empty: the log's does not matter
  // Adds what follows from lines that are not there.
  void (*complete)(EngineArguments& arguments) = nullptr;

  std::string_view more_memory;  // a sentence: what avoids a full KV cache
  // One that gives steps with at most so many tokens of prompts, while so many requests decode.
  std::string (*smaller_steps)(std::int64_t num_tokens, std::int64_t num_decodes,
                               const EngineArguments& arguments) = nullptr;
};

// The dialects of all products that have one, in the order of registration, which is that of
// messages.
std::vector<const LogDialect*> log_dialects();
// All arguments of a dialect's server.
std::vector<ServerArgument> server_arguments(const LogDialect& dialect);
// nullptr: there is none of this name.
const LogDialect* find_log_dialect(std::string_view name);
// "vllm, sglang".
std::string log_dialect_names();

}  // namespace metronome
