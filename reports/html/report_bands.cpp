// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_bands.h"

#include <vector>

#include "core/base/number_text.h"
#include "core/run/time_accuracy.h"
#include "reports/html/report_html.h"

namespace metronome {

std::string band_html(const FigureBands& bands, const Figure& column) {
  const FigureBand* band = bands.find(column.key);
  if (band == nullptr) return {};
  const auto end = [&](double number) {
    return grouped_text(number * column.shown.scale, column.shown.decimals);
  };
  return "<span class=\"band\">" + end(band->low) + " &ndash; " + end(band->high) + "</span>";
}

std::string band_notes(std::span<const ReportRun> runs) {
  std::string html;
  const auto add = [&html](const std::string& text) {
    html += "<p class=\"lead\">" + html_text(text) + "</p>\n";
  };
  std::vector<TimeAccuracy> all;
  bool has_bands = false;
  for (const ReportRun& run : runs) {
    const FigureBands& bands = run.result.bands;
    if (bands.num_seeds > 0 && !has_bands) {
      add("Below a figure: the lowest and the highest " + bands.source() +
          ". All other figures are from the first seed.");
      has_bands = true;
    }
    for (const std::string& line : bands.steep_lines()) {
      add(runs.size() > 1 ? run.name + ": " + line : line);
    }
    if (run.result.info.accuracy) add_accuracy(*run.result.info.accuracy, all);
  }
  for (const TimeAccuracy& accuracy : all) add("How sure: " + accuracy.text() + ".");
  return html;
}

}  // namespace metronome
