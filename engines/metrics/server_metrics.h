// SPDX-License-Identifier: Apache-2.0
// The page of metrics of a serving engine: load, counters and histograms, for each of its
// data-parallel engines. engines/NAME/metrics has the names of a product.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engines/metrics/bucket_counts.h"

namespace metronome {

// Times are in seconds.
enum class ServerFigure : std::uint8_t {
  // States.
  Running,
  Waiting,
  CacheUse,   // share of the KV cache
  HitRate,    // of the prefix cache, where no counters have it
  PoolTokens, // of the KV cache
  // Counters, since the server's start.
  Preempted,
  PromptTokens,
  OutputTokens,
  PrefixQueries,  // prompt tokens that were looked up
  PrefixHits,
  Ended,  // requests
  // Histograms.
  Ttft,
  Itl,
  E2el,
  QueueTime,
  PromptLength,
  OutputLength,
};
constexpr ServerFigure kLastState = ServerFigure::PoolTokens;
constexpr ServerFigure kLastCounter = ServerFigure::Ended;
constexpr std::size_t kNumServerFigures = static_cast<std::size_t>(ServerFigure::OutputLength) + 1;

inline bool is_histogram(ServerFigure figure) { return figure > kLastCounter; }

struct MetricName {
  std::string_view name;  // without "_bucket"
  ServerFigure figure;
};

// The names of one product.
struct EngineMetrics {
  std::string_view policy;  // of the product
  std::string_view title;   // "vLLM"
  std::string_view prefix;  // of its own metrics: "vllm:"
  // A figure may have several names, of several versions: the first that a page has counts.
  std::span<const MetricName> names;
  std::string_view rank_label;  // of a data-parallel engine
  // Labels of the workers of one engine, which all show its figures: only those of "0" count.
  std::span<const std::string_view> worker_labels = {};
  // The metric whose labels are settings of the KV cache, and those labels.
  std::string_view cache_info = {};
  std::string_view block_size = {};
  std::string_view num_blocks = {};
  std::string_view switched_on_by = {};  // a sentence: what makes the server show the page
};

// The figures of one engine.
struct EngineFigures {
  std::array<std::optional<double>, kNumServerFigures> numbers;  // states and counters
  std::array<BucketCounts, kNumServerFigures> histograms;

  std::optional<double> number(ServerFigure figure) const {
    return numbers[static_cast<std::size_t>(figure)];
  }
  const BucketCounts& histogram(ServerFigure figure) const {
    return histograms[static_cast<std::size_t>(figure)];
  }
};

struct ServerMetrics {
  const EngineMetrics* names = nullptr;
  std::set<std::string> models;                    // as the server calls them
  std::map<std::int32_t, EngineFigures> engines;   // by rank; never empty
  std::optional<std::int64_t> block_size;          // tokens
  std::optional<std::int64_t> num_blocks;          // of an engine's KV cache
  std::optional<double> started_at;                // of the process, seconds since 1970
  std::int64_t num_broken = 0;                     // lines of the page
};

// Reads a page. `why` is set where it has no metrics of a known product: a phrase.
std::optional<ServerMetrics> read_server_metrics(std::string_view page, std::string& why);

// The work of one engine between two looks: states as they are now, counters and histograms without
// what they were before. nullopt: something has fallen, as the server started again.
std::optional<EngineFigures> figures_since(const EngineFigures& before, const EngineFigures& now);
// Requests, tokens and histograms of all engines together; the cache of the fullest one.
EngineFigures all_engines_together(const std::map<std::int32_t, EngineFigures>& engines);

// "vLLM, SGLang": products whose metrics are known.
std::string metrics_titles();

}  // namespace metronome
