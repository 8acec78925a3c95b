// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/advise_session.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fmt/core.h>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/wrapped_text.h"
#include "engines/log/log_dialect.h"
#include "reports/terminal/text.h"
#include "study/rebuilt/log_scenario.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/advise_search.h"

namespace metronome {
namespace {

double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double unix_now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string clock_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

// Rows that a text takes on the terminal, whose long lines go on in the next row.
std::size_t num_rows(std::string_view text) {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const std::size_t columns = is_known ? size.ws_col : kMaxColumns;
  std::size_t rows = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    rows += std::max<std::size_t>(1, (end + columns - 1) / columns);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return rows;
}

// A server's start is in the first part of a log, its last steps in the last one.
constexpr std::int64_t kHeadBytes = std::int64_t{4} << 20;
constexpr std::int64_t kTailBytes = std::int64_t{32} << 20;
constexpr double kTickS = 0.25;         // between two looks at the log
constexpr double kSearchAgainS = 300;   // while a goal stays broken
constexpr std::size_t kMostEvents = 3;  // on the terminal

}  // namespace

AdviseSession::AdviseSession(AdviseOptions options) : options_(std::move(options)) {
  is_terminal_ = !options_.is_once && !options_.wants_json && is_capable_terminal(STDOUT_FILENO);
  if (options_.log.empty()) return;
  file_ = std::make_unique<FollowedFile>(options_.log, "--log");
  file_->skip_middle(kHeadBytes, kTailBytes);
  tail_ = std::make_unique<LogTail>(options_.log == "-" ? "standard input" : options_.log,
                                    find_log_dialect(options_.engine));
}

void AdviseSession::say(const std::string& event) {
  const std::string line = clock_now() + "  " + printable(event);
  if (!is_terminal_) {
    std::cerr << "metronome: advise: " << line << '\n';
    return;
  }
  events_.push_back(line);
  if (events_.size() > kMostEvents) events_.pop_front();
}

void AdviseSession::note_change(FileChange change) {
  switch (change) {
    case FileChange::None: return;
    case FileChange::Replaced: return say("--log: another file has its name: read from its start");
    case FileChange::Truncated: return say("--log: it became shorter: read from its start");
    case FileChange::Gone: return say("--log: no file has its name any more: waiting for one");
    case FileChange::Ended: return say("--log: it has ended");
    case FileChange::Failed:
      return say(fmt::format("--log: cannot read it: {}", std::strerror(errno)));
  }
}

void AdviseSession::follow() {
  if (!file_) return;
  const std::int64_t too_long = tail_->num_too_long();
  do {
    note_change(file_->read([this](std::string_view bytes) { tail_->add(bytes); }));
    throw_if_interrupted();
  } while (file_->has_more());
  if (tail_->num_too_long() > too_long) say("--log: left out a line of more than 1 MiB");
}

void AdviseSession::wait(double seconds) {
  const double end = now_s() + seconds;
  while (true) {
    follow();
    throw_if_interrupted();
    const double left = end - now_s();
    if (left <= 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kTickS)));
  }
}

// False, and a problem: the metrics could not be read.
bool AdviseSession::look() {
  const auto timeout_ns = static_cast<TimeNs>(options_.timeout_s * 1e9);
  const auto poll = [this] {
    follow();
    throw_if_interrupted();
  };
  std::string problem;
  try {
    if (!address_) address_ = reach_server(options_.url, timeout_ns, poll);
    const auto get = [&](std::string_view path) {
      return http_get(options_.url, *address_, path, options_.headers, timeout_ns, poll);
    };
    HttpAnswer answer = get("/metrics");
    if (answer.status >= 301 && answer.status <= 308) answer = get("/metrics/");
    const std::string page = options_.url.text() + "/metrics";
    std::string why;
    std::optional<ServerMetrics> metrics;
    if (answer.status != 200) {
      why = fmt::format("answers with status {}", answer.status);
    } else {
      metrics = read_server_metrics(answer.body, why);
      if (!metrics && !answer.content_type.empty()) why += " (" + answer.content_type + ")";
    }
    if (metrics) {
      Look now = {now_s(), clock_now(), std::move(*metrics)};
      if (!looks_.empty() && window_between(looks_.back(), now).has_restarted) {
        const bool is_known = now.metrics.started_at && starts_.contains(*now.metrics.started_at);
        say(is_known ? "several servers answer at this address in turn, which have other figures; "
                       "give the address of one"
                     : "the server started again: figures are those since then");
        looks_.clear();
        first_lines_.clear();
      }
      if (now.metrics.started_at) starts_.insert(*now.metrics.started_at);
      looks_.push_back(std::move(now));
      first_lines_.push_back(tail_ ? tail_->next_line() : 0);
      if (!problem_.empty()) say("the metrics can be read again");
      problem_.clear();
      is_up_ = true;
      return true;
    }
    problem = page + ": " + why;
  } catch (const std::runtime_error& error) {
    if (dynamic_cast<const Interrupted*>(&error) != nullptr) throw;
    problem = error.what();
    address_.reset();
  }
  is_up_ = false;
  if (problem != problem_ && !options_.is_once) say(problem);
  problem_ = std::move(problem);
  return false;
}

