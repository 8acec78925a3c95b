// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_rows.h"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/number_chars.h"
#include "core/base/rng.h"

namespace metronome {

void TraceRow::clear() {
  TraceRow empty;
  empty.hashes = std::move(hashes);
  empty.ids = std::move(ids);
  *this = std::move(empty);
  hashes.clear();
  ids.clear();
}

namespace {

// A number of seconds, milliseconds and so on since 1970, by its size.
TimeNs parse_epoch(const TraceLines& lines, std::string_view text, std::string_view name) {
  constexpr double kMillis = 1e11, kMicros = 1e14, kNanos = 1e17;
  double number = 0;
  read_number(text.data(), text.data() + text.size(), number);
  if (number >= kNanos) {
    return parse_trace_integer(lines, text, name, 0, kMaxTraceSeconds * kNsPerSecond);
  }
  const TimeNs unit = number >= kMicros   ? kNsPerMs / 1000
                      : number >= kMillis ? kNsPerMs
                                          : kNsPerSecond;
  const std::int64_t max = kMaxTraceSeconds * kNsPerSecond / unit;
  // Exact, as a double is not.
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    return parse_trace_integer(lines, text, name, 0, max) * unit;
  }
  return parse_trace_time(lines, text, name, max, unit);
}

TimeNs parse_time(const TraceLines& lines, std::string_view text, std::string_view name,
                  TraceTimeUnit unit) {
  text = without_quotes(text);
  switch (unit) {
    case TraceTimeUnit::Seconds:
      return parse_trace_time(lines, text, name, kMaxTraceSeconds, kNsPerSecond);
    case TraceTimeUnit::Milliseconds:
      return parse_trace_time(lines, text, name, kMaxTraceSeconds * 1000, kNsPerMs);
    case TraceTimeUnit::Microseconds:
      return parse_trace_time(lines, text, name, kMaxTraceSeconds * 1'000'000, kNsPerMs / 1000);
    case TraceTimeUnit::Nanoseconds:  // exact, also where a double is not
      return parse_trace_integer(lines, text, name, 0, kMaxTraceSeconds * kNsPerSecond);
    case TraceTimeUnit::Date: return parse_trace_date(lines, text, name);
    case TraceTimeUnit::Auto: break;
  }
  const bool is_date = text.find(':') != std::string_view::npos;
  return is_date ? parse_trace_date(lines, text, name) : parse_epoch(lines, text, name);
}

bool read_truth(const TraceLines& lines, std::string_view text, std::string_view name) {
  if (text != "true" && text != "false") {
    lines.fail(name, "is " + quote_for_message(text) + "; allowed: true, false");
  }
  return text == "true";
}

}  // namespace

void set_trace_value(const TraceLines& lines, const TraceMapping& mapping, TraceField field,
                     std::string_view name, std::string_view text, TraceRow& row) {
  using enum TraceField;
  const auto tokens = [&](std::int64_t min) {
    return static_cast<std::int32_t>(parse_trace_integer(lines, text, name, min, kMaxLengthTokens));
  };
  // A failed request may have none: 0, or what logs write for no value. Logs quote numbers, too.
  const auto counted = [&]() -> std::int32_t {
    if (!mapping.skips_failed) return tokens(1);
    const std::string_view bare = without_quotes(text);
    if (bare.empty() || bare == "null" || bare == "-") return 0;
    return static_cast<std::int32_t>(parse_trace_integer(lines, bare, name, 0, kMaxLengthTokens));
  };
  const auto words = [text] { return std::string(without_quotes(text)); };
  switch (field) {
    case Arrival:
      row.arrival = parse_time(lines, text, name, mapping.arrival_unit.value_or(mapping.unit));
      return;
    case Delay: row.delay = parse_time(lines, text, name, mapping.unit); return;
    case Prompt: row.num_prompt_tokens = counted(); return;
    case Output: row.num_output_tokens = counted(); return;
    case Limit: row.limit = tokens(0); return;
    case BlockTokens: row.block_tokens = tokens(1); return;
    case IgnoresEos: row.ignores_eos = read_truth(lines, text, name); return;
    case Session: row.session = words(); return;
    case Parent: row.parent = words(); return;
    case Class: row.class_name = words(); return;
    case Salt: row.salt = words(); return;
    case Kind: row.is_request = row.is_request && words() == mapping.kind; return;
    case Turn:
      row.turn = parse_trace_integer(lines, without_quotes(text), name, 0, INT32_MAX);
      return;
    case Priority:
      row.priority = static_cast<std::int32_t>(
          parse_trace_integer(lines, text, name, -1'000'000'000, 1'000'000'000));
      return;
    case Status: {
      constexpr int kFirstError = 400;
      const std::string_view code = without_quotes(text);
      std::int64_t number = 0;
      if (read_number(code.data(), code.data() + code.size(), number).ec != std::errc()) {
        constexpr std::string_view kFailures[] = {"error",   "errored",   "failed",   "failure",
                                                  "timeout", "cancelled", "canceled", "aborted"};
        const bool is_failure =
            std::find(std::begin(kFailures), std::end(kFailures), code) != std::end(kFailures);
        row.is_request = row.is_request && !is_failure;
        return;
      }
      row.is_request = row.is_request && number < kFirstError;
      return;
    }
    case Hashes: row.hashes.push_back(parse_hash_id(lines, mapping, name, text)); return;
    case Tokens:
      row.ids.push_back(
          TokenId(static_cast<std::int32_t>(parse_trace_integer(lines, text, name, 0, INT32_MAX))));
      return;
    case Images: break;
  }
  METRONOME_CHECK(false, "images are no single value");
}

