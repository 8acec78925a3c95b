// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/report_findings.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "reports/terminal/answer_findings.h"

namespace metronome {
namespace {

using Lines = std::vector<const LogObservation*>;

// Lines with rates, or with running and waiting requests, of each engine.
std::map<std::int32_t, Lines> lines_of(const EngineLog& log) {
  std::map<std::int32_t, Lines> lines;
  for (const LogObservation& seen : log.observations) {
    const bool has_queue = seen.kind == Observed::Report || seen.kind == Observed::Decode;
    if (has_queue) lines[seen.rank].push_back(&seen);
  }
  return lines;
}

// Consecutive lines [begin, end).
struct Stretch {
  std::size_t begin = 0, end = 0;

  std::size_t size() const { return end - begin; }
};

template <class Is>
Stretch longest_stretch(const Lines& lines, const Is& is) {
  Stretch longest;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!is(*lines[i])) continue;
    Stretch now{i, i};
    while (now.end < lines.size() && is(*lines[now.end])) ++now.end;
    if (now.size() > longest.size()) longest = now;
    i = now.end;
  }
  return longest;
}

// "33 to 52", or one number.
template <class Value>
std::string range_text(const Lines& lines, const Stretch& in, int digits, const Value& value) {
  double least = value(*lines[in.begin]);
  double most = least;
  for (std::size_t i = in.begin; i < in.end; ++i) {
    least = std::min(least, value(*lines[i]));
    most = std::max(most, value(*lines[i]));
  }
  const std::string from = grouped_text(least, digits);
  const std::string to = grouped_text(most, digits);
  return from == to ? from : from + " to " + to;
}

double running(const LogObservation& seen) { return static_cast<double>(seen.num_running); }
double waiting(const LogObservation& seen) { return static_cast<double>(seen.num_waiting); }
double percent(const LogObservation& seen) { return 100 * seen.cache_usage.value_or(0); }
double output(const LogObservation& seen) { return seen.decode_rate; }

std::string place_text(const Lines& lines, const Stretch& in) {
  const LogObservation& first = *lines[in.begin];
  const LogObservation& last = *lines[in.end - 1];
  const bool is_one = in.size() == 1;
  if (first.line == 0) return is_one ? first.time : first.time + " to " + last.time;
  std::string text = is_one ? fmt::format("line {}", first.line)
                            : fmt::format("lines {} to {}", first.line, last.line);
  if (first.time.empty()) return text;
  return (is_one ? first.time : first.time + " to " + last.time) + " (" + text + ")";
}

// "Engine 3, " where there are several.
std::string engine_text(std::int32_t rank, bool has_ranks) {
  return has_ranks ? fmt::format("Engine {}, ", rank) : std::string();
}

std::string count_of_requests(const Lines& lines, const Stretch& in, const char* verb,
                              double (*value)(const LogObservation&)) {
  const std::string count = range_text(lines, in, 0, value);
  return count == "1" ? fmt::format("1 request {}s", verb)
                      : fmt::format("{} requests {}", count, verb);
}

double share_of(const Stretch& in, const Lines& lines) {
  return static_cast<double>(in.size()) / static_cast<double>(lines.size());
}

// ---- answers that stand still while a prompt is computed ----

double usual_rate(const Lines& lines) {
  std::vector<double> rates;
  for (const LogObservation* seen : lines) {
    if (seen->num_running > 0 && seen->decode_rate > 0) rates.push_back(seen->decode_rate);
  }
  if (rates.empty()) return 0;
  // Of stalls and others: the upper quartile is one of the others.
  const auto at = rates.begin() + static_cast<std::ptrdiff_t>(3 * rates.size() / 4);
  std::nth_element(rates.begin(), at, rates.end());
  return *at;
}

