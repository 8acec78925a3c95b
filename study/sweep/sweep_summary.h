// SPDX-License-Identifier: Apache-2.0
// The result of a sweep: its summary files and the terminal table. They are made from the files of
// its runs, so they do not depend on which process ran what, when, or in which order.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/distribution.h"
#include "core/run/time_accuracy.h"
#include "reports/terminal/table.h"
#include "study/sweep/sweep_folder.h"
#include "study/sweep/sweep_plan.h"

namespace metronome {

class SweepSummary {
 public:
  // Reads every existing result of the plan's runs.
  SweepSummary(const SweepPlan& plan, const SweepFolder& folder, int num_threads);

  // A list of flat objects, one per row of the plan whose run exists. Its keys are those of
  // `metronome run`'s summary.json with the run number, then every varying key, then `point`, the
  // run's folder. A varying key has the effective value: the point's value, or the row's
  // configuration if the point does not set it or the row's variant overrides it (null if the key
  // does not apply). `variants.NAME.KEY` has the point's value in the rows of all variants.
  std::string json() const;
  // The rows as RFC 4180 CSV, with a header line. Null is an empty field, and so is a key that a
  // row does not have, such as those of drafts.
  std::string csv() const;
  // Where a row has limits, a column says which sides of its goal it breaks (core/metrics/goals.h).
  // Comparable rows (ComparedRun) form a group, in order of the plan. In a group the best row is
  // first, by goodput if there is an SLO, else the steadiest: by p99 ITL, by the longest gap where
  // the p99 of a row hides its stalls (core/metrics/steadiness.h), or with drafts by mean TPOT. Of
  // equal goodputs the steadiest is first. The best values are marked. Rows of different groups are
  // not ranked; a line gives the reason. Rows that would look identical, of a variant that
  // overrides the varied key, appear once.
  std::string table(std::size_t max_rows) const;

  std::size_t num_rows() const { return rows_.size(); }
  bool has_completed() const;  // a request, in any row
  // Missing runs, as indices into the plan's runs.
  const std::vector<std::size_t>& missing() const { return missing_; }

 private:
  // A value as JSON text; text keeps its quotes.
  using Field = std::pair<std::string, std::string>;
  struct Row {
    std::vector<Field> fields;
    std::size_t run = 0;  // index into the plan's runs
    std::string label;
    std::vector<std::string> values;  // of the plan's keys, as displayed
    std::vector<double> metrics;      // of the table's columns; NaN: no value
    Distribution itl;
    bool has_drafts = false;
    std::string breaks;  // sides of its goal, in words; "-": none, empty: it has no goal
    ComparedRun compared;
    std::optional<TimeAccuracy> accuracy;  // of its step times
  };
  // Row numbers of comparable rows, the best first.
  using Group = std::vector<std::size_t>;

  static std::vector<std::string> columns_of(const std::vector<Row>& rows);
  Row make_row(const SweepRow& row, const std::string& file) const;
  std::vector<std::size_t> distinct_rows() const;
  struct Order {
    std::size_t chief = 0;   // the metric that rows are sorted by
    std::size_t steady = 0;  // the metric that says how steady a row is
    bool has_slo = false, has_drafts = false, has_price = false;
    bool hides_stalls = false;  // the p99 ITL of a row does
  };
  Order order() const;
  std::vector<Group> groups_of(const Order& order) const;
  void sort_group(const Order& order, Group& group) const;
  std::vector<char> best_of(const Group& group, std::size_t metric) const;
  std::string legend(const std::vector<Group>& groups, const Order& order) const;

  const SweepPlan& plan_;
  std::vector<Row> rows_;
  std::vector<std::size_t> missing_;
};

}  // namespace metronome
