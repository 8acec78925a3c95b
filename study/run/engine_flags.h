// Translates a scenario's settings into command line flags of real engines.
#pragma once

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace metronome {

struct EngineFlags {
  std::string engine;              // "vLLM"
  std::string version;             // the version that has these flags
  std::vector<std::string> flags;  // "--max-num-seqs 64", "--enable-mixed-chunk"
  // Settings without a flag, and differences between the engine's decisions and the policy. One
  // sentence each, without a full stop.
  std::vector<std::string> notes;
};

// The flags that make vLLM and SGLang decide as the scenario's policy does, or as nearly as
// possible. Policies `vllm` and `sglang` match their own engine exactly. Flags are listed even if
// they equal the engine's default, as defaults differ between versions.
std::vector<EngineFlags> engine_flags(const Scenario& scenario);

// The most prompt tokens that the policy puts into one step: its budget, or the chunk of one
// prompt. 0: whole prompts, or a step limited by its time.
std::int64_t largest_prefill(const SchedulerConfig& config);

// The flags in one line.
std::string joined_flags(const EngineFlags& flags);

// The difference between two sets of an engine's flags. A flag's name excludes its value and
// `--no-`: `--enable-x` instead of `--no-enable-x` is a change.
struct FlagChanges {
  struct Change {
    std::string before, after;
  };
  std::string engine;
  std::string version;
  std::vector<std::string> added;
  std::vector<Change> changed;
  std::vector<std::string> removed;
  std::vector<std::string> notes;  // of the second set

  bool empty() const { return added.empty() && changed.empty() && removed.empty(); }
};
FlagChanges flag_changes(const EngineFlags& before, const EngineFlags& after);

}  // namespace metronome