std::uint64_t parse_hash_id(const TraceLines& lines, const TraceMapping& mapping,
                            std::string_view name, std::string_view text) {
  constexpr std::int64_t kMaxHashId = (std::int64_t{1} << 56) - 1;  // the limit of a content id
  std::uint64_t id = 0;
  const char* const end = text.data() + text.size();
  const auto read = read_number(text.data(), end, id);
  if (mapping.has_loose_hashes && read.ec == std::errc() && read.ptr == end) return mix64(id) >> 8;
  return static_cast<std::uint64_t>(parse_trace_integer(lines, text, name, 0, kMaxHashId));
}

void TraceRequests::add(const TraceRow& row, const TraceLines& lines) {
  if (!row.is_request || (mapping_.skips_failed && row.num_output_tokens == 0)) {
    ++workload_.num_skipped;
    return;
  }
  if (row.num_prompt_tokens == 0 && !row.ids.empty()) {
    TraceRow counted = row;
    counted.num_prompt_tokens = static_cast<std::int32_t>(row.ids.size());
    return add(counted, lines);
  }
  if (row.num_prompt_tokens == 0) {
    lines.fail(mapping_.find(TraceField::Prompt)->name,
               "'0' is out of range; allowed: " + describe_range(1, kMaxLengthTokens));
  }
  if (mapping_.find(TraceField::Hashes) != nullptr) add_hashes(row, lines);
  if (mapping_.find(TraceField::Tokens) != nullptr) add_ids(row, lines);
  if (!row.salt.empty() && row.hashes.empty()) note_unused("cache_salt");  // nothing to tell apart
  if (mapping_.find(TraceField::Images) != nullptr) {
    workload_.image_begin.push_back(static_cast<std::uint32_t>(workload_.images.size()));
    add_trace_images(row.images, row.num_prompt_tokens, lines, workload_);
  }
  add_turn(row, lines);
  RequestSpec request;
  request.arrival = row.arrival.value_or(0);
  request.num_prompt_tokens = row.num_prompt_tokens;
  request.max_output_tokens = row.num_output_tokens;
  request.priority = row.priority;
  request.ignores_eos = row.ignores_eos;
  request.output_limit = row.limit;
  request.class_number = class_of(row.class_name, lines);
  if (row.limit != 0 && row.limit < row.num_output_tokens) {
    lines.fail(mapping_.find(TraceField::Limit)->name,
               fmt::format("{}, below the {} output tokens; allowed: as many or more", row.limit,
                           row.num_output_tokens));
  }
  workload_.requests.push_back(request);
}

namespace {

// A smaller size of blocks that fits so many ids, as a hint; empty: none.
std::string fitting_block(std::int64_t num_ids, std::int64_t num_tokens, std::int64_t block) {
  for (std::int64_t size = 8; size < block; size *= 2) {
    if (ceil_div(num_tokens, size) != num_ids) continue;
    return fmt::format("; workload.trace.block_size: {} fits", size);
  }
  return {};
}

}  // namespace

void TraceRequests::add_hashes(const TraceRow& row, const TraceLines& lines) {
  std::vector<PromptSegment>& segments = workload_.segments;
  const std::int64_t block = row.block_tokens > 0 ? row.block_tokens : mapping_.block_tokens;
  const auto num_ids = static_cast<std::int64_t>(row.hashes.size());
  const std::int64_t num_tokens = row.num_prompt_tokens;
  const std::int64_t num_blocks = ceil_div(num_tokens, block);
  const bool fits =
      num_ids == num_blocks || num_ids == 0 || (mapping_.has_loose_hashes && num_ids < num_blocks);
  const bool is_empty = num_ids == 0 && row.has_hashes && !mapping_.has_loose_hashes;
  if (!fits || is_empty) {
    lines.fail(
        mapping_.find(TraceField::Hashes)->name,
        fmt::format("{} ids for {} prompt tokens; allowed: one per {} tokens, {}{}", num_ids,
                    num_tokens, block, num_blocks, fitting_block(num_ids, num_tokens, block)));
  }
  workload_.segment_begin.push_back(static_cast<std::uint32_t>(segments.size()));
  has_hashes_ = has_hashes_ || num_ids > 0;
  const std::uint64_t salt = row.salt.empty() ? 0 : Rng(0, row.salt)();
  for (const std::uint64_t given : row.hashes) {
    const std::uint64_t id = row.salt.empty() ? given : mix64(given ^ salt) >> 8;
    segments.push_back({content_id(ContentKind::TraceBlock, id), static_cast<std::int32_t>(block)});
  }
  const std::int64_t num_left = num_tokens - num_ids * block;
  if (num_left > 0) {
    segments.push_back({content_id(ContentKind::Request, workload_.requests.size()),
                        static_cast<std::int32_t>(num_left)});
  } else if (num_ids > 0) {
    segments.back().num_tokens += static_cast<std::int32_t>(num_left);
  }
}

