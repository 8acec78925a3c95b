// What a sweep comes to: its summary files and the table in the terminal, made from the files of
// its runs, so that they do not depend on who ran what, when, or in which order.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/terminal/table.h"
#include "study/sweep/sweep_folder.h"
#include "study/sweep/sweep_plan.h"

namespace metronome {

class SweepSummary {
 public:
  // Reads the result of every run of the plan that is there.
  SweepSummary(const SweepPlan& plan, const SweepFolder& folder, int num_threads);

  // A list of flat objects, one a row of the plan whose run is there: the keys of `metronome run`'s
  // summary.json, with the run's number, then every key that varies, then `point`, the run's
  // folder. A key has the value in force: that of the point, or what the row's configuration says
  // (null where it has no use for the key) when the point does not set it or the row's variant
  // overrides it. `variants.NAME.KEY` has the point's value in the rows of all variants.
  std::string json() const;
  // The same as RFC 4180, with a line of names; null is an empty field.
  std::string csv() const;
  // Rows that compare (ComparedRun) stand together, in order of the plan: of these the best first,
  // by goodput where there is an SLO, else by p99 ITL, and with the best values marked. What does
  // not compare with it is better than nothing and worse than nothing; a line says why. Rows that
  // would look the same, of a variant that overrides what varies, are one.
  std::string table(std::size_t max_rows) const;

  std::size_t num_rows() const { return rows_.size(); }
  // Runs that are not there, as indices into the plan's runs.
  const std::vector<std::size_t>& missing() const { return missing_; }

 private:
  // A value as JSON text; text keeps its quotes.
  using Field = std::pair<std::string, std::string>;
  struct Row {
    std::vector<Field> fields;
    std::size_t run = 0;  // index into the plan's runs
    std::string label;
    std::vector<std::string> values;  // of the plan's keys, for people
    std::vector<double> metrics;      // of the table's columns; NaN: none
    ComparedRun compared;
  };
  // Of rows that compare: row numbers, the best first.
  using Group = std::vector<std::size_t>;

  Row make_row(const SweepRow& row, const std::string& result_text) const;
  std::vector<std::size_t> distinct_rows() const;
  std::vector<Group> groups_by(std::size_t metric) const;
  std::vector<double> best_metrics(const Group& group) const;
  std::string legend(const std::vector<Group>& groups, std::size_t chief) const;

  const SweepPlan& plan_;
  std::vector<Row> rows_;
  std::vector<std::size_t> missing_;
};

}  // namespace metronome