// The time of a step with a whole chunk, and so the gap between two tokens of an answer.
std::string chunk_text(const EngineLog& log, double slowest, double fastest) {
  const std::string name(log.dialect->budget);
  const auto budget = count_in_force(merged_arguments(log, {}), name);
  if (!budget || *budget <= 0) return {};
  const auto seconds = [&](std::int64_t tokens) {
    const auto count = static_cast<double>(tokens);
    return fmt::format("{} to {} s", fixed_text(count / fastest, 1),
                       fixed_text(count / slowest, 1));
  };
  return fmt::format(
      " With {0} {1} an answer gets one step a chunk, every {2}; with {3} it would be {4}.",
      flag_word(name), *budget, seconds(*budget), *budget / 4, seconds(*budget / 4));
}

std::optional<LogFinding> stall_of(const EngineLog& log, const Lines& lines,
                                   const std::string& engine, double full) {
  constexpr double kSlow = 0.2;           // of the usual rate
  constexpr double kLeastTokens = 2'000;  // of a prompt that can stall others for seconds
  const double usual = usual_rate(lines);
  const auto is_slow = [usual, full](const LogObservation& seen) {
    return seen.kind == Observed::Report && seen.num_running > 0 && seen.num_waiting == 0 &&
           seen.decode_rate < kSlow * usual && seen.cache_usage.value_or(0) < full;
  };
  const Stretch slow = longest_stretch(lines, is_slow);
  if (slow.size() == 0 || slow.end == lines.size() || slow.begin == 0) return std::nullopt;
  const LogObservation& before = *lines[slow.begin - 1];
  const LogObservation& booked = *lines[slow.end];
  const LogObservation& last = *lines[slow.end - 1];
  const std::optional<double> interval = seconds_between(last.time, booked.time);
  const std::optional<double> most = seconds_between(before.time, booked.time);
  const std::optional<double> least = seconds_between(before.time, last.time);
  if (!interval || !most || !least || !(*interval > 0) || !(*least > 0)) return std::nullopt;
  const double tokens = booked.prompt_rate * *interval;
  if (tokens < kLeastTokens) return std::nullopt;
  std::string text = fmt::format(
      "{}{}: {} and get {} tokens/s together ({} before, {} after). Nothing waits, and the KV "
      "cache is {} % full. ",
      engine, place_text(lines, slow), count_of_requests(lines, slow, "run", running),
      range_text(lines, slow, 1, output), grouped_text(before.decode_rate, 1),
      grouped_text(booked.decode_rate, 1), range_text(lines, slow, 0, percent));
  text += fmt::format(
      "Prompts are booked when they are complete: {} tokens/s at {}, about {} tokens. Their "
      "computation held the answers for {} to {} s, at {} to {} prompt tokens/s.",
      grouped_text(booked.prompt_rate, 1), booked.time, grouped_text(tokens, 0),
      grouped_text(*least, 0), grouped_text(*most, 0), grouped_text(tokens / *most, 0),
      grouped_text(tokens / *least, 0));
  text += chunk_text(log, tokens / *most, tokens / *least);
  if (!log.dialect->shorter_stalls.empty()) text += " " + std::string(log.dialect->shorter_stalls);
  return LogFinding{"stall", std::move(text), share_of(slow, lines)};
}

// ---- queues ----

std::optional<LogFinding> full_of(const EngineLog& log, const Lines& lines,
                                  const std::string& engine, double full_share) {
  const Stretch full = longest_stretch(lines, [full_share](const LogObservation& seen) {
    return seen.num_waiting > 0 && seen.cache_usage.value_or(0) >= full_share;
  });
  if (full.size() == 0) return std::nullopt;
  std::string text = fmt::format(
      "{}{}: {} while the KV cache is {} % full; {}.", engine, place_text(lines, full),
      count_of_requests(lines, full, "wait", waiting), range_text(lines, full, 1, percent),
      count_of_requests(lines, full, "run", running));
  const LogObservation& first = *lines[full.begin];
  const LogObservation& last = *lines[full.end - 1];
  std::int64_t num_preempted = 0;
  for (std::size_t i = full.begin; i < full.end; ++i) num_preempted += lines[i]->num_preempted;
  const bool is_thrashing = full.size() > 1 && last.decode_rate < 0.7 * first.decode_rate &&
                            last.prompt_rate > 1.3 * first.prompt_rate;
  if (is_thrashing) {
    text += fmt::format(
        " The output falls from {} to {} tokens/s while prompts rise from {} to {} tokens/s: "
        "requests that lost their blocks are computed again{}.",
        grouped_text(first.decode_rate, 0), grouped_text(last.decode_rate, 0),
        grouped_text(first.prompt_rate, 0), grouped_text(last.prompt_rate, 0),
        num_preempted > 0 ? ", after " + count_text(num_preempted, "preemption") : "");
  }
  return LogFinding{"full", text + " " + std::string(log.dialect->more_memory),
                    share_of(full, lines)};
}