void TraceRequests::add_ids(const TraceRow& row, const TraceLines& lines) {
  if (row.ids.size() != static_cast<std::size_t>(row.num_prompt_tokens)) {
    lines.fail(mapping_.find(TraceField::Tokens)->name,
               fmt::format("{} ids for {} prompt tokens; allowed: one per token", row.ids.size(),
                           row.num_prompt_tokens));
  }
  workload_.token_begin.push_back(workload_.token_ids.size());
  workload_.token_ids.insert(workload_.token_ids.end(), row.ids.begin(), row.ids.end());
}

void TraceRequests::add_turn(const TraceRow& row, const TraceLines& lines) {
  TraceTurn turn;
  turn.line = lines.number();
  turn.has_arrival = row.arrival.has_value();
  turn.delay = row.delay.value_or(0);
  turn.turn = row.turn.value_or(0);
  // A row without a session is one of its own.
  const auto number = static_cast<std::uint32_t>(turns_.size());
  const auto session_of = [&](const std::string& name) {
    return sessions_.try_emplace(name, number).first->second;
  };
  turn.session = row.session.empty() ? number : session_of(row.session);
  has_sessions_ = has_sessions_ || turn.session != number;
  const bool has_parent = !row.parent.empty() && row.parent != "-1" && row.parent != "null";
  const auto parent = has_parent ? sessions_.find(row.parent) : sessions_.end();
  if (parent != sessions_.end() && !row.session.empty()) {
    turn.session = sessions_[row.session] = parent->second;
    has_sessions_ = true;
  }
  turns_.push_back(turn);
}

std::uint16_t TraceRequests::class_of(const std::string& name, const TraceLines& lines) {
  if (name.empty()) return 0;
  std::vector<std::string>& names = workload_.class_names;
  const auto found = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<std::size_t>(found - names.begin()) + 1;
  if (found != names.end()) return static_cast<std::uint16_t>(number);
  if (number > kMaxClasses) {
    lines.fail(mapping_.find(TraceField::Class)->name,
               fmt::format("more than {} classes; allowed: fewer", kMaxClasses));
  }
  names.push_back(name);
  return static_cast<std::uint16_t>(number);
}

void TraceRequests::note_unused(std::string_view name) {
  std::vector<std::string>& names = workload_.unused_fields;
  const bool is_new = std::find(names.begin(), names.end(), name) == names.end();
  constexpr std::size_t kMaxNames = 100;
  if (is_new && !name.empty() && names.size() < kMaxNames) names.emplace_back(name);
}

std::vector<TraceTurn> TraceRequests::finish(const TraceLines& lines) {
  if (mapping_.find(TraceField::Hashes) != nullptr) {
    workload_.segment_begin.push_back(static_cast<std::uint32_t>(workload_.segments.size()));
  }
  if (!has_hashes_) {
    workload_.segments.clear();
    workload_.segment_begin.clear();
  }
  if (mapping_.find(TraceField::Tokens) != nullptr) {
    workload_.token_begin.push_back(workload_.token_ids.size());
  }
  if (workload_.images.empty()) {
    workload_.image_begin.clear();
  } else {
    workload_.image_begin.push_back(static_cast<std::uint32_t>(workload_.images.size()));
  }
  check_arrivals(lines);
  if (!has_sessions_) turns_.clear();
  return std::move(turns_);
}

void TraceRequests::check_arrivals(const TraceLines& lines) {
  const auto has_arrival = [](const TraceTurn& turn) { return turn.has_arrival; };
  workload_.has_arrivals = std::any_of(turns_.begin(), turns_.end(), has_arrival);
  if (!workload_.has_arrivals || std::all_of(turns_.begin(), turns_.end(), has_arrival)) return;
  std::map<std::uint32_t, TraceTurn> firsts;  // by session: the turn that comes first
  for (const TraceTurn& turn : turns_) {
    const auto [first, is_new] = firsts.try_emplace(turn.session, turn);
    if (!is_new && turn.turn < first->second.turn) first->second = turn;
  }
  for (const auto& [session, first] : firsts) {
    if (first.has_arrival) continue;
    const MappedField* const arrival = mapping_.find(TraceField::Arrival);
    lines.fail_at(first.line, arrival != nullptr ? arrival->name : "arrival",
                  "missing; allowed: an arrival in the first row of each session, or in none");
  }
}

}  // namespace metronome
