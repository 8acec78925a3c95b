// SPDX-License-Identifier: Apache-2.0
// The log of a server that goes on: its last steps, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/distribution.h"
#include "engines/log/engine_log.h"

namespace metronome {

// Figures of the steps in a part of a log. NaN: the part does not show them.
struct LogFigures {
  std::int64_t num_steps = 0;
  Distribution itl;  // gaps by steps; those of vLLM's log lack the time between steps
  double rate_during_prefill;  // tokens per second of an answer, in steps with prompts
  double decode_step_ms;       // the median of steps without prompts
  double prompt_token_ms;      // of a step with prompts beyond that, per prompt token
};
LogFigures figures_of(const EngineLog& log);

class LogTail {
 public:
  // `only` is the dialect to read; nullptr: the one whose lines the log has.
  LogTail(const std::string& path, const LogDialect* only) : reader_(path, only) {}

  // The next bytes, whatever they are. Lines longer than a MiB are left out.
  void add(std::string_view bytes);
  std::int64_t next_line() const { return reader_.num_lines() + 1; }
  std::int64_t num_too_long() const { return num_too_long_; }

  // The lines from `from_line` on: EngineLogReader::latest(). nullopt: there are none, and `why` is
  // set, a sentence.
  std::optional<EngineLog> latest(const LogDialect* only, std::int64_t from_line,
                                  std::string& why) const;

 private:
  EngineLogReader reader_;
  std::size_t line_bytes_ = 0;
  bool is_too_long_ = false;
  std::int64_t num_too_long_ = 0;
  std::int64_t num_unchecked_ = 0;  // bytes since the last keep_last()
};

}  // namespace metronome
