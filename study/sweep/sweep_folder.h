// SPDX-License-Identifier: Apache-2.0
// The folder of a sweep: one result folder per run, named by the run's id, and the locks between
// processes that work on it at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/sweep/sweep_plan.h"

namespace metronome {

// Whether the text has the form of a run's id.
bool is_run_id(std::string_view text);

class SweepFolder {
 public:
  // Opens the folder; creates it and its parents if needed. Throws UsageError if the folder
  // contains anything except an earlier sweep, or cannot be created.
  explicit SweepFolder(const std::string& path);
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;
  ~SweepFolder();  // releases every claim

  const std::string& path() const { return path_; }
  std::string run_path(const SweepRun& run) const { return path_ + "/" + run.id; }
  std::string failure_path(const SweepRun& run) const;

  enum class State {
    Missing,
    Done,
    Damaged,  // exists but incomplete or changed: runs again
  };
  // Throws ConfigError if the folder contains the result of something else, or is a link.
  State state_of(const SweepRun& run) const;

  // The number of results in the folder that are not in the plan: of other settings or another
  // program.
  std::size_t num_others(const SweepPlan& plan) const;

  // Removes leftovers of killed processes, for runs that no process works on.
  void remove_leftovers();

  // Claims the run for this process; false: another process has it. A claim ends with release() or
  // when the process ends, for any reason.
  bool try_claim(const SweepRun& run);
  void release(const SweepRun& run);

  // Makes room for a damaged run. A result that carries Metronome's mark is replaced by the next;
  // anything else is renamed to "ID.damaged" or "ID.damaged-N" and stays. Requires a claim. Throws
  // std::runtime_error.
  void set_damaged_aside(const SweepRun& run);

  // Records why a run failed.
  void write_failure(const SweepRun& run, std::string_view message);
  void remove_failure(const SweepRun& run);
  std::optional<std::string> read_failure(const SweepRun& run) const;

  // Writes a file that belongs to no run, atomically. Waits for another process that is writing
  // one.
  void write_summary(std::string_view name, std::string_view content);

 private:
  bool lock(std::string_view id, bool is_wanted);

  std::string path_;
  int lock_file_ = -1;
};

}  // namespace metronome
