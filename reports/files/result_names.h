// SPDX-License-Identifier: Apache-2.0
// The names of the files of a result.
#pragma once

#include <string_view>

namespace metronome {

// The files of a result. The files of a variant are in a subfolder named after it.
constexpr std::string_view kResultFile = "result.json";
constexpr std::string_view kRequestsFile = "requests.jsonl";
constexpr std::string_view kStepsFile = "steps.jsonl";
constexpr std::string_view kOutputsFile = "outputs.jsonl";
constexpr std::string_view kTraceFile = "trace.json";
constexpr std::string_view kSummaryFile = "summary.json";
constexpr std::string_view kReportFile = "report.html";
// Of `metronome bench-serve`.
constexpr std::string_view kVllmFile = "vllm.json";
constexpr std::string_view kKneeFile = "knee.json";
// Of `metronome tune`.
constexpr std::string_view kTuneFile = "tune.json";
constexpr std::string_view kBestFile = "best.yaml";
constexpr std::string_view kTrialsFile = "trials.jsonl";
// Names of files that have no mark of their own. result.json has their sizes.
constexpr bool is_companion_name(std::string_view name) {
  return name == kRequestsFile || name == kStepsFile || name == kOutputsFile ||
         name == kTraceFile || name == kVllmFile;
}
constexpr bool is_result_file_name(std::string_view name) {
  return is_companion_name(name) || name == kResultFile || name == kSummaryFile ||
         name == kReportFile || name == kKneeFile || name == kTuneFile || name == kBestFile ||
         name == kTrialsFile;
}

}  // namespace metronome
