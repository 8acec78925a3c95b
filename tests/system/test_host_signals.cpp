// SPDX-License-Identifier: Apache-2.0
// A host program tells of the signals that it received.
#include <csignal>

#include "core/base/command_errors.h"
#include "system/host_signals.h"
#include "system/progress.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

TEST_CASE("work ends when the host says that a signal came, and the next one does not", "[tools]") {
  throw_if_interrupted();
  set_interrupting_signal(SIGINT);
  CHECK(interrupting_signal() == SIGINT);
  CHECK_THROWS_AS(throw_if_interrupted(), Interrupted);
  set_interrupting_signal(0);
  throw_if_interrupted();
}

TEST_CASE("the handlers of a host stay", "[tools]") {
  const auto handler_of = [](int signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  const auto before = handler_of(SIGTERM);
  leave_signals_to_host(true);
  catch_signals();
  CHECK(handler_of(SIGTERM) == before);
  leave_signals_to_host(false);
}

}  // namespace TEST_FILE
