// SPDX-License-Identifier: Apache-2.0
// The trials of `metronome tune` as runs of a report.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text_block.h"
#include "engines/flags/server_flags.h"
#include "reports/files/result_files.h"

namespace metronome {

// A trial with its figures alone: there are no records of its requests and steps.
struct TuneReportRun {
  std::string name;      // of setting and load
  ResultContent result;  // its label is the setting's name
};

struct TuneReport {
  std::vector<TextBlock> answer;     // empty: an older search did not keep it
  std::vector<TuneReportRun> runs;   // of each setting, in the order of the file, by load
  std::string unfinished;            // names of settings whose search was ended; empty: none
  std::vector<std::string> refused;  // points that are no valid scenarios, with their reasons
  std::vector<std::string> notes;    // about the command or the options that were composed
};

bool is_tune_folder(const std::string& path);

// The key `answer` of tune.json, as an object: the question, the answer, how sure it is (empty: not
// known), the flags of engines, and the command of a fleet's router (empty: none is known).
Json tune_answer_json(const std::string& question, const std::string& text,
                      const std::string& how_sure, const std::vector<EngineFlags>& flags,
                      const std::string& router);

// Reads tune.json. Throws ConfigError with the file and the key if it is not as `tune` writes it,
// or has no trial.
TuneReport read_tune_report(const std::string& path);

}  // namespace metronome
