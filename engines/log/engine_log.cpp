// SPDX-License-Identifier: Apache-2.0
#include "engines/log/engine_log.h"

#include <algorithm>
#include <cerrno>
#include <fmt/core.h>
#include <fstream>
#include <istream>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/scenario/engine_product.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

// "vLLM, SGLang, TensorRT-LLM or llama-server".
std::string titles() {
  std::string text;
  const std::vector<const LogDialect*> all = log_dialects();
  for (const LogDialect* dialect : all) {
    if (!text.empty()) text += dialect == all.back() ? " or " : ", ";
    text += dialect->title();
  }
  return text;
}

std::string any_log() { return "a " + titles() + " log"; }

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
void remove_cut_batches(EngineLog& log) {
  if (!log.has_batch_rates) return;
  std::erase_if(log.observations, [&log](const LogObservation& seen) {
    if (!seen.lacks_rate) return false;
    if (seen.may_be_cut) return true;
    if (log.num_broken++ == 0 || seen.line < log.first_broken) log.first_broken = seen.line;
    return true;
  });
}

// Of a server that started several times, or of several servers, the part behind the start that has
// the most observations.
void keep_one_start(EngineLog& log) {
  if (log.other_starts.empty()) return;
  std::vector<LoggedStart>& starts = log.other_starts;
  starts.push_back({log.start_line, std::move(log.settings), std::move(log.chosen)});
  const auto end_of = [&starts](std::size_t i) {
    return i + 1 < starts.size() ? starts[i + 1].line : INT64_MAX;
  };
  std::size_t longest = 0;
  std::ptrdiff_t most = -1;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto count = std::count_if(log.observations.begin(), log.observations.end(),
                                     [&](const LogObservation& seen) {
                                       return seen.line >= starts[i].line && seen.line < end_of(i);
                                     });
    if (count <= most) continue;
    most = count;
    longest = i;
  }
  const std::int64_t begin = starts[longest].line;
  const std::int64_t end = end_of(longest);
  const auto is_other = [&](const auto& one) { return one.line < begin || one.line >= end; };
  std::erase_if(log.observations, is_other);
  std::erase_if(log.arrivals, is_other);
  std::erase_if(log.answer_lines, [&](std::int64_t line) { return line < begin || line >= end; });
  log.start_line = begin;
  log.settings = std::move(starts[longest].settings);
  log.chosen = std::move(starts[longest].chosen);
  starts.erase(starts.begin() + static_cast<std::ptrdiff_t>(longest));
}

[[noreturn]] void refuse(const std::string& path, const std::string& why,
                         const std::string& allowed) {
  throw ConfigError(printable(path) + ": " + why + "; allowed: " + allowed);
}

// Why a log without observations is none of the engine's.
std::string lack_of(const EngineLog& log) {
  if (log.num_lacking > 0) {
    return fmt::format("line {} of {} has no '{}'", log.first_lacking, log.engine_name(),
                       log.lacking_field);
  }
  if (log.num_broken > 0) {
    return fmt::format("line {} begins like a line of {} and goes on in another format",
                       log.first_broken, log.engine_name());
  }
  if (!log.settings.empty()) {
    return "has settings of " + std::string(log.engine_name()) + ", but none of its steps";
  }
  return {};
}

// The first bytes of files that are a log only behind another program.
struct PackedForm {
  std::string_view magic;
  const char* what;
  const char* command;  // that writes the text of a file
};
constexpr PackedForm kPackedForms[] = {
    {"\x1f\x8b", "is compressed by gzip", "gzip -dc"},
    {"\x28\xb5\x2f\xfd", "is compressed by zstd", "zstd -dc"},
    {std::string_view("\xfd"
                      "7zXZ\0",
                      6),
     "is compressed by xz", "xz -dc"},
    {"BZh", "is compressed by bzip2", "bzip2 -dc"},
    {std::string_view("PK\3\4", 4), "is a ZIP archive", "unzip -p"},
    {"\xff\xfe", "is text in UTF-16", "iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", "is text in UTF-16", "iconv -f UTF-16 -t UTF-8"}};

