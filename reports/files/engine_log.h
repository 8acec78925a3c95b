// SPDX-License-Identifier: Apache-2.0
// The log of a serving engine as one list of observations. vllm_log.cpp and sglang_log.cpp know the
// lines of their engine; engine_log.cpp reads the file and recognises the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace metronome {

enum class LogEngine : std::uint8_t { Vllm, Sglang };
constexpr std::string_view kLogEngines[] = {"vllm", "sglang"};      // by LogEngine
constexpr std::string_view kLogEngineNames[] = {"vLLM", "SGLang"};  // by LogEngine

enum class Observed : std::uint8_t {
  Iteration,   // vLLM, --enable-logging-iteration-details: one step
  Report,      // vLLM, every 10 s: throughputs, preemptions, cache
  Prefill,     // SGLang: one batch of prompts
  Decode,      // SGLang: what came since the last such line, 40 decode steps by default
  Retraction,  // SGLang: running requests lost their KV cache
};

// One line. A field that its kind does not have is 0 or empty.
struct LogObservation {
  Observed kind = Observed::Iteration;
  std::int64_t line = 0;     // in the file, from 1
  std::string time;          // as logged, "12:00:03"; empty: the line has none
  std::int32_t rank = 0;     // data-parallel
  std::int64_t number = -1;  // of the step, as the engine counts; -1: not logged
  TimeNs elapsed_ns = 0;     // Iteration: of the step; Prefill: since the last Prefill line

  std::int64_t num_prefill_requests = 0;
  std::int64_t num_prefill_tokens = 0;  // computed
  std::int64_t num_cached_tokens = 0;   // Prefill: found in the prefix cache instead
  std::int64_t num_pending_tokens = 0;  // Prefill: of prompts that wait behind this batch
  // Iteration: requests that got tokens; others: requests that are past their prefill.
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;
  std::int64_t num_decode_tokens = 0;  // Iteration
  double prompt_rate = 0;              // Report: computed prompt tokens per second
  double decode_rate = 0;              // Report, Decode: output tokens per second
  std::optional<double> cache_usage;   // share of the KV cache that is in use; of the fullest pool
  std::optional<double> hit_rate;      // Report: of the last 1,000 requests
  std::int64_t num_preempted = 0;      // Report: since the last; Retraction
  std::optional<std::int64_t> num_freed_tokens;  // Retraction
  bool lacks_rate = false;  // Prefill: no input throughput, and so no elapsed_ns
  bool may_be_cut = false;  // the file ends behind the line, without a line break
  double old_reserve_ratio = 0, new_reserve_ratio = 0;  // Retraction: #new_token_ratio

  bool operator==(const LogObservation&) const = default;

  // Whether an engine can have this many requests and tokens: no line was written into another.
  bool is_possible() const {
    constexpr std::int64_t kMostRequests = 100'000;
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
    return num_running <= kMostRequests && num_prefill_requests <= kMostRequests &&
           num_preempted <= kMostRequests && num_prefill_tokens <= kMostTokens &&
           num_decode_tokens <= kMostTokens;
  }
  // Iteration: whether the time is long enough to launch the kernels of a model.
  bool is_plausible() const { return elapsed_ns >= kNsPerMs / 5; }
};

struct EngineLog {
  std::string path;
  LogEngine engine = LogEngine::Vllm;
  std::vector<LogObservation> observations;  // in the file's order
  // The engine's settings by their names in it, as it printed them at its start: "8192", "True",
  // "None", text without its quotes.
  std::map<std::string, std::string> settings;
  std::set<std::string> chosen;     // settings among these that the engine chose, not its user
  bool has_batch_rates = false;     // SGLang: batches of prompts have an input throughput
  bool has_pending_tokens = false;  // SGLang: they say whether prompts waited behind a batch
  bool has_speculation = false;     // several tokens a step are no recomputation
  std::int64_t num_aborted = 0;     // SGLang: retracted requests that could not go on
  std::int64_t num_broken = 0;      // lines that begin like an observation and are none
  std::int64_t first_broken = 0;    // the line of the first
  // Whole lines without a field that every version logs; they are left out, too.
  std::int64_t num_lacking = 0;
  std::int64_t first_lacking = 0;
  std::string lacking_field;  // of the first

  std::string_view engine_name() const { return kLogEngineNames[static_cast<int>(engine)]; }
  bool has(Observed kind) const;
};

struct IterationRange;

// Leaves out other iterations, and what the log has before the first and behind the last of these.
// Throws UsageError if none is left.
void keep_iterations(const IterationRange& range, EngineLog& log);

// Reads a vLLM or SGLang log as its bytes come, such as a file that still grows, whatever stands
// before and behind its lines.
class EngineLogReader {
 public:
  // `engine` names one of the two; nullopt: the one whose lines the log has. `path` is for
  // messages.
  EngineLogReader(std::string path, std::optional<LogEngine> engine);

  // The next bytes; they may begin and end anywhere. Throws ConfigError for a line that is too
  // long.
  void add(std::string_view bytes);

  // Those of an engine, from whole lines so far.
  const std::vector<LogObservation>& observations(LogEngine engine) const {
    return logs_[static_cast<std::size_t>(engine)].observations;
  }

  // The log, after all of its bytes. Lines that are cut or written into each other are counted; a
  // last line without an end may be cut, too, and is then left out. Throws ConfigError if it has no
  // line of the engine, or has lines of both. Leaves the reader empty.
  EngineLog finish();

 private:
  void read_line(std::string_view text, bool is_last);

  std::string path_;
  std::optional<LogEngine> engine_;
  std::array<EngineLog, 2> logs_;  // by LogEngine
  std::string line_;               // begun, without its end
  std::int64_t num_lines_ = 0;
};

// Reads a whole file. Throws as EngineLogReader does, and if the file cannot be read.
EngineLog read_engine_log(const std::string& path, std::optional<LogEngine> engine);
// The same from a stream; `path` is for messages.
EngineLog read_engine_log(std::istream& in, const std::string& path,
                          std::optional<LogEngine> engine);

// Throws ConfigError, with the engine, if the file is a log without vLLM's iterations; else does
// nothing. For what needs them, when the file is nothing else that it takes. `also_allowed` names
// the other kinds of files: "; or ...".
void refuse_log_without_iterations(const std::string& path, const std::string& also_allowed);

}  // namespace metronome
