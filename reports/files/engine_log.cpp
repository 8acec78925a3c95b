// SPDX-License-Identifier: Apache-2.0
#include "reports/files/engine_log.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <istream>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "reports/files/iteration_log.h"
#include "reports/files/log_dialect.h"
#include "reports/files/log_text.h"

namespace metronome {
namespace {

const LogDialect& dialect_of(LogEngine engine) {
  return engine == LogEngine::Vllm ? vllm_dialect() : sglang_dialect();
}

// The first marker at or behind `from`; npos: none.
std::size_t find_marker(std::string_view line, std::size_t from, const LogDialect& dialect) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view marker : dialect.markers) {
    first = std::min(first, line.find(marker, from));
  }
  return first;
}

// A line may have several parts: processes that write to one file write into each other's lines.
void read_parts(std::string_view line, std::int64_t number, bool is_last, const LogDialect& dialect,
                EngineLog& log) {
  std::size_t prefix = 0;
  std::size_t begin = find_marker(line, 0, dialect);
  while (begin != std::string_view::npos) {
    const std::size_t next = find_marker(line, begin + 1, dialect);
    const LogPart part = {line.substr(prefix, begin - prefix), line.substr(begin, next - begin),
                          line.substr(begin), number, is_last && next == std::string_view::npos};
    if (dialect.read(part, log) == LineOutcome::Broken && !part.may_be_cut) {
      if (log.num_broken++ == 0) log.first_broken = number;
    }
    prefix = begin;
    begin = next;
  }
}

// In a log with rates, batches without one are cut lines.
void take_out_cut_batches(EngineLog& log) {
  if (!log.has_batch_rates) return;
  std::erase_if(log.observations, [&log](const LogObservation& seen) {
    if (!seen.lacks_rate) return false;
    if (seen.may_be_cut) return true;
    if (log.num_broken++ == 0 || seen.line < log.first_broken) log.first_broken = seen.line;
    return true;
  });
}

[[noreturn]] void refuse(const std::string& path, const std::string& why,
                         const std::string& allowed) {
  throw ConfigError(printable(path) + ": " + why + "; allowed: " + allowed);
}

// "a vLLM log".
std::string named(const EngineLog& log) {
  return (log.engine == LogEngine::Sglang ? "an " : "a ") + std::string(log.engine_name()) + " log";
}

// Why a log without observations is none of the engine's.
std::string lack_of(const EngineLog& log) {
  if (log.num_lacking > 0) {
    return "line " + std::to_string(log.first_lacking) + " of " + std::string(log.engine_name()) +
           " has no '" + log.lacking_field + "'";
  }
  if (log.num_broken > 0) {
    return "line " + std::to_string(log.first_broken) + " begins like a line of " +
           std::string(log.engine_name()) + " and goes on in another format";
  }
  if (!log.settings.empty()) {
    return "has settings of " + std::string(log.engine_name()) + ", but none of its steps";
  }
  return {};
}

// The log of the engine whose lines the file has.
EngineLog& chosen(std::array<EngineLog, 2>& logs, std::optional<LogEngine> engine,
                  const std::string& path) {
  if (engine) {
    EngineLog& log = logs[static_cast<std::size_t>(*engine)];
    if (!log.observations.empty()) return log;
    const std::string lack = lack_of(log);
    refuse(path, lack.empty() ? "is not " + named(log) : lack,
           "a log with lines from " + std::string(dialect_of(*engine).looks_for));
  }
  const bool has_vllm = !logs[0].observations.empty();
  const bool has_sglang = !logs[1].observations.empty();
  if (has_vllm && has_sglang) {
    refuse(path,
           "has lines of vLLM (line " + std::to_string(logs[0].observations.front().line) +
               ") and of SGLang (line " + std::to_string(logs[1].observations.front().line) + ")",
           "one of them with --engine: vllm, sglang");
  }
  if (has_vllm || has_sglang) return logs[has_vllm ? 0 : 1];
  std::string lack = lack_of(logs[0]);
  if (lack.empty()) lack = lack_of(logs[1]);
  refuse(path, lack.empty() ? "is not a vLLM or SGLang log" : lack,
         "a log with lines from " + std::string(vllm_dialect().looks_for) + "; or from " +
             std::string(sglang_dialect().looks_for) + "; or a folder that `metronome run` wrote");
}