std::optional<LogFinding> queue_of(const EngineLog& log, const Lines& lines,
                                   const std::string& engine, double full) {
  constexpr std::int64_t kMany = 5;
  const Stretch queue = longest_stretch(lines, [full](const LogObservation& seen) {
    return seen.num_waiting >= kMany && seen.cache_usage.value_or(0) < full;
  });
  if (queue.size() < 2) return std::nullopt;
  const ServerArguments& server = *log.dialect->server;
  std::string limit;
  const EngineArguments arguments = merged_arguments(log, {});
  for (const ServerArgument& row : server.all()) {
    if (row.scenario_key() == "engine.max_num_seqs") limit = row.argument;
  }
  const auto most = count_in_force(arguments, limit);
  const auto at = [&lines](std::size_t i) {
    return lines.begin() + static_cast<std::ptrdiff_t>(i);
  };
  // A line between an end and the next admission has fewer.
  const auto num_limited = std::count_if(
      at(queue.begin), at(queue.end),
      [&most](const LogObservation* seen) { return most && seen->num_running >= *most; });
  const bool is_limited = 2 * num_limited >= static_cast<std::ptrdiff_t>(queue.size());
  std::string text = fmt::format(
      "{}{}: {} while {} and the KV cache is {} % full.", engine, place_text(lines, queue),
      count_of_requests(lines, queue, "wait", waiting),
      count_of_requests(lines, queue, "run", running), range_text(lines, queue, 0, percent));
  if (is_limited) {
    text += fmt::format(" As many run as {} {} allows, and the cache has room for more.",
                        flag_word(limit), *most);
  } else if (!most && arguments.empty()) {
    text +=
        " The cache has room: a limit of running requests may hold them, or prompts that are "
        "computed before them.";
  } else {
    text +=
        " Neither the cache nor the number of running requests holds them: prompts that are "
        "computed before them do.";
  }
  return LogFinding{is_limited ? "slots" : "queue", std::move(text), share_of(queue, lines)};
}

// ---- data-parallel engines ----

std::optional<LogFinding> ranks_of(const EngineLog& log) {
  constexpr std::int64_t kMany = 10;
  constexpr std::int64_t kFew = 4;  // times fewer requests run on an idle engine
  std::map<std::int32_t, const LogObservation*> now;
  const LogObservation* worst = nullptr;
  std::vector<const LogObservation*> idle_then;
  double num_seen = 0;
  double num_lines = 0;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Report && seen.kind != Observed::Decode) continue;
    now[seen.rank] = &seen;
    ++num_lines;
    for (const auto& [rank, busy] : now) {
      if (busy->num_waiting < kMany) continue;
      std::vector<const LogObservation*> idle;
      for (const auto& [other, line] : now) {
        const bool is_idle =
            line->num_waiting == 0 && kFew * line->num_running <= busy->num_running;
        if (other != rank && is_idle) idle.push_back(line);
      }
      if (idle.empty()) continue;
      if (busy == &seen) ++num_seen;
      const bool is_worse = worst == nullptr || busy->num_waiting > worst->num_waiting ||
                            (busy == worst && idle.size() > idle_then.size());
      if (!is_worse) continue;
      worst = busy;
      idle_then = idle;
    }
  }
  if (worst == nullptr) return std::nullopt;
  std::string others;
  for (const LogObservation* one : idle_then) {
    others +=
        fmt::format("{}engine {} runs {}", others.empty() ? "" : ", ", one->rank, one->num_running);
  }
  return LogFinding{
      "ranks",
      fmt::format("Engine {}{}{}: {} requests wait and {} run, while nothing waits "
                  "elsewhere: {}. Requests are not divided evenly among the {} engines.",
                  worst->rank, worst->time.empty() ? "" : ", " + worst->time,
                  worst->line == 0 ? "" : fmt::format(", line {}", worst->line), worst->num_waiting,
                  worst->num_running, others, now.size()),
      num_seen / num_lines};
}

