// SPDX-License-Identifier: Apache-2.0
#include "cpu/machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace metronome {
namespace {

// The value of "KEY ... :" in a file of /proc; empty if no line has the key.
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

// The number of a line such as "VmSize:  23456 kB", in bytes; 0: there is none.
std::int64_t proc_bytes(const char* file, const std::string& key) {
  return std::strtoll(proc_value(file, key).c_str(), nullptr, 10) * 1024;
}

// A limit of the process, and what counts against it in /proc/self/status.
struct ProcessLimit {
  decltype(RLIMIT_AS) resource;
  const char* used;
};

constexpr ProcessLimit kProcessLimits[] = {{RLIMIT_AS, "VmSize"}, {RLIMIT_DATA, "VmData"}};

}  // namespace

std::string processor_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "cpu" : name;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = INT64_MAX;
  const std::int64_t free = proc_bytes("/proc/meminfo", "MemAvailable");
  if (free > 0) available = free;
  // The memory limit of a container (control groups version 2), if set: a number, or "max".
  std::int64_t limit = 0;
  std::int64_t used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  }
  for (const ProcessLimit& process : kProcessLimits) {
    rlimit most{};
    if (getrlimit(process.resource, &most) != 0 || most.rlim_cur >= rlim_t{INT64_MAX}) continue;
    const std::int64_t taken = proc_bytes("/proc/self/status", process.used);
    const auto left = static_cast<std::int64_t>(most.rlim_cur) - taken;
    available = std::min(available, std::max<std::int64_t>(0, left));
  }
  return available;
}

}  // namespace metronome
