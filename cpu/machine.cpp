#include "cpu/machine.h"

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

}  // namespace

std::string processor_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "cpu" : name;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = INT64_MAX;
  const std::string text = proc_value("/proc/meminfo", "MemAvailable");
  if (!text.empty()) available = std::strtoll(text.c_str(), nullptr, 10) * 1024;  // "23456789 kB"
  // The memory limit of a container (control groups version 2), if set: a number, or "max".
  std::int64_t limit = 0;
  std::int64_t used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  }
  return available;
}

}  // namespace metronome