constexpr std::string_view kLogs = "a vLLM or SGLang log";

}  // namespace

LogObservation observation(Observed kind, const LogPart& part, std::int32_t rank) {
  LogObservation seen;
  seen.kind = kind;
  seen.line = part.line;
  seen.time = time_in(part.prefix);
  seen.rank = rank;
  seen.may_be_cut = part.may_be_cut;
  return seen;
}

LineOutcome read_settings(const LogPart& part, std::string_view marker, EngineLog& log) {
  const auto arguments = python_arguments(part.rest.substr(marker.size()));
  if (!arguments) return LineOutcome::Broken;
  for (const auto& [name, value] : *arguments) log.settings.try_emplace(name, value);
  return LineOutcome::Read;
}

LineOutcome note(LogObservation seen, EngineLog& log) {
  if (!seen.is_possible()) return LineOutcome::Broken;
  log.observations.push_back(std::move(seen));
  return LineOutcome::Read;
}

bool EngineLog::has(Observed kind) const {
  return std::any_of(observations.begin(), observations.end(),
                     [kind](const LogObservation& seen) { return seen.kind == kind; });
}

void keep_iterations(const IterationRange& range, EngineLog& log) {
  std::int64_t first = INT64_MAX;
  std::int64_t last = 0;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration || !range.contains(seen.number)) continue;
    first = std::min(first, seen.line);
    last = std::max(last, seen.line);
  }
  if (last == 0) {
    throw UsageError("--iterations: " + printable(log.path) + " has none of these; allowed: " +
                     (log.has(Observed::Iteration) ? "numbers of its iterations"
                                                   : "a log with vLLM's iterations"));
  }
  std::erase_if(log.observations, [&](const LogObservation& seen) {
    const bool is_other = seen.kind == Observed::Iteration && !range.contains(seen.number);
    return is_other || seen.line < first || seen.line > last;
  });
}

EngineLogReader::EngineLogReader(std::string path, std::optional<LogEngine> engine)
    : path_(std::move(path)), engine_(engine) {
  logs_[1].engine = LogEngine::Sglang;
}

void EngineLogReader::add(std::string_view bytes) {
  while (true) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMaxLineBytes) {
      errno = EFBIG;
      fail_input(path_, kLogs);
    }
    if (end == std::string_view::npos) return;
    read_line(line_, false);
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void EngineLogReader::read_line(std::string_view text, bool is_last) {
  ++num_lines_;
  const std::string line = plain_line(text);
  for (EngineLog& log : logs_) {
    if (!engine_ || *engine_ == log.engine) {
      read_parts(line, num_lines_, is_last, dialect_of(log.engine), log);
    }
  }
}

EngineLog EngineLogReader::finish() {
  if (!line_.empty()) read_line(line_, true);
  for (EngineLog& log : logs_) take_out_cut_batches(log);
  EngineLog log = std::move(chosen(logs_, engine_, path_));
  log.path = path_;
  *this = EngineLogReader(path_, engine_);
  return log;
}

EngineLog read_engine_log(std::istream& in, const std::string& path,
                          std::optional<LogEngine> engine) {
  EngineLogReader reader(path, engine);
  std::vector<char> bytes(std::size_t{1} << 16);
  while (in) {
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    reader.add({bytes.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (in.bad()) fail_input(path, kLogs);
  return reader.finish();
}

EngineLog read_engine_log(const std::string& path, std::optional<LogEngine> engine) {
  std::ifstream file = open_input(path, kLogs);
  return read_engine_log(file, path, engine);
}

void refuse_log_without_iterations(const std::string& path, const std::string& also_allowed) {
  std::optional<EngineLog> log;
  try {
    log = read_engine_log(path, std::nullopt);
  } catch (const ConfigError&) {
    return;  // no log, or one without steps
  }
  if (log->has(Observed::Iteration)) return;
  const bool is_vllm = log->engine == LogEngine::Vllm;
  refuse(path,
         "is " + named(*log) +
             (is_vllm ? " without its iterations" : ", which does not log the time of each step"),
         "a vLLM log with --enable-logging-iteration-details" + also_allowed);
}

}  // namespace metronome