void check_is_text(std::string_view head, const std::string& path) {
  for (const PackedForm& form : kPackedForms) {
    if (!head.starts_with(form.magic)) continue;
    refuse(path, form.what,
           fmt::format("its text, which `{} FILE > server.log` writes", form.command));
  }
}

// The beginnings of these dialects' lines.
std::string all_lines(std::span<const EngineLog> logs) {
  std::string text;
  for (const EngineLog& log : logs) {
    text += (text.empty() ? "a log with lines from " : "; or from ") +
            std::string(log.dialect->looks_for);
  }
  return text;
}

// The log of the engine whose lines the file has.
EngineLog& chosen(std::span<EngineLog> logs, bool is_named, const std::string& path) {
  EngineLog* found = nullptr;
  std::string lines;
  std::string lack;
  for (EngineLog& log : logs) {
    if (log.observations.empty()) {
      if (lack.empty()) lack = lack_of(log);
      continue;
    }
    lines += fmt::format("{}{} (line {})", found == nullptr ? "has lines of " : " and of ",
                         log.engine_name(), log.observations.front().line);
    if (found != nullptr) refuse(path, lines, "one of them with --engine: " + log_dialect_names());
    found = &log;
  }
  if (found != nullptr) return *found;
  if (lack.empty()) {
    lack = "is not " + (is_named ? std::string(logs[0].dialect->log_name) : any_log());
  }
  refuse(path, lack,
         all_lines(logs) + (is_named ? "" : "; or a folder that `metronome run` wrote"));
}

}  // namespace

std::vector<const LogDialect*> log_dialects() {
  std::vector<const LogDialect*> dialects;
  for (const EngineProduct& product : all_engines()) {
    if (product.log != nullptr) dialects.push_back(product.log);
  }
  return dialects;
}

const LogDialect* find_log_dialect(std::string_view name) {
  for (const LogDialect* dialect : log_dialects()) {
    if (name == dialect->name()) return dialect;
  }
  return nullptr;
}

std::string log_dialect_names() {
  std::vector<std::string_view> names;
  for (const LogDialect* dialect : log_dialects()) names.push_back(dialect->name());
  return join_names(names);
}

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
  // Several processes of a server say the same at its start. Behind its work it is another start.
  const bool has_worked =
      !log.observations.empty() && log.observations.back().line >= log.start_line;
  if (has_worked) {
    log.other_starts.push_back(
        {log.start_line, std::exchange(log.settings, {}), std::exchange(log.chosen, {})});
  }
  if (has_worked || log.start_line == 0) log.start_line = part.line;
  for (const auto& [name, value] : *arguments) log.settings.try_emplace(name, value);
  return LineOutcome::Read;
}

LineOutcome note(LogObservation seen, EngineLog& log) {
  if (!seen.is_possible()) return LineOutcome::Broken;
  log.observations.push_back(std::move(seen));
  return LineOutcome::Read;
}

std::string_view EngineLog::engine_name() const { return dialect->title(); }

bool EngineLog::has(Observed kind) const {
  return std::any_of(observations.begin(), observations.end(),
                     [kind](const LogObservation& seen) { return seen.kind == kind; });
}

IterationRange parse_iteration_range(const std::string& text) {
  IterationRange range;
  const std::size_t colon = text.find(':');
  LineReader first(std::string_view(text).substr(0, colon));
  LineReader last(colon == std::string::npos ? std::string_view()
                                             : std::string_view(text).substr(colon + 1));
  const bool has_first = first.read_number(range.first);
  const bool has_last = last.read_number(range.last);
  const bool is_whole = colon != std::string::npos && first.rest().empty() && last.rest().empty();
  if (is_whole && (has_first || has_last) && range.first <= range.last) return range;
  throw UsageError("--iterations: '" + printable(text) +
                   "' is not valid; allowed: FIRST:LAST, FIRST: or :LAST, numbers of iterations "
                   "as the log has them");
}

