// SPDX-License-Identifier: Apache-2.0
// The iterations of TensorRT-LLM's PyExecutor (_torch/pyexecutor/py_executor.py of 1.0 and 1.2),
// which `print_iter_log: true` adds. Releases differ in the order of the fields, in " = " or ": "
// behind a name, and in the name of the time.
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <string>

#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/tensorrt_llm/product.h"

namespace metronome {
namespace {

constexpr std::string_view kIteration = "iter = ";
constexpr std::string_view kMarkers[] = {kIteration};

// The number behind a name and " = ", ": " or "': "; nullopt: there is none.
std::optional<double> value_of(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  LineReader reader(text.substr(at + name.size()));
  double value = 0;
  const bool is_named = reader.take(" = ") || reader.take("': ") || reader.take(": ");
  return is_named && reader.read_number(value) ? std::optional(value) : std::nullopt;
}

// Milliseconds of the loop's step: "host_step_time = 12.3ms", before 0.21 "elapsed_time = 0.0123s".
std::optional<double> step_ms(std::string_view text) {
  if (const auto ms = value_of(text, "host_step_time")) return ms;
  const auto seconds = value_of(text, "elapsed_time");
  return seconds ? std::optional(1e3 * *seconds) : std::nullopt;
}

LineOutcome read_part(const LogPart& part, EngineLog& log) {
  constexpr double kMaxMs = 3.6e6;  // no step takes an hour
  constexpr double kMost = 1e9;
  const auto ms = step_ms(part.text);
  if (!ms) return LineOutcome::Foreign;
  const auto number = value_of(part.text, "iter");
  const auto rank = value_of(part.text, "global_rank").value_or(0);
  const auto scheduled = value_of(part.text, "num_scheduled_requests");
  const auto prompts = value_of(part.text, "num_ctx_requests");
  const auto prompt_tokens = value_of(part.text, "num_ctx_tokens");
  const auto tokens = value_of(part.text, "num_generation_tokens");
  const bool is_whole = number && scheduled && prompts && prompt_tokens && tokens &&
                        *ms <= kMaxMs && *number <= kMost && rank <= kMost && *scheduled <= kMost &&
                        *prompts <= *scheduled && *prompt_tokens <= kMost && *tokens <= kMost;
  if (!is_whole) return LineOutcome::Broken;
  if (*scheduled == 0) return LineOutcome::Read;  // the loop waits
  LogObservation seen = observation(Observed::Iteration, part, static_cast<std::int32_t>(rank));
  // The line's own time, where the logger has none.
  if (seen.time.empty()) seen.time = time_in(part.text);
  seen.number = std::llround(*number);
  seen.elapsed_ns = std::llround(*ms * static_cast<double>(kNsPerMs));
  seen.num_prefill_requests = std::llround(*prompts);
  seen.num_prefill_tokens = std::llround(*prompt_tokens);
  seen.num_running = std::llround(*scheduled - *prompts);
  seen.num_decode_tokens = std::llround(*tokens);
  if (const auto usage = value_of(part.text, "kv_cache_util"); usage && *usage <= 1) {
    seen.cache_usage = *usage;
  }
  log.has_speculation = log.has_speculation || seen.num_decode_tokens > seen.num_running;
  return note(std::move(seen), log);
}

std::string smaller_steps(std::int64_t num_tokens, std::int64_t num_decodes,
                          const EngineArguments& /*arguments*/) {
  return fmt::format("In TensorRT-LLM: max_num_tokens: {}, with enable_chunked_prefill: true.",
                     num_tokens + num_decodes);
}

}  // namespace

constexpr LogDialect kTensorRtLlmLog = {
    .server = &kTensorRtLlmArguments,
    .log_name = "a TensorRT-LLM log",
    .form = LogForm::Iterations,
    .markers = kMarkers,
    .read = read_part,
    .looks_for = "TensorRT-LLM: 'iter = N, ... host_step_time = ', which print_iter_log adds",
    .numbering = "Start trtllm-serve with print_iter_log: true.",
    .receiving = "",
    .budget = "max_num_tokens",
    .more_memory =
        "More KV memory (kv_cache_config.free_gpu_memory_fraction) or fewer requests at once "
        "(max_batch_size) avoids it.",
    .smaller_steps = smaller_steps};

}  // namespace metronome