// Decode steps without a CUDA graph: beyond the largest captured one, or all of them.
std::optional<LogFinding> graphs_of(const EngineLog& log, const Lines& lines,
                                    const std::string& engine, double /*full_share*/) {
  std::int64_t num_known = 0;
  std::int64_t most_with = 0;
  Lines without;
  for (const LogObservation* seen : lines) {
    if (!seen->is_graph || seen->num_running == 0) continue;
    ++num_known;
    if (*seen->is_graph) {
      most_with = std::max(most_with, seen->num_running);
    } else {
      without.push_back(seen);
    }
  }
  if (without.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(
      without.begin(), without.end(),
      [](const auto* a, const auto* b) { return a->num_running < b->num_running; });
  const std::int64_t from = (*least)->num_running;
  const std::int64_t to = (*most)->num_running;
  std::string text = fmt::format(
      "{}{} of {} about decodes show steps without a CUDA graph (first in line {}), with {} "
      "running "
      "requests: the host launches each kernel then.",
      engine, grouped_text(static_cast<std::int64_t>(without.size())),
      count_text(num_known, "line"), without.front()->line,
      from == to ? grouped_text(from) : grouped_text(from) + " to " + grouped_text(to));
  const auto off = log.settings.find(std::string(log.dialect->no_graphs));
  if (off != log.settings.end() && off->second == "True") {
    text += fmt::format(" {} is set, so none has one.", log.dialect->no_graphs);
  } else if (most_with == 0) {
    text += " No line shows one: graphs are off, or captured for fewer requests than these.";
  } else if (from > most_with) {
    text += fmt::format(" The most with one are {} requests.", grouped_text(most_with));
    std::string more(log.dialect->more_graphs);
    if (const std::size_t at = more.find("{}"); at != std::string::npos) {
      more.replace(at, 2, std::to_string(to));
    }
    if (!more.empty()) text += " " + more;
  } else {
    text += fmt::format(" Up to {} requests ran with one, so their number is not the reason.",
                        grouped_text(most_with));
  }
  return LogFinding{"graphs", std::move(text), real(without.size()) / real(num_known)};
}

}  // namespace

std::vector<LogFinding> report_findings(const EngineLog& log, double full_share) {
  const std::map<std::int32_t, Lines> all = lines_of(log);
  std::vector<LogFinding> findings;
  for (const auto& find : {stall_of, full_of, queue_of, graphs_of}) {
    for (const auto& [rank, lines] : all) {
      auto found = find(log, lines, engine_text(rank, all.size() > 1), full_share);
      if (found) findings.push_back(std::move(*found));
    }
  }
  if (auto found = ranks_of(log)) findings.push_back(std::move(*found));
  append_slowed_answer(log, findings);
  return findings;
}

std::string mean_gap_text(const EngineLog& log) {
  if (log.has(Observed::Iteration)) return {};
  if (log.has(Observed::Answer)) return answers_text(log);
  std::vector<std::pair<double, const LogObservation*>> gaps;
  for (const LogObservation& seen : log.observations) {
    const bool has_both =
        seen.kind == Observed::Report && seen.num_running > 0 && seen.decode_rate > 0;
    if (has_both) gaps.emplace_back(1e3 * running(seen) / seen.decode_rate, &seen);
  }
  if (gaps.empty()) return {};
  std::sort(gaps.begin(), gaps.end());
  const auto& [longest, where] = gaps.back();
  return fmt::format(
      "mean gap by reports (running requests / output rate): p50 {} ms, longest {} "
      "ms (line {}{})",
      ms_text(gaps[gaps.size() / 2].first), ms_text(longest), where->line,
      where->time.empty() ? "" : ", " + where->time);
}

}  // namespace metronome
