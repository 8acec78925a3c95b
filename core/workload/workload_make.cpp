// Draws synthetic workloads. Each kind of number has its own generator and is drawn request by
// request. So changing one distribution keeps the others' draws.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/rng.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "core/workload/workload_trace.h"

namespace metronome {

namespace {

constexpr double kNsPerSecondF = 1e9;
constexpr double kNormalQuantile99 = 2.3263478740408408;  // of the standard normal distribution

// ---- Arrivals ----

void check_last_arrival(const ArrivalConfig& config, const char* key, double last_s) {
  if (last_s <= static_cast<double>(kMaxArrivalSeconds)) return;
  fail_config(config.where, std::string("workload.arrivals.") + key,
              "the last request would arrive after " + std::to_string(last_s) + " s; at most " +
                  std::to_string(kMaxArrivalSeconds) + " s");
}

void set_constant_arrivals(const ArrivalConfig& config, std::span<RequestSpec> requests) {
  const double gap_ns = kNsPerSecondF / config.rate;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival = std::llround(static_cast<double>(i + 1) * gap_ns);
  }
}

void set_gamma_arrivals(const ArrivalConfig& config, double burstiness, std::uint64_t seed,
                        std::span<RequestSpec> requests) {
  Rng rng(seed, "arrivals");
  const double scale_s = 1.0 / (config.rate * burstiness);
  std::vector<double> times_s(requests.size());
  double time_s = 0;
  for (double& slot : times_s) {
    time_s += rng.gamma(burstiness, scale_s);
    slot = time_s;
  }
  // Without scaling, the actual rate would differ from the configured one by some percent.
  const double last_ns = static_cast<double>(requests.size()) / config.rate * kNsPerSecondF;
  // Shares stay in [0, 1] even where very bursty gaps are too small as divisors.
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double share = time_s > 0 ? times_s[i] / time_s : 1.0;
    requests[i].arrival = std::llround(share * last_ns);
  }
}

void set_rate_arrivals(const ArrivalConfig& config, std::uint64_t seed,
                       std::span<RequestSpec> requests) {
  if (std::isinf(config.rate)) return;  // all at 0
  check_last_arrival(config, "rate", static_cast<double>(requests.size()) / config.rate);
  const double burstiness =
      config.process == ArrivalProcess::Gamma ? config.burstiness : 1.0;  // 1 = Poisson
  if (config.process == ArrivalProcess::Constant || std::isinf(burstiness)) {
    set_constant_arrivals(config, requests);
  } else {
    set_gamma_arrivals(config, burstiness, seed, requests);
  }
}

void set_burst_arrivals(const ArrivalConfig& config, std::span<RequestSpec> requests) {
  if (config.burst_size == 0) return;  // all at 0
  const auto burst_size = static_cast<std::size_t>(config.burst_size);
  const std::size_t num_gaps = (requests.size() - 1) / burst_size;
  check_last_arrival(config, "burst_interval_s",
                     static_cast<double>(num_gaps) * config.burst_interval_s);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto burst = static_cast<double>(i / burst_size);
    requests[i].arrival = std::llround(burst * config.burst_interval_s * kNsPerSecondF);
  }
}

void set_step_arrivals(const ArrivalConfig& config, std::span<RequestSpec> requests) {
  if (config.steps.size() != requests.size()) {
    fail_config(config.where, "workload.arrivals.steps",
                std::to_string(config.steps.size()) + " steps for " +
                    std::to_string(requests.size()) + " requests; one step per request");
  }
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].arrival = config.steps[i];
}

// Sets mode and arrivals. Requires at least one request.
void set_arrivals(const ArrivalConfig& config, std::uint64_t seed, Workload& workload) {
  for (RequestSpec& request : workload.requests) request.arrival = 0;
  switch (config.process) {
    case ArrivalProcess::Poisson:
    case ArrivalProcess::Gamma:
    case ArrivalProcess::Constant: return set_rate_arrivals(config, seed, workload.requests);
    case ArrivalProcess::Burst: return set_burst_arrivals(config, workload.requests);
    case ArrivalProcess::ClosedLoop:
      workload.mode = ArrivalMode::ClosedLoop;
      workload.concurrency = config.concurrency;
      workload.think_time = std::llround(config.think_time_ms * 1e6);
      check_last_arrival(
          config, "think_time_ms",
          static_cast<double>(
              ceil_div(static_cast<std::int64_t>(workload.requests.size()), config.concurrency)) *
              config.think_time_ms / 1e3);
      return;
    case ArrivalProcess::Steps:
      workload.mode = ArrivalMode::Steps;
      return set_step_arrivals(config, workload.requests);
    case ArrivalProcess::Trace: break;
  }
  METRONOME_CHECK(false, "arrivals of a trace are read, not drawn");
}

// ---- Lengths, priorities ----

// Draws indices with the given weights; no weights means equal ones.
class WeightedIndex {
 public:
  WeightedIndex(std::size_t num_values, const std::vector<double>& weights)
      : num_values_(num_values) {
    double sum = 0;
    for (const double weight : weights) cumulative_.push_back(sum += weight);
  }

