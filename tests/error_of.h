// The message of a failure that a test expects.
#pragma once

#include <stdexcept>
#include <string>

#include "core/error.h"

namespace metronome::testing {

// What the `Error` thrown by `action` says; "" when it throws none. Other exceptions pass through.
template <class Error = ConfigError, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace metronome::testing
