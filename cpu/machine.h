// What this machine is and has room for.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

// "AMD EPYC 9654 96-Core Processor"; "cpu" where the system does not tell.
std::string processor_name();

// Memory that could be used without swapping, bytes; INT64_MAX where the system does not tell.
std::int64_t available_memory_bytes();

}  // namespace metronome
