// SPDX-License-Identifier: Apache-2.0
// The parts of a run's report data. Each function appends one part to an open JSON object; see
// report_data.h.
#pragma once

#include <span>

#include "core/base/json_text.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"
#include "reports/html/report_data.h"

namespace metronome {

// Times in report_data: microseconds, rounded down, so that ordered times stay ordered.
constexpr std::int64_t to_us(TimeNs ns) { return ns / kNsPerUs; }

// "itl_curve", "ttft_curve", "e2el_curve".
void append_curves(const RunRecord& record, const ReportLimits& limits, JsonText& json);
// "gaps": the ITL timeline.
void append_gaps(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                 JsonText& json);
// "steps": those of the first replica of a fleet.
void append_steps(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                  JsonText& json);
// An object like it of steps [begin, end), with the device times of all steps.
struct StepRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
void append_steps_of(const RunRecord& record, const GapAnalysis& analysis, const StepRange& range,
                     std::span<const TimeNs> times, std::size_t max_steps, JsonText& json);
// "replicas", of a fleet.
void append_replicas(const RunRecord& record, const GapAnalysis& analysis,
                     const ReportLimits& limits, JsonText& json);
// "stalls", "culprits", "culprit_requests", "total_parts".
void append_stalls(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                   JsonText& json);
// "requests": the individually drawn requests; those around the first of "stalls" if there are too
// many.
void append_requests(const RunRecord& record, const GapAnalysis& analysis, const SloConfig& slo,
                     const ReportLimits& limits, JsonText& json);
// "ttft_parts": completed requests in groups of equal size, by TTFT.
void append_ttft_parts(const RunRecord& record, JsonText& json);

}  // namespace metronome
