// SPDX-License-Identifier: Apache-2.0
// Every figure of a run, once. Result files, the terminal's tables, sweeps, reports and documents
// read these rows. A new one is a row of figures.cpp; if it is not made of others, also a field of
// Summary, which summary.cpp computes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/metrics/summary.h"

namespace metronome {

enum class Better : std::uint8_t { Neither, Lower, Higher };

// Facts that figures need beside the summary.
struct RunFacts {
  double num_gpus = 1;
  std::optional<double> price_per_gpu_hour;
  std::int64_t num_blocks = 0;   // of the KV cache
  std::int64_t num_prompts = 0;  // requests of the workload
  bool is_calibrated = false;    // step times come from a measured cost model
};

struct FigureValue {
  enum class Kind : std::uint8_t {
    Absent,  // runs of this kind have no such figure
    Null,    // unknown
    Count,
    Number,    // NaN: undefined
    Duration,  // nanoseconds
    List,      // one for each position of drafts
  };
  Kind kind = Kind::Absent;
  std::int64_t count = 0;  // Count; Duration
  double number = 0;
  std::vector<double> list = {};
  bool has_counts = false;  // of a list: they are integers

  // NaN without a value; a duration in milliseconds.
  double as_number() const;
};

constexpr int kByLargest = -1;  // decimals: by the largest value of the block

using FigureGetter = std::function<FigureValue(const Summary&, const RunFacts&)>;

// Where people see it.
struct ShownFigure {
  std::string block = {};  // title of the terminal's block, and of the report's columns
  std::string name = {};   // within it: "p99"
  Better better = Better::Neither;
  int decimals = 0;
  double scale = 1;            // 100: in percent
  std::string elsewhere = {};  // its name outside of the block: "TTFT p99"; empty: `name`
  std::string unit = {};       // "ms", "%", "/s"; empty: none, or said by the name
  std::string words = {};      // its name in a sentence: "p99 TTFT"; empty: `name`
};

// Its definition in words, in every result.json.
struct FormulaText {
  std::string_view name = {};  // empty: the figure's key
  std::string_view text = {};  // empty: none

  FormulaText() = default;
  FormulaText(const char* words) : text(words) {}  // NOLINT(google-explicit-constructor)
  FormulaText(std::string_view of, std::string_view words) : name(of), text(words) {}
};

struct Figure {
  std::string key;           // of result.json
  std::string_view meaning;  // one line
  ShownFigure shown = {};
  FigureGetter value;
  FormulaText formula = {};
  bool is_benchmark =
      false;                // a key of the serving benchmark whose format this is; they come first
  bool has_band = false;    // of noise
  bool is_written = true;   // false: shown, and in no file
  bool hides_zero = false;  // its column is left out where all are 0
  std::string_view distribution = {};  // whose statistic it is: "ttft"; empty: none

  const std::string& name_elsewhere() const {
    return shown.elsewhere.empty() ? shown.name : shown.elsewhere;
  }
};

// In the order of result.json.
std::span<const Figure> all_figures();
// Requires that there is one.
const Figure& figure(std::string_view key);

// The value of each figure of one run, in the order of all_figures().
class FigureValues {
 public:
  FigureValues() = default;  // all absent
  FigureValues(const Summary& summary, const RunFacts& facts);

  const FigureValue& operator[](std::size_t i) const;
  void set(std::size_t i, FigureValue value);
  // Requires that there is such a figure, as number() does.
  void set(std::string_view key, double value);
  // NaN without a value.
  double number(std::string_view key) const;
  // The statistics of "itl", say; NaN for those that are not known.
  Distribution distribution(std::string_view name) const;

 private:
  std::vector<FigureValue> values_;  // empty: all absent
};

// A statistic of a distribution, in the order of result.json.
struct Statistic {
  std::string_view name;  // "p99"
  double Distribution::*member;
  bool has_band;  // of the benchmark's distributions
};
std::span<const Statistic> statistics();

// A distribution as a row of latencies: "ttft", "TTFT". Its figures are STATISTIC_NAME_ms.
struct LatencyRow {
  std::string_view name;
  std::string_view title;
};
std::span<const LatencyRow> latency_rows();
// The columns of such rows: "mean", "p50", ...
std::span<const std::string_view> latency_columns();

// A block of the terminal's tables: figures in columns. Those that no run has are left out.
struct FigureBlock {
  std::string_view title;
  std::span<const std::string_view> keys;
  std::string_view needs = {};  // the block is left out unless a run has this figure
  bool needs_all = false;       // unless all have it
};
std::span<const FigureBlock> figure_blocks();

// A few figures for one purpose. Each is a figure of the table.
enum class FigureList : std::uint8_t {
  Sweep,       // columns of a sweep's table
  Report,      // columns of the report's table
  Map,         // of the report's heat map
  Point,       // beside the pointer on a run in the report
  Pair,        // of a simulated run beside a measured one, in the report
  Rate,        // throughputs of the report, over p99 ITL
  Trial,       // what a trial of `tune` measures
  Capacity,    // of these, columns of its table of highest loads
  Load,        // and of its table of one load
  WhatIf,      // of a replay with other settings
  Validation,  // of `validate`, beside the latencies
};
std::span<const std::string_view> figures_of(FigureList list);

}  // namespace metronome
