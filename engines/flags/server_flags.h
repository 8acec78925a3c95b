// SPDX-License-Identifier: Apache-2.0
// A scenario's settings as command line flags of real engines. engines/NAME/flags has the
// translation to those of a product.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metronome {

struct EngineProduct;
struct Scenario;

struct EngineFlags {
  std::string engine;              // "vLLM"
  std::string version;             // the version that has these flags
  std::vector<std::string> flags;  // "--max-num-seqs 64", "--enable-mixed-chunk"
  // Settings without a flag, and differences between the engine's decisions and the policy. One
  // sentence each, without a full stop.
  std::vector<std::string> notes;
  std::string refusal;         // why the engine does not start so; there are no flags then
  bool is_comparison = false;  // the policy is that of another engine
  bool is_yaml = false;        // "section.key: value", of a file
};

// The flags that make an engine decide as the scenario's policy does, or as nearly as possible.
// First those of the policy's own engine, which match exactly, then, for comparison, those of the
// engines that have flags for every policy. Flags are listed even if they equal the engine's
// default, as defaults differ between versions.
std::vector<EngineFlags> engine_flags(const Scenario& scenario);

// The server of a product: its names for settings, and the translation to them.
struct ServerFlags {
  std::string_view server;    // EngineFlags::engine
  std::string_view memory;    // more of it gives more KV blocks
  std::string_view num_seqs;  // engine.max_num_seqs
  std::string_view pool;      // the size of the KV cache
  // The largest captured CUDA graph.
  std::string_view graphs = "cost_model.max_graph_tokens";
  bool has_share = true;  // `memory` is a share of it, not the size
  // Sentences of a diagnosis, empty where the server has no such setting: what lets answers go on
  // beside prompts, and short prompts pass long ones; why urgent requests wait where the queue
  // does not look at priorities, and where it does.
  std::string_view apart_advice = {};
  std::string_view blocking_advice = {};
  std::string_view no_priorities = {};
  std::string_view priority_advice = {};
  // Whether it has flags for every policy, the nearest ones; else for its own.
  bool takes_other_policies = false;
  EngineFlags (*write)(const Scenario&) = nullptr;
  const std::string_view* known = nullptr;  // its flags.yaml; see known_flags.h
};
// By EngineFlags::engine; nullptr: unknown.
const EngineProduct* find_server(std::string_view engine);

// Flags for a release, "0.11.0", that may be older than the rules: one that it lacks is left out,
// with a note, and a note says which it may lack. A text that names no release changes nothing.
EngineFlags flags_of_release(EngineFlags flags, std::string_view release);

// The flags in one line.
std::string joined_flags(const EngineFlags& flags);
// As one gives them to the engine: a line of flags, or the lines of a YAML file.
std::vector<std::string> flag_lines(const EngineFlags& flags);

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
  std::string refusal;             // of the second set; there are no changes then
  bool is_comparison = false;      // of the second set

  bool empty() const { return added.empty() && changed.empty() && removed.empty(); }
};
FlagChanges flag_changes(const EngineFlags& before, const EngineFlags& after);

}  // namespace metronome
