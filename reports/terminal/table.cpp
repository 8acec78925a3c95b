// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/steadiness.h"

namespace metronome {
namespace {

constexpr std::size_t kLineWidth = 80;
constexpr std::size_t kMinCellWidth = 10;
constexpr std::size_t kMinNameWidth = 12;  // titles of blocks are shorter
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kGreen = "\x1b[1;32m";
constexpr std::string_view kPlain = "\x1b[0m";

enum class Better { Neither, Lower, Higher };

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

// One column with one figure of every run.
template <class Get>
TableColumn column(std::span<const RunResult> results, std::string_view title, Better better,
                   int decimals, Get get) {
  TableColumn filled{title, better};
  for (const RunResult& result : results) {
    filled.cells.push_back({static_cast<double>(get(result.summary)), decimals});
  }
  return filled;
}

// Adds the minimum and maximum under noise below a figure.
void add_band(const RunResult& result, const std::string& key, double scale, TableColumn& column) {
  if (result.noise.num_seeds == 0) return;
  const FigureBand* band = result.noise.find(key);
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
  if (result.noise.num_seeds > 0) names.insert(names.end(), {"  lowest", "  highest"});
}

std::vector<std::string> banded_names(std::span<const RunResult> results) {
  std::vector<std::string> names;
  for (const RunResult& result : results) add_row_names(result, result.info.label, names);
  return names;
}

// column() with the noise band of each figure. The figure is `scale` times the value of result.json
// at `key`.
template <class Get>
TableColumn banded_column(std::span<const RunResult> results, std::string_view title, Better better,
                          int decimals, const std::string& key, double scale, Get get) {
  TableColumn filled{title, better};
  for (const RunResult& result : results) {
    filled.cells.push_back({scale * get(result.summary), decimals});
    add_band(result, key, scale, filled);
  }
  return filled;
}

// Enough decimals to distinguish values, but few enough to read.
int decimals_for(double largest) { return largest >= 100'000 ? 0 : largest >= 100 ? 1 : 2; }

double largest_ms(const Distribution& values) { return values.count > 0 ? values.max_ms : 0; }

struct Metric {
  std::string_view title;
  const char* key;  // "ttft" of "p99_ttft_ms"
  Distribution Summary::*values;
};

// Adds the row of one distribution of a run, and the rows of its bands.
void add_latency_row(const RunResult& result, const Metric& metric, int decimals,
                     std::vector<TableColumn>& columns) {
  const Distribution& values = result.summary.*metric.values;
  const double figures[] = {values.mean_ms, values.p50_ms, values.p90_ms, values.p99_ms,
                            values.max_ms};
  for (std::size_t c = 0; c < columns.size(); ++c) {
    columns[c].cells.push_back({figures[c], decimals});
    add_band(result, std::string(columns[c].title) + "_" + metric.key + "_ms", 1, columns[c]);
  }
}

std::vector<TableColumn> latency_columns() {
  return {{"mean", Better::Lower},
          {"p50", Better::Lower},
          {"p90", Better::Lower},
          {"p99", Better::Lower},
          {"max", Better::Lower}};
}

void add_latencies(std::span<const RunResult> results, TableText& table) {
  constexpr Metric kMetrics[] = {{"TTFT", "ttft", &Summary::ttft},
                                 {"TPOT", "tpot", &Summary::tpot},
                                 {"ITL", "itl", &Summary::itl},
                                 {"E2EL", "e2el", &Summary::e2el}};
  if (results.size() == 1) {
    std::vector<std::string> names;
    std::vector<TableColumn> columns = latency_columns();
    for (const Metric& metric : kMetrics) {
      const double largest = largest_ms(results[0].summary.*metric.values);
      add_row_names(results[0], std::string(metric.title), names);
      add_latency_row(results[0], metric, decimals_for(largest), columns);
    }
    table.rows("latency, ms", names, columns);
    return;
  }
  const std::vector<std::string> names = banded_names(results);
  for (const Metric& metric : kMetrics) {
    double largest = 0;
    for (const RunResult& result : results) {
      largest = std::max(largest, largest_ms(result.summary.*metric.values));
    }
    std::vector<TableColumn> columns = latency_columns();
    if (metric.values == &Summary::itl) columns[3].longest = 4;
    for (const RunResult& result : results) {
      add_latency_row(result, metric, decimals_for(largest), columns);
    }
    table.rows(std::string(metric.title) + ", ms", names, columns);
  }
}

void add_cadence(std::span<const RunResult> results, TableText& table) {
  double largest = 0;
  for (const RunResult& result : results) {
    largest = std::max(largest, largest_ms(result.summary.itl));
  }
  const int decimals = decimals_for(largest);
  table.block("cadence, ms", {column(results, "jitter mean", Better::Lower, decimals,
                                     [](const Summary& s) { return s.jitter.mean_ms; }),
                              column(results, "jitter p99", Better::Lower, decimals,
                                     [](const Summary& s) { return s.jitter.p99_ms; }),
                              column(results, "longest gap", Better::Lower, decimals,
                                     [](const Summary& s) { return s.itl.max_ms; })});
  table.heading("longest stall");
  for (const RunResult& result : results) {
    table.sentence(result.info.label, describe_stall(result.summary.longest_stall));
  }
}

// For runs with a price.
void add_cost(std::span<const RunResult> results, TableText& table) {
  const bool has_price = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.info.price_per_gpu_hour.has_value();
  });
  if (!has_price) return;
  std::vector<TableColumn> columns = {{"GPU-hours"},
                                      {"tok/s/GPU", Better::Higher},
                                      {"tok/s/user", Better::Higher},
                                      {"per M out", Better::Lower},
                                      {"per M tok", Better::Lower}};
  for (const RunResult& result : results) {
    const Summary& summary = result.summary;
    const double num_gpus = result.info.tensor_parallel_size;
    columns[0].cells.push_back({to_seconds(summary.duration_ns) / 3600 * num_gpus, 4});
    columns[1].cells.push_back({summary.output_throughput / num_gpus, 1});
    columns[2].cells.push_back({1e3 / summary.tpot.mean_ms, 1});
    columns[3].cells.push_back({cost_per_million(result, summary.output_throughput), 4});
    columns[4].cells.push_back({cost_per_million(result, summary.total_token_throughput), 4});
  }
  table.block("cost", columns);
}

void add_throughput(std::span<const RunResult> results, TableText& table) {
  std::vector<TableColumn> columns = {
      banded_column(results, "seconds", Better::Lower, 1, "duration", 1,
                    [](const Summary& s) { return to_seconds(s.duration_ns); })};
  const auto add = [&](std::string_view title, int decimals, const char* key, double scale,
                       auto get) {
    columns.push_back(banded_column(results, title, Better::Higher, decimals, key, scale, get));
  };
  add("req/s", 3, "request_throughput", 1, [](const Summary& s) { return s.request_throughput; });
  add("out tok/s", 1, "output_throughput", 1, [](const Summary& s) { return s.output_throughput; });
  add("total tok/s", 1, "total_token_throughput", 1,
      [](const Summary& s) { return s.total_token_throughput; });
  const bool has_slo = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.summary.slo_attainment.has_value();
  });
  if (has_slo) {
    add("goodput/s", 3, "request_goodput", 1,
        [](const Summary& s) { return s.request_goodput.value_or(std::nan("")); });
    add("in SLO %", 2, "slo_attainment", 100,
        [](const Summary& s) { return s.slo_attainment.value_or(std::nan("")); });
  }
  table.rows("throughput", banded_names(results), columns);
}

