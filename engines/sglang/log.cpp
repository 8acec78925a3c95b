// SPDX-License-Identifier: Apache-2.0
// SGLang's lines, from srt/managers/scheduler_components/metrics_reporter.py and
// pool_stats_observer.py, srt/managers/scheduler.py and srt/entrypoints/engine.py of 0.5.23. Older
// versions end "Prefill batch" with a full stop and print the settings as ServerArgs(...).
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <span>
#include <string>

#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/sglang/product.h"

namespace metronome {
namespace {

constexpr std::string_view kPrefill = "Prefill batch";
constexpr std::string_view kDecode = "Decode batch";
constexpr std::string_view kFull = "KV cache pool is full. Retract requests. ";
constexpr std::string_view kTested = "Testing retraction. ";
constexpr std::string_view kAborted = "retract_decode: aborted ";
constexpr std::string_view kArguments = "server_args=";
constexpr std::string_view kPool = "max_total_num_tokens=";
constexpr std::string_view kMarkers[] = {kPrefill, kDecode,    kFull, kTested,
                                         kAborted, kArguments, kPool};

// The number behind `word` in "[2026-01-02 12:00:03 DP1 PP0 TP3] "; 0 without it.
std::int32_t rank_of(std::string_view prefix, std::string_view word) {
  const std::size_t found = prefix.rfind(word);
  std::int32_t rank = 0;
  if (found == std::string_view::npos) return 0;
  LineReader line(prefix.substr(found + word.size()));
  return line.read_number(rank) ? rank : 0;
}

// Reads the text behind "Prefill batch" or "Decode batch": " [12], " with the step's number, ", ",
// or ". " in old versions. False for other texts.
bool read_start(LineReader& line, LogObservation& seen) {
  if (line.take(" [")) return line.read_number(seen.number) && line.take("], ");
  return line.take(", ") || line.take(". ");
}

// The usage of the fullest pool: hybrid models have one for all layers and one for windows.
std::optional<double> cache_usage(const LogFields& fields) {
  std::optional<double> most;
  for (const char* name :
       {"token usage", "full token usage", "swa token usage", "mamba usage", "gpu token usage"}) {
    double usage = 0;
    if (fields.read(name, usage)) most = std::max(most.value_or(0), usage);
  }
  return most;
}

// A number as Python's ":.2f" writes it. At the end of a line that is cut it has fewer digits.
bool read_rate(const LogFields& fields, std::string_view name, double& rate) {
  if (!fields.read(name, rate)) return false;
  const std::string& text = fields.all().find(name)->second;
  const std::size_t point = text.find('.');
  return point != std::string::npos && text.size() >= point + 3;
}

constexpr std::string_view kGenRate = "gen throughput (token/s)";

// Notes a field that the line lacks while a later one is there: then it is not cut. The first
// `num_required` names are those of fields that each version logs.
LineOutcome broken(const LogPart& part, const LogFields& fields,
                   std::span<const std::string_view> names, std::size_t num_required,
                   EngineLog& log) {
  const auto has = [&fields](std::string_view name) { return fields.has(name); };
  const auto required = names.first(num_required);
  const auto lacking = std::find_if_not(required.begin(), required.end(), has);
  if (lacking == required.end() ||
      std::none_of(names.begin() + (lacking - required.begin()), names.end(), has)) {
    return LineOutcome::Broken;
  }
  if (log.num_lacking++ == 0) {
    log.first_lacking = part.line;
    log.lacking_field = *lacking;
  }
  return LineOutcome::Lacking;
}

LineOutcome read_prefill(const LogPart& part, EngineLog& log) {
  LogObservation seen = observation(Observed::Prefill, part, rank_of(part.prefix, " DP"));
  LineReader line(part.text.substr(kPrefill.size()));
  if (!read_start(line, seen)) return LineOutcome::Foreign;
  const LogFields fields(line.rest());
  seen.cache_usage = cache_usage(fields);
  // A server that computes prompts for others runs no requests; in 2025 it did not say so.
  const bool hands_over = fields.has("#unbootstrapped-req") || fields.has("#transferring-req");
  const bool is_whole = fields.read("#new-seq", seen.num_prefill_requests) &&
                        fields.read("#new-token", seen.num_prefill_tokens) &&
                        fields.read("#cached-token", seen.num_cached_tokens) &&
                        (fields.read("#running-req", seen.num_running) ||
                         (hands_over && !fields.has("#running-req"))) &&
                        fields.read("#queue-req", seen.num_waiting) && seen.cache_usage;
  if (!is_whole) {
    constexpr std::string_view kNames[] = {"#new-seq",     "#new-token", "#cached-token",
                                           "#running-req", "#queue-req", "#pending-token",
                                           "cuda graph"};
    return broken(part, fields, kNames, 5, log);
  }
  if (fields.read("#pending-token", seen.num_pending_tokens)) log.has_pending_tokens = true;
  // Versions of 2025 do not have it. In a log that has it elsewhere, a line without it is cut.
  constexpr std::string_view kRate = "input throughput (token/s)";
  double rate = 0;
  if (fields.has(kRate)) {
    if (!read_rate(fields, kRate, rate)) return LineOutcome::Broken;
    log.has_batch_rates = true;
  } else {
    seen.lacks_rate = true;
  }
  std::int64_t num_replayed = 0;
  (void)fields.read("#replay-token", num_replayed);
  if (rate > 0) {
    const double seconds = static_cast<double>(seen.num_prefill_tokens + num_replayed) / rate;
    constexpr double kMaxSeconds = 3600;
    seen.elapsed_ns = std::llround(std::min(seconds, kMaxSeconds) * 1e9);
  }
  return note(std::move(seen), log);
}

LineOutcome read_decode(const LogPart& part, EngineLog& log) {
  LogObservation seen = observation(Observed::Decode, part, rank_of(part.prefix, " DP"));
  LineReader line(part.text.substr(kDecode.size()));
  if (!read_start(line, seen)) return LineOutcome::Foreign;
  const LogFields fields(line.rest());
  seen.cache_usage = cache_usage(fields);
  const bool is_whole = fields.read("#running-req", seen.num_running) && seen.cache_usage &&
                        read_rate(fields, kGenRate, seen.decode_rate) &&
                        fields.read("#queue-req", seen.num_waiting);
  if (!is_whole) {
    constexpr std::string_view kNames[] = {"#running-req", kGenRate, "#queue-req"};
    return broken(part, fields, kNames, 3, log);
  }
  log.has_speculation = log.has_speculation || fields.has("accept len");
  // "cuda graph: True"; other devices have graphs of another name ("npu graph").
  for (const auto& [name, value] : fields.all()) {
    if (name.ends_with(" graph")) seen.is_graph = value.starts_with("True");
  }
  return note(std::move(seen), log);
}

// "0.6953 -> 0.9991".
bool read_ratios(const LogFields& fields, LogObservation& seen) {
  const auto field = fields.all().find("#new_token_ratio");
  if (field == fields.all().end()) return true;
  LineReader line(field->second);
  return line.read_number(seen.old_reserve_ratio) && line.take(" -> ") &&
         line.read_number(seen.new_reserve_ratio);
}

LineOutcome read_retraction(const LogPart& part, std::string_view marker, EngineLog& log) {
  LogObservation seen = observation(Observed::Retraction, part, rank_of(part.prefix, " DP"));
  const LogFields fields(part.text.substr(marker.size()));
  std::int64_t num_freed = 0;
  if (!fields.read("#retracted_reqs", seen.num_preempted) || !read_ratios(fields, seen)) {
    return LineOutcome::Broken;
  }
  if (fields.read("#new_tokens_gained", num_freed)) {
    seen.num_freed_tokens = num_freed;
  } else if (fields.has("#new_tokens_gained")) {
    return LineOutcome::Broken;
  }
  return note(std::move(seen), log);
}

// "max_total_num_tokens=4, chunked_prefill_size=8192, ..., available_gpu_mem=9.30 GB": the settings
// that depend on the GPU's memory.
LineOutcome read_pool(const LogPart& part, EngineLog& log) {
  std::string_view rest = part.text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(", "));
    if (const std::size_t equals = item.find('='); equals != std::string_view::npos) {
      const std::string name(item.substr(0, equals));
      const auto set = log.settings.find(name);
      if (set == log.settings.end() || set->second == "None") log.chosen.insert(name);
      log.settings[name] = std::string(item.substr(equals + 1));
    }
    rest.remove_prefix(std::min(item.size() + 2, rest.size()));
  }
  return LineOutcome::Read;
}

