// SPDX-License-Identifier: Apache-2.0
// The common parts of the translations from a scenario to flags of engines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/scenario/serve_defaults.h"
#include "engines/flags/server_flags.h"

namespace metronome {

struct Scenario;
struct SchedulerConfig;

// Without zeros at the end.
inline std::string shortest_text(double number) {
  std::string text = fixed_text(number, 6);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

class FlagList {
 public:
  FlagList(std::string engine, std::string version) {
    flags_.engine = std::move(engine);
    flags_.version = std::move(version);
  }

  void add(const std::string& flag) { flags_.flags.push_back(flag); }
  void add(const std::string& flag, std::int64_t value) { add(flag, std::to_string(value)); }
  void add(const std::string& flag, const std::string& value) {
    flags_.flags.push_back(flag + " " + value);
  }
  void note(const std::string& text) { flags_.notes.push_back(text); }
  // Says that a setting has another value in the flags, where it has.
  void note_nearest(const std::string& key, std::int64_t given, std::int64_t nearest,
                    const std::string& rule) {
    if (given == nearest) return;
    note(key + " " + std::to_string(given) + " becomes " + std::to_string(nearest) + ": " + rule);
  }
  // The engine does not start with these settings: it has no flags then.
  void refuse(const std::string& reason) {
    if (flags_.refusal.empty()) flags_.refusal = reason;
  }
  void use_yaml() { flags_.is_yaml = true; }
  EngineFlags take() {
    if (!flags_.refusal.empty()) flags_.flags.clear();
    return std::move(flags_);
  }

 private:
  EngineFlags flags_;
};

bool is_paged(const Scenario& scenario);
bool has_prefixes(const Scenario& scenario);  // cached ones
// Tokens of the KV cache, if the scenario sets its size; 0: it does not.
std::int64_t pool_tokens(const Scenario& scenario);

// The settings of the policy that are not the defaults.
std::vector<std::pair<std::string, Json>> changed_settings(const SchedulerConfig& config);
// Each of them as the flag of its name, but for `skipped` ones.
void add_settings(const SchedulerConfig& config, std::span<const std::string_view> skipped,
                  FlagList& list);

// Settings that neither vLLM nor SGLang has. `partial_prefills`: why this one is among them.
void note_without_flags(const Scenario& scenario, const char* partial_prefills, FlagList& list);

// Formats that a server has no flags for. `checkpoint`: "a GGUF file".
void note_formats(const Scenario& scenario, const char* checkpoint, FlagList& list);
// How the numbers are stored, and whether CUDA graphs are launched.
void add_formats(const Scenario& scenario, const char* fp8_cache, const char* eager,
                 const char* largest_graph, FlagList& list);

// Tokens of the largest pass with prompts in a CUDA graph, if the scenario sets them apart from
// those of decodes, and some prompts are larger.
std::optional<std::int64_t> own_prompt_graphs(const Scenario& scenario);

// The share of the memory among a server's defaults, which have one.
const ServeDefault& memory_share(const std::vector<ServeDefault>& defaults);

}  // namespace metronome
