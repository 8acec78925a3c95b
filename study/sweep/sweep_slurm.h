// A sweep as jobs for Slurm: a script that submits an array of tasks, and a job that merges what
// they did.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

struct SlurmSweep {
  std::string program;                 // absolute path of metronome
  std::vector<std::string> arguments;  // of it: "sweep", the scenario, options
  std::string folder;                  // where it is to be run
  std::string name;                    // of the jobs
  std::string expected;                // what --expect takes
  std::size_t num_runs = 0;
  std::size_t num_tasks = 0;
};

// Slurm's own limit on the tasks of an array (MaxArraySize 1001).
constexpr std::size_t kMaxSlurmTasks = 1000;

// The first line of the script after the interpreter's: what marks one of ours.
constexpr std::string_view kSlurmScriptMark = "# Written by `metronome sweep --slurm`.";

// A bash script. Run by hand it submits both jobs; its arguments go to sbatch. As a job it is run
// with `task` or `merge`.
std::string slurm_script(const SlurmSweep& sweep);

// The text as one word of a shell.
std::string shell_quoted(std::string_view text);

// The runs [first, second) of task `task` (from 1) of `num_tasks`: shares that differ by one at
// most.
std::pair<std::size_t, std::size_t> task_share(std::size_t task, std::size_t num_tasks,
                                               std::size_t num_runs);

}  // namespace metronome