LineOutcome read_part(const LogPart& part, EngineLog& log) {
  // Each stage of a pipeline writes the same batches.
  if (rank_of(part.prefix, " PP") > 0) return LineOutcome::Read;
  if (part.text.starts_with(kPrefill)) return read_prefill(part, log);
  if (part.text.starts_with(kDecode)) return read_decode(part, log);
  if (part.text.starts_with(kFull)) return read_retraction(part, kFull, log);
  if (part.text.starts_with(kTested)) return read_retraction(part, kTested, log);
  if (part.text.starts_with(kAborted)) {
    ++log.num_aborted;
    return LineOutcome::Read;
  }
  if (part.text.starts_with(kPool)) return read_pool(part, log);
  return read_settings(part, kArguments, log);
}

BatchMode batch_mode(const EngineLog& log) {
  BatchMode mode;
  const auto mixed = log.settings.find("enable_mixed_chunk");
  mode.is_mixed = mixed != log.settings.end() && mixed->second == "True";
  constexpr std::int64_t kMost = 1000;
  const auto interval = count_of(log.settings, "decode_log_interval").value_or(0);
  if (interval > 0 && interval <= kMost) mode.decode_interval = interval;
  mode.chunk = count_of(log.settings, "chunked_prefill_size").value_or(0);
  mode.has_pending = log.has_pending_tokens;
  if (count_of(log.settings, "prefill_decode_interval").value_or(0) > 0) {
    mode.least_running_for_decode = std::max<std::int64_t>(
        count_of(log.settings, "prefill_decode_interval_min_bs").value_or(0), 1);
  }
  return mode;
}

