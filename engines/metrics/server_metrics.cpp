// SPDX-License-Identifier: Apache-2.0
#include "engines/metrics/server_metrics.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/base/names.h"
#include "core/scenario/engine_product.h"
#include "engines/log/log_text.h"
#include "engines/metrics/prometheus_text.h"

namespace metronome {
namespace {

std::vector<const EngineMetrics*> known_metrics() {
  std::vector<const EngineMetrics*> known;
  for (const EngineProduct& product : all_engines()) {
    if (product.metrics != nullptr) known.push_back(product.metrics);
  }
  return known;
}

// The lines of one name, of one engine.
struct Collected {
  std::optional<double> number;
  std::map<double, double> counts;  // by bound
  double count = 0, sum = 0;
};

// Beyond any server: sums of so many lines stay exact enough, and differences finite.
constexpr double kMostValue = 1e15;

bool is_count(double value) { return value >= 0 && value <= kMostValue; }

bool is_share(ServerFigure figure) {
  return figure == ServerFigure::CacheUse || figure == ServerFigure::HitRate;
}

// Collects the samples of one product.
class PageReader {
 public:
  explicit PageReader(const EngineMetrics& names) : names_(names) { metrics.names = &names; }

  void take(const MetricSample& sample) {
    if (sample.name == names_.cache_info) return take_cache(sample);
    if (!sample.name.starts_with(names_.prefix)) return;
    has_names = true;
    if (!is_of_first_worker(sample)) return;
    for (std::size_t i = 0; i < names_.names.size(); ++i) {
      if (sample.name.starts_with(names_.names[i].name)) take_row(i, sample);
    }
  }

  void finish() {
    for (std::size_t i = 0; i < names_.names.size(); ++i) {
      const auto figure = static_cast<std::size_t>(names_.names[i].figure);
      for (auto& [rank, seen] : rows_[i]) {
        EngineFigures& engine = metrics.engines[rank];
        if (seen.number && !engine.numbers[figure]) engine.numbers[figure] = seen.number;
        if (seen.counts.empty() || !engine.histograms[figure].counts.empty()) continue;
        engine.histograms[figure] = make_buckets(seen.counts, seen.count, seen.sum);
      }
    }
  }

  ServerMetrics metrics;
  bool has_names = false;  // of the product, if only with values that no server has

 private:
  // All workers of an engine show its figures. With ranks in the labels, the first worker of each
  // counts, which need not be "0": with data-parallel attention each rank has workers of its own.
  bool is_of_first_worker(const MetricSample& sample) {
    std::string workers;
    bool is_zero = true;
    for (const std::string_view label : names_.worker_labels) {
      const std::string* worker = sample.label(label);
      if (worker == nullptr) continue;
      is_zero = is_zero && *worker == "0";
      workers += *worker + ",";
    }
    if (sample.label(names_.rank_label) == nullptr) return is_zero;
    return first_workers_.emplace(rank_of(sample), workers).first->second == workers;
  }

  std::int32_t rank_of(const MetricSample& sample) const {
    const std::string* label = sample.label(names_.rank_label);
    if (label == nullptr) return 0;
    return number_in<std::int32_t>(*label).value_or(0);
  }

  void take_cache(const MetricSample& sample) {
    const auto count = [&sample](std::string_view label) -> std::optional<std::int64_t> {
      const std::string* text = sample.label(label);
      if (text == nullptr) return std::nullopt;
      const auto number = number_in<std::int64_t>(*text);
      return number && *number > 0 ? number : std::nullopt;
    };
    if (!metrics.block_size) metrics.block_size = count(names_.block_size);
    if (!metrics.num_blocks) metrics.num_blocks = count(names_.num_blocks);
  }

