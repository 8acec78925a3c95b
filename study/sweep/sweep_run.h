// Running the runs of a sweep, several at once, each of them once.
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

struct SweepRunOptions {
  std::function<std::unique_ptr<Backend>()> make_backend;  // one for each job
  int num_jobs = 1;
  bool is_quiet = false;
  std::string log;  // file that gets a line when a run starts and when it is done; empty: none
};

struct SweepOutcome {
  std::size_t num_run = 0;          // by this process
  std::vector<std::size_t> failed;  // indices into the plan's runs, in order
  std::vector<std::string> warnings;
};

// Runs those of plan.runs[i], i in `chosen`, whose folder is not there. A run that fails, for
// whatever reason, has that recorded in the folder, where a merge on another machine finds it; the
// others go on, and the next sweep tries it again. What cannot even be recorded, as on a full disk,
// ends the sweep. Throws Interrupted when a signal came: runs that are done stay, and no folder is
// half-written.
SweepOutcome run_sweep(const SweepPlan& plan, std::span<const std::size_t> chosen,
                       SweepFolder& folder, const SweepRunOptions& options);

}  // namespace metronome