std::optional<EngineLog> AdviseSession::log_from(std::int64_t line, std::string& why) const {
  const LogDialect* own = find_log_dialect(options_.engine);
  if (own != nullptr) return tail_->latest(own, line, why);
  std::optional<EngineLog> log = tail_->latest(nullptr, line, why);
  if (log || looks_.empty()) return log;
  const LogDialect* of_metrics = find_log_dialect(looks_.back().metrics.names->policy);
  return of_metrics == nullptr ? log : tail_->latest(of_metrics, line, why);
}

void AdviseSession::note_lacks(const EngineLog* log, WatchReport& report) const {
  if (!tail_) {
    report.notes.push_back(
        "From /metrics alone one sees the load and whether there is a problem. It lacks the token "
        "budget, the limit of running requests, the server's version and the time of a step, so "
        "no flag can be advised: give the server's log with --log.");
  } else if (log != nullptr && !has_requests(*log)) {
    report.notes.push_back(
        may_have_requests(*log)
            ? fmt::format("The log has no steps, so no flag is tried here. `metronome diagnose {}` "
                          "tries them with requests that are drawn to match its lines. {}",
                          options_.log == "-" ? "LOG" : printable(options_.log),
                          log->dialect->form == LogForm::Iterations ? log->dialect->numbering : "")
            : fmt::format("The log has no steps, so no flag can be advised by replays. {}",
                          log->dialect->numbering));
  }
  const bool waits_unseen =
      log != nullptr && has_requests(*log) && log->arrivals.empty() &&
      std::any_of(report.goals.begin(), report.goals.end(), [](const WatchedGoal& one) {
        return one.goal.side == GoalSide::Ttft && one.state == GoalState::Broken;
      });
  if (waits_unseen) {
    report.notes.push_back(fmt::format(
        "The log does not say when requests came, so replays have no waits before their first "
        "steps. {}",
        log->dialect->receiving));
  }
  const bool is_undecided =
      std::any_of(report.goals.begin(), report.goals.end(),
                  [](const WatchedGoal& one) { return one.state == GoalState::Undecided; });
  if (!is_undecided) return;
  report.notes.push_back(
      "Undecided: the metrics have counts between bounds, and the limit is between two of them. A "
      "log with steps decides for gaps; else choose a limit at a bound.");
}

// The search has a thread of its own, so that looks go on meanwhile.
void AdviseSession::start_search(const WatchReport& report) {
  std::string why;
  std::optional<EngineLog> log = log_from(0, why);
  if (!log || !has_requests(*log)) return;
  add_cache(report, *log);
  const AdviceSearch search = {.goals = options_.goals,
                               .model = options_.model,
                               .gpu = options_.gpu,
                               .num_threads = options_.num_jobs,
                               .is_quiet = is_terminal_ || options_.wants_json};
  searched_at_s_ = now_s();
  search_ = std::async(std::launch::async, [own = std::move(*log), search, goals = report.goals] {
    WatchReport found;
    found.goals = goals;
    search_advice(own, search, found);
    return found;
  });
}

// Takes what a search found, once it has ended.
void AdviseSession::take_search() {
  if (!search_.valid()) return;
  const bool has_ended =
      is_last_look_ || search_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (!has_ended) return;
  WatchReport found = search_.get();
  advice_ = std::move(found.advice);
  searched_causes_ = std::move(found.causes);
  search_notes_ = std::move(found.notes);
  finding_json_ = std::move(found.finding_json);
}

// Searches again where a goal is broken, and not too soon.
void AdviseSession::add_advice(WatchReport& report) {
  take_search();
  if (!is_any_broken(report.goals)) {
    searched_at_s_.reset();
    advice_.reset();
    searched_causes_.clear();
    search_notes_.clear();
    finding_json_.clear();
    return;
  }
  const bool is_due = !searched_at_s_ || now_s() - *searched_at_s_ >= kSearchAgainS;
  if (tail_ && is_due && !options_.has_no_replay && !search_.valid()) {
    start_search(report);
    take_search();
  }
  if (search_.valid()) {
    report.notes.emplace_back("Settings that keep the goals are being searched; looks go on.");
  }
  if (!searched_at_s_) return;
  report.advice = advice_;
  report.finding_json = finding_json_;
  add_causes(searched_causes_, report.causes);
  report.notes.insert(report.notes.end(), search_notes_.begin(), search_notes_.end());
}