std::string smaller_steps(std::int64_t num_tokens, std::int64_t /*num_decodes*/,
                          const EngineArguments& arguments) {
  // A multiple of the page: of all common sizes, if the log does not say it.
  const std::int64_t page = std::max<std::int64_t>(
      count_in_force(arguments, "page_size").value_or(num_tokens < 64 ? 1 : 64), 1);
  const std::int64_t unit = std::max<std::int64_t>(page, num_tokens < 64 ? 1 : 64 / page * page);
  if (num_tokens < unit) {
    return "That is less than a page of SGLang's KV cache, so no chunk keeps it.";
  }
  return fmt::format(
      "In SGLang: --chunked-prefill-size {}, and --enable-mixed-chunk or --prefill-decode-interval "
      "1, so that requests decode between the batches of prompts.",
      num_tokens / unit * unit);
}

}  // namespace

constexpr LogDialect kSglangLog = {
    .server = &kSglangArguments,
    .log_name = "an SGLang log",
    .form = LogForm::Batches,
    .markers = kMarkers,
    .read = read_part,
    .looks_for = "SGLang: 'Prefill batch', 'Decode batch' or 'Retract requests'",
    .batch_mode = batch_mode,
    .numbering = "With SGLANG_LOG_FORWARD_ITERS=1 SGLang numbers its steps, and the log says it.",
    .budget = "chunked_prefill_size",
    .more_graphs =
        "--cuda-graph-max-bs-decode {} (--cuda-graph-max-bs before 0.5.15.post1) captures graphs "
        "for as "
        "many, which take memory of the GPU; a smaller --max-running-requests does without.",
    .no_graphs = "disable_cuda_graph",
    .more_memory =
        "A higher --schedule-conservativeness, more KV memory (--mem-fraction-static) or fewer "
        "requests at once (--max-running-requests) avoids it.",
    .smaller_steps = smaller_steps};

}  // namespace metronome
