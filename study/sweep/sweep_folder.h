// The folder of a sweep: a result folder for each run, named by the run's id, and what keeps
// several processes that work on it at once apart.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/sweep/sweep_plan.h"

namespace metronome {

class SweepFolder {
 public:
  // Opens the folder, creating it and its parents. Throws UsageError for one that holds anything
  // but an earlier sweep, and when it cannot be made.
  explicit SweepFolder(const std::string& path);
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;
  ~SweepFolder();  // gives up every claim

  const std::string& path() const { return path_; }
  std::string run_path(const SweepRun& run) const { return path_ + "/" + run.id; }
  std::string failure_path(const SweepRun& run) const;

  enum class State {
    Missing,
    Done,
    Damaged,  // there, but not whole: to be run again
  };
  // Throws ConfigError when the folder holds the result of something else.
  State state_of(const SweepRun& run) const;

  // Results in it that are none of the plan's: of other settings, or of another program.
  std::size_t num_others(const SweepPlan& plan) const;

  // Removes what processes that were killed have left of runs that nobody works on now.
  void remove_leftovers();

  // Whether the run is this process's alone from now on; false: another process has it. A claim
  // ends with release() or with the process, however that ends.
  bool try_claim(const SweepRun& run);
  void release(const SweepRun& run);

  // Takes a damaged result away; what is no file of a result stays. Requires a claim.
  void remove_damaged(const SweepRun& run);

  // Why a run could not be done.
  void write_failure(const SweepRun& run, std::string_view message);
  void remove_failure(const SweepRun& run);
  std::optional<std::string> read_failure(const SweepRun& run) const;

  // Writes a file that belongs to no run, whole or not at all, after another process that does.
  void write_summary(std::string_view name, std::string_view content);

 private:
  void write(std::string_view name, std::string_view content);
  bool lock(std::string_view id, bool is_wanted);

  std::string path_;
  int lock_file_ = -1;
};

}  // namespace metronome
