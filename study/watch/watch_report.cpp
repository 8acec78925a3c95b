// SPDX-License-Identifier: Apache-2.0
#include "study/watch/watch_report.h"

#include <cmath>
#include <fmt/core.h>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/text_block.h"

namespace metronome {
namespace {

constexpr double kMsPerS = 1e3;

std::string count_of(std::optional<double> number) {
  return number ? grouped_text(*number, 0) : std::string("-");
}

// "74.2 ms (50 to 75)", or "over 80,000 ms".
std::string band_text(const QuantileBand& band) {
  if (band.least == band.most) return ms_text(band.estimate) + " ms";
  if (std::isinf(band.most)) return "over " + ms_text(band.least) + " ms";
  return fmt::format("{} ms ({} to {})", ms_text(band.estimate), ms_text(band.least),
                     ms_text(band.most));
}

QuantileBand scaled(const QuantileBand& band, double factor) {
  return {band.estimate * factor, band.least * factor, band.most * factor};
}

std::string quantiles_text(const BucketCounts& seconds) {
  const auto half = quantile_band(seconds, 0.5);
  const auto most = quantile_band(seconds, 0.99);
  if (!half || !most) return "none";
  return "p50 " + band_text(scaled(*half, kMsPerS)) + ", p99 " + band_text(scaled(*most, kMsPerS)) +
         ", of " + grouped_text(seconds.count(), 0);
}

std::string load_text(const WatchReport& report) {
  const LoadWindow& window = *report.window;
  std::string text =
      fmt::format("{} running, {} waiting", count_of(window.all.number(ServerFigure::Running)),
                  count_of(window.all.number(ServerFigure::Waiting)));
  if (const auto use = window.all.number(ServerFigure::CacheUse)) {
    text += ", KV cache " + fixed_text(100 * *use, 1) + " % full";
  }
  if (report.num_blocks && report.block_size) {
    text += fmt::format(" of {} blocks of {} tokens", grouped_text(*report.num_blocks),
                        *report.block_size);
  }
  if (const auto lost = window.all.number(ServerFigure::Preempted); lost && *lost > 0) {
    text += ", " + grouped_text(*lost, 0) + " preempted";
  }
  return text;
}

std::string rates_line(const LoadWindow& window) {
  std::string text;
  const auto add = [&](ServerFigure figure, const char* unit, int digits) {
    const auto rate = window.rate(figure);
    if (rate) text += (text.empty() ? "" : ", ") + grouped_text(*rate, digits) + " " + unit;
  };
  add(ServerFigure::Ended, "requests/s ended", 2);
  add(ServerFigure::PromptTokens, "prompt tokens/s", 0);
  add(ServerFigure::OutputTokens, "output tokens/s", 0);
  if (const auto hits = window.hit_rate()) text += ", prefix cache " + percent_text(*hits, 1);
  return text;
}

std::string lengths_text(const LoadWindow& window) {
  std::string text;
  constexpr std::pair<ServerFigure, const char*> kLengths[] = {
      {ServerFigure::PromptLength, "prompts"}, {ServerFigure::OutputLength, "outputs"}};
  for (const auto& [figure, name] : kLengths) {
    const BucketCounts& lengths = window.all.histogram(figure);
    const auto most = quantile_band(lengths, 0.99);
    if (!most) continue;
    text += fmt::format("{}{}: mean {}, p99 {}", text.empty() ? "" : "; ", name,
                        grouped_text(lengths.mean(), 0),
                        std::isinf(most->most)
                            ? "over " + grouped_text(most->least, 0)
                            : grouped_text(most->least, 0) + " to " + grouped_text(most->most, 0));
  }
  return text;
}

std::string steps_text(const LogFigures& log) {
  std::string text;
  const auto add = [&text](double value, const std::string& words) {
    if (!std::isnan(value)) text += (text.empty() ? "" : "; ") + words;
  };
  add(log.itl.p50_ms,
      fmt::format("ITL p50 {} ms, p99 {} ms, longest {} ms", ms_text(log.itl.p50_ms),
                  ms_text(log.itl.p99_ms), ms_text(log.itl.max_ms)));
  add(log.rate_during_prefill,
      "answers during prefill " + rate_text(log.rate_during_prefill) + " tok/s each");
  add(log.decode_step_ms, "a step without prompts " + ms_text(log.decode_step_ms) + " ms");
  add(log.prompt_token_ms, "a prompt token " + ms_text(log.prompt_token_ms) + " ms more");
  return text;
}

std::string goal_line(const WatchedGoal& one) {
  std::string text = std::string(goal_state_name(one.state)) + ": " + goal_words(one.goal);
  const bool is_rate =
      one.goal.side == GoalSide::Rate || one.goal.side == GoalSide::Throughput;
  if (one.value) {
    // Of the longest gap nothing but its bounds is known.
    const bool is_longest = one.goal.figure == "max_itl_ms" && !std::isinf(one.value->most) &&
                            one.value->least < one.value->most;
    text += is_rate      ? "; it is " + rate_text(one.value->estimate) + " tok/s"
            : is_longest ? fmt::format("; the longest is between {} and {} ms",
                                       ms_text(one.value->least), ms_text(one.value->most))
                         : "; it is " + band_text(*one.value);
  }
  if (one.is_of_log) text += " by the log";
  return text;
}

TextBlock named_lines(const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& lines) {
  TextBlock block = {.title = title};
  for (const auto& [name, text] : lines) {
    if (text.empty()) continue;
    block.lines.push_back({name + ": " + text, 2, 4});
  }
  return block;
}

std::string title_of(const WatchReport& report) {
  std::string title = report.clock + "  " + printable(report.server);
  if (!report.engine.empty()) title += ": " + report.engine;
  if (!report.model.empty()) title += ", model " + printable(report.model);
  if (report.window) title += ", " + fixed_text(report.window->seconds, 0) + " s";
  if (report.window && report.window->has_restarted) title += ", restarted meanwhile";
  return title;
}

TextBlock engines_block(const LoadWindow& window) {
  if (window.engines.size() < 2) return {};
  TextTable table({"engine", "running", "waiting", "KV %", "output tok/s"}, 5);
  for (const auto& [rank, engine] : window.engines) {
    const auto use = engine.number(ServerFigure::CacheUse);
    const auto tokens = engine.number(ServerFigure::OutputTokens);
    table.row({fmt::format("{}", rank), count_of(engine.number(ServerFigure::Running)),
               count_of(engine.number(ServerFigure::Waiting)),
               use ? fixed_text(100 * *use, 1) : "-",
               tokens && window.seconds > 0 ? grouped_text(*tokens / window.seconds, 0) : "-"});
  }
  return {.table = std::move(table)};
}

}  // namespace

std::string report_text(const WatchReport& report, std::size_t columns) {
  std::vector<std::pair<std::string, std::string>> facts;
  if (report.window) {
    facts = {{"load", load_text(report)},
             {"rates", rates_line(*report.window)},
             {"lengths", lengths_text(*report.window)},
             {"ITL", quantiles_text(report.window->all.histogram(ServerFigure::Itl))},
             {"TTFT", quantiles_text(report.window->all.histogram(ServerFigure::Ttft))}};
  }
  if (report.log) facts.emplace_back("log", steps_text(*report.log));
  std::vector<TextBlock> blocks;
  append_blocks({named_lines(title_of(report), facts)}, blocks);
  if (blocks.empty()) blocks.push_back({.title = title_of(report)});
  if (report.window) append_blocks({engines_block(*report.window)}, blocks);
  TextBlock goals = {.title = report.has_usual_goals
                                  ? "goals (the usual ones, as none is given: see --help)"
                                  : "goals"};
  for (const WatchedGoal& one : report.goals) goals.lines.push_back({goal_line(one), 2, 4});
  TextBlock causes = {.title = "causes"};
  for (const Cause& cause : report.causes) {
    causes.lines.push_back({std::string(cause.name) + ": " + cause.text, 2, 4});
  }
  if (causes.lines.empty()) causes = {};
  append_blocks({std::move(goals), std::move(causes)}, blocks);
  if (report.advice) {
    const RestartAdvice& advice = *report.advice;
    TextBlock block = named_lines("advice", {{"change", advice.conclusion},
                                             {"flags", advice.flags},
                                             {"price", advice.price}});
    for (const std::string& note : advice.notes) block.below.push_back({note});
    append_blocks({std::move(block)}, blocks);
    if (!advice.command.empty()) {
      append_blocks({{.title = "restart with", .copied = advice.command + "\n"}}, blocks);
    }
  }
  TextBlock notes;
  for (const std::string& note : report.notes) notes.lines.push_back({note, 0, 0});
  append_blocks({std::move(notes)}, blocks);
  return blocks_text(blocks, columns);
}

std::string report_line(const WatchReport& report) {
  std::string text = report.clock;
  const auto add = [&text](const std::string& words) { text += "  " + words; };
  if (report.window) {
    const EngineFigures& all = report.window->all;
    add("run " + count_of(all.number(ServerFigure::Running)));
    add("wait " + count_of(all.number(ServerFigure::Waiting)));
    if (const auto use = all.number(ServerFigure::CacheUse)) add("KV " + percent_text(*use, 0));
    constexpr std::pair<ServerFigure, const char*> kTimes[] = {{ServerFigure::Itl, "ITL"},
                                                               {ServerFigure::Ttft, "TTFT"}};
    for (const auto& [figure, name] : kTimes) {
      const auto half = quantile_band(all.histogram(figure), 0.5);
      const auto most = quantile_band(all.histogram(figure), 0.99);
      if (!half || !most) continue;
      add(fmt::format("{} p50 {} p99 {} ms", name, ms_text(half->estimate * kMsPerS),
                      ms_text(most->estimate * kMsPerS)));
    }
    if (const auto rate = report.window->rate(ServerFigure::OutputTokens)) {
      add("out " + grouped_text(*rate, 0) + " tok/s");
    }
  }
  if (report.log && !std::isnan(report.log->rate_during_prefill)) {
    add("in prefill " + rate_text(report.log->rate_during_prefill) + " tok/s");
  }
  for (const WatchedGoal& one : report.goals) {
    if (one.state == GoalState::Broken) add("BROKEN " + goal_words(one.goal));
  }
  for (const Cause& cause : report.causes) add(std::string(cause.name));
  return text;
}

}  // namespace metronome
