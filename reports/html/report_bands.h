// SPDX-License-Identifier: Apache-2.0
// The certainty of figures, in the report.
#pragma once

#include <span>
#include <string>

#include "core/metrics/figures.h"
#include "reports/files/figure_bands.h"

namespace metronome {

struct ReportRun;

// The minimum and maximum of a figure; empty: it has no band.
std::string band_html(const FigureBands& bands, const Figure& column);
// The sources of bands, steep figures, and how far off simulated times were.
std::string band_notes(std::span<const ReportRun> runs);

}  // namespace metronome
