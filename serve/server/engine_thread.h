// SPDX-License-Identifier: Apache-2.0
// The thread on which an engine serves.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "serve/server/live_engine.h"
#include "serve/server/serve_clock.h"

namespace metronome {

// An exception in the thread is stored and reported at once.
class EngineThread {
 public:
  // All references outlive the thread.
  EngineThread(LiveEngine& engine, ServeClock& clock, std::vector<EventSink*> sinks,
               std::function<void(const std::string&)> on_error);
  // Stops serving if nobody joined before: the server failed.
  ~EngineThread();

  // Waits until running requests have ended. Returns the error; empty: none.
  const std::string& join();

 private:
  LiveEngine& engine_;
  ServeClock& clock_;
  std::string error_;
  std::thread thread_;
};

}  // namespace metronome
