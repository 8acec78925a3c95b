// SPDX-License-Identifier: Apache-2.0
// Properties of this machine: processor and available memory.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

// "AMD EPYC 9654 96-Core Processor"; "cpu" if unknown.
std::string processor_name();

// Memory available without swapping, bytes, within the limits of the container and of the process
// (ulimit -v, ulimit -d); INT64_MAX if unknown.
std::int64_t available_memory_bytes();

}  // namespace metronome
