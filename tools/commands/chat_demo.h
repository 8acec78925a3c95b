// SPDX-License-Identifier: Apache-2.0
// The demonstration of `metronome chat --demo`.
#pragma once

#include "tools/commands/local_model.h"

namespace metronome {

// Answers a short prompt. After some tokens a long prompt arrives: once it is computed in one step,
// once in chunks beside the short answer's tokens. Prints the steps, both answers, and what
// became of the gaps between the short answer's tokens. Returns an exit code.
int run_chat_demo(LocalModel& local);

}  // namespace metronome
