// SPDX-License-Identifier: Apache-2.0
// The result of a replay under other settings, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/text_block.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/metrics/figures.h"
#include "reports/terminal/text.h"
#include "study/what_if/sides.h"
#include "study/what_if/sureness.h"
#include "study/what_if/what_if.h"

namespace metronome {
namespace {

// "on h200", "with a.json", "on h200 with a.json".
std::string step_times_text(const WhatIf& what_if) {
  const Scenario& scenario = what_if.baseline.scenario;
  const std::string& file = scenario.cost_model.file;
  if (what_if.is_rebuilt && !file.empty()) return "with the log's step times";
  std::string text = scenario.hardware.empty() ? "" : "on " + scenario.hardware;
  if (!file.empty()) text += (text.empty() ? "with " : " with ") + file;
  return text;
}

// States what is compared with what, which shows how far the simulator can be trusted.
std::string trust_text(const WhatIf& what_if) {
  if (what_if.is_same_run) return "The simulator repeats the recorded run exactly.";
  const Distribution& was = what_if.recorded_itl;
  const Distribution& is = what_if.baseline.summary.itl;
  const std::string simulated = "Simulated " + step_times_text(what_if);
  const std::string figures =
      " an ITL p50 of " + ms_text(is.p50_ms) + " ms and a p99 of " + ms_text(is.p99_ms) + " ms; ";
  const std::string others = ms_text(was.p50_ms) + " and " + ms_text(was.p99_ms) + " ms. ";
  if (what_if.scenario.empty()) {
    return simulated + " with its own settings, the run has" + figures + "the record has " +
           others + "The closer these figures are, the more reliable the results below.";
  }
  if (what_if.is_rebuilt && was.count > 0) {
    return simulated + ", the log's requests have" + figures + "in the log they are " + others +
           "The closer these figures are, the more reliable the results below.";
  }
  if (what_if.is_rebuilt) {
    return simulated + ", the requests drawn to match the log have" + figures +
           "the log has no gaps to compare them with.";
  }
  if (was.count == 0) {
    return simulated + ", the requests of " + what_if.scenario + " have" + figures +
           "the log has no gaps to compare them with.";
  }
  return simulated + ", the requests of " + what_if.scenario + " have" + figures +
         "in the log they are " + others +
         "The results below are for the scenario's requests, not the log's. The closer these "
         "figures are, the more reliable the results.";
}

// The columns of the list.
std::vector<const Figure*> columns_of(const WhatIf& what_if) {
  std::vector<const Figure*> columns;
  const auto add = [&columns](std::string_view key) {
    const Figure* column = &figure(key);
    if (std::find(columns.begin(), columns.end(), column) == columns.end())
      columns.push_back(column);
  };
  for (const std::string_view key : figures_of(FigureList::WhatIf)) {
    const double now = figure(key).value(what_if.baseline.summary, {}).as_number();
    if (key == "num_preemptions" && now == 0) continue;
    if (key == "decode_rate_during_prefill" && std::isnan(now)) continue;
    add(key);
  }
  for (const Goal& goal : what_if.goals) add(goal.figure);
  return columns;
}

double column_value(const Figure& column, const Trial& trial) {
  const Scenario& scenario = trial.scenario;
  return column
      .value(trial.summary,
             {.num_gpus = static_cast<double>(scenario.cost_model.tensor_parallel_size),
              .price_per_gpu_hour = scenario.price_per_gpu_hour})
      .as_number();
}

TextTable table_of(const WhatIf& what_if, std::span<const Trial* const> trials) {
  const std::vector<const Figure*> columns = columns_of(what_if);
  std::vector<std::string> header;
  for (const Figure* column : columns) header.push_back(column_title(*column));
  const bool has_reach = !what_if.out_of_reach.empty();
  if (has_reach) header.emplace_back("in reach ms");
  header.emplace_back(" settings");  // behind the mark
  const std::size_t last = header.size() - 1;
  TextTable table(std::move(header), last);
  const auto row = [&](const Trial& trial, const std::string& name, const char* mark) {
    std::vector<std::string> cells;
    for (const Figure* column : columns) {
      cells.push_back(value_text(*column, column_value(*column, trial)));
    }
    if (has_reach) cells.push_back(ms_text(trial.reachable_ttft_ms));
    cells.push_back(mark + name + (trial.counts() ? "" : " (" + trial.loss_text + ")"));
    table.row(std::move(cells));
  };
  row(what_if.baseline, "unchanged", " ");
  for (const Trial* trial : trials) {
    const bool is_marked = trial->keeps_all && !what_if.goals.empty();
    row(*trial, joined(trial->changes), is_marked ? "*" : " ");
  }
  return table;
}

TextTable trials_table(const WhatIf& what_if) {
  std::vector<const Trial*> trials;
  for (const Trial& trial : what_if.trials) trials.push_back(&trial);
  return table_of(what_if, trials);
}

void append_flag_lines(const FlagChanges& flags, std::vector<TextLine>& lines) {
  std::string engine = flags.is_comparison ? "for comparison, " + flags.engine : flags.engine;
  if (!flags.refusal.empty()) {
    lines.push_back({engine + ": no flags, as " + flags.refusal});
    return;
  }
  lines.push_back({engine + (flags.empty() ? ": no flag changes" : "")});
  constexpr std::size_t kIndent = 4;
  const auto line = [&](const std::string& verb, const std::string& what) {
    lines.push_back({verb + what, kIndent, kIndent + verb.size()});
  };
  for (const std::string& flag : flags.added) line("add ", flag);
  for (const auto& [before, after] : flags.changed) line("change ", before + " to " + after);
  for (const std::string& flag : flags.removed) line("remove ", flag);
  for (const std::string& note : flags.notes) line("", note + ".");
}

TextBlock flags_block(const WhatIf& what_if) {
  TextBlock block = {.title = "flag changes from the current settings"};
  for (const FlagChanges& flags : chosen_flags(what_if)) {
    if (!what_if.engine.empty() && flags.engine != what_if.engine) continue;
    append_flag_lines(flags, block.lines);
  }
  return block;
}

// The limits that no change keeps, and the change that would if it counted.
std::string none_keeps(const WhatIf& what_if) {
  const std::optional<Trial>& ruled_out = what_if.ruled_out;
  std::string text = std::string("No tried change") + (ruled_out ? " that counts" : "") +
                     " keeps " + goal_words(what_if.goals) + ". ";
  if (!ruled_out) return text;
  return text + "With " + joined(ruled_out->changes) + " it does, but " + ruled_out->loss_text +
         ". ";
}

// The replay nearest to the limits, which is not advised; empty: there is none.
std::string nearest_text(const WhatIf& what_if) {
  if (!what_if.nearest) return {};
  const Trial& nearest = *what_if.nearest;
  const std::string flags = own_flags_text(nearest, what_if);
  return "The nearest change is not advised: " + joined(nearest.changes) +
         (flags.empty() ? std::string() : " (" + flags + ")") + ", with " +
         sides_text(nearest, what_if) + ": " + nearest.loss_text + ". ";
}

std::string smallest_text(const WhatIf& what_if, const Trial& chosen) {
  std::string text = joined(chosen.changes);
  if (!what_if.next_failing) return text;
  const bool is_plain =
      what_if.failing_text == "it does not" || what_if.failing_text == "it is refused";
  const std::optional<SizeRange> range = evidence_range(what_if);
  return fmt::format(
      "{} (with {}{}{}{})", text, *what_if.next_failing, is_plain ? " " : ", ",
      what_if.failing_text,
      range
          ? fmt::format("; steps with prompts are known to {} %, so the limit is between {} and {}",
                        fixed_text(100 * what_if.step_error, 0), range->least, range->most)
          : "");
}

std::string conclusion(const WhatIf& what_if) {
  const std::string goals = goal_words(what_if.goals);
  if (what_if.goals.empty()) {
    return what_if.front.empty()
               ? "There is no limit to keep. No tried change is better on one side without making "
                 "another one more than twice as bad, or the throughput more than a tenth lower."
               : "There is no limit to keep (--target-itl, --target-ttft, --target-rate, or the "
                 "scenario's slo). These changes are better on one side; none makes the longest "
                 "gap, p99 ITL or p99 TTFT more than twice as long, or the throughput more than a "
                 "tenth lower:";
  }
  if (what_if.is_kept()) {
    const std::string kept = "In the simulation the run keeps " + goals;
    return what_if.is_same_run ? kept + "." : kept + "; no changes were tried.";
  }
  const std::string none = none_keeps(what_if) + nearest_text(what_if);
  if (!what_if.chosen) return none + "No other change comes nearer to the limits than the run.";
  const Trial& chosen = what_if.trials[*what_if.chosen];
  if (chosen.keeps_all && chosen.counts()) {
    return "The smallest change that keeps " + goals + ": " + smallest_text(what_if, chosen);
  }
  return none +
         (what_if.nearest ? "The nearest change that breaks nothing which the run keeps: "
                          : "The nearest change: ") +
         joined(chosen.changes) + ", with " + sides_text(chosen, what_if);
}

// Requests that no schedule serves within the limit.
std::string out_of_reach_text(const WhatIf& what_if) {
  const std::vector<std::size_t>& requests = what_if.out_of_reach;
  if (requests.empty()) return {};
  std::string who = requests.size() == 1 ? fmt::format("Request {}", requests.front())
                                         : count_text(requests.size(), "request");
  return who + (requests.size() == 1 ? " has a prompt whose" : " have prompts whose") +
         " own computation takes longer than the limit for first tokens: no schedule keeps it. The "
         "limit is for the others; " +
         (requests.size() == 1 ? "its" : "their") +
         " first tokens may come at most twice as late as in the run. The column 'in reach' has "
         "the p99 "
         "TTFT of the others.";
}

// Prefixes that were computed again, and the cache that would keep them.
std::string misses_text(const WhatIf& what_if) {
  if (!what_if.misses) return {};
  const PrefixMisses& misses = *what_if.misses;
  std::string text;
  const auto part = [&](std::int64_t num_tokens, double ms, const std::string& why) {
    constexpr double kMany = 0.02;  // of own prefills
    if (num_tokens <= 0 || ms < kMany * misses.own_prefill_ms) return;
    text += (text.empty() ? "Of the own prefill before first tokens, " : "; ") +
            fixed_text(100 * ms / misses.own_prefill_ms, 1) + " % computed " +
            count_text(num_tokens, "token") + " again " + why;
  };
  part(misses.possible_tokens - misses.hit_tokens, misses.evicted_ms, "that were evicted");
  part(misses.cut_tokens, misses.cut_ms,
       fmt::format("that share no whole block of {} tokens", misses.block_tokens));
  if (!text.empty()) text += ". The rest was never seen before. ";
  if (misses.working_set == 0) return text;
  return text + "The prefix cache is too small: " + count_text(misses.hit_tokens, "prompt token") +
         " were found in it, and " + grouped_text(misses.possible_tokens) +
         " would be in one that forgets nothing. The working set is about " +
         grouped_text(misses.working_set) + " KV blocks (" +
         grouped_text(misses.working_set * misses.block_tokens) + " tokens); the cache has " +
         grouped_text(what_if.cache.num_blocks) + ".";
}

// The effect of each tried number of KV blocks, by its own replay; empty: none was tried alone.
std::string kv_blocks_text(const WhatIf& what_if) {
  std::string text;
  for (const Trial& trial : what_if.trials) {
    if (trial.changes.size() != 1 || trial.changes[0].key != "kv_cache.num_blocks") continue;
    const std::int64_t preemptions = trial.summary.num_preemptions;
    if (what_if.baseline.summary.num_preemptions == 0) continue;
    text += trial.changes[0].text() +
            (preemptions == 0 ? " ends preemption"
                              : " leaves " + grouped_text(preemptions) +
                                    (preemptions == 1 ? " preemption" : " preemptions")) +
            (trial.scenario.kv_cache.num_blocks == what_if.cache.most_blocks
                 ? ", with all that " + fixed_text(100 * what_if.cache.most_share, 0) +
                       " % of the memory holds. "
                 : ". ");
  }
  return text;
}

// The common settings of the replays, and how to read the table.
std::string legend_text(const WhatIf& what_if) {
  std::string text = "tried in " + grouped_text(what_if.num_replays) +
                     " replays. Each row has the tried value nearest to the current one that keeps "
                     "the goal (*), or else the best one. For the smallest change, values between "
                     "two tried ones were tried, too. ";
  text += kv_blocks_text(what_if);
  const auto is_out = [](const Trial& trial) { return !trial.counts(); };
  if (std::any_of(what_if.trials.begin(), what_if.trials.end(), is_out)) {
    text += "Changes with a reason in parentheses do not count. ";
  }
  const auto has_policy = [](const Trial& trial) { return is_other_policy(trial.changes); };
  if (std::any_of(what_if.trials.begin(), what_if.trials.end(), has_policy)) {
    text += "Other policies run with the host times, CUDA graphs and server limits of this run. ";
  }
  for (const Setting& fixed : what_if.fixed) {
    if (fixed.key == "kv_cache.num_blocks") text += "Every replay has " + fixed.text() + ". ";
  }
  text.pop_back();
  return text;
}

// "TTFT p50 54.6 -> 73.0 ms".
std::string change_text(const char* name, double before, double after, const char* unit) {
  return std::string(name) + " " + ms_text(before) + " -> " + ms_text(after) + unit;
}

// "+0.2", "0.0", "-1.5".
std::string change_percent(double percent) {
  const std::string text = fixed_text(std::abs(percent), 1);
  if (text == "0.0") return text;
  return (percent > 0 ? "+" : "-") + text;
}

std::string cost_text(const WhatIf& what_if, const Trial& chosen) {
  const Summary& before = what_if.baseline.summary;
  const Summary& after = chosen.summary;
  const double percent = 100 * (after.output_throughput / before.output_throughput - 1);
  const Figure& rate = figure("decode_rate_during_prefill");
  const double rate_before = before.rates.during_prefill;
  std::string text = (what_if.out_of_reach.empty()
                          ? std::string()
                          : change_text("p99 TTFT in reach", what_if.baseline.reachable_ttft_ms,
                                        chosen.reachable_ttft_ms, " ms; ")) +
                     change_text("ITL p99", before.itl.p99_ms, after.itl.p99_ms, " ms, ") +
                     change_text("longest stall", before.itl.max_ms, after.itl.max_ms, " ms; ") +
                     change_text("TTFT p50", before.ttft.p50_ms, after.ttft.p50_ms, " ms, ") +
                     change_text("p99", before.ttft.p99_ms, after.ttft.p99_ms, " ms; ");
  if (!std::isnan(rate_before)) {
    text += "answers during prefill " + value_text(rate, rate_before) + " -> " +
            value_text(rate, after.rates.during_prefill) + " tok/s, ";
  }
  if (before.drafts) text += change_text("TPOT", before.tpot.mean_ms, after.tpot.mean_ms, " ms, ");
  text += change_text("output tokens/s", before.output_throughput, after.output_throughput, " (") +
          change_percent(percent) + " %)";
  if (const auto price = what_if.baseline.scenario.price_per_gpu_hour) {
    const Figure& cost = figure("cost_per_million_output_tokens");
    text += ", " + change_text("per million", column_value(cost, what_if.baseline),
                               column_value(cost, chosen), "");
  }
  return text;
}

// The points between which one chooses, each with its price and its flags.
TextBlock front_block(const WhatIf& what_if) {
  std::vector<const Trial*> points;
  for (const std::size_t i : what_if.front) points.push_back(&what_if.trials[i]);
  if (points.empty()) return {};
  const ShownFigure& gap = figure(what_if.front_gap).shown;
  TextBlock block = {.title = "front of " + (gap.words.empty() ? gap.name : gap.words) +
                              " and p99 TTFT: points that spend nothing that was not given",
                     .table = table_of(what_if, points)};
  for (const Trial* point : points) {
    const std::string flags = own_flags_text(*point, what_if);
    if (!flags.empty()) block.below.push_back({joined(point->changes) + ": " + flags, 2, 4});
  }
  return block;
}

void append_texts(const char* key, const std::vector<std::string>& texts, JsonText& json) {
  json.key(key).begin_array();
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

void append_settings(const char* key, const std::vector<Setting>& settings, JsonText& json) {
  json.key(key).begin_array();
  for (const Setting& setting : settings) json.value(setting.text());
  json.end_array();
}

void append_text(const char* key, const std::string& text, JsonText& json) {
  json.key(key);
  text.empty() ? json.null() : json.value(text);
}

void append_trial(const Trial& trial, JsonText& json) {
  json.begin_object();
  append_settings("set", trial.changes, json);
  append_settings("replayed_with", trial.settings, json);
  const Summary& summary = trial.summary;
  json.field("p50_itl_ms", summary.itl.p50_ms);
  json.field("p99_itl_ms", summary.itl.p99_ms);
  json.field("max_itl_ms", summary.itl.max_ms);
  json.field("p50_ttft_ms", summary.ttft.p50_ms);
  json.field("p99_ttft_ms", summary.ttft.p99_ms);
  json.field("output_throughput", summary.output_throughput);
  json.field("request_throughput", summary.request_throughput);
  json.field("completed", summary.completed);
  json.field("preemptions", summary.num_preemptions);
  json.field("mean_tpot_ms", summary.tpot.mean_ms);
  json.field("decode_rate_during_prefill", summary.rates.during_prefill);
  json.field("slowest_10s_output_throughput", summary.rates.slowest_10s);
  json.field("reachable_p99_ttft_ms", trial.reachable_ttft_ms);
  json.field("prefix_hit_tokens", trial.num_prefix_hit_tokens);
  json.field("keeps_goal", trial.keeps_all);
  json.field("excess", trial.excess);
  json.field("counts", trial.counts());
  append_text("does_not_count_because", trial.loss_text, json);
  json.end_object();
}

void append_flags(const WhatIf& what_if, JsonText& json) {
  json.begin_array();
  for (const FlagChanges& flags : chosen_flags(what_if)) {
    if (!what_if.engine.empty() && flags.engine != what_if.engine) continue;
    json.begin_object();
    json.field("engine", flags.engine);
    json.field("version", flags.version);
    json.field("is_comparison", flags.is_comparison);
    append_text("refused_because", flags.refusal, json);
    append_texts("add", flags.added, json);
    json.key("change").begin_array();
    for (const auto& [before, after] : flags.changed) {
      json.begin_object();
      json.field("from", before);
      json.field("to", after);
      json.end_object();
    }
    json.end_array();
    append_texts("remove", flags.removed, json);
    append_texts("notes", flags.notes, json);
    json.end_object();
  }
  json.end_array();
}

void append_if_there(const char* key, const std::optional<Trial>& trial, JsonText& json) {
  json.key(std::string_view(key));
  if (trial) {
    append_trial(*trial, json);
  } else {
    json.null();
  }
}

void append_goals(const WhatIf& what_if, JsonText& json) {
  json.key("goal").begin_array();
  for (const Side& side : what_if.sides) {
    if (side.is_guard) continue;
    json.begin_object();
    json.field("key", side.goal.key);
    json.field("figure", side.goal.figure);
    json.key(std::string_view(side.goal.is_least ? "at_least" : "at_most")).value(side.goal.limit);
    append_text("class", side.goal.class_name, json);
    json.field("words", goal_words(side.goal));
    json.field("run_has", side.before);
    json.end_object();
  }
  json.end_array();
}

void append_misses(const WhatIf& what_if, JsonText& json) {
  json.key("prefix_cache");
  if (!what_if.misses) {
    json.null();
    return;
  }
  json.begin_object();
  json.field("hit_tokens", what_if.misses->hit_tokens);
  json.field("possible_tokens", what_if.misses->possible_tokens);
  json.field("cut_tokens", what_if.misses->cut_tokens);
  json.field("own_prefill_ms", what_if.misses->own_prefill_ms);
  json.field("evicted_ms", what_if.misses->evicted_ms);
  json.field("cut_ms", what_if.misses->cut_ms);
  json.key("working_set_blocks");
  if (what_if.misses->working_set == 0) {
    json.null();
  } else {
    json.value(what_if.misses->working_set);
  }
  json.end_object();
}

void append_range(const std::optional<SizeRange>& range, JsonText& json) {
  json.key("limit_between");
  if (!range) return json.null();
  json.begin_array();
  json.value(range->least);
  json.value(range->most);
  json.end_array();
}

}  // namespace

std::string conclusion_text(const WhatIf& what_if) {
  return what_if.obstacle.empty() ? conclusion(what_if) : "Not replayed: " + what_if.obstacle + ".";
}

std::string price_text(const WhatIf& what_if) {
  return cost_text(what_if, what_if.trials[*what_if.chosen]);
}

std::vector<TextBlock> what_if_blocks(const WhatIf& what_if) {
  const std::string whose = what_if.is_rebuilt         ? "the log's"
                            : what_if.scenario.empty() ? "the same"
                                                       : "the scenario's";
  TextBlock answer = {.title = "what if: " + whose + " requests with other settings, simulated"};
  const auto say = [&answer](const std::string& words) {
    if (!words.empty()) answer.lines.push_back({words});
  };
  if (!what_if.obstacle.empty()) {
    say("Not replayed: " + what_if.obstacle + ".");
    return {answer};
  }
  say(trust_text(what_if));
  for (const std::string& note : what_if.notes) say(note);
  say(misses_text(what_if));
  say(out_of_reach_text(what_if));
  say(conclusion(what_if));
  std::vector<TextBlock> blocks;
  if (!what_if.chosen) {
    append_blocks({answer, sureness_block(what_if), front_block(what_if)}, blocks);
    // For a log the figures of its own settings are news.
    const bool shows_figures = !what_if.trials.empty() || !what_if.scenario.empty();
    if (shows_figures) blocks.push_back({.table = trials_table(what_if)});
    return blocks;
  }
  say(cost_text(what_if, what_if.trials[*what_if.chosen]));
  append_blocks({answer,
                 flags_block(what_if),
                 sureness_block(what_if),
                 front_block(what_if),
                 {.lines = {{legend_text(what_if), 0, 0}}, .table = trials_table(what_if)}},
                blocks);
  return blocks;
}

std::string what_if_text(const WhatIf& what_if, std::size_t columns) {
  return blocks_text(what_if_blocks(what_if), columns);
}

void append_what_if(const WhatIf& what_if, JsonText& json) {
  json.begin_object();
  json.key("obstacle");
  if (!what_if.obstacle.empty()) {
    json.value(what_if.obstacle);
    json.end_object();
    return;
  }
  json.null();
  json.field("repeats_the_run", what_if.is_same_run);
  json.key("scenario");
  if (what_if.scenario.empty()) {
    json.null();
  } else {
    json.value(what_if.scenario);
  }
  json.field("recorded_p50_itl_ms", what_if.recorded_itl.p50_ms);
  json.field("recorded_p99_itl_ms", what_if.recorded_itl.p99_ms);
  json.field("replays", what_if.num_replays);
  append_goals(what_if, json);
  json.key("out_of_reach").begin_array();
  for (const std::size_t request : what_if.out_of_reach) {
    json.value(static_cast<std::int64_t>(request));
  }
  json.end_array();
  append_misses(what_if, json);
  json.key("baseline");
  append_trial(what_if.baseline, json);
  json.key("change");
  if (what_if.chosen) {
    append_trial(what_if.trials[*what_if.chosen], json);
  } else {
    json.null();
  }
  json.key("front").begin_array();
  for (const std::size_t i : what_if.front) {
    append_trial(what_if.trials[i], json);
  }
  json.end_array();
  append_text("front_gap", what_if.front_gap, json);
  json.key("next_failing");
  if (what_if.next_failing) {
    json.value(*what_if.next_failing);
  } else {
    json.null();
  }
  append_range(evidence_range(what_if), json);
  append_sureness(what_if, json);
  append_text("next_failing_because", what_if.failing_text, json);
  append_if_there("ruled_out", what_if.ruled_out, json);
  append_if_there("nearest", what_if.nearest, json);
  json.key("flags");
  if (what_if.chosen) {
    append_flags(what_if, json);
  } else {
    json.null();
  }
  json.key("tried").begin_array();
  for (const Trial& trial : what_if.trials) append_trial(trial, json);
  json.end_array();
  append_texts("notes", what_if.notes, json);
  append_settings("fixed", what_if.fixed, json);
  json.end_object();
}

}  // namespace metronome