void add_device(std::span<const RunResult> results, TableText& table) {
  std::vector<TableColumn> columns = {
      column(results, "steps", Better::Neither, 0, [](const Summary& s) { return s.num_steps; }),
      column(results, "tokens/step", Better::Neither, 1,
             [](const Summary& s) { return s.mean_batch_tokens; }),
      column(results, "busy %", Better::Neither, 1,
             [](const Summary& s) { return 100 * s.busy_share; }),
      column(results, "KV mean %", Better::Neither, 1,
             [](const Summary& s) { return 100 * s.mean_kv_use; }),
      column(results, "KV peak %", Better::Neither, 1,
             [](const Summary& s) { return 100 * s.peak_kv_use; })};
  const bool reuses = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.summary.prefix_hit_rate > 0;
  });
  if (reuses) {
    columns.push_back(column(results, "prefix hit %", Better::Higher, 1,
                             [](const Summary& s) { return 100 * s.prefix_hit_rate; }));
  }
  table.block("device", columns);
}

// For runs with drafts.
void add_drafts(std::span<const RunResult> results, TableText& table) {
  const bool has_drafts = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.summary.drafts.has_value();
  });
  if (!has_drafts) return;
  const auto of_drafts = [&](std::string_view title, Better better, int decimals, auto get) {
    return column(results, title, better, decimals, [&](const Summary& s) {
      return s.drafts ? static_cast<double>(get(*s.drafts)) : std::nan("");
    });
  };
  table.block("drafts", {of_drafts("length", Better::Higher, 2,
                                   [](const DraftSummary& d) { return d.acceptance_length; }),
                         of_drafts("accepted %", Better::Higher, 1,
                                   [](const DraftSummary& d) { return 100 * d.acceptance_rate; }),
                         of_drafts("tok/decode", Better::Higher, 2,
                                   [](const DraftSummary& d) { return d.tokens_per_decode; }),
                         of_drafts("wasted", Better::Lower, 0,
                                   [](const DraftSummary& d) { return d.num_wasted; }),
                         of_drafts("ITL/tok p50", Better::Lower, 2,
                                   [](const DraftSummary& d) { return d.itl_per_token.p50_ms; }),
                         of_drafts("ITL/tok p99", Better::Lower, 2,
                                   [](const DraftSummary& d) { return d.itl_per_token.p99_ms; })});
}

