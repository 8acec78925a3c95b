// SPDX-License-Identifier: Apache-2.0
// The promise that every fuzzer checks: any bytes parse, or are refused in one printable line.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/config/config_reader.h"

namespace metronome::testing {

// Runs `parse`. Anything but success and a well-formed ConfigError escapes, which is a finding.
template <class Parse>
void parse_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    METRONOME_CHECK(text == printable(text), "a message is one printable line");
    METRONOME_CHECK(text.size() < 2000, "a message is short");
    METRONOME_CHECK(text.find("; allowed: ") != text.npos, "a message says what is allowed");
  }
}

}  // namespace metronome::testing
