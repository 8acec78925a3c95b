// SPDX-License-Identifier: Apache-2.0
// Every product whose scheduler is reproduced, one folder each.
#pragma once

namespace metronome {

// Registers all of them. Called once, at the start of a program, before a policy is looked up.
void register_engines();

}  // namespace metronome
