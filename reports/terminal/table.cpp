// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/table.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/goals.h"
#include "core/metrics/steadiness.h"
#include "reports/terminal/fleet_text.h"

namespace metronome {
namespace {

constexpr std::size_t kLineWidth = 80;
constexpr std::size_t kMinCellWidth = 10;
constexpr std::size_t kMinNameWidth = 12;  // titles of blocks are shorter
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[1;32m";
constexpr std::string_view kPlain = "\x1b[0m";

struct Cell {
  double value;  // NaN prints as "-"
  int decimals;
  bool is_band = false;  // an end of the noise band of the figure above; never the best
};

struct TableColumn {
  std::string_view title;
  Better better = Better::Neither;
  std::vector<Cell> cells = {};  // one per row
  std::size_t longest = 0;       // of p99 ITLs: the column with the longest gaps; 0: others
};

class TableText {
 public:
  TableText(std::vector<std::string> names, bool marks_best, const TableOptions& options)
      : names_(std::move(names)), marks_best_(marks_best), options_(options) {
    for (const std::string& name : names_) {
      name_width_ = std::max(name_width_, name.size() + 1);
    }
  }

  void block(std::string_view title, const std::vector<TableColumn>& columns) {
    rows(title, names_, columns);
  }
  // A block whose rows need not be runs.
  void rows(std::string_view title, const std::vector<std::string>& row_names,
            const std::vector<TableColumn>& columns) {
    if (!text_.empty()) text_ += '\n';
    std::string header = left(title);
    std::vector<std::size_t> widths;
    std::vector<std::vector<char>> best;
    for (const TableColumn& column : columns) {
      widths.push_back(width_of(column));
      best.push_back(best_cells(columns, best.size()));
      header += right(column.title, widths.back() - 1) + ' ';
    }
    paint(trimmed(std::move(header)), kBold);
    text_ += '\n';
    for (std::size_t row = 0; row < row_names.size(); ++row) {
      text_ += left(row_names[row]);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        cell(right(cell_text(columns[c], row), widths[c] - 1), marks_best_ && best[c][row] != 0,
             c + 1 == columns.size());
      }
      text_ += '\n';
    }
  }
  // The rows from here on have room for the name.
  void make_room(const std::string& name) { name_width_ = std::max(name_width_, name.size() + 1); }
  void sentence(std::string_view name, std::string_view words) {
    text_ += left(name);
    text_ += wrapped(std::string(words), name_width_, std::max(kLineWidth, 2 * name_width_));
  }
  void heading(std::string_view words) {
    text_ += '\n';
    paint(words, kBold);
    text_ += '\n';
  }
  void line(std::string_view words) { text_ += wrapped(std::string(words), 0, kLineWidth); }
  std::string take() { return std::move(text_); }

 private:
  static std::string right(std::string_view words, std::size_t width) {
    std::string padded(words.size() < width ? width - words.size() : 0, ' ');
    return padded.append(words);
  }
  std::string left(std::string_view words) const {
    std::string padded(words);
    if (padded.size() < name_width_) padded.resize(name_width_, ' ');
    return padded;
  }
  static std::string trimmed(std::string words) {
    words.erase(words.find_last_not_of(' ') + 1);
    return words;
  }
  // Space for the title, the widest cell, and the separators and marks.
  static std::size_t width_of(const TableColumn& column) {
    std::size_t width = std::max(kMinCellWidth, column.title.size() + 2);
    for (std::size_t row = 0; row < column.cells.size(); ++row) {
      width = std::max(width, cell_text(column, row).size() + 2);
    }
    return width;
  }
  static std::string cell_text(const TableColumn& column, std::size_t row) {
    return grouped_text(column.cells[row].value, column.cells[row].decimals);
  }

  // The best cells of a column, as `sweep` and the report mark them.
  static std::vector<char> best_cells(const std::vector<TableColumn>& columns, std::size_t c) {
    const TableColumn& column = columns[c];
    std::vector<char> best(column.cells.size(), 0);
    if (column.better == Better::Neither) return best;
    std::vector<std::size_t> rows;
    std::vector<double> figures;
    std::vector<double> longest;
    for (std::size_t row = 0; row < column.cells.size(); ++row) {
      if (!std::isfinite(column.cells[row].value) || column.cells[row].is_band) continue;
      rows.push_back(row);
      figures.push_back(column.cells[row].value);
      if (column.longest != 0) longest.push_back(columns[column.longest].cells[row].value);
    }
    const std::vector<char> marked = column.longest != 0
                                         ? marked_p99_itls(figures, longest)
                                         : marked_leaders(figures, column.better == Better::Higher);
    for (std::size_t i = 0; i < rows.size(); ++i) best[rows[i]] = marked[i];
    return best;
  }

  void cell(const std::string& padded, bool is_best, bool is_last) {
    if (is_best) {
      const std::size_t start = padded.find_first_not_of(' ');
      text_.append(start, ' ');
      paint(padded.substr(start) + '*', kGreen);
    } else {
      text_ += padded;
      if (!is_last) text_ += ' ';
    }
  }
  void paint(std::string_view words, std::string_view color) {
    if (options_.use_color) text_ += color;
    text_ += words;
    if (options_.use_color) text_ += kPlain;
  }

  std::vector<std::string> names_;
  bool marks_best_;
  TableOptions options_;
  std::size_t name_width_ = kMinNameWidth;
  std::string text_;
};

// Adds the minimum and maximum under noise below a figure.
void add_band(const RunResult& result, const std::string& key, double scale, TableColumn& column) {
  if (result.bands.num_seeds == 0) return;
  const FigureBand* band = result.bands.find(key);
  const int decimals = column.cells.back().decimals;
  for (const auto end : {&FigureBand::low, &FigureBand::high}) {
    const double value = band == nullptr ? std::nan("") : scale * (band->*end);
    column.cells.push_back({value, decimals, true});
  }
}

// Adds `name` and the row names of its bands.
void add_row_names(const RunResult& result, const std::string& name,
                   std::vector<std::string>& names) {
  names.push_back(name);
  if (result.bands.num_seeds > 0) names.insert(names.end(), {"  lowest", "  highest"});
}

std::vector<std::string> banded_names(std::span<const RunResult> results) {
  std::vector<std::string> names;
  for (const RunResult& result : results) add_row_names(result, result.info.label, names);
  return names;
}

// Enough decimals to distinguish values, but few enough to read.
int decimals_for(double largest) { return largest >= 100'000 ? 0 : largest >= 100 ? 1 : 2; }

double value_of(const Figure& figure, const RunResult& result) {
  return figure.value(result.summary, result.info.facts()).as_number();
}

// The figures of a row of latencies: "p99_ttft_ms".
const Figure& latency(const LatencyRow& row, std::string_view statistic) {
  return figure(std::string(statistic) + "_" + std::string(row.name) + "_ms");
}

std::vector<TableColumn> columns_of_latencies() {
  std::vector<TableColumn> columns;
  for (const std::string_view name : latency_columns()) columns.push_back({name, Better::Lower});
  return columns;
}

// Adds the row of one distribution of a run, and the rows of its bands.
void add_latency_row(const RunResult& result, const LatencyRow& row, int decimals,
                     std::vector<TableColumn>& columns) {
  for (TableColumn& column : columns) {
    const Figure& figure = latency(row, column.title);
    column.cells.push_back({value_of(figure, result), decimals});
    add_band(result, figure.key, 1, column);
  }
}

double largest_of(std::span<const RunResult> results, const LatencyRow& row) {
  double largest = 0;
  for (const RunResult& result : results) {
    largest = std::fmax(largest, value_of(latency(row, "max"), result));
  }
  return largest;
}

void add_latencies(std::span<const RunResult> results, TableText& table) {
  if (results.size() == 1) {
    std::vector<std::string> names;
    std::vector<TableColumn> columns = columns_of_latencies();
    for (const LatencyRow& row : latency_rows()) {
      add_row_names(results[0], std::string(row.title), names);
      add_latency_row(results[0], row, decimals_for(largest_of(results, row)), columns);
    }
    table.rows("latency, ms", names, columns);
    return;
  }
  const std::vector<std::string> names = banded_names(results);
  for (const LatencyRow& row : latency_rows()) {
    std::vector<TableColumn> columns = columns_of_latencies();
    if (row.name == "itl") columns[3].longest = 4;
    const int decimals = decimals_for(largest_of(results, row));
    for (const RunResult& result : results) add_latency_row(result, row, decimals, columns);
    table.rows(std::string(row.title) + ", ms", names, columns);
  }
}

bool is_known(const RunResult& result, std::string_view key) {
  return !std::isnan(value_of(figure(key), result));
}

// The block's figures that a run has.
std::vector<const Figure*> shown_figures(std::span<const RunResult> results,
                                         const FigureBlock& block) {
  std::vector<const Figure*> shown;
  for (const std::string_view key : block.keys) {
    const Figure& one = figure(key);
    const bool is_there = std::any_of(results.begin(), results.end(), [&](const RunResult& result) {
      const FigureValue value = one.value(result.summary, result.info.facts());
      const bool is_hidden = one.hides_zero && !(value.as_number() > 0);
      return value.kind != FigureValue::Kind::Absent && !is_hidden &&
             (value.kind != FigureValue::Kind::Null || !one.has_band);
    });
    if (is_there) shown.push_back(&one);
  }
  return shown;
}

// A statistic of a distribution has the distribution's name outside of its own block.
std::string_view title_in(const FigureBlock& block, const Figure& figure) {
  const bool is_elsewhere = !figure.distribution.empty() && figure.shown.block != block.title;
  return is_elsewhere ? figure.name_elsewhere() : figure.shown.name;
}

void add_block(std::span<const RunResult> results, const FigureBlock& block, TableText& table) {
  const auto has_it = [&block](const RunResult& result) { return is_known(result, block.needs); };
  const bool is_shown = block.needs.empty() ||
                        (block.needs_all ? std::all_of(results.begin(), results.end(), has_it)
                                         : std::any_of(results.begin(), results.end(), has_it));
  if (!is_shown) return;
  const std::vector<const Figure*> figures = shown_figures(results, block);
  double largest = 0;
  for (const Figure* one : figures) {
    for (const RunResult& result : results) {
      largest = std::fmax(largest, value_of(*one, result));
    }
  }
  bool has_bands = false;
  std::vector<TableColumn> columns;
  for (const Figure* one : figures) {
    has_bands = has_bands || one->has_band;
    TableColumn& column = columns.emplace_back(
        TableColumn{.title = title_in(block, *one), .better = one->shown.better});
    const int decimals =
        one->shown.decimals == kByLargest ? decimals_for(largest) : one->shown.decimals;
    for (const RunResult& result : results) {
      column.cells.push_back({one->shown.scale * value_of(*one, result), decimals});
      if (one->has_band) add_band(result, one->key, one->shown.scale, column);
    }
  }
  if (has_bands) {
    table.rows(block.title, banded_names(results), columns);
  } else {
    table.block(block.title, columns);
  }
}

// Tables of the groups of each run, by class or by priority.
void add_groups(std::span<const RunResult> results, const std::string& title,
                std::vector<GroupSummary> Summary::*groups, TableText& table) {
  for (const RunResult& result : results) {
    const std::vector<GroupSummary>& shown = result.summary.*groups;
    if (shown.empty()) continue;
    std::vector<std::string> names;
    std::vector<TableColumn> columns = {{"requests"}, {"TTFT p50"}, {"p99"},
                                        {"TPOT p50"}, {"in SLO %"}, {"goodput/s"}};
    for (const GroupSummary& group : shown) {
      names.push_back(printable(group.name));
      table.make_room(names.back());
      const double kNone = std::nan("");
      const double attainment = group.slo_attainment ? 100 * *group.slo_attainment : kNone;
      const Cell cells[] = {{static_cast<double>(group.num_requests), 0},
                            {group.ttft.p50_ms, 1},
                            {group.ttft.p99_ms, 1},
                            {group.tpot.p50_ms, 2},
                            {attainment, 1},
                            {group.request_goodput.value_or(kNone), 3}};
      for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
    }
    const std::string label = results.size() > 1 ? printable(result.info.label) + ", " : "";
    table.heading(label + title);
    table.rows("", names, columns);
  }
}

// The replicas to show: all, or of many the busiest and the idlest.
std::vector<std::size_t> shown_replicas(const std::vector<ReplicaSummary>& replicas) {
  constexpr std::size_t kMost = 64;
  constexpr std::size_t kOfEach = 8;
  std::vector<std::size_t> shown(replicas.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (replicas.size() <= kMost) return shown;
  std::stable_sort(shown.begin(), shown.end(), [&replicas](std::size_t a, std::size_t b) {
    return replicas[a].busy_share > replicas[b].busy_share;
  });
  shown.erase(shown.begin() + kOfEach, shown.end() - kOfEach);
  return shown;
}

void add_replicas(std::span<const RunResult> results, TableText& table) {
  for (const RunResult& result : results) {
    const std::vector<ReplicaSummary>& replicas = result.summary.replicas;
    if (replicas.empty()) continue;
    std::vector<std::string> names;
    std::vector<TableColumn> columns = {{"requests"}, {"out tokens"}, {"busy %"}, {"KV %"},
                                        {"hits %"},   {"TTFT p99"},   {"ITL p99"}};
    for (const std::size_t r : shown_replicas(replicas)) {
      const ReplicaSummary& replica = replicas[r];
      names.push_back(replica.requests.name);
      table.make_room(names.back());
      const Cell cells[] = {{static_cast<double>(replica.requests.num_requests), 0},
                            {static_cast<double>(replica.total_output_tokens), 0},
                            {100 * replica.busy_share, 1},
                            {100 * replica.mean_kv_use, 1},
                            {100 * replica.prefix_hit_rate, 1},
                            {replica.requests.ttft.p99_ms, 1},
                            {replica.itl.p99_ms, 2}};
      for (std::size_t c = 0; c < columns.size(); ++c) columns[c].cells.push_back(cells[c]);
    }
    const std::string label = results.size() > 1 ? printable(result.info.label) + ", " : "";
    const std::string left_out =
        names.size() < replicas.size()
            ? fmt::format(": the busiest and the idlest of {}", replicas.size())
            : std::string();
    table.heading(label + "by replica, ms" + left_out);
    table.rows("", names, columns);
    const std::vector<std::string> lines = fleet_event_lines(result.summary.fleet_events);
    if (lines.empty()) continue;
    table.heading(label + "replicas that failed, came or went");
    for (const std::string& line : lines) table.line(line);
  }
}

void add_stalls(std::span<const RunResult> results, TableText& table) {
  table.heading("longest stall");
  for (const RunResult& result : results) {
    table.sentence(result.info.label, describe_stall(result.summary.longest_stall));
  }
}

std::string slo_text(const SloConfig& slo) {
  std::string text;
  const auto limit = [&](std::string_view name, const std::optional<double>& ms) {
    if (!ms) return;
    text += text.empty() ? "SLO: " : ", ";
    text += std::string(name) + " <= " + grouped_text(*ms, *ms == std::floor(*ms) ? 0 : 2) + " ms";
  };
  limit("TTFT", slo.ttft_ms);
  limit("TPOT", slo.tpot_ms);
  if (!slo.judges_gaps_of_run()) limit("every ITL", slo.itl_ms);
  limit("E2EL", slo.e2el_ms);
  return text;
}

ComparedRun compared(const RunResult& result) {
  const RunInfo& info = result.info;
  const Summary& summary = result.summary;
  const auto or_none = [](const auto& number) {
    return number ? std::to_string(*number) : std::string("none");
  };
  return {fmt::format("{} {} {} {}", info.num_prompts, or_none(info.request_rate),
                      std::to_string(info.burstiness), or_none(info.max_concurrency)),
          slo_limits_ms(info.slo), summary.completed, summary.total_input_tokens,
          summary.total_output_tokens};
}

std::string_view reason_to_mark_nothing(std::span<const RunResult> results) {
  std::vector<ComparedRun> runs;
  for (const RunResult& result : results) runs.push_back(compared(result));
  return incomparable_because(runs);
}

bool have_same_slo(std::span<const RunResult> results) {
  const auto first = slo_limits_ms(results.front().info.slo);
  return std::all_of(results.begin(), results.end(), [&](const RunResult& result) {
    return slo_limits_ms(result.info.slo) == first;
  });
}

// The certainty of the figures.
void add_accuracies(std::span<const RunResult> results, TableText& table) {
  std::vector<TimeAccuracy> all;
  for (const RunResult& result : results) {
    for (const std::string& line : result.bands.steep_lines()) {
      table.sentence(result.info.label, line);
    }
    if (result.info.accuracy) add_accuracy(*result.info.accuracy, all);
  }
  for (const TimeAccuracy& accuracy : all) table.line("how sure: " + accuracy.text());
}

void add_notes(std::span<const RunResult> results, std::string_view incomparable,
               TableText& table) {
  if (have_same_slo(results)) {
    const std::string slo = slo_text(results.front().info.slo);
    if (!slo.empty()) table.line(slo);
  } else {
    for (const RunResult& result : results) {
      table.sentence(result.info.label, slo_text(result.info.slo));
    }
  }
  for (const SloConfig& own : results.front().info.slo.by_class) {
    table.line(printable(own.class_name) + ", " +
               (own.has_limit() ? slo_text(own) : std::string("no SLO")));
  }
  for (const RunResult& result : results) {
    const std::vector<Goal> goals = run_goals_of(result.info.slo);
    if (goals.empty()) continue;
    const RunFacts facts = {.num_gpus = static_cast<double>(result.info.tensor_parallel_size),
                            .price_per_gpu_hour = result.info.price_per_gpu_hour};
    std::string broken;
    for (const Goal& goal : goals) {
      if (goal.is_kept_by(goal_figure(goal, result.summary, facts))) continue;
      broken += (broken.empty() ? "" : ", ") + short_goal_words(goal);
    }
    table.sentence(result.info.label, "goal of the run: " + goal_words(goals) +
                                          (broken.empty() ? "; kept" : "; broken: " + broken));
  }
  const auto noisy = std::find_if(results.begin(), results.end(), [](const RunResult& result) {
    return result.bands.num_seeds > 0;
  });
  if (noisy != results.end()) {
    table.line("lowest, highest: " + noisy->bands.source() +
               "; all other figures are from the first seed");
  }
  add_accuracies(results, table);
  if (!incomparable.empty()) {
    table.line("no value is marked as the best: " + std::string(incomparable));
  } else if (results.size() > 1) {
    table.line("* best of its column; figures within 1 % are equal");
  }
  for (const PolicyInfo& policy : all_policies()) {
    const bool is_shown = std::any_of(
        results.begin(), results.end(),
        [&policy](const RunResult& result) { return result.info.policy == policy.name; });
    if (is_shown && !policy.gap_note.empty()) table.line(std::string(policy.gap_note));
  }
}

}  // namespace

std::array<double, 4> slo_limits_ms(const SloConfig& slo) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {slo.ttft_ms.value_or(kNone), slo.tpot_ms.value_or(kNone), slo.itl_ms.value_or(kNone),
          slo.e2el_ms.value_or(kNone)};
}

std::string_view incomparable_because(std::span<const ComparedRun> runs) {
  const auto differ = [&runs](auto member) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const ComparedRun& run) { return run.*member != runs.front().*member; });
  };
  if (differ(&ComparedRun::workload)) return "the runs had different workloads";
  if (differ(&ComparedRun::slo_limits_ms)) return "the runs had different SLOs";
  if (differ(&ComparedRun::completed) || differ(&ComparedRun::total_input_tokens) ||
      differ(&ComparedRun::total_output_tokens)) {
    return "the runs did not complete the same requests";
  }
  return {};
}

