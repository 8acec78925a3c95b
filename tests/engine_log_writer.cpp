// SPDX-License-Identifier: Apache-2.0
#include "tests/engine_log_writer.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/workload/workload.h"
#include "engines/sglang/settings.h"
#include "engines/vllm/settings.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"

namespace metronome::testing {
namespace {

[[gnu::format(printf, 1, 2)]] std::string formatted(const char* form, ...) {
  char buffer[1024];
  std::va_list arguments;
  va_start(arguments, form);
  std::vsnprintf(buffer, sizeof buffer, form, arguments);
  va_end(arguments);
  return buffer;
}

double seconds(TimeNs ns) { return static_cast<double>(ns) / 1e9; }

const char* python(bool value) { return value ? "True" : "False"; }

}  // namespace

EngineLogWriter::EngineLogWriter(const Scenario& scenario, std::int64_t num_blocks,
                                 int report_seconds)
    : scenario_(scenario),
      capacity_(num_blocks * scenario.kv_cache.block_size),
      is_vllm_(scenario.scheduler.policy == "vllm"),
      reserve_(0.7 * scenario.scheduler.settings<SglangConfig>().schedule_conservativeness),
      report_ns_(report_seconds * TimeNs{1'000'000'000}) {
  METRONOME_CHECK(is_vllm_ || scenario.scheduler.policy == "sglang", "the engine has a log");
  is_vllm_ ? begin_vllm() : begin_sglang();
}

void EngineLogWriter::begin_vllm() {
  text_ =
      "# Synthetic: a simulated run, written as vLLM 0.33 would log it "
      "(tests/engine_log_writer.cpp).\n";
  const VllmConfig& config = scenario_.scheduler.settings<VllmConfig>();
  line(0, formatted(
              "[startup.py:96] non-default args: {'model': '%s', 'max_model_len': %d, "
              "'enable_logging_iteration_details': True, 'max_num_batched_tokens': %d, "
              "'max_num_seqs': %d, 'long_prefill_token_threshold': %d, 'async_scheduling': "
              "%s}",
              scenario_.model.c_str(), static_cast<int>(scenario_.engine.max_model_len.value_or(0)),
              token_budget(scenario_.scheduler), static_cast<int>(scenario_.engine.max_num_seqs),
              config.long_prefill_token_threshold, python(scenario_.engine.async_depth > 1)));
  const auto max_model_len = scenario_.engine.max_model_len.value_or(capacity_);
  line(0,
       "[kv_cache_utils.py:1147] GPU KV cache size: " + grouped_text(capacity_) +
           " tokens, Maximum concurrency for " + grouped_text(max_model_len) +
           " tokens per request: " +
           formatted("%.2fx", static_cast<double>(capacity_) / static_cast<double>(max_model_len)));
}

void EngineLogWriter::begin_sglang() {
  text_ =
      "# Synthetic: a simulated run, written as SGLang 0.5.23 would log it "
      "(tests/engine_log_writer.cpp).\n";
  const SglangConfig& config = scenario_.scheduler.settings<SglangConfig>();
  const std::string most = config.prefill_max_requests
                               ? std::to_string(*config.prefill_max_requests)
                               : std::string("None");
  line(0,
       formatted("server_args={'model_path': '%s', 'mem_fraction_static': 0.88, "
                 "'max_running_requests': %d, 'chunked_prefill_size': %d, "
                 "'prefill_decode_interval': %d, 'max_prefill_tokens': %d, 'prefill_max_requests': "
                 "%s, 'schedule_policy': '%s', 'schedule_conservativeness': %.1f, 'page_size': %d, "
                 "'disable_radix_cache': %s, 'disable_overlap_schedule': %s, 'enable_mixed_chunk': "
                 "%s, 'decode_log_interval': 40}",
                 scenario_.model.c_str(), static_cast<int>(scenario_.engine.max_num_seqs),
                 static_cast<int>(config.chunked_prefill_size), config.prefill_decode_interval,
                 config.max_prefill_tokens, most.c_str(),
                 config.schedule_policy == SglangConfig::SchedulePolicy::Lpm ? "lpm" : "fcfs",
                 config.schedule_conservativeness, static_cast<int>(scenario_.kv_cache.block_size),
                 python(!scenario_.kv_cache.enable_prefix_caching.value_or(true)),
                 python(scenario_.engine.async_depth == 1), python(config.enable_mixed_chunk)));
  line(0, formatted("max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, "
                    "max_running_requests=%d, context_len=%d, available_gpu_mem=8.80 GB",
                    static_cast<int>(capacity_), static_cast<int>(config.chunked_prefill_size),
                    config.max_prefill_tokens, static_cast<int>(scenario_.engine.max_num_seqs),
                    static_cast<int>(scenario_.engine.max_model_len.value_or(0))));
}

void EngineLogWriter::line(TimeNs at, const std::string& words) {
  const auto second = static_cast<int>(at / 1'000'000'000);
  const int hour = 12 + second / 3600;
  if (is_vllm_) {
    text_ += formatted("(APIServer pid=41) INFO 01-02 %02d:%02d:%02d ", hour, second / 60 % 60,
                       second % 60);
  } else {
    text_ += formatted("[2026-01-02 %02d:%02d:%02d] ", hour, second / 60 % 60, second % 60);
  }
  text_ += words + "\n";
}

double EngineLogWriter::usage() const {
  std::int64_t used = 0;
  for (const auto& [id, track] : tracks_) used += track.num_cached;
  return std::min(1.0, static_cast<double>(used) / static_cast<double>(capacity_));
}

void EngineLogWriter::on_event(const Event& event, const Request& request) {
  Track& track = tracks_[index(event.request)];
  track.num_prompt_tokens = request.num_prompt_tokens;
  track.max_output_tokens = request.max_output_tokens;
  switch (event.kind) {
    case EventKind::Submitted:
      if (!logs_requests) break;
      line(event.time,
           formatted("[request_logger.py:65] Received request cmpl-%d: params: SamplingParams(n=1, "
                     "presence_penalty=0.0, ignore_eos=False, max_tokens=%d, min_tokens=0, "
                     "logprobs=None), lora_request: None.",
                     static_cast<int>(index(event.request)),
                     static_cast<int>(request.max_output_tokens)));
      break;
    case EventKind::Admitted: track.is_admitted = track.is_new = true; break;
    case EventKind::FirstToken: break;
    case EventKind::Preempted:
      ++num_preempted;
      ++num_retracted_;
      ++num_preempted_;
      num_gained_ += track.num_cached;
      num_freed_tokens += track.num_cached;
      track.num_cached = 0;
      track.is_admitted = track.decodes = false;
      break;
    case EventKind::Ended: tracks_.erase(index(event.request)); break;
  }
}

void EngineLogWriter::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                              const RequestTable&) {
  num_waiting_ = step.num_waiting;
  if (!is_vllm_) retraction(step.planned_at);
  Sums prefill;
  Sums generation;  // vLLM: with what is computed again behind a resumed request's first chunk
  for (const ScheduledChunk& chunk : chunks) {
    const auto found = tracks_.find(index(chunk.request));
    Track nobody;
    Track& track = found == tracks_.end() ? nobody : found->second;
    const bool is_new = std::exchange(track.is_new, false);
    if (chunk.kind == ChunkKind::Prefill && track.num_outputs > 0) {
      num_recomputed_tokens += chunk.num_tokens;
    }
    const bool generates =
        chunk.kind == ChunkKind::Decode || (is_vllm_ && track.num_outputs > 0 && !is_new);
    Sums& sums = generates ? generation : prefill;
    ++sums.num_requests;
    sums.num_tokens += chunk.num_tokens;
    if (!is_new || generates) continue;
    prefill.num_cached += chunk.first_position;
    if (track.num_outputs > 0) continue;
    track.num_hits = chunk.first_position;
    num_hit_ += chunk.first_position;
    num_looked_up_ += track.num_prompt_tokens;
  }
  is_vllm_ ? vllm_step(step, prefill, generation)
           : sglang_step(step, prefill, generation.num_requests);
  for (const ScheduledChunk& chunk : chunks) {
    const auto found = tracks_.find(index(chunk.request));
    if (found == tracks_.end()) continue;
    Track& track = found->second;
    if (track.is_admitted) track.num_cached = std::max(track.num_cached, chunk.end_position());
    if (chunk.num_emitted == 0) continue;
    track.decodes = track.is_admitted;
    // Counted with the first token, and not again after a preemption.
    if (track.num_outputs == 0) num_prompt_tokens_ += track.num_prompt_tokens - track.num_hits;
    track.num_outputs += chunk.num_emitted;
    num_output_tokens_ += chunk.num_emitted;
  }
  if (is_vllm_ && step.finished_at - last_report_ >= report_ns_) vllm_report(step.finished_at);
}

// ---- SGLang ----

void EngineLogWriter::retraction(TimeNs at) {
  if (num_retracted_ == 0) return;
  // SGLang's estimate after a retraction: outputs so far, and 20 more, of all that may come.
  double decoded = 0;
  double most = 0;
  for (const auto& [id, track] : tracks_) {
    if (!track.decodes) continue;
    decoded += track.num_outputs + 20;
    most += track.max_output_tokens;
  }
  const double before = reserve_;
  reserve_ = most > 0 ? std::min(1.0, decoded / most) : 1.0;
  line(at, formatted("KV cache pool is full. Retract requests. #retracted_reqs: %d, "
                     "#new_tokens_gained: %d, #new_token_ratio: %.4f -> %.4f",
                     static_cast<int>(num_retracted_), static_cast<int>(num_gained_), before,
                     reserve_));
  num_retracted_ = num_gained_ = 0;
}

void EngineLogWriter::sglang_step(const StepRecord& step, const Sums& prefill,
                                  std::int64_t num_decodes) {
  const TimeNs now = step.finished_at;
  if (prefill.num_tokens > 0) {
    std::int64_t num_running = 0;
    std::int64_t num_pending = 0;
    for (const auto& [id, track] : tracks_) {
      num_running += track.decodes ? 1 : 0;
      if (track.num_outputs == 0) num_pending += track.num_prompt_tokens - track.num_cached;
    }
    num_pending = std::max<std::int64_t>(num_pending - prefill.num_tokens - prefill.num_cached, 0);
    line(now,
         formatted("Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: %d, token "
                   "usage: %.2f, #running-req: %d, #queue-req: %d, #pending-token: %d, cuda "
                   "graph: False, input throughput (token/s): %.2f",
                   static_cast<int>(prefill.num_requests), static_cast<int>(prefill.num_tokens),
                   static_cast<int>(prefill.num_cached), usage(), static_cast<int>(num_running),
                   static_cast<int>(num_waiting_), static_cast<int>(num_pending),
                   static_cast<double>(prefill.num_tokens) / seconds(now - last_prefill_)));
    last_prefill_ = now;
    return;
  }
  const double least =
      0.14 * 0.7 * scenario_.scheduler.settings<SglangConfig>().schedule_conservativeness;
  reserve_ = std::max(least, reserve_ - 0.86 / 0.14 * least / 600);
  num_decoded_ += num_decodes;
  if (++num_decode_steps_ % 40 != 0) return;
  std::int64_t used = 0;
  for (const auto& [id, track] : tracks_) used += track.num_cached;
  line(now, formatted("Decode batch, #running-req: %d, #token: %d, token usage: %.2f, cuda graph: "
                      "True, gen throughput (token/s): %.2f, #queue-req: %d",
                      static_cast<int>(num_decodes), static_cast<int>(used), usage(),
                      static_cast<double>(num_decoded_) / seconds(now - last_decode_),
                      static_cast<int>(num_waiting_)));
  last_decode_ = now;
  num_decoded_ = 0;
}

// ---- vLLM ----

void EngineLogWriter::vllm_step(const StepRecord& step, const Sums& context,
                                const Sums& generation) {
  line(step.finished_at,
       formatted("[loggers.py:199] Engine 000: Iteration(%d): %d context requests, %d context "
                 "tokens, %d generation requests, %d generation tokens, iteration elapsed time: "
                 "%.2f ms, GPU KV cache usage: %.1f%%",
                 static_cast<int>(step.step_index), static_cast<int>(context.num_requests),
                 static_cast<int>(context.num_tokens), static_cast<int>(generation.num_requests),
                 static_cast<int>(generation.num_tokens),
                 seconds(step.finished_at - step.started_at) * 1e3, 100 * usage()));
}

void EngineLogWriter::vllm_report(TimeNs at) {
  const double interval = seconds(at - last_report_);
  std::int64_t num_running = 0;
  for (const auto& [id, track] : tracks_) num_running += track.is_admitted ? 1 : 0;
  std::string words = formatted(
      "[loggers.py:334] Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation "
      "throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs",
      static_cast<double>(num_prompt_tokens_) / interval,
      static_cast<double>(num_output_tokens_) / interval, static_cast<int>(num_running),
      static_cast<int>(num_waiting_));
  if (num_preempted_ > 0) {
    words += formatted(", Preemptions: %d", static_cast<int>(num_preempted_));
  }
  words += formatted(", GPU KV cache usage: %.1f%%", 100 * usage());
  if (num_looked_up_ > 0) {
    words += formatted(", Prefix cache hit rate: %.1f%%",
                       100.0 * static_cast<double>(num_hit_) / static_cast<double>(num_looked_up_));
  }
  line(at, words);
  last_report_ = at;
  num_prompt_tokens_ = num_output_tokens_ = num_preempted_ = 0;
}

WrittenRun run_logged(const Scenario& scenario, bool logs_requests) {
  Simulation simulation = prepare_simulation(scenario);
  EngineLogWriter writer(scenario, simulation.setup.kv_cache.num_blocks, 10);
  writer.logs_requests = logs_requests;
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  RunRecorder recorder(workload.requests.size());
  EventSink* sinks[] = {&recorder, &writer};
  VirtualClock clock;
  simulation.run(workload, clock, sinks);
  return {writer.text(), recorder.finish()};
}

}  // namespace metronome::testing