void add_requests(std::span<const RunResult> results, bool has_steps, TableText& table) {
  table.block(
      "requests",
      {column(results, "completed", Better::Neither, 0,
              [](const Summary& s) { return s.completed; }),
       column(results, "refused", Better::Neither, 0, [](const Summary& s) { return s.refused; }),
       column(results, "never fit", Better::Neither, 0,
              [](const Summary& s) { return s.never_fits; }),
       column(results, "failed", Better::Neither, 0,
              [](const Summary& s) { return s.failed - s.refused - s.never_fits; })});
  if (!has_steps) return;
  std::vector<TableColumn> columns = {column(results, "run mean", Better::Neither, 1,
                                             [](const Summary& s) { return s.mean_running; }),
                                      column(results, "wait mean", Better::Lower, 1,
                                             [](const Summary& s) { return s.mean_waiting; }),
                                      column(results, "wait peak", Better::Lower, 0,
                                             [](const Summary& s) { return s.peak_waiting; }),
                                      column(results, "preemptions", Better::Lower, 0,
                                             [](const Summary& s) { return s.num_preemptions; })};
  const bool has_front_end = std::any_of(results.begin(), results.end(), [](const RunResult& run) {
    return run.summary.front_end.count > 0;
  });
  if (has_front_end) {
    columns.push_back(column(results, "front end ms", Better::Neither, 1,
                             [](const Summary& s) { return s.front_end.mean_ms; }));
  }
  table.block("queue", columns);
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
  limit("every ITL", slo.itl_ms);
  limit("E2EL", slo.e2el_ms);
  return text;
}

ComparedRun compared(const RunResult& result) {
  const RunInfo& info = result.info;
  const Summary& summary = result.summary;
  const auto or_none = [](const auto& number) {
    return number ? std::to_string(*number) : std::string("none");
  };
  return {std::to_string(info.num_prompts) + " " + or_none(info.request_rate) + " " +
              std::to_string(info.burstiness) + " " + or_none(info.max_concurrency),
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
  const auto noisy = std::find_if(results.begin(), results.end(), [](const RunResult& result) {
    return result.noise.num_seeds > 0;
  });
  if (noisy != results.end()) {
    table.line("lowest, highest: of " + count_text(noisy->noise.num_seeds, "noise seed") +
               "; all other figures are from the first seed");
  }
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
  const std::string who = "request " + std::to_string(index(stall.request));
  const std::string what = grouped_text(to_ms(stall.gap_ns), 1) + " ms at " +
                           grouped_text(to_seconds(stall.began_at), 2) + " s: " + who;
  switch (stall.cause) {
    case StallCause::Unknown: return what + " waited, but no prefill delayed it";
    case StallCause::Preemption: return what + " was preempted and computed again";
    case StallCause::Unseen: return what + " waited; a client cannot see the cause";
    case StallCause::Prefill:
    case StallCause::Encoding: break;
  }
  const std::string encoded =
      stall.encode_ns > 0
          ? "images were encoded (" + grouped_text(to_ms(stall.encode_ns), 1) + " ms)"
          : "";
  const std::string chunk = grouped_text(std::int64_t{stall.prefill_tokens});
  const std::string request = "request " + std::to_string(index(stall.prefill_request));
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
  add_cadence(results, table);
  add_throughput(results, table);
  add_cost(results, table);
  const bool has_steps = std::all_of(results.begin(), results.end(), [](const RunResult& result) {
    return result.summary.has_steps;
  });
  if (has_steps) add_device(results, table);
  add_drafts(results, table);
  add_requests(results, has_steps, table);
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
