// SPDX-License-Identifier: Apache-2.0
// Runs the runs of a sweep, several at once, each of them once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "study/sweep/sweep_folder.h"
#include "study/sweep/sweep_plan.h"

namespace metronome {

// A file with a line for each start and end of a run. Lines are whole, even if several processes
// write to one file. An empty path: none.
class SweepLog {
 public:
  // Opens or creates the file. Throws UsageError about --log if it cannot be written, or is not the
  // log of a sweep.
  explicit SweepLog(const std::string& path);
  SweepLog(const SweepLog&) = delete;
  SweepLog& operator=(const SweepLog&) = delete;
  ~SweepLog();

  void write(const char* what, const SweepRun& run);

 private:
  std::string path_;
  int file_ = -1;
};

struct SweepRunOptions {
  std::function<std::unique_ptr<Backend>()> make_backend;  // one for each job
  int num_jobs = 1;
  bool is_quiet = false;
  SweepLog* log = nullptr;  // not null
};

struct SweepOutcome {
  std::size_t num_run = 0;          // by this process
  std::vector<std::size_t> failed;  // indices into the plan's runs, in order
  std::vector<std::string> warnings;
};

// Runs plan.runs[i] for each i in `chosen` whose folder does not exist. A run that fails, for any
// reason, has its failure recorded in the folder, where a merge on another machine finds it. The
// other runs continue, and the next sweep tries it again. If the failure cannot be recorded, as on
// a full disk, the sweep ends. Throws Interrupted on a signal: completed runs stay, and no folder
// is half-written.
SweepOutcome run_sweep(const SweepPlan& plan, std::span<const std::size_t> chosen,
                       SweepFolder& folder, const SweepRunOptions& options);

}  // namespace metronome
