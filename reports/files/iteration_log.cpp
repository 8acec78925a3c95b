#include "reports/files/iteration_log.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr std::string_view kStart = "Iteration(";
constexpr std::string_view kForm =
    "Iteration(N): N context requests, N context tokens, N generation requests, N generation "
    "tokens, iteration elapsed time: X ms";

// Parses a line from left to right.
class LineReader {
 public:
  explicit LineReader(std::string_view rest) : rest_(rest) {}

  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  template <class Number>
  bool take_number(Number& number) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc() || number < 0) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

 private:
  std::string_view rest_;
};

bool read_line(std::string_view text, LoggedIteration& iteration) {
  // An upper limit: no step takes an hour.
  constexpr double kMaxMs = 3.6e6;
  LineReader line(text);
  double elapsed_ms = 0;
  const bool is_whole =
      line.take(kStart) && line.take_number(iteration.number) && line.take("): ") &&
      line.take_number(iteration.num_context_requests) && line.take(" context requests, ") &&
      line.take_number(iteration.num_context_tokens) && line.take(" context tokens, ") &&
      line.take_number(iteration.num_generation_requests) && line.take(" generation requests, ") &&
      line.take_number(iteration.num_generation_tokens) && line.take(" generation tokens, ") &&
      line.take("iteration elapsed time: ") && line.take_number(elapsed_ms) && line.take(" ms");
  if (!is_whole || !(elapsed_ms <= kMaxMs)) return false;
  iteration.elapsed_ns = std::llround(elapsed_ms * static_cast<double>(kNsPerMs));
  return true;
}

// "(EngineCore_DP3 pid=77) INFO ..." is engine 3.
std::int32_t engine_of(std::string_view prefix) {
  constexpr std::string_view kRank = "EngineCore_DP";
  const std::size_t found = prefix.find(kRank);
  std::int32_t rank = 0;
  if (found == std::string_view::npos) return 0;
  LineReader line(prefix.substr(found + kRank.size()));
  return line.take_number(rank) ? rank : 0;
}

}  // namespace

IterationLog read_iteration_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(path + ": cannot be read; allowed: a log of vLLM");
  IterationLog log;
  log.path = path;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    // Text that the line quotes before counts as part of the prefix.
    const std::size_t start = text.rfind(kStart);
    if (start == std::string::npos) continue;
    LoggedIteration iteration;
    if (!read_line(std::string_view(text).substr(start), iteration)) {
      if (file.eof()) break;
      throw ConfigError(path + ":" + std::to_string(number) +
                        ": is not an iteration in vLLM's format; allowed: " + std::string(kForm));
    }
    iteration.engine = engine_of(std::string_view(text).substr(0, start));
    iteration.line = number;
    if (iteration.num_context_tokens + iteration.num_generation_tokens == 0) continue;
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
  std::ifstream file(path, std::ios::binary);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find(kStart) != std::string::npos) return true;
  }
  return false;
}

}  // namespace metronome
