// SPDX-License-Identifier: Apache-2.0
// `metronome tune` over several processes: one searches, the others run its trials.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/commands/cli.h"
#include "tools/commands/tune_question.h"
#include "tools/commands/tune_work.h"

namespace metronome {

// As tune_command(), with trials that other processes run.
int tune_command(const Arguments& arguments, const TrialElsewhere& elsewhere);

// Such a process has the candidates and requests of the search with these arguments.
class TuneTrials {
 public:
  // Throws as tune_command() does.
  explicit TuneTrials(const Arguments& arguments);

  // Runs a trial, and returns its line. Thread-safe. Throws std::out_of_range for a setting that
  // the search does not have.
  std::string line_of(const TrialPlace& place);

 private:
  std::unique_ptr<const TuneQuestion> question_;
  TuneWork work_;
  std::vector<std::mutex> mutexes_;  // one for each setting
};

}  // namespace metronome
