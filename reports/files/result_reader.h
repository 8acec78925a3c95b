// Result folders read back: what a run recorded, to look at again without running it again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "reports/files/result_files.h"

namespace metronome {

struct StoredRun {
  std::string folder;
  RunResult result;  // summarized anew from the record
  RunRecord record;
};

// Folders with a result.json: `path` itself, or those directly below it, by the order of its
// summary.json where it has one, else by name. A sweep's summary also says which they are: others
// beside them are of an earlier sweep. Throws ConfigError when there is none.
std::vector<std::string> result_folders(const std::string& path);

// Who ran, from result.json alone. Throws ConfigError as read_result does.
RunInfo read_result_info(const std::string& folder);

// Whether a folder has what read_result() reads beside result.json.
bool has_record(const std::string& folder);

// Reads result.json, requests.jsonl and steps.jsonl of one run; of one that a client watched, which
// has no steps.jsonl, the first two. The record is the run's own, but
// for preemptions planned at the same instant, which are in order of their requests. Throws
// ConfigError naming the file, the line and the key where a file is missing or is not what
// Metronome writes.
StoredRun read_result(const std::string& folder);

// Throws ConfigError for a run that a client watched, whose steps nobody knows.
void require_steps(const StoredRun& run);

// What was run, with `assignments` ("key=value") made to it. A relative path in it is the current
// folder's, as the run left it. Throws ConfigError where the run does not say, or for the
// assignments.
Scenario scenario_of(const StoredRun& run, const std::vector<std::string>& assignments = {});

}  // namespace metronome
