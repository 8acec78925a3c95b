// SPDX-License-Identifier: Apache-2.0
// Signals of a host program that has handlers of its own, such as the interpreter of Python.
#pragma once

namespace metronome {

// While they are left to the host, catch_signals() changes no handler, and the host tells of
// signals.
void leave_signals_to_host(bool is_left);
// Sets the answer of interrupting_signal() from now on; 0: none any more.
void set_interrupting_signal(int signal);

}  // namespace metronome