std::string describe_stall(const Stall& stall) {
  if (stall.request == kNoRequest) return "none: no request got a second token";
  const std::string who = fmt::format("request {}", index(stall.request));
  const std::string what = grouped_text(to_ms(stall.gap_ns), 1) + " ms at " +
                           grouped_text(to_seconds(stall.began_at), 2) + " s: " + who;
  switch (stall.cause) {
    case StallCause::Unknown: return what + " waited, but no prefill delayed it";
    case StallCause::Preemption: return what + " was preempted and computed again";
    case StallCause::Unseen: return what + " waited; a client cannot see the cause";
    case StallCause::Unkept: return what + " waited; the run kept no steps that say why";
    case StallCause::Prefill:
    case StallCause::Encoding: break;
  }
  const std::string encoded =
      stall.encode_ns > 0
          ? "images were encoded (" + grouped_text(to_ms(stall.encode_ns), 1) + " ms)"
          : "";
  const std::string chunk = grouped_text(std::int64_t{stall.prefill_tokens});
  const std::string request = fmt::format("request {}", index(stall.prefill_request));
  const std::string prefilled = stall.num_prefill_tokens > stall.prefill_tokens
                                    ? count_text(stall.num_prefill_tokens, "token") +
                                          " were prefilled, " + chunk +
                                          " of them in one chunk of " + request
                                    : request + " prefilled " + chunk + " tokens";
  if (encoded.empty()) return what + " waited while " + prefilled;
  const bool is_of_images = stall.cause == StallCause::Encoding;
  return what + " waited while " + (is_of_images ? encoded : prefilled) + " and " +
         (is_of_images ? prefilled : encoded);
}

std::string render_table(std::span<const RunResult> results, const TableOptions& options) {
  if (results.empty()) return "";
  std::vector<std::string> names;
  for (const RunResult& result : results) names.push_back(result.info.label);
  const std::string_view incomparable = reason_to_mark_nothing(results);
  TableText table(std::move(names), results.size() > 1 && incomparable.empty(), options);
  add_latencies(results, table);
  for (const FigureBlock& block : figure_blocks()) {
    add_block(results, block, table);
    if (block.title.starts_with("cadence")) add_stalls(results, table);
  }
  add_groups(results, "by class, ms", &Summary::classes, table);
  add_groups(results, "by priority, ms", &Summary::priorities, table);
  add_replicas(results, table);
  table.line("");
  add_notes(results, incomparable, table);
  for (const RunResult& result : results) {
    if (!result.summary.has_steps) {
      table.sentence(result.info.label,
                     "measured by a client, which sees no steps: figures of batches, KV cache, "
                     "queue and preemptions are unknown");
    } else {
      table.sentence(result.info.label, "digest " + result.info.digest);
    }
  }
  return table.take();
}

}  // namespace metronome
