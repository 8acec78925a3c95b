// SPDX-License-Identifier: Apache-2.0
// Parts of the translations from a scenario to an engine's flags.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/number_text.h"
#include "study/run/engine_flags.h"

namespace metronome {

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
  void is_yaml() { flags_.is_yaml = true; }
  EngineFlags take() {
    if (!flags_.refusal.empty()) flags_.flags.clear();
    return std::move(flags_);
  }

 private:
  EngineFlags flags_;
};

EngineFlags llama_server_flags(const Scenario& scenario);
EngineFlags trtllm_serve_flags(const Scenario& scenario);

}  // namespace metronome
