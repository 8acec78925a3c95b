// SPDX-License-Identifier: Apache-2.0
// The search for changes of settings: who tries what, and which change is the smallest.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "study/what_if/candidates.h"
#include "study/what_if/replays.h"
#include "study/what_if/what_if.h"

namespace metronome {

class Search {
 public:
  // All outlive it. `what_if` has the judged baseline.
  Search(Replays& replays, const WhatIfOptions& options,
         const std::function<void(const std::string&)>& start, const ProgressFn& progress,
         WhatIf& what_if)
      : replays_(replays),
        options_(options),
        start_(start),
        progress_(progress),
        what_if_(what_if) {}

  // Sets trials, chosen, front, ruled_out, nearest and what failed next. `wants_blocks`: requests
  // lost KV blocks, or waited for them.
  void run(bool wants_blocks);

 private:
  // A family with the trials of its values; nullopt: the settings are invalid.
  struct Walked {
    Family family;
    std::vector<std::optional<Trial>> trials;
    std::size_t best = 0;  // the value that stands for it; trials.size(): none does
    std::size_t rank = 0;  // order of families
    // The value towards the run's that was tried, if it is not the one before in `trials`.
    std::optional<std::int64_t> towards_run = {};

    const Trial& trial() const { return *trials[best]; }
    bool has_trial() const { return best < trials.size(); }
  };

  std::optional<Trial> try_out(const std::vector<Setting>& changes);
  void note(const Trial& trial);
  void walk(std::vector<Family> families);
  void choose_best(Walked& walked) const;
  bool is_better(const Trial& trial, const Trial& best) const;
  void look_between(Walked& walked);
  void look_between_best();
  const Walked* smallest() const;
  const Walked* nearest() const;
  std::vector<Family> pairs() const;
  void refine(const Walked& chosen);
  void refine_edge(const Walked& chosen, Trial works, std::int64_t value, std::int64_t failing,
                   std::string why);
  std::size_t add_trial(const Trial& trial);
  void set_front();
  void keep_rows();
  std::string failing_text(const std::optional<Trial>& trial) const;

  Replays& replays_;
  const WhatIfOptions& options_;
  const std::function<void(const std::string&)>& start_;
  const ProgressFn& progress_;
  WhatIf& what_if_;
  std::deque<Walked> all_;
  std::size_t num_single_ = 0;  // of all_: the families of the first walk
  std::size_t num_tried_ = 0;
  std::optional<Trial> coarse_;  // the power of two that was refined to the chosen value
};

}  // namespace metronome
