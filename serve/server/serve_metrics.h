// What Prometheus scrapes, under vLLM's names, labels and buckets, so that dashboards made for vLLM
// show this server.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/request.h"
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
  std::vector<std::int64_t> counts_;  // of each bucket alone; the last has no bound
  double sum_ = 0;
  std::int64_t count_ = 0;
};

struct ServeMetrics {
  ServeMetrics();

  // Folds in what the engine did since the last time.
  void take(const LiveStats& stats);
  void count_end(EndReason reason) { ++ended[static_cast<std::size_t>(reason)]; }
  // The whole page. Lines of one metric stand together.
  std::string text(std::string_view model, std::int64_t num_blocks, std::int32_t block_size) const;

  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  double kv_use = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_prefix_queries = 0, num_prefix_hits = 0;
  std::int64_t num_prompt_tokens = 0, num_generation_tokens = 0;
  std::array<std::int64_t, kNumEndReasons> ended{};
  // In real time, where clients' bytes are made.
  Histogram ttft, itl, e2e;
  // By the engine's clock.
  Histogram queue, prefill, decode, inference;
  Histogram time_per_token;  // of a request: after the first
  Histogram prompt_tokens, generation_tokens, max_tokens, step_tokens;
  // Of a client's request, which may be several for the engine.
  Histogram longest_generation, num_choices;

  // Metronome's own.
  std::int64_t num_connections = 0;
  std::int64_t num_refused = 0;       // 503
  std::int64_t num_clients_cut = 0;   // read too slowly
  std::int64_t num_clients_left = 0;  // with a request of theirs running
  double max_lag_s = 0;               // of simulated time behind real time, since the last scrape
};

}  // namespace metronome
