// SPDX-License-Identifier: Apache-2.0
// The log of a serving engine as one list of observations. A dialect (log_dialect.h) knows the
// lines of its product; the reader takes the bytes and recognises the product.
#pragma once

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

struct LogDialect;

enum class Observed : std::uint8_t {
  Iteration,   // one step
  Report,      // at intervals of seconds: throughputs, preemptions, cache
  Prefill,     // one batch of prompts
  Decode,      // what came since the last such line, a fixed number of decode steps
  Retraction,  // running requests lost their KV cache
  Answer,      // a request ended: the times of its prompt and of its tokens
};

// One line. A field that its kind does not have is 0 or empty.
struct LogObservation {
  Observed kind = Observed::Iteration;
  std::int64_t line = 0;     // in the file, from 1
  std::string time;          // as logged, "12:00:03"; empty: the line has none
  std::int32_t rank = 0;     // data-parallel
  std::int64_t number = -1;  // of the step or the answer, as the engine counts; -1: not logged
  // Iteration: of the step; Prefill: since the last Prefill line; Answer: of its decodes
  TimeNs elapsed_ns = 0;
  TimeNs prefill_ns = 0;  // Answer: of its prompt

  std::int64_t num_prefill_requests = 0;
  std::int64_t num_prefill_tokens = 0;  // computed
  std::int64_t num_cached_tokens = 0;   // Prefill: found in the prefix cache instead
  std::int64_t num_pending_tokens = 0;  // Prefill: of prompts that wait behind this batch
  // Iteration: requests that got tokens; others: requests that are past their prefill.
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;
  std::int64_t num_decode_tokens = 0;  // Iteration, Answer
  double prompt_rate = 0;              // Report: computed prompt tokens per second
  double decode_rate = 0;              // Report, Decode: output tokens per second
  std::optional<double> cache_usage;   // share of the KV cache that is in use; of the fullest pool
  std::optional<double> hit_rate;      // Report: of the last 1,000 requests
  std::int64_t num_preempted = 0;      // Report: since the last; Retraction
  std::optional<std::int64_t> num_freed_tokens;  // Retraction
  std::optional<bool> is_graph;                  // Decode: a CUDA graph ran; nullopt: not logged
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

// A request as the server's front end received it.
struct LogArrival {
  std::int64_t line = 0;               // in the file, from 1
  std::string time;                    // as LogObservation::time
  std::string id;                      // as the server calls it
  std::int64_t max_output_tokens = 0;  // 0: not logged
  std::int64_t num_prompt_tokens = 0;  // 0: not logged

  bool operator==(const LogArrival&) const = default;
};

// A server's start in a log, and what it says of its settings.
struct LoggedStart {
  std::int64_t line = 0;  // 0: before the log
  std::map<std::string, std::string> settings;
  std::set<std::string> chosen;
};

struct EngineLog {
  std::string path;
  const LogDialect* dialect = nullptr;       // never null in a log that was read
  std::vector<LogObservation> observations;  // in the file's order
  std::vector<LogArrival> arrivals;          // in the file's order
  std::vector<std::int64_t> answer_lines;    // of calls for tokens that its HTTP server answered
  // The engine's settings by their names in it, as it printed them at its start: "8192", "True",
  // "None", text without its quotes.
  std::map<std::string, std::string> settings;
  std::set<std::string> chosen;  // settings among these that the engine chose, not its user
  // Starts of the server before the one with these settings, as the log is read. Then those that
  // were left out, as another one has more observations.
  std::vector<LoggedStart> other_starts;
  std::int64_t start_line = 0;      // of the server's start; 0: before the log
  bool has_batch_rates = false;     // batches of prompts have an input throughput
  bool has_pending_tokens = false;  // they say whether prompts waited behind a batch
  bool has_speculation = false;     // several tokens a step are no recomputation
  std::int64_t num_drafts = 0;      // drafted tokens, where lines count them
  std::int64_t num_accepted_drafts = 0;
  std::int64_t num_aborted = 0;   // retracted requests that could not go on
  std::int64_t num_broken = 0;    // lines that begin like an observation and are none
  std::int64_t first_broken = 0;  // the line of the first
  // Whole lines without a field that every version logs; they are left out, too.
  std::int64_t num_lacking = 0;
  std::int64_t first_lacking = 0;
  std::string lacking_field;  // of the first

  std::string_view engine_name() const;  // "vLLM"
  bool has(Observed kind) const;
};

// Iterations by their logged numbers, both ends included.
struct IterationRange {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;

  bool contains(std::int64_t number) const { return number >= first && number <= last; }
};

// Reads "120:684", "120:" or ":684". Throws UsageError for other texts, in the name of
// `--iterations`.
IterationRange parse_iteration_range(const std::string& text);

// Leaves out other iterations, and what the log has before the first and behind the last of these.
// Throws UsageError if none is left.
void keep_iterations(const IterationRange& range, EngineLog& log);

// Reads a log of a registered dialect as its bytes come, such as a file that still grows, whatever
// stands before and behind its lines.
class EngineLogReader {
 public:
  // `only` is the dialect to read; nullptr: the one whose lines the log has. `path` is for
  // messages.
  EngineLogReader(std::string path, const LogDialect* only);

  // The next bytes; they may begin and end anywhere. Throws ConfigError for a line that is too
  // long.
  void add(std::string_view bytes);

  // The observations of a dialect, from whole lines so far.
  const std::vector<LogObservation>& observations(const LogDialect& dialect) const;

  std::int64_t num_lines() const { return num_lines_; }  // whole ones so far

  // For a log that is followed: what its latest start has logged in whole lines from `from_line`
  // on, with all of its settings. `only` is a dialect that is read; nullptr: the one whose lines
  // the log has. Throws as finish() does. The reader goes on.
  EngineLog latest(const LogDialect* only, std::int64_t from_line = 0) const;
  // Forgets all observations and arrivals but the last so many of each dialect, and earlier starts.
  void keep_last(std::size_t most);

  // The log, after all of its bytes. Lines that are cut or written into each other are counted; a
  // last line without an end may be cut, too, and is then left out. Throws ConfigError if it has no
  // line of the dialect, or has lines of several. Leaves the reader empty.
  EngineLog finish();

 private:
  void read_line(std::string_view text, bool is_last);

  std::string path_;
  const LogDialect* only_;
  std::vector<EngineLog> logs_;  // one for each dialect that is read
  std::string line_;             // begun, without its end
  std::int64_t num_lines_ = 0;
};

// Reads a whole file. Throws as EngineLogReader does, and if the file cannot be read.
EngineLog read_engine_log(const std::string& path, const LogDialect* only = nullptr);
// Reads a log from a stream; `path` is for messages.
EngineLog read_engine_log(std::istream& in, const std::string& path,
                          const LogDialect* only = nullptr);

}  // namespace metronome
