// SPDX-License-Identifier: Apache-2.0
// The trials of `metronome tune`, kept in its result folder, so that a later search need not repeat
// them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "study/tune/tune_trial.h"

namespace metronome {

// A trial as a line of JSON, and read again. `id`: what identifies the setting, its requests and
// the program.
std::string trial_line(const std::string& id, const TuneTrial& trial);
// nullopt for a text that is none.
std::optional<TuneTrial> trial_of_line(const std::string& line);

class TuneStore {
 public:
  // Reads the trials of an earlier search; a file that is missing or unreadable has none.
  explicit TuneStore(const std::string& path);

  // `id`: as for trial_line(). These are thread-safe.
  std::optional<TuneTrial> find(const std::string& id, double load, std::size_t num_requests);
  void add(const std::string& id, const TuneTrial& trial);

  std::size_t num_reused() const { return num_reused_; }
  // One line of JSON for each trial that was found or added; `all`: and for the others that were
  // read, which a search that goes on may need.
  std::string text(bool all) const;

 private:
  using Key = std::tuple<std::string, double, std::size_t>;
  struct Entry {
    TuneTrial trial;
    bool is_used = false;
  };

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::size_t num_reused_ = 0;
};

}  // namespace metronome