WatchReport AdviseSession::report() {
  WatchReport report;
  report.server = options_.url.text();
  report.clock = clock_now();
  report.has_usual_goals = options_.has_usual_goals;
  std::int64_t first_line = 0;
  if (is_up_) {
    const ServerMetrics& now = looks_.back().metrics;
    report.engine = now.names->title;
    if (!now.models.empty()) report.model = *now.models.begin();
    report.block_size = now.block_size;
    report.num_blocks = now.num_blocks;
    if (looks_.size() > 1) {
      report.window = window_between(looks_.front(), looks_.back());
      first_line = first_lines_.front();
    }
  }
  std::string why;
  std::optional<EngineLog> log;
  if (tail_) log = log_from(0, why);
  if (log) {
    report.engine = log->engine_name();
    std::string nothing;
    const auto now = first_line == 0 ? log : log_from(first_line, nothing);
    if (now) report.log = figures_of(*now);
    if (report.log && report.log->num_steps == 0 && report.log->itl.count == 0) report.log.reset();
  } else if (tail_) {
    if (why != log_problem_) say("--log: " + why);
  }
  log_problem_ = why;
  report.goals = judge_goals(options_.goals, report.window ? &*report.window : nullptr,
                             report.log ? &*report.log : nullptr);
  if (report.window) {
    const std::vector<Look> looks(looks_.begin(), looks_.end());
    report.causes = find_in_looks(looks, log ? &*log : nullptr);
  }
  add_advice(report);
  note_lacks(log ? &*log : nullptr, report);
  return report;
}

void AdviseSession::write_metrics(const WatchReport& report) {
  if (options_.prometheus.empty()) return;
  try {
    replace_file(options_.prometheus, report_metrics(report, unix_now_s()));
  } catch (const std::runtime_error& error) {
    if (options_.is_once) throw;
    say(fmt::format("--prometheus: {}", error.what()));
  }
}

void AdviseSession::print(const WatchReport& report) {
  if (options_.wants_json) {
    JsonText json(options_.is_once ? JsonText::Style::Indented : JsonText::Style::Compact);
    append_report(report, json);
    std::cout << json.view() << std::endl;
    return throw_if_output_failed();
  }
  std::string text;
  if (options_.is_once || is_terminal_) text = report_text(report, output_columns());
  if (is_terminal_) {
    for (const std::string& event : events_) text += event + "\n";
    if (num_drawn_ > 0) std::cout << fmt::format("\033[{}A\033[J", num_drawn_);
    num_drawn_ = num_rows(text);
  } else if (!options_.is_once) {
    // The whole report where something is new, else a line.
    std::string state;
    for (const WatchedGoal& one : report.goals) {
      if (one.state == GoalState::Broken) state += one.goal.key + " ";
    }
    for (const Cause& cause : report.causes) state += std::string(cause.name) + " ";
    if (report.advice) state += report.advice->flags;
    const bool is_new = state != shown_ && !state.empty();
    text = (is_new ? "\n" + report_text(report, output_columns()) : report_line(report)) + "\n";
    shown_ = std::move(state);
  }
  std::cout << text << std::flush;
  throw_if_output_failed();
}

WatchReport AdviseSession::look_once() {
  // Several looks: a queue is one that lasts.
  constexpr double kLeastS = 1;
  constexpr int kMostParts = 5;
  const int parts = std::clamp(static_cast<int>(options_.interval_s / kLeastS), 1, kMostParts);
  follow();
  look();
  for (int i = 0; i < parts; ++i) {
    wait(options_.interval_s / parts);
    look();
  }
  follow();
  is_last_look_ = true;
  WatchReport now = report();
  if (!now.window && !now.log) {
    throw UsageError(!problem_.empty()       ? problem_
                     : !log_problem_.empty() ? log_problem_
                     : !looks_.empty()
                         ? "only one look read the metrics, and figures are between two; allowed: "
                           "a longer --interval"
                         : "nothing could be read");
  }
  if (!problem_.empty()) now.notes.push_back("The metrics could not be read: " + problem_);
  write_metrics(now);
  print(now);
  return now;
}

WatchReport AdviseSession::watch() {
  WatchReport now;
  try {
    follow();
    look();
    double next = now_s();
    for (std::int64_t i = 0; options_.most_looks == 0 || i < options_.most_looks; ++i) {
      next = std::max(next + options_.interval_s, now_s());
      wait(next - now_s());
      look();
      const double least_s = options_.window_s - options_.interval_s / 2;
      while (looks_.size() > 2 && now_s() - looks_[1].at_s >= least_s) {
        looks_.pop_front();
        first_lines_.pop_front();
      }
      is_last_look_ = i + 1 == options_.most_looks;
      now = report();
      write_metrics(now);
      print(now);
    }
  } catch (const Interrupted&) {
    std::cerr.clear();
  }
  return now;
}

}  // namespace metronome
