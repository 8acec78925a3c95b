// SPDX-License-Identifier: Apache-2.0
// The timings that llama.cpp's server prints as it ends a request (slot print_timing in
// tools/server/server-context.cpp of build 9,000), and its older releases and tools in the same
// words: how long the prompt and the answer took.
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <string>

#include "engines/llama_cpp/product.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

constexpr std::string_view kPrompt = "prompt eval time =";
constexpr std::string_view kAnswer = "  eval time =";  // one space is before that of the prompt
constexpr std::string_view kMarkers[] = {kPrompt, kAnswer};

struct Timing {
  TimeNs ns = 0;
  std::int64_t num_tokens = 0;
};

// "      49.12 ms /    19 tokens", of some tools "runs".
std::optional<Timing> timing_in(std::string_view text) {
  constexpr double kMaxMs = 3.6e8;  // a hundred hours
  LineReader reader(text);
  const auto skip_spaces = [&reader] {
    while (reader.take(" ")) continue;
  };
  double ms = 0;
  std::int64_t num_tokens = 0;
  skip_spaces();
  if (!reader.read_number(ms) || !reader.take(" ms /")) return std::nullopt;
  skip_spaces();
  const bool is_whole = reader.read_number(num_tokens) &&
                        (reader.take(" token") || reader.take(" run")) && ms <= kMaxMs;
  if (!is_whole) return std::nullopt;
  return Timing{std::llround(ms * static_cast<double>(kNsPerMs)), num_tokens};
}

// "0.02.378.332 I slot ...": minutes, seconds, milliseconds and microseconds since the start, as a
// time of day; empty: the line begins otherwise.
std::string time_since_start(std::string_view prefix) {
  LineReader reader(prefix);
  int minutes = 0;
  int seconds = 0;
  int ms = 0;
  int us = 0;
  const bool is_time = reader.read_number(minutes) && reader.take(".") &&
                       reader.read_number(seconds) && reader.take(".") && reader.read_number(ms) &&
                       reader.take(".") && reader.read_number(us) && reader.take(" ") &&
                       seconds < 60 && ms < 1000 && us < 1000 && minutes < 24 * 60;
  if (!is_time) return {};
  return fmt::format("{:02}:{:02}:{:02}.{:03}{:03}", minutes / 60, minutes % 60, seconds, ms, us);
}

// Of "slot print_timing: id  3 | task 19 | "; -1: the line does not say.
std::int64_t task_in(std::string_view prefix) {
  constexpr std::string_view kTask = "| task ";
  const std::size_t at = prefix.rfind(kTask);
  if (at == std::string_view::npos) return -1;
  LineReader reader(prefix.substr(at + kTask.size()));
  std::int64_t task = 0;
  return reader.read_number(task) ? task : -1;
}

LineOutcome read_part(const LogPart& part, EngineLog& log) {
  constexpr std::int64_t kMostLinesBetween = 2;  // other threads' lines may come between
  const bool is_prompt = part.text.starts_with(kPrompt);
  const std::size_t begin = is_prompt ? kPrompt.size() : kAnswer.size();
  const std::optional<Timing> timing = timing_in(part.text.substr(begin));
  if (!timing) return part.may_be_cut ? LineOutcome::Broken : LineOutcome::Foreign;
  if (is_prompt) {
    LogObservation seen = observation(Observed::Answer, part, 0);
    if (seen.time.empty()) seen.time = time_since_start(part.prefix);
    seen.number = task_in(part.prefix);
    seen.prefill_ns = timing->ns;
    seen.num_prefill_tokens = timing->num_tokens;
    return note(std::move(seen), log);
  }
  if (log.observations.empty()) return LineOutcome::Foreign;
  LogObservation& last = log.observations.back();
  const bool is_same = last.kind == Observed::Answer && last.num_decode_tokens == 0 &&
                       part.line - last.line <= kMostLinesBetween;
  if (!is_same) return LineOutcome::Foreign;
  last.elapsed_ns = timing->ns;
  last.num_decode_tokens = timing->num_tokens;
  return LineOutcome::Read;
}

std::string smaller_steps(std::int64_t num_tokens, std::int64_t num_decodes,
                          const EngineArguments& /*arguments*/) {
  return fmt::format("In llama-server: --batch-size {}.", num_tokens + num_decodes);
}

}  // namespace

constexpr LogDialect kLlamaCppLog = {
    .server = &kLlamaCppArguments,
    .log_name = "a llama-server log",
    .form = LogForm::Iterations,
    .markers = kMarkers,
    .read = read_part,
    .looks_for = "llama-server: 'prompt eval time = ', which it prints for each request",
    .numbering = "",
    .budget = "batch_size",
    .shorter_stalls = "A smaller --batch-size computes prompts in shorter steps between decodes.",
    .more_memory = "A larger --ctx-size or fewer --parallel slots avoid it.",
    .smaller_steps = smaller_steps};

}  // namespace metronome
