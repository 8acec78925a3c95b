// SPDX-License-Identifier: Apache-2.0
// A key of a scenario with a value: how a program changes a scenario that it has.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"

namespace metronome {

struct Setting {
  std::string key;  // "scheduler.prefill_chunk_size"
  Json value;

  bool operator==(const Setting&) const = default;
  // As `--set` takes it: "scheduler.prefill_chunk_size=512".
  std::string text() const;
};

// A setting whose value is written as in YAML: a number, true, false, null or a word.
Setting setting_of(std::string key, std::string_view yaml);

}  // namespace metronome
