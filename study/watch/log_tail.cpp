// SPDX-License-Identifier: Apache-2.0
#include "study/watch/log_tail.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_gaps.h"

namespace metronome {
namespace {

// Of steps, batches and reports: five MiB, and minutes of a fast server.
constexpr std::size_t kMostObservations = 20'000;
constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
constexpr std::int64_t kCheckedBytes = std::int64_t{1} << 20;

// The time of steps with prompts beyond the decodes, per prompt token.
double prompt_token_ms(const EngineLog& log, double decode_ms) {
  double added_ms = 0;
  double num_tokens = 0;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration || seen.num_prefill_tokens == 0) continue;
    added_ms += std::max(to_ms(seen.elapsed_ns) - decode_ms, 0.0);
    num_tokens += static_cast<double>(seen.num_prefill_tokens);
  }
  return num_tokens > 0 ? added_ms / num_tokens : std::numeric_limits<double>::quiet_NaN();
}

double rate_during_prefill(const EngineLog& log) {
  double num_tokens = 0;
  double request_seconds = 0;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration || seen.num_prefill_tokens == 0) continue;
    num_tokens += static_cast<double>(seen.num_decode_tokens);
    request_seconds += static_cast<double>(seen.num_running) * to_ms(seen.elapsed_ns) / 1e3;
  }
  return request_seconds > 0 ? num_tokens / request_seconds
                             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

LogFigures figures_of(const EngineLog& log) {
  LogFigures figures;
  std::vector<double> decodes;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration) continue;
    ++figures.num_steps;
    if (seen.num_prefill_tokens == 0 && seen.num_running > 0) {
      decodes.push_back(static_cast<double>(seen.elapsed_ns));
    }
  }
  diagnose(gaps_of(log), std::nullopt, 1, figures.itl);
  figures.decode_step_ms = describe(decodes).p50_ms;
  figures.rate_during_prefill = rate_during_prefill(log);
  const bool has_decodes = !decodes.empty();
  figures.prompt_token_ms = has_decodes ? prompt_token_ms(log, figures.decode_step_ms)
                                        : std::numeric_limits<double>::quiet_NaN();
  return figures;
}

void LogTail::add(std::string_view bytes) {
  num_unchecked_ += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool has_end = end != std::string_view::npos;
    const std::string_view part = bytes.substr(0, has_end ? end + 1 : bytes.size());
    bytes.remove_prefix(part.size());
    line_bytes_ += part.size();
    if (!is_too_long_ && line_bytes_ > kMostLineBytes) {
      is_too_long_ = true;
      ++num_too_long_;
      reader_.add("\n");
    } else if (!is_too_long_) {
      reader_.add(part);
    }
    if (!has_end) continue;
    line_bytes_ = 0;
    is_too_long_ = false;
  }
  if (num_unchecked_ < kCheckedBytes) return;
  num_unchecked_ = 0;
  reader_.keep_last(kMostObservations);
}

std::optional<EngineLog> LogTail::latest(const LogDialect* only, std::int64_t from_line,
                                         std::string& why) const {
  try {
    return reader_.latest(only, from_line);
  } catch (const ConfigError& error) {
    why = error.what();
    return std::nullopt;
  }
}

}  // namespace metronome
