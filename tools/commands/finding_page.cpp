// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/finding_page.h"

#include <fmt/core.h>
#include <utility>

#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "tools/commands/diagnose_notes.h"

namespace metronome {
namespace {

TextBlock facts_block(const Finding& finding, std::string title) {
  TextBlock block = {.title = std::move(title)};
  const auto add = [&block](const std::string& words) {
    if (!words.empty()) block.lines.push_back({printable(words)});
  };
  for (const std::string& fact : finding.facts) add(fact);
  add(verdict(finding.diagnosis));
  if (finding.diagnosis.late) add(late_verdict(*finding.diagnosis.late));
  return block;
}

TextBlock causes_block(const Finding& finding) {
  TextBlock block = {.title = "causes"};
  for (const Cause& cause : finding.causes) {
    block.lines.push_back({std::string(cause.name) + ": " + cause.text, 2, 4});
  }
  return block;
}

TextBlock notes_block(const Finding& finding) {
  TextBlock block;
  for (const std::string& note : finding.notes) block.lines.push_back({note, 0, 0});
  return block;
}

// The question that the page answers.
std::string question_of(const Finding& finding) {
  const std::string name = printable(finding.title);
  if (!finding.what_if || finding.what_if->goals.empty()) {
    return "Why did tokens of " + name + " come late, and what would help?";
  }
  return "Why did tokens of " + name + " come late, and which change keeps " +
         goal_words(finding.what_if->goals) + "?";
}

// The flags of the advised change, and the way to check it on the server; empty: there is none.
std::vector<TextBlock> advice_blocks(const Finding& finding) {
  if (!finding.what_if || !finding.what_if->chosen) return {};
  const WhatIf& what_if = *finding.what_if;
  const std::vector<FlagChanges> all = chosen_flags(what_if);
  if (all.empty() || all.front().is_comparison || !all.front().refusal.empty()) return {};
  const FlagChanges& own = all.front();
  TextBlock flags = {.title = "flags of " + own.engine + ", to copy"};
  for (const std::string& flag : own.added) flags.copied += flag + "\n";
  for (const auto& [before, after] : own.changed) flags.copied += after + "\n";
  for (const std::string& flag : own.removed) flags.lines.push_back({"without " + flag});
  return {
      std::move(flags),
      {.title = "check on the server",
       .lines = {{"Serve the same load before and after the change, and keep both logs. "
                  "ADVICE.json is the output of this command with --json."}},
       .copied = "metronome verify --advice ADVICE.json --before BEFORE.log --after AFTER.log\n"}};
}

}  // namespace

std::string finding_text(const Finding& finding) {
  std::vector<TextBlock> blocks;
  append_blocks({facts_block(finding, printable(finding.title))}, blocks);
  append_blocks(diagnosis_blocks(finding.diagnosis), blocks);
  append_blocks({causes_block(finding), notes_block(finding)}, blocks);
  if (finding.what_if) append_blocks(what_if_blocks(*finding.what_if), blocks);
  return blocks_text(blocks, output_columns());
}

void FindingPage::add(const Finding& finding, const StoredRun* run) {
  if (title_.empty()) title_ = printable(finding.title);
  append_blocks({facts_block(finding, question_of(finding)), causes_block(finding)}, answer_);
  std::vector<TextBlock> changes;
  if (finding.what_if) changes = what_if_blocks(*finding.what_if);
  std::vector<TextBlock> advice = advice_blocks(finding);
  const auto behind_answer = changes.begin() + (changes.empty() ? 0 : 1);
  changes.insert(behind_answer, std::move_iterator(advice.begin()),
                 std::move_iterator(advice.end()));
  append_blocks(std::move(changes), answer_);
  append_blocks({notes_block(finding)}, answer_);
  append_blocks(diagnosis_blocks(finding.diagnosis), answer_);
  if (run == nullptr) return;
  has_runs_ = true;
  report_.add(ResultContent(run->result), [run]() -> const RunRecord& { return run->record; });
}

std::string FindingPage::html() {
  if (!has_runs_) return report_html({.title = title_, .answer = std::move(answer_)}, {});
  report_.add_answer(std::move(answer_));
  return report_.html();
}

}  // namespace metronome