  std::size_t draw(Rng& rng) const {
    if (cumulative_.empty()) {
      return static_cast<std::size_t>(
          rng.uniform_int(0, static_cast<std::int64_t>(num_values_) - 1));
    }
    const double point = rng.uniform() * cumulative_.back();
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), point);
    // Rounding can raise the point to the total; then it means the last value with a weight.
    const auto last = std::lower_bound(cumulative_.begin(), cumulative_.end(), cumulative_.back());
    return static_cast<std::size_t>(std::min(found, last) - cumulative_.begin());
  }

 private:
  std::size_t num_values_;
  std::vector<double> cumulative_;
};

// Calls set(request, length) for every request in order.
template <class Set>
void draw_lengths(const LengthConfig& config, Rng rng, std::span<RequestSpec> requests, Set set) {
  switch (config.distribution) {
    case LengthDistribution::Fixed:
      for (RequestSpec& request : requests) set(request, config.value);
      return;
    case LengthDistribution::Uniform:
      for (RequestSpec& request : requests) set(request, rng.uniform_int(config.min, config.max));
      return;
    case LengthDistribution::Lognormal: {
      const double mu = log_of(config.median);
      const double sigma = log_of(config.p99 / config.median) / kNormalQuantile99;
      const auto low = static_cast<double>(config.min);
      const auto high = static_cast<double>(config.max);
      for (RequestSpec& request : requests) {
        const double length = std::round(rng.lognormal(mu, sigma));
        set(request, static_cast<std::int64_t>(std::clamp(length, low, high)));
      }
      return;
    }
    case LengthDistribution::Empirical: {
      const WeightedIndex position(config.values.size(), config.weights);
      for (RequestSpec& request : requests) set(request, config.values[position.draw(rng)]);
      return;
    }
  }
}

void draw_priorities(const PriorityConfig& config, std::uint64_t seed,
                     std::span<RequestSpec> requests) {
  if (config.values.empty()) return;
  Rng rng(seed, "priority");
  const WeightedIndex position(config.values.size(), config.weights);
  for (RequestSpec& request : requests) {
    request.priority = static_cast<std::int32_t>(config.values[position.draw(rng)]);
  }
}

// ---- Shared prefixes ----

// Appends the segments of one tree path, root first.
void append_tree_path(const PrefixConfig& config, Rng& rng, std::vector<PromptSegment>& segments) {
  std::uint64_t node = 0;  // children of node n are n * branching + 1 .. n * branching + branching
  for (std::int64_t level = 0; level < config.depth; ++level) {
    if (level > 0) {
      const std::int64_t child = rng.uniform_int(1, config.branching);
      node =
          node * static_cast<std::uint64_t>(config.branching) + static_cast<std::uint64_t>(child);
    }
    segments.push_back(
        {content_id(ContentKind::TreeNode, node), static_cast<std::int32_t>(config.prefix_tokens)});
  }
}

// Prepends a prefix to every drawn prompt; the rest is the request's own segment.
void prepend_prefixes(const PrefixConfig& config, std::uint64_t seed, Workload& workload) {
  if (config.kind == PrefixKind::None) return;
  Rng rng(seed, "prefix");
  const std::int64_t num_levels = config.kind == PrefixKind::Tree ? config.depth : 1;
  const auto prefix_tokens = static_cast<std::int32_t>(num_levels * config.prefix_tokens);
  const std::size_t num_requests = workload.requests.size();
  workload.segments.reserve(num_requests * static_cast<std::size_t>(num_levels + 1));
  workload.segment_begin.reserve(num_requests + 1);
  for (std::size_t i = 0; i < num_requests; ++i) {
    RequestSpec& request = workload.requests[i];
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    if (config.kind == PrefixKind::Groups) {
      const auto group = static_cast<std::uint64_t>(rng.uniform_int(0, config.num_groups - 1));
      workload.segments.push_back({content_id(ContentKind::Group, group), prefix_tokens});
    } else {
      append_tree_path(config, rng, workload.segments);
    }
    workload.segments.push_back({content_id(ContentKind::Request, i), request.num_prompt_tokens});
    request.num_prompt_tokens += prefix_tokens;
  }
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
}

Workload draw_workload(const WorkloadConfig& config, std::uint64_t seed) {
  METRONOME_CHECK(config.num_requests >= 1, "a workload needs at least one request");
  Workload workload;
  workload.requests.resize(static_cast<std::size_t>(config.num_requests));
  draw_lengths(config.prompt_tokens, Rng(seed, "prompt_tokens"), workload.requests,
               [](RequestSpec& request, std::int64_t length) {
                 request.num_prompt_tokens = static_cast<std::int32_t>(length);
               });
  draw_lengths(config.output_tokens, Rng(seed, "output_tokens"), workload.requests,
               [](RequestSpec& request, std::int64_t length) {
                 request.max_output_tokens = static_cast<std::int32_t>(length);
               });
  prepend_prefixes(config.prefix, seed, workload);
  return workload;
}

}  // namespace

Workload make_workload(const WorkloadConfig& config, std::uint64_t seed) {
  const bool has_trace = !config.trace.file.empty();
  Workload workload = has_trace ? read_trace(config.trace) : draw_workload(config, seed);
  if (config.arrivals.process != ArrivalProcess::Trace) {
    set_arrivals(config.arrivals, seed, workload);
  } else {
    place_recorded_arrivals(config.trace, seed, workload);
  }
  draw_priorities(config.priority, seed, workload.requests);
  return workload;
}

}  // namespace metronome
