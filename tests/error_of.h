// SPDX-License-Identifier: Apache-2.0
// The message of a failure that a test expects, and what is in it.
#pragma once

#include <stdexcept>
#include <string>

#include "core/base/error.h"

namespace metronome::testing {

// The message of the `Error` that `action` throws; "" when it throws none. Other exceptions pass
// through.
template <class Error = ConfigError, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace metronome::testing
