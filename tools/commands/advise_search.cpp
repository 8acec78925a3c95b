// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/advise_search.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_text.h"
#include "engines/log/log_dialect.h"
#include "study/rebuilt/log_scenario.h"
#include "study/watch/restart_command.h"
#include "tools/commands/diagnose_log.h"

namespace metronome {
namespace {

// The share of prompts in the gaps that are too long, where it is most of them.
void add_gap_cause(const Finding& finding, WatchReport& report) {
  constexpr double kMost = 0.5;
  const bool is_about_gaps =
      std::any_of(report.goals.begin(), report.goals.end(), [](const WatchedGoal& one) {
        const bool is_side = one.goal.side == GoalSide::Gap || one.goal.side == GoalSide::Rate;
        return is_side && one.state == GoalState::Broken;
      });
  if (!is_about_gaps) return;
  const std::vector<GapRow>& rows = finding.diagnosis.rows;
  const auto row = std::find_if(rows.rbegin(), rows.rend(),
                                [](const GapRow& one) { return one.sum.num_gaps > 0; });
  if (row == rows.rend() || row->name == "all") return;
  const GapParts& parts = row->sum.parts;
  const double share =
      static_cast<double>(parts.prefill_ns) / static_cast<double>(parts.total_ns());
  if (!(share >= kMost)) return;
  std::string text = fmt::format("{} gaps {}{}: {} of their time is prefill.",
                                 grouped_text(row->sum.num_gaps), row->name,
                                 row->limit_ms ? fmt::format(", {} ms", ms_text(*row->limit_ms))
                                               : std::string(),
                                 percent_text(share, 1));
  if (!finding.diagnosis.stalls.empty() && finding.diagnosis.stalls.front().worst) {
    const DiagnosedStall& stall = finding.diagnosis.stalls.front();
    text += fmt::format(" The longest, {} ms, is behind {} of prompts.",
                        ms_text(static_cast<double>(stall.gap_ns) / kNsPerMs),
                        count_text(stall.worst->num_tokens, "token"));
  }
  report.causes.push_back({"prefill", std::move(text), share});
}

RestartAdvice advice_of(const EngineLog& log, const WhatIf& what_if) {
  RestartAdvice advice;
  advice.conclusion = conclusion_text(what_if);
  if (!what_if.chosen) return advice;
  advice.price = price_text(what_if);
  const std::vector<FlagChanges> all = chosen_flags(what_if);
  const bool has_own = !all.empty() && !all.front().is_comparison && all.front().refusal.empty();
  if (!has_own) return advice;
  const FlagChanges& own = all.front();
  const auto add = [&advice](const std::string& flag) {
    advice.flags += (advice.flags.empty() ? "" : " ") + flag;
  };
  for (const auto& [before, after] : own.changed) add(after);
  for (const std::string& flag : own.added) add(flag);
  for (const std::string& flag : own.removed) add("(without " + flag + ")");
  for (const std::string& note : own.notes) advice.notes.push_back(note + ".");
  if (own.empty()) return advice;
  RestartCommand command = restart_command(log, own);
  advice.command = std::move(command.text);
  advice.notes.insert(advice.notes.end(), command.notes.begin(), command.notes.end());
  return advice;
}

}  // namespace

void add_cache(const WatchReport& report, EngineLog& log) {
  const ServerArguments& server = *log.dialect->server;
  if (!report.block_size || !report.num_blocks) return;
  const auto add = [&log](std::string_view name, std::int64_t value) {
    if (name.empty()) return;
    const auto [set, is_new] =
        log.settings.try_emplace(std::string(name), fmt::format("{}", value));
    if (is_new) log.chosen.insert(set->first);
  };
  add(server.block, *report.block_size);
  add(server.pool, *report.block_size * *report.num_blocks);
}

void search_advice(const EngineLog& log, const AdviceSearch& search, WatchReport& report) {
  DiagnoseOptions options;
  options.run = log.path;
  options.targets = search.goals;
  options.described.model = search.model;
  options.described.gpu = search.gpu;
  options.max_entries = 1;
  options.num_threads = search.num_threads;
  options.is_quiet = search.is_quiet;
  try {
    const Finding finding = examine_log(log, options);
    add_gap_cause(finding, report);
    add_causes(finding.causes, report.causes);
    if (finding.what_if) {
      report.advice = advice_of(log, *finding.what_if);
    } else {
      for (const std::string& note : finding.notes) {
        const bool is_reason =
            note.starts_with("Not replayed") || note.starts_with("The run keeps");
        if (is_reason) report.notes.push_back(note);
      }
    }
    JsonText json;
    append_finding(finding, json);
    report.finding_json = json.view();
  } catch (const UsageError& error) {
    report.notes.push_back(fmt::format("No advice: {}.", error.what()));
  } catch (const ConfigError& error) {
    report.notes.push_back(fmt::format("No advice: {}.", error.what()));
  }
}

}  // namespace metronome
