// SPDX-License-Identifier: Apache-2.0
#include "serve/server/engine_thread.h"

#include <exception>
#include <utility>

namespace metronome {

EngineThread::EngineThread(LiveEngine& engine, ServeClock& clock, std::vector<EventSink*> sinks,
                           std::function<void(const std::string&)> on_error)
    : engine_(engine),
      clock_(clock),
      thread_([this, sinks = std::move(sinks), on_error = std::move(on_error)] {
        try {
          engine_.serve(sinks);
        } catch (const ServeClock::Stopped&) {
        } catch (const std::exception& error) {
          error_ = error.what();
          on_error(error_);
        }
      }) {}

EngineThread::~EngineThread() {
  if (!thread_.joinable()) return;
  clock_.stop();
  join();
}

const std::string& EngineThread::join() {
  engine_.close();
  thread_.join();
  return error_;
}

}  // namespace metronome
