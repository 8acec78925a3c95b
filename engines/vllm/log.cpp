// SPDX-License-Identifier: Apache-2.0
// vLLM's lines, from v1/metrics/loggers.py, entrypoints/common/startup.py and config/scheduler.py
// of 0.33, and v1/engine/core.py of 0.22, which wrote iterations with another prefix.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <string>

#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/vllm/iteration_log.h"
#include "engines/vllm/product.h"

namespace metronome {
namespace {

constexpr std::string_view kIteration = "Iteration(";
constexpr std::string_view kReport = "Avg prompt throughput: ";
constexpr std::string_view kSpeculation = "SpecDecoding metrics: ";
constexpr std::string_view kArguments = "non-default args: ";
constexpr std::string_view kCacheSize = "KV cache size: ";
constexpr std::string_view kBudget = "Chunked prefill is enabled with max_num_batched_tokens=";
constexpr std::string_view kVersion = "Initializing a V1 LLM engine (v";
constexpr std::string_view kOldVersion = "Initializing an LLM engine (v";  // before 0.7
constexpr std::string_view kV0Version = "Initializing a V0 LLM engine (v";
constexpr std::string_view kPreempted = "total_num_cumulative_preemption=";  // V0
constexpr std::string_view kAsync = "Asynchronous scheduling is enabled";
constexpr std::string_view kLength = "Using max model len ";
constexpr std::string_view kRequest = "Received request ";
// Lines of uvicorn, which every version logs unless told not to.
constexpr std::string_view kCall = "\"POST /v1/";
constexpr std::string_view kMarkers[] = {
    kIteration, kReport,     kSpeculation, kArguments, kCacheSize, kBudget,  kVersion,
    kLength,    kOldVersion, kV0Version,   kPreempted, kAsync,     kRequest, kCall};

// "GPU KV cache usage" or that of another device, in percent. V0 has also that of the CPU, to which
// it moved blocks.
std::optional<double> cache_usage(const LogFields& fields) {
  double on_gpu = 0;
  if (fields.read("GPU KV cache usage", on_gpu, "%") && on_gpu <= 100) return on_gpu / 100;
  for (const auto& [name, value] : fields.all()) {
    double percent = 0;
    if (name.ends_with("KV cache usage") && fields.read(name, percent, "%") && percent <= 100) {
      return percent / 100;
    }
  }
  return std::nullopt;
}

LineOutcome read_iteration(const LogPart& part, EngineLog& log) {
  LoggedIteration iteration;
  if (!read_vllm_iteration(part.text, iteration)) return LineOutcome::Broken;
  if (iteration.is_empty()) return LineOutcome::Read;
  LogObservation seen = observation(Observed::Iteration, part, vllm_rank(part.prefix));
  seen.number = iteration.number;
  seen.elapsed_ns = iteration.elapsed_ns;
  seen.num_prefill_requests = iteration.num_context_requests;
  seen.num_prefill_tokens = iteration.num_context_tokens;
  seen.num_running = iteration.num_generation_requests;
  seen.num_decode_tokens = iteration.num_generation_tokens;
  seen.cache_usage = cache_usage(LogFields(part.text));
  return note(std::move(seen), log);
}

LineOutcome read_report(const LogPart& part, EngineLog& log) {
  const LogFields fields(part.text);
  LogObservation seen = observation(Observed::Report, part, vllm_rank(part.prefix));
  double running = 0;
  double waiting = 0;
  const bool is_whole =
      fields.read("Avg prompt throughput", seen.prompt_rate, " tokens/s") &&
      fields.read("Avg generation throughput", seen.decode_rate, " tokens/s") &&
      fields.read("Running", running, " reqs") &&
      (fields.read("Waiting", waiting, " reqs") || fields.read("Pending", waiting, " reqs"));  // V0
  if (double swapped = 0; fields.read("Swapped", swapped, " reqs")) waiting += swapped;
  seen.cache_usage = cache_usage(fields);
  if (!is_whole || !seen.cache_usage) return LineOutcome::Broken;
  seen.num_running = std::llround(running);
  seen.num_waiting = std::llround(waiting);
  if (fields.has("Preemptions") && !fields.read("Preemptions", seen.num_preempted)) {
    return LineOutcome::Broken;
  }
  if (double percent = 0; fields.read("Prefix cache hit rate", percent, "%")) {
    seen.hit_rate = percent / 100;
  } else if (fields.has("Prefix cache hit rate")) {
    return LineOutcome::Broken;
  }
  return note(std::move(seen), log);
}

// "KV cache size: 1,234 tokens".
LineOutcome read_cache_size(const LogPart& part, EngineLog& log) {
  std::string number(part.text.substr(kCacheSize.size()));
  number = number.substr(0, number.find_first_not_of("0123456789,"));
  std::erase(number, ',');
  const bool is_whole = part.text.substr(kCacheSize.size()).find(" tokens") != std::string::npos;
  if (number.empty() || !is_whole) return LineOutcome::Foreign;
  log.settings["kv_cache_size_tokens"] = number;
  return LineOutcome::Read;
}

// The count behind the last `name` of a line; 0: there is none.
std::int64_t count_behind(std::string_view line, std::string_view name) {
  const std::size_t at = line.rfind(name);
  if (at == std::string_view::npos) return 0;
  LineReader reader(line.substr(at + name.size()));
  std::int64_t count = 0;
  return reader.read_number(count) ? count : 0;
}

// The length of a list of token ids that is logged whole; 0: there is none.
std::int64_t ids_in(std::string_view line) {
  constexpr std::string_view kIds = "prompt_token_ids: [";
  const std::size_t at = line.rfind(kIds);
  if (at == std::string_view::npos) return 0;
  const std::string_view ids = line.substr(at + kIds.size());
  const std::size_t end = ids.find(']');
  if (end == std::string_view::npos || end == 0) return 0;
  return 1 + std::count(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(end), ',');
}

// "Received request ID: params: SamplingParams(n=1, ..., max_tokens=40, ...)", in releases before
// 0.12 with the prompt before and its ids behind. Each of n answers is a request of its own.
LineOutcome read_request(const LogPart& part, EngineLog& log) {
  const std::string_view rest = part.rest.substr(kRequest.size());
  const std::size_t id_end = rest.find(": ");
  const std::size_t params = rest.rfind("SamplingParams(");
  if (id_end == std::string_view::npos || params == std::string_view::npos) {
    return LineOutcome::Foreign;
  }
  constexpr std::int64_t kMostAnswers = 128;
  const std::string_view sampling = rest.substr(params);
  LogArrival arrival{.line = part.line,
                     .time = time_in(part.prefix),
                     .id = std::string(rest.substr(0, id_end)),
                     .max_output_tokens = count_behind(sampling, " max_tokens=")};
  // --max-log-len cuts the ids.
  if (!log.settings.contains("max_log_len")) arrival.num_prompt_tokens = ids_in(rest);
  const std::int64_t num_answers =
      std::clamp<std::int64_t>(count_behind(sampling, "(n="), 1, kMostAnswers);
  log.arrivals.insert(log.arrivals.end(), static_cast<std::size_t>(num_answers), arrival);
  return LineOutcome::Read;
}

// "POST /v1/completions HTTP/1.1" 200 OK.
LineOutcome read_call(const LogPart& part, EngineLog& log) {
  const std::string_view path = part.text.substr(kCall.size());
  const bool asks_for_tokens = path.starts_with("completions ") ||
                               path.starts_with("chat/completions ") ||
                               path.starts_with("responses ");
  if (!asks_for_tokens || path.find("\" 200") == std::string_view::npos)
    return LineOutcome::Foreign;
  log.answer_lines.push_back(part.line);
  return LineOutcome::Read;
}

// "Accepted: 184 tokens, Drafted: 253 tokens", since the last such line.
LineOutcome read_speculation(const LogPart& part, EngineLog& log) {
  log.has_speculation = true;
  const LogFields fields(part.text.substr(kSpeculation.size()));
  double accepted = 0;
  double drafted = 0;
  if (!fields.read("Accepted", accepted, " tokens") || !fields.read("Drafted", drafted, " tokens"))
    return LineOutcome::Read;
  log.num_accepted_drafts += std::llround(accepted);
  log.num_drafts += std::llround(drafted);
  return LineOutcome::Read;
}

// V0 writes the first preemption and every fiftieth, with the number of all.
LineOutcome read_preemptions(const LogPart& part, EngineLog& log) {
  const std::int64_t all = count_behind(part.text, kPreempted);
  std::int64_t before = 0;
  for (const LogObservation& seen : log.observations) {
    const bool is_of_start = seen.line >= log.start_line;
    if (seen.kind == Observed::Retraction && is_of_start) before += seen.num_preempted;
  }
  LogObservation seen = observation(Observed::Retraction, part, vllm_rank(part.prefix));
  seen.num_preempted = all - before;
  if (seen.num_preempted <= 0) return LineOutcome::Read;  // a server that started again
  return note(std::move(seen), log);
}

// A length that the user did not set is the model's.
LineOutcome read_length(const LogPart& part, EngineLog& log) {
  const auto length = count_behind(part.text, kLength);
  if (length == 0) return LineOutcome::Foreign;
  const auto [set, is_new] = log.settings.try_emplace("max_model_len", std::to_string(length));
  if (is_new) log.chosen.insert(set->first);
  return LineOutcome::Read;
}

LineOutcome read_part(const LogPart& part, EngineLog& log) {
  if (part.text.starts_with(kIteration)) return read_iteration(part, log);
  if (part.text.starts_with(kReport)) return read_report(part, log);
  if (part.text.starts_with(kCacheSize)) return read_cache_size(part, log);
  if (part.text.starts_with(kRequest)) return read_request(part, log);
  if (part.text.starts_with(kCall)) return read_call(part, log);
  if (part.text.starts_with(kLength)) return read_length(part, log);
  if (part.text.starts_with(kSpeculation)) return read_speculation(part, log);
  if (part.text.starts_with(kPreempted)) return read_preemptions(part, log);
  if (part.text.starts_with(kAsync)) {
    const auto [set, is_new] = log.settings.try_emplace("async_scheduling", "True");
    if (is_new) log.chosen.insert(set->first);
    return LineOutcome::Read;
  }
  if (part.text.starts_with(kBudget)) {
    LineReader line(part.text.substr(kBudget.size()));
    std::int64_t tokens = 0;
    if (!line.read_number(tokens) || !line.take(".")) return LineOutcome::Broken;
    const auto [set, is_new] = log.settings.try_emplace("max_num_batched_tokens");
    if (is_new) log.chosen.insert(set->first);
    set->second = std::to_string(tokens);
    return LineOutcome::Read;
  }
  for (const std::string_view version : {kVersion, kOldVersion, kV0Version}) {
    if (!part.text.starts_with(version)) continue;
    const std::string_view rest = part.text.substr(version.size());
    log.settings["version"] = std::string(rest.substr(0, rest.find(')')));
    return LineOutcome::Read;
  }
  return read_settings(part, kArguments, log);
}

std::string smaller_steps(std::int64_t num_tokens, std::int64_t num_decodes,
                          const EngineArguments& arguments) {
  const std::int64_t budget = num_tokens + num_decodes;
  const std::int64_t num_seqs = count_in_force(arguments, "max_num_seqs").value_or(0);
  return fmt::format(
      "In vLLM: --max-num-batched-tokens {}{}.", budget,
      budget < num_seqs
          ? fmt::format(
                " with --max-num-seqs {} at most, as vLLM refuses more sequences than tokens",
                budget)
          : std::string());
}

}  // namespace

constexpr LogDialect kVllmLog = {
    .server = &kVllmArguments,
    .log_name = "a vLLM log",
    .form = LogForm::Iterations,
    .markers = kMarkers,
    .read = read_part,
    .looks_for =
        "vLLM: 'Iteration(N): ', which --enable-logging-iteration-details adds, or 'Avg prompt "
        "throughput: '",
    .numbering = "Start vLLM with --enable-logging-iteration-details.",
    .receiving = "Start vLLM with --enable-log-requests as well.",
    .budget = "max_num_batched_tokens",
    .shorter_stalls =
        "--prefill-schedule-interval (0.33) lets answers have steps of their own between chunks.",
    .more_memory =
        "More KV memory (--gpu-memory-utilization) or fewer requests at once (--max-num-seqs) "
        "avoids it.",
    .smaller_steps = smaller_steps};

bool read_vllm_iteration(std::string_view text, LoggedIteration& iteration) {
  // An upper limit: no step takes an hour.
  constexpr double kMaxMs = 3.6e6;
  LineReader line(text);
  double elapsed_ms = 0;
  const bool is_whole =
      line.take(kIteration) && line.read_number(iteration.number) && line.take("): ") &&
      line.read_number(iteration.num_context_requests) && line.take(" context requests, ") &&
      line.read_number(iteration.num_context_tokens) && line.take(" context tokens, ") &&
      line.read_number(iteration.num_generation_requests) && line.take(" generation requests, ") &&
      line.read_number(iteration.num_generation_tokens) && line.take(" generation tokens, ") &&
      line.take("iteration elapsed time: ") && line.read_number(elapsed_ms) && line.take(" ms");
  if (!is_whole || !(elapsed_ms <= kMaxMs)) return false;
  iteration.elapsed_ns = std::llround(elapsed_ms * static_cast<double>(kNsPerMs));
  return true;
}

std::int32_t vllm_rank(std::string_view prefix) {
  for (const std::string_view before : {"Engine ", "EngineCore_DP"}) {
    const std::size_t found = prefix.rfind(before);
    std::int32_t rank = 0;
    if (found == std::string_view::npos) continue;
    LineReader line(prefix.substr(found + before.size()));
    if (line.read_number(rank)) return rank;
  }
  return 0;
}

}  // namespace metronome
