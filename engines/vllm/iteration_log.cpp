// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/iteration_log.h"

#include <algorithm>
#include <fmt/core.h>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/vllm/product.h"

namespace metronome {
namespace {

constexpr std::string_view kStart = "Iteration(";
constexpr std::string_view kForm =
    "Iteration(N): N context requests, N context tokens, N generation requests, N generation "
    "tokens, iteration elapsed time: X ms";

// Takes the facts of a line of the server's start.
void read_start(std::string_view line, IterationLog& log) {
  constexpr std::string_view kModel = "with config: model='";
  if (const std::size_t at = line.find(kModel); at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kModel.size());
    log.model = std::string(rest.substr(0, rest.find('\'')));
  }
  if (line.find("using the V1 model runner") != std::string_view::npos) {
    log.runner = ModelRunner::V1;
  } else if (line.find("Using V2 Model Runner") != std::string_view::npos) {
    log.runner = ModelRunner::V2;
  }
}

std::string numbers_text(const IterationLog& log) {
  const auto [first, last] = std::minmax_element(
      log.iterations.begin(), log.iterations.end(),
      [](const LoggedIteration& a, const LoggedIteration& b) { return a.number < b.number; });
  return fmt::format("{} to {}", first->number, last->number);
}

}  // namespace

IterationLog read_iteration_log(const std::string& path) {
  constexpr std::string_view kAllowed = "a vLLM log";
  std::ifstream file = open_input(path, kAllowed);
  IterationLog log;
  log.path = path;
  std::string text;
  for (std::int64_t number = 1; next_line(file, text); ++number) {
    // Text that the line quotes before counts as part of the prefix.
    const std::size_t start = text.rfind(kStart);
    if (start == std::string::npos) {
      read_start(text, log);
      continue;
    }
    LoggedIteration iteration;
    if (!read_vllm_iteration(std::string_view(text).substr(start), iteration)) {
      if (file.eof()) break;
      throw ConfigError(fmt::format("{}:{}: is not an iteration in vLLM's format; allowed: {}",
                                    path, number, kForm));
    }
    iteration.engine = vllm_rank(std::string_view(text).substr(0, start));
    iteration.line = number;
    if (iteration.is_empty()) continue;
    log.num_implausible += iteration.is_plausible() ? 0 : 1;
    log.iterations.push_back(iteration);
  }
  if (file.bad()) fail_input(path, kAllowed);
  if (log.iterations.empty()) {
    throw ConfigError(path +
                      ": has no iteration; allowed: a vLLM log with "
                      "--enable-logging-iteration-details, or a folder that `metronome run` wrote");
  }
  return log;
}

void keep_iterations(const IterationRange& range, IterationLog& log) {
  const std::string all = numbers_text(log);
  std::erase_if(log.iterations, [&range](const LoggedIteration& iteration) {
    return !range.contains(iteration.number);
  });
  if (log.iterations.empty()) {
    throw UsageError("--iterations: " + printable(log.path) +
                     " has none of these; allowed: numbers from " + all);
  }
  log.num_implausible =
      std::count_if(log.iterations.begin(), log.iterations.end(),
                    [](const LoggedIteration& iteration) { return !iteration.is_plausible(); });
}

bool is_iteration_log(const std::string& path) {
  std::ifstream file = open_input(path);
  std::string line;
  while (next_line(file, line)) {
    if (line.find(kStart) != std::string::npos) return true;
  }
  return false;
}

void refuse_log_without_iterations(const std::string& path, const std::string& also_allowed) {
  std::optional<EngineLog> log;
  try {
    log = read_engine_log(path);
  } catch (const ConfigError&) {
    return;  // no log, or one without steps
  }
  if (log->has(Observed::Iteration)) return;
  throw ConfigError(printable(path) + ": is " + std::string(log->dialect->log_name) +
                    (log->dialect == &kVllmLog ? " without its iterations"
                                               : ", which does not log the time of each step") +
                    "; allowed: a vLLM log with --enable-logging-iteration-details" + also_allowed);
}

}  // namespace metronome
