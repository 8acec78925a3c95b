// SPDX-License-Identifier: Apache-2.0
// Tests read scenarios as the program does.
#include "tools/commands/run_choice.h"

namespace {

[[maybe_unused]] const bool kAreRegistered = (metronome::register_backends(), true);

}  // namespace
