// SPDX-License-Identifier: Apache-2.0
// Writes what an engine would log of a simulated run, in the form of vLLM 0.33 and SGLang 0.5.23.
// The settings are the scenario's; what an engine logs and the simulator does not have is left out.
#pragma once

#include <map>
#include <string>

#include "core/engine/event.h"
#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"

namespace metronome::testing {

class EngineLogWriter final : public EventSink {
 public:
  // For the policy `vllm` or `sglang`. `report_seconds` is vLLM's VLLM_LOG_STATS_INTERVAL.
  EngineLogWriter(const Scenario& scenario, std::int64_t num_blocks, int report_seconds);

  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

  // A comment that says how the log came to be, then its lines.
  std::string text() const { return text_; }

  bool logs_requests = false;  // vLLM's --enable-log-requests

  // The figures that a diagnosis of the log should find.
  std::int64_t num_preempted = 0;
  std::int64_t num_freed_tokens = 0;
  std::int64_t num_recomputed_tokens = 0;  // of requests that had outputs

 private:
  struct Track {
    std::int32_t num_prompt_tokens = 0;
    std::int32_t max_output_tokens = 0;
    std::int32_t num_cached = 0;  // tokens in the KV cache
    std::int32_t num_outputs = 0;
    std::int32_t num_hits = 0;  // of the prompt, at the first admission
    bool is_admitted = false;
    bool is_new = false;  // no chunk since its admission
    bool decodes = false;
  };
  struct Sums {
    std::int64_t num_requests = 0, num_tokens = 0, num_cached = 0;
  };

  void begin_sglang();
  void begin_vllm();
  void sglang_step(const StepRecord& step, const Sums& prefill, std::int64_t num_decodes);
  void retraction(TimeNs at);
  void vllm_step(const StepRecord& step, const Sums& context, const Sums& generation);
  void vllm_report(TimeNs at);
  double usage() const;
  void line(TimeNs at, const std::string& words);

  Scenario scenario_;
  std::int64_t capacity_;  // tokens
  bool is_vllm_;
  std::string text_;
  std::map<std::size_t, Track> tracks_;
  std::int64_t num_waiting_ = 0;
  // SGLang
  TimeNs last_prefill_ = 0, last_decode_ = 0;
  std::int64_t num_decode_steps_ = 0, num_decoded_ = 0;
  std::int64_t num_retracted_ = 0, num_gained_ = 0;
  double reserve_ = 0;
  // vLLM, since the last report
  TimeNs report_ns_;
  TimeNs last_report_ = 0;
  std::int64_t num_prompt_tokens_ = 0, num_output_tokens_ = 0, num_preempted_ = 0;
  // vLLM, of all requests
  std::int64_t num_looked_up_ = 0, num_hit_ = 0;
};

// A simulated run of the scenario: its log, and what happened.
struct WrittenRun {
  std::string text;
  RunRecord truth;
};
WrittenRun run_logged(const Scenario& scenario, bool logs_requests = false);

}  // namespace metronome::testing
