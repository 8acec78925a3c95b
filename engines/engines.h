// SPDX-License-Identifier: Apache-2.0
// Every product whose scheduler is reproduced, one folder each.
#pragma once

namespace metronome {

// Registers their policies and logs. Called once, at the start of a program, before any of them is
// looked up.
void register_engines();

}  // namespace metronome
