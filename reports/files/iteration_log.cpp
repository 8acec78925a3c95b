#include "reports/files/iteration_log.h"

#include <fstream>
#include <string_view>

#include "core/base/error.h"
#include "core/base/files.h"

namespace metronome {
namespace {

constexpr std::string_view kStart = "Iteration(";
constexpr std::string_view kForm =
    "Iteration(N): N context requests, N context tokens, N generation requests, N generation "
    "tokens, iteration elapsed time: X ms";

}  // namespace

IterationLog read_iteration_log(const std::string& path) {
  std::ifstream file = open_input(path);
  if (!file) throw ConfigError(path + ": cannot be read; allowed: a log of vLLM");
  IterationLog log;
  log.path = path;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    // Text that the line quotes before counts as part of the prefix.
    const std::size_t start = text.rfind(kStart);
    if (start == std::string::npos) continue;
    LoggedIteration iteration;
    if (!read_vllm_iteration(std::string_view(text).substr(start), iteration)) {
      if (file.eof()) break;
      throw ConfigError(path + ":" + std::to_string(number) +
                        ": is not an iteration in vLLM's format; allowed: " + std::string(kForm));
    }
    iteration.engine = vllm_rank(std::string_view(text).substr(0, start));
    iteration.line = number;
    if (iteration.is_empty()) continue;
    log.num_implausible += iteration.is_plausible() ? 0 : 1;
    log.iterations.push_back(iteration);
  }
  if (file.bad()) throw ConfigError(path + ": cannot be read to its end");
  if (log.iterations.empty()) {
    throw ConfigError(path +
                      ": has no iteration; allowed: a log of vLLM with "
                      "--enable-logging-iteration-details, or a folder that `metronome run` wrote");
  }
  return log;
}

bool is_iteration_log(const std::string& path) {
  std::ifstream file = open_input(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find(kStart) != std::string::npos) return true;
  }
  return false;
}

}  // namespace metronome
