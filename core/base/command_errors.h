// SPDX-License-Identifier: Apache-2.0
// Errors that end a command. Any module may throw them.
#pragma once

#include <stdexcept>

namespace metronome {

// A command line that cannot be understood. what() is one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user pressed Ctrl-C, or another signal asked the program to end.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// Standard output accepts no more text.
class OutputFailed : public std::runtime_error {
 public:
  OutputFailed() : std::runtime_error("cannot write to standard output") {}
};

}  // namespace metronome
