// SPDX-License-Identifier: Apache-2.0
// In programs of tests and benchmarks, as tools/main.cpp does in the command.
#include "engines/engines.h"
#include "models/models.h"

namespace {
[[maybe_unused]] const bool kIsRegistered =
    (metronome::register_engines(), metronome::register_models(), true);
}  // namespace