void keep_iterations(const IterationRange& range, EngineLog& log) {
  std::int64_t before = 0;  // the last iteration that is left out before the first
  std::int64_t first = INT64_MAX;
  std::int64_t last = 0;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration) continue;
    if (!range.contains(seen.number)) {
      if (last == 0) before = seen.line;
      continue;
    }
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
  std::erase_if(log.arrivals, [&](const LogArrival& arrival) {
    return arrival.line < before || arrival.line > last;
  });
}

EngineLogReader::EngineLogReader(std::string path, const LogDialect* only)
    : path_(std::move(path)), only_(only) {
  for (const LogDialect* dialect : log_dialects()) {
    if (only_ == nullptr || only_ == dialect) logs_.emplace_back().dialect = dialect;
  }
}

const std::vector<LogObservation>& EngineLogReader::observations(const LogDialect& dialect) const {
  const auto log = std::find_if(logs_.begin(), logs_.end(), [&dialect](const EngineLog& one) {
    return one.dialect == &dialect;
  });
  METRONOME_CHECK(log != logs_.end(), "the reader reads this dialect");
  return log->observations;
}

void EngineLogReader::add(std::string_view bytes) {
  while (true) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMaxLineBytes) {
      errno = EFBIG;
      fail_input(path_, any_log());
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
  for (EngineLog& log : logs_) read_parts(line, num_lines_, is_last, *log.dialect, log);
}

EngineLog EngineLogReader::latest(const LogDialect* only, std::int64_t from_line) const {
  std::vector<EngineLog> logs;
  for (const EngineLog& one : logs_) {
    if (only != nullptr && one.dialect != only) continue;
    EngineLog& log = logs.emplace_back(one);
    const auto is_older = [first = std::max(from_line, log.start_line)](const auto& seen) {
      return seen.line < first;
    };
    std::erase_if(log.observations, is_older);
    std::erase_if(log.arrivals, is_older);
    log.answer_lines.clear();  // nobody asks for them
    log.other_starts.clear();
    remove_cut_batches(log);
  }
  EngineLog log = std::move(chosen(logs, only != nullptr, path_));
  log.path = path_;
  return log;
}

void EngineLogReader::keep_last(std::size_t most) {
  for (EngineLog& log : logs_) {
    log.other_starts.clear();
    log.answer_lines.clear();
    const std::size_t older = log.observations.size() - std::min(most, log.observations.size());
    log.observations.erase(log.observations.begin(),
                           log.observations.begin() + static_cast<std::ptrdiff_t>(older));
    const std::int64_t first = log.observations.empty() ? 0 : log.observations.front().line;
    if (older > 0) {
      std::erase_if(log.arrivals, [first](const LogArrival& one) { return one.line < first; });
    }
    if (log.arrivals.size() <= most) continue;
    const std::size_t left_out = log.arrivals.size() - most;
    log.arrivals.erase(log.arrivals.begin(),
                       log.arrivals.begin() + static_cast<std::ptrdiff_t>(left_out));
  }
}

EngineLog EngineLogReader::finish() {
  if (!line_.empty()) read_line(line_, true);
  for (EngineLog& log : logs_) {
    remove_cut_batches(log);
    keep_one_start(log);
  }
  EngineLog log = std::move(chosen(logs_, only_ != nullptr, path_));
  log.path = path_;
  *this = EngineLogReader(path_, only_);
  return log;
}

EngineLog read_engine_log(std::istream& in, const std::string& path, const LogDialect* only) {
  EngineLogReader reader(path, only);
  std::vector<char> bytes(std::size_t{1} << 16);
  bool is_first = true;
  while (in) {
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (std::exchange(is_first, false)) {
      check_is_text({bytes.data(), static_cast<std::size_t>(in.gcount())}, path);
    }
    reader.add({bytes.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (in.bad()) fail_input(path, any_log());
  return reader.finish();
}

EngineLog read_engine_log(const std::string& path, const LogDialect* only) {
  std::ifstream file = open_input(path, any_log());
  return read_engine_log(file, path, only);
}

}  // namespace metronome
