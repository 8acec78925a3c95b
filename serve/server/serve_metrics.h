// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus with vLLM's names, labels and buckets, so that dashboards made for vLLM
// also show this server.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/request.h"
#include "core/metrics/run_record.h"
#include "serve/server/live_engine.h"

namespace metronome {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}

  void add(double value);
  // Appends the lines of the metric. `labels` are "a=\"b\",c=\"d\"".
  void write(std::string_view name, std::string_view help, std::string_view labels,
             std::string& out) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // per bucket, not cumulative; the last has no bound
  double sum_ = 0;
  std::int64_t count_ = 0;
};

struct ServeMetrics {
  explicit ServeMetrics(std::int32_t num_drafts);  // see max_drafts

  // Adds the engine's activity since the last call.
  void take(const LiveStats& stats);
  void count_end(EndReason reason) { ++ended[static_cast<std::size_t>(reason)]; }
  // The whole page. Lines of one metric are consecutive.
  std::string text(std::string_view model, std::int64_t num_blocks, std::int32_t block_size) const;

  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  double kv_use = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_prefix_queries = 0, num_prefix_hits = 0;
  std::int64_t num_prompt_tokens = 0, num_generation_tokens = 0;
  std::array<std::int64_t, kNumEndReasons> ended{};
  std::int32_t max_drafts;  // of a decode; 0 without speculative decoding
  DraftCounts drafts;
  // In real time, measured when clients' bytes are made.
  Histogram ttft, itl, e2e;
  // By the engine's clock, as real time: pages of a simulation at any speed have one unit.
  Histogram queue, prefill, decode, inference;
  Histogram time_per_token;  // per request: TPOT
  Histogram prompt_tokens, generation_tokens, max_tokens, step_tokens;
  // Per client request, which may be several requests for the engine.
  Histogram longest_generation, num_choices;

  // Metrics without a vLLM counterpart.
  std::int64_t num_connections = 0;
  std::int64_t num_refused = 0;       // answered with 429 or 503, or not at all
  std::int64_t num_clients_cut = 0;   // cut off because they read nothing for too long
  std::int64_t num_answers_cut = 0;   // ended because unsent tokens held too many bytes
  std::int64_t num_clients_left = 0;  // disconnected while their request was running
  double max_lag_s = 0;               // most that simulated time lagged since the last scrape
};

}  // namespace metronome