  void take_row(std::size_t row, const MetricSample& sample) {
    constexpr std::size_t kMostEngines = 10'000;
    const MetricName& name = names_.names[row];
    const std::string_view end = sample.name.substr(name.name.size());
    const bool has_form = is_histogram(name.figure)
                              ? end == "_bucket" || end == "_count" || end == "_sum"
                              : end.empty();
    if (!has_form || !is_count(sample.value)) return;
    if (rows_.size() < names_.names.size()) rows_.resize(names_.names.size());
    auto& engines = rows_[row];
    const std::int32_t rank = rank_of(sample);
    if (engines.size() >= kMostEngines && !engines.contains(rank)) return;
    Collected& seen = engines[rank];
    if (const std::string* model = sample.label("model_name");
        model != nullptr && metrics.models.size() < kMostEngines) {
      metrics.models.insert(*model);
    }
    if (end.empty()) {
      // Of several models or reasons.
      const double before = seen.number.value_or(0);
      seen.number = is_share(name.figure) ? std::max(before, sample.value) : before + sample.value;
    } else if (end == "_count") {
      seen.count += sample.value;
    } else if (end == "_sum") {
      seen.sum += sample.value;
    } else if (const std::string* bound = sample.label("le")) {
      take_bucket(*bound, sample.value, seen);
    }
  }

  static void take_bucket(const std::string& bound, double count, Collected& seen) {
    constexpr std::size_t kMostBuckets = 1'000;
    const std::string word = lower_ascii(bound);
    const bool is_last = word == "+inf" || word == "inf";
    const auto number =
        is_last ? std::optional(std::numeric_limits<double>::infinity()) : number_in<double>(bound);
    const bool is_bound = number && (is_last || std::abs(*number) <= kMostValue);
    if (is_bound && seen.counts.size() < kMostBuckets) seen.counts[*number] += count;
  }

  const EngineMetrics& names_;
  std::map<std::int32_t, std::string> first_workers_;  // by rank
  // By row of the names, then by rank.
  std::vector<std::map<std::int32_t, Collected>> rows_ =
      std::vector<std::map<std::int32_t, Collected>>(names_.names.size());
};

}  // namespace

std::string metrics_titles() {
  std::string text;
  for (const EngineMetrics* one : known_metrics()) {
    text += (text.empty() ? "" : ", ") + std::string(one->title);
  }
  return text;
}

std::optional<ServerMetrics> read_server_metrics(std::string_view page, std::string& why) {
  std::vector<PageReader> readers;
  for (const EngineMetrics* names : known_metrics()) readers.emplace_back(*names);
  std::optional<double> started_at;
  const MetricsRead read = read_metrics(page, [&](const MetricSample& sample) {
    if (sample.name == "process_start_time_seconds" && is_count(sample.value)) {
      started_at = sample.value;
    }
    for (PageReader& reader : readers) reader.take(sample);
  });
  PageReader* found = nullptr;
  for (PageReader& reader : readers) {
    reader.finish();
    if (found == nullptr && !reader.metrics.engines.empty()) found = &reader;
  }
  if (found == nullptr) {
    for (const PageReader& reader : readers) {
      if (!reader.has_names) continue;
      why = fmt::format("has metrics of {}, but none with a value that counts",
                        reader.metrics.names->title);
      return std::nullopt;
    }
    why = read.num_samples > 0 ? "has metrics, but none of " + metrics_titles()
                               : "is no page of metrics";
    return std::nullopt;
  }
  found->metrics.started_at = started_at;
  found->metrics.num_broken = read.num_broken;
  return std::move(found->metrics);
}

std::optional<EngineFigures> figures_since(const EngineFigures& before, const EngineFigures& now) {
  EngineFigures since = now;
  for (std::size_t i = 0; i < kNumServerFigures; ++i) {
    const auto figure = static_cast<ServerFigure>(i);
    if (is_histogram(figure)) {
      auto values = values_since(before.histograms[i], now.histograms[i]);
      if (!values) return std::nullopt;
      since.histograms[i] = std::move(*values);
    } else if (figure > kLastState && now.numbers[i] && before.numbers[i]) {
      if (*now.numbers[i] < *before.numbers[i]) return std::nullopt;
      since.numbers[i] = *now.numbers[i] - *before.numbers[i];
    }
  }
  return since;
}

EngineFigures all_engines_together(const std::map<std::int32_t, EngineFigures>& engines) {
  EngineFigures all;
  for (const auto& [rank, one] : engines) {
    for (std::size_t i = 0; i < kNumServerFigures; ++i) {
      const auto figure = static_cast<ServerFigure>(i);
      add_buckets(one.histograms[i], all.histograms[i]);
      if (!one.numbers[i]) continue;
      const double before = all.numbers[i].value_or(0);
      all.numbers[i] =
          is_share(figure) ? std::max(before, *one.numbers[i]) : before + *one.numbers[i];
    }
  }
  return all;
}

}  // namespace metronome
