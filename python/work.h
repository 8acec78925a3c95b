// SPDX-License-Identifier: Apache-2.0
// Long work for the interpreter: without its lock, and ended by Ctrl-C.
#pragma once

#include <functional>

namespace metronome::python {

// Calls `work` on a thread of its own and waits for it, without the interpreter's lock. When a
// handler of a signal raises an exception, as for Ctrl-C, interrupting_signal() tells the work, and
// the exception is thrown here once the work has ended. Requires the lock.
void call_without_lock(const std::function<void()>& work);

// Says by which exception of the package the interpreter hears of errors. Called once.
void translate_errors();

}  // namespace metronome::python
