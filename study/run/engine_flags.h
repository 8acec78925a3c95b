// A scenario's settings as the command line flags of real engines.
#pragma once

#include <string>
#include <vector>

#include "core/scenario/scenario.h"

namespace metronome {

struct EngineFlags {
  std::string engine;              // "vLLM"
  std::string version;             // whose flags these are
  std::vector<std::string> flags;  // "--max-num-seqs 64", "--enable-mixed-chunk"
  // What the flags do not say: settings the engine has no flag for, and where it will decide
  // otherwise than the policy. One sentence each, without a full stop.
  std::vector<std::string> notes;
};

// The flags that make vLLM and SGLang decide as the scenario's policy does, or as nearly as they
// can. Policies `vllm` and `sglang` are their own engine's, exactly. What the engine decides by
// default in the same way has its flag nevertheless: defaults differ between versions.
std::vector<EngineFlags> engine_flags(const Scenario& scenario);

// The flags in one line.
std::string joined_flags(const EngineFlags& flags);

// From one set of an engine's flags to another. Values and `--no-` are no part of a flag's name:
// `--enable-x` in place of `--no-enable-x` is a change.
struct FlagChanges {
  struct Change {
    std::string before, after;
  };
  std::string engine;
  std::string version;
  std::vector<std::string> added;
  std::vector<Change> changed;
  std::vector<std::string> removed;
  std::vector<std::string> notes;  // of the flags after

  bool empty() const { return added.empty() && changed.empty() && removed.empty(); }
};
FlagChanges flag_changes(const EngineFlags& before, const EngineFlags& after);

}  // namespace metronome
