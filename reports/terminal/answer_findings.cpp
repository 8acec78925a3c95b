// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/answer_findings.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

// A slowed answer takes so many times as long for a token as the quick ones.
constexpr double kSlowed = 3;

struct Span {
  double begin = 0, end = 0;  // seconds

  double overlap(const Span& other) const {
    return std::max(0.0, std::min(end, other.end) - std::max(begin, other.begin));
  }
};

struct Answer {
  const LogObservation* seen = nullptr;
  double token_ms = 0;
  std::optional<Span> prompt = {}, decodes = {};  // of lines with a time
};

std::vector<Answer> answers_of(const EngineLog& log) {
  std::vector<Answer> answers;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Answer || seen.num_decode_tokens < 2) continue;
    if (seen.elapsed_ns == 0) continue;
    Answer answer = {&seen, to_ms(seen.elapsed_ns) / static_cast<double>(seen.num_decode_tokens)};
    if (const std::optional<double> end = seconds_of(seen.time)) {
      const double decoded = *end - to_seconds(seen.elapsed_ns);
      answer.decodes = {decoded, *end};
      answer.prompt = {decoded - to_seconds(seen.prefill_ns), decoded};
    }
    answers.push_back(answer);
  }
  return answers;
}

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

std::vector<double> token_times(const std::vector<Answer>& answers) {
  std::vector<double> times;
  for (const Answer& answer : answers) times.push_back(answer.token_ms);
  return times;
}

const Answer& slowest_of(const std::vector<Answer>& answers) {
  return *std::max_element(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) {
    return a.token_ms < b.token_ms;
  });
}

std::string answer_place(const LogObservation& seen) {
  return seen.number < 0 ? fmt::format("line {}", seen.line)
                         : fmt::format("task {}, line {}", seen.number, seen.line);
}

// "While it decoded for 296.2 ms, prompts of others with 112 tokens were computed for 180.4 ms of
// that (task 20, line 2460).".
std::string meanwhile_text(const Answer& slowed, const std::vector<Answer>& answers,
                           const LogDialect& dialect) {
  if (!slowed.decodes) {
    return "The lines have no times, so the log does not tell which prompts were computed "
           "meanwhile.";
  }
  double seconds = 0;
  std::int64_t num_tokens = 0;
  const Answer* longest = nullptr;
  double longest_s = 0;
  for (const Answer& other : answers) {
    if (other.seen == slowed.seen || !other.prompt) continue;
    const double overlap = slowed.decodes->overlap(*other.prompt);
    if (overlap == 0) continue;
    seconds += overlap;
    num_tokens += other.seen->num_prefill_tokens;
    if (overlap > longest_s) {
      longest = &other;
      longest_s = overlap;
    }
  }
  const std::string decoded = ms_text(to_ms(slowed.seen->elapsed_ns));
  if (longest == nullptr) {
    return fmt::format("No prompt of another answer was computed in the {} ms that it decoded.",
                       decoded);
  }
  std::string text = fmt::format(
      "In the {} ms that it decoded, prompts of others with {} were computed for {} ms (the "
      "longest: {}).",
      decoded, count_text(num_tokens, "token"), ms_text(1e3 * seconds),
      answer_place(*longest->seen));
  if (!dialect.shorter_stalls.empty()) text += " " + std::string(dialect.shorter_stalls);
  return text;
}

}  // namespace

std::string answers_text(const EngineLog& log) {
  const std::vector<Answer> answers = answers_of(log);
  if (answers.empty()) return {};
  const Answer& slowest = slowest_of(answers);
  std::vector<double> rates;
  for (const Answer& answer : answers) {
    if (answer.seen->prefill_ns == 0) continue;
    rates.push_back(static_cast<double>(answer.seen->num_prefill_tokens) /
                    to_seconds(answer.seen->prefill_ns));
  }
  std::string text = fmt::format("tokens of {}: p50 {} ms, slowest {} ms ({})",
                                 count_text(answers.size(), "answer"),
                                 ms_text(quantile(token_times(answers), 0.5)),
                                 ms_text(slowest.token_ms), answer_place(*slowest.seen));
  if (!rates.empty()) {
    text += fmt::format("; prompts: {} tok/s in the median", grouped_text(quantile(rates, 0.5), 1));
  }
  return text;
}

void append_slowed_answer(const EngineLog& log, std::vector<LogFinding>& findings) {
  const std::vector<Answer> answers = answers_of(log);
  if (answers.size() < 2) return;
  const double quick = quantile(token_times(answers), 0.1);
  const Answer& slowest = slowest_of(answers);
  if (slowest.token_ms < kSlowed * quick) return;
  const auto num_slowed =
      std::count_if(answers.begin(), answers.end(),
                    [quick](const Answer& answer) { return answer.token_ms >= kSlowed * quick; });
  findings.push_back(
      {"slowed",
       fmt::format("An answer took {} ms for each of its {} ({}), {} times as long as the "
                   "quickest tenth ({} ms). {} {} of {} took at least three times as long. {}",
                   ms_text(slowest.token_ms), count_text(slowest.seen->num_decode_tokens, "token"),
                   answer_place(*slowest.seen), fixed_text(slowest.token_ms / quick, 1),
                   ms_text(quick), grouped_text(num_slowed), num_slowed == 1 ? "answer" : "answers",
                   grouped_text(static_cast<std::int64_t>(answers.size())),
                   meanwhile_text(slowest, answers, *log.dialect)),
       static_cast<double>(num_slowed) / static_cast<double>(answers.size())});
}

}  // namespace metronome
