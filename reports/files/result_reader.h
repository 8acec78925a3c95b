// SPDX-License-Identifier: Apache-2.0
// Reads result folders back, to evaluate a recorded run without repeating it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_place.h"
#include "core/metrics/run_record.h"
#include "core/scenario/setting.h"
#include "reports/files/result_files.h"

namespace metronome {

struct Scenario;

struct StoredRun {
  std::string folder;
  RunResult result;  // `summary` is recomputed from the record
  RunRecord record;
};

// Folders with a result.json: `path` itself, or its direct subfolders in the order of its
// summary.json, else by name. A sweep's summary also selects the folders; others belong to an
// earlier sweep. Throws ConfigError if there is none.
std::vector<std::string> result_folders(const std::string& path);
// Whether a folder, or one in it, has a result.json.
bool has_results(const std::string& path);

// Reads RunInfo from result.json only. Throws ConfigError as read_result does.
RunInfo read_result_info(const std::string& folder);

// Reads result.json alone, so that the run's other files may be missing. Throws ConfigError as
// read_result does.
ResultContent read_result_content(const std::string& folder);

// The figures that an object has under their keys. Throws ConfigError for one that is no number,
// null or a list of numbers.
FigureValues read_figures(const JsonPlace& object);

// Whether a folder has the files that read_result() needs beside result.json.
bool has_record(const std::string& folder);

// Reads result.json, requests.jsonl and steps.jsonl of one run. A run measured by a client has no
// steps.jsonl. The record equals the run's, except that preemptions planned at the same instant are
// in request order. Throws ConfigError with the file, the line and the key if a file is missing or
// is not as Metronome writes it.
StoredRun read_result(const std::string& folder);

// Throws ConfigError for a run measured by a client, whose steps are unknown.
void require_steps(const StoredRun& run);

// The scenario of the run. Relative paths in it are relative to the current folder, as the run left
// them. Throws ConfigError if the run has no scenario.
Scenario scenario_of(const StoredRun& run);
// The scenario of `config`, which has the form of the run's, with other values. Throws ConfigError
// for null and for invalid settings.
Scenario scenario_of_config(const StoredRun& run, const Json& config,
                            std::span<const Setting> settings);

}  // namespace metronome
