// SPDX-License-Identifier: Apache-2.0
// `metronome serve` inside a program that goes on with other work, and has the signals.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "tools/commands/cli.h"

namespace metronome {

class ServerHost {
 public:
  // Called once, by the thread that serves, when clients may connect to this port.
  std::function<void(std::uint16_t port)> on_ready;

  // The first call lets running requests end, and the server then; a second one aborts them.
  // Thread-safe.
  void stop() { ++num_stops_; }
  // Calls of stop() since this was asked last.
  int take_stops() { return num_stops_.exchange(0); }

 private:
  std::atomic<int> num_stops_ = 0;
};

// As serve_command(), until the host stops it.
int serve_command(const Arguments& arguments, ServerHost& host);

}  // namespace metronome
