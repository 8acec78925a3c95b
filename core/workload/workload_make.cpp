// SPDX-License-Identifier: Apache-2.0
// Draws synthetic workloads. Each kind of number has its own generator and is drawn request by
// request. So changing one distribution keeps the others' draws.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/rng.h"
#include "core/workload/length_draws.h"
#include "core/workload/prefix_draws.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "core/workload/workload_draws.h"
#include "core/workload/workload_sections.h"
#include "core/workload/workload_trace.h"

namespace metronome {

namespace {

constexpr double kNsPerSecondF = 1e9;

// ---- Arrivals ----

// Empty: it is not too late.
std::string last_arrival_error(double last_s) {
  if (last_s <= static_cast<double>(kMaxArrivalSeconds)) return {};
  return fmt::format("the last request would arrive after {} s; at most {} s",
                     std::to_string(last_s), kMaxArrivalSeconds);
}

void check_last_arrival(const ArrivalConfig& config, const char* key, double last_s) {
  const std::string error = last_arrival_error(last_s);
  if (!error.empty()) fail_config(config.where, std::string("workload.arrivals.") + key, error);
}

void set_constant_arrivals(const ArrivalConfig& config, std::span<RequestSpec> requests) {
  const double gap_ns = kNsPerSecondF / config.rate;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival = std::llround(static_cast<double>(i + 1) * gap_ns);
  }
}

void set_gamma_arrivals(const ArrivalConfig& config, double burstiness, std::uint64_t seed,
                        std::string_view purpose, std::span<RequestSpec> requests) {
  Rng rng(seed, purpose);
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

void set_rate_arrivals(const ArrivalConfig& config, std::uint64_t seed, std::string_view purpose,
                       std::span<RequestSpec> requests) {
  if (std::isinf(config.rate)) return;  // all at 0
  check_last_arrival(config, "rate", static_cast<double>(requests.size()) / config.rate);
  const double burstiness =
      config.process == ArrivalProcess::Gamma ? config.burstiness : 1.0;  // 1 = Poisson
  if (config.process == ArrivalProcess::Constant || std::isinf(burstiness)) {
    set_constant_arrivals(config, requests);
  } else {
    set_gamma_arrivals(config, burstiness, seed, purpose, requests);
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
                fmt::format("{} steps for {} requests; one step per request", config.steps.size(),
                            requests.size()));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].arrival = config.steps[i];
}

}  // namespace

void set_arrivals(const ArrivalConfig& config, std::uint64_t seed, Workload& workload,
                  std::string_view purpose) {
  for (RequestSpec& request : workload.requests) request.arrival = 0;
  switch (config.process) {
    case ArrivalProcess::Poisson:
    case ArrivalProcess::Gamma:
    case ArrivalProcess::Constant:
      return set_rate_arrivals(config, seed, purpose, workload.requests);
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

namespace {

// ---- Priorities ----

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

// Prepends a prefix to every drawn prompt; the rest is the request's own segment.
void prepend_prefixes(const PrefixConfig& config, std::uint64_t seed, Workload& workload) {
  if (config.kind == PrefixKind::None) return;
  PrefixDraws prefixes(config, seed);
  workload.segment_begin.reserve(workload.requests.size() + 1);
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    RequestSpec& request = workload.requests[i];
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    prefixes.append(workload.segments);
    workload.segments.push_back({content_id(ContentKind::Request, i), request.num_prompt_tokens});
    request.num_prompt_tokens += prefixes.num_tokens();
  }
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
}

// Prepends a prefix to the prompts of a trace, one to all of a session.
void join_prefixes(const TraceConfig& trace, const PrefixConfig& config, std::uint64_t seed,
                   Workload& workload) {
  if (config.kind == PrefixKind::None) return;
  if (!workload.token_begin.empty()) {
    fail_config(trace.where, "workload.prefix",
                "'" + trace.file + "' has the tokens of its prompts; allowed: kind none");
  }
  PrefixDraws prefixes(config, seed);
  std::vector<PromptSegment> segments, prefix;
  std::vector<std::uint32_t> begins;
  std::size_t session = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    if (workload.has_sessions() && i == workload.session_begin[session + 1]) ++session;
    if (!workload.has_sessions() || i == workload.session_begin[session]) {
      prefix.clear();
      prefixes.append(prefix);
    }
    const bool continues = workload.has_sessions() && workload.continues_session(i, session);
    RequestSpec& request = workload.requests[i];
    begins.push_back(static_cast<std::uint32_t>(segments.size()));
    if (!continues) segments.insert(segments.end(), prefix.begin(), prefix.end());
    const auto own = workload.prompt_segments(RequestId{static_cast<std::uint32_t>(i)});
    segments.insert(segments.end(), own.begin(), own.end());
    if (own.empty()) {
      segments.push_back({content_id(ContentKind::Request, i), request.num_prompt_tokens});
    }
    if (request.num_prompt_tokens + std::int64_t{prefixes.num_tokens()} > kMaxLengthTokens) {
      fail_config(
          trace.where, "workload.prefix",
          fmt::format("makes a prompt too long; allowed: at most {} tokens", kMaxLengthTokens));
    }
    request.num_prompt_tokens += prefixes.num_tokens();
  }
  begins.push_back(static_cast<std::uint32_t>(segments.size()));
  workload.segments = std::move(segments);
  workload.segment_begin = std::move(begins);
}

// ---- Requests ----

// The config with a dataset's distributions.
WorkloadConfig with_dataset(WorkloadConfig config) {
  const DatasetConfig& dataset = config.dataset;
  if (dataset.name == DatasetName::None) return config;
  const std::int64_t input = *dataset.input_len;
  const std::int64_t output = *dataset.output_len;
  if (*dataset.prefix_len > 0) {
    config.prefix = {.kind = PrefixKind::Groups, .prefix_tokens = *dataset.prefix_len};
  }
  if (dataset.name == DatasetName::Sonnet) {
    config.prompt_tokens = {.value = input - *dataset.prefix_len};
    config.output_tokens = {.value = output};
    return config;
  }
  const auto around = [&dataset](std::int64_t mean) {
    const double low = std::floor(static_cast<double>(mean) * (1 - dataset.range_ratio));
    const double high = std::ceil(static_cast<double>(mean) * (1 + dataset.range_ratio));
    return LengthConfig{.distribution = LengthDistribution::Uniform,
                        .min = std::max<std::int64_t>(1, static_cast<std::int64_t>(low)),
                        .max = static_cast<std::int64_t>(high)};
  };
  config.prompt_tokens = around(input);
  config.output_tokens = around(output);
  return config;
}

Workload draw_requests(const WorkloadConfig& config, std::uint64_t seed) {
  METRONOME_CHECK(config.num_requests >= 1, "a workload needs at least one request");
  Workload workload;
  workload.requests.resize(static_cast<std::size_t>(config.num_requests));
  LengthDraws prompts(config.prompt_tokens, seed, "prompt_tokens");
  LengthDraws outputs(config.output_tokens, seed, "output_tokens");
  for (RequestSpec& request : workload.requests) {
    request.num_prompt_tokens = static_cast<std::int32_t>(prompts.next());
    request.max_output_tokens = static_cast<std::int32_t>(outputs.next());
  }
  prepend_prefixes(config.prefix, seed, workload);
  draw_images(config.images, seed, PrefixDraws(config.prefix, seed).num_tokens(), workload);
  return workload;
}

// ---- Sessions ----

// Draws the requests of one session after the other.
class SessionDraws {
 public:
  SessionDraws(const WorkloadConfig& config, std::uint64_t seed, Workload& workload)
      : config_(config.sessions),
        workload_(workload),
        prefixes_(config.prefix, seed),
        prompts_(config.prompt_tokens, seed, "prompt_tokens"),
        outputs_(config.output_tokens, seed, "output_tokens"),
        turns_(config_.turns, seed, "turns"),
        think_time_(config_.think_time_ms, seed, "think_time"),
        tool_calls_(config_.tool_calls, seed, "tool_calls"),
        call_tokens_(config_.call_tokens, seed, "call_tokens"),
        tool_tokens_(config_.tool_tokens, seed, "tool_tokens"),
        tool_time_(config_.tool_time_ms, seed, "tool_time") {}

  void add() {
    workload_.session_begin.push_back(static_cast<std::uint32_t>(workload_.requests.size()));
    history_ = 0;
    const std::int64_t num_turns = turns_.next();
    for (std::int64_t turn = 0; turn < num_turns; ++turn) {
      add_turn(turn == 0 ? 0 : think_time_.next() * kNsPerMs);
    }
  }

 private:
  void add_turn(TimeNs delay) {
    std::int64_t new_tokens = prompts_.next();
    if (config_.kind == SessionKind::Agent) {
      const std::int64_t num_calls = tool_calls_.next();
      for (std::int64_t call = 0; call < num_calls; ++call) {
        add_request(delay, new_tokens, call_tokens_.next());
        new_tokens = tool_tokens_.next();
        delay = tool_time_.next() * kNsPerMs;
      }
    }
    add_request(delay, new_tokens, outputs_.next());
  }

  // The first request of a session has segments: the shared prefix and its own tokens.
  void add_request(TimeNs delay, std::int64_t new_tokens, std::int64_t output_tokens) {
    const std::size_t i = workload_.requests.size();
    workload_.segment_begin.push_back(static_cast<std::uint32_t>(workload_.segments.size()));
    if (history_ == 0) {
      prefixes_.append(workload_.segments);
      history_ = prefixes_.num_tokens();
      workload_.segments.push_back(
          {content_id(ContentKind::Request, i), static_cast<std::int32_t>(new_tokens)});
    }
    const std::int64_t prompt_tokens = history_ + new_tokens;
    if (prompt_tokens > kMaxLengthTokens || i >= static_cast<std::size_t>(kMaxRequests)) {
      throw UnplacedConfigError("workload.sessions",
                                fmt::format("the sessions are too long; allowed: prompts of at "
                                            "most {} tokens, and at most {} requests",
                                            kMaxLengthTokens, kMaxRequests));
    }
    history_ = prompt_tokens + output_tokens;
    workload_.delays.push_back(delay);
    RequestSpec request;
    request.num_prompt_tokens = static_cast<std::int32_t>(prompt_tokens);
    request.max_output_tokens = static_cast<std::int32_t>(output_tokens);
    workload_.requests.push_back(request);
  }

  const SessionConfig& config_;
  Workload& workload_;
  PrefixDraws prefixes_;
  LengthDraws prompts_, outputs_, turns_, think_time_, tool_calls_, call_tokens_, tool_tokens_,
      tool_time_;
  std::int64_t history_ = 0;  // tokens of the session so far; 0: it begins
};

Workload draw_sessions(const WorkloadConfig& config, std::uint64_t seed) {
  Workload workload;
  SessionDraws sessions(config, seed, workload);
  for (std::int64_t n = 0; n < config.sessions.num_sessions; ++n) sessions.add();
  workload.session_begin.push_back(static_cast<std::uint32_t>(workload.requests.size()));
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
  return workload;
}

// Refuses sessions whose last request would come too late even if every answer took no time.
void check_session_times(const Workload& workload) {
  const bool is_closed_loop = workload.mode == ArrivalMode::ClosedLoop;
  double last_s = 0, longest_s = 0, total_s = 0;
  for (std::size_t s = 0; s < workload.num_sessions(); ++s) {
    const std::uint32_t begin = workload.session_begin[s];
    double session_s = is_closed_loop ? to_seconds(workload.think_time) : 0;
    for (std::uint32_t i = begin; i < workload.session_begin[s + 1]; ++i) {
      session_s += to_seconds(workload.delays[i]);
    }
    last_s = std::max(last_s, to_seconds(workload.requests[begin].arrival) + session_s);
    longest_s = std::max(longest_s, session_s);
    total_s += session_s;
  }
  // Each session starts as soon as one of `concurrency` has ended. Graham's bound for such lists.
  if (is_closed_loop) last_s = total_s / workload.concurrency + longest_s;
  const std::string error = last_arrival_error(last_s);
  if (!error.empty()) throw UnplacedConfigError("workload.sessions", error);
}

// Sets the arrivals of the sessions' first requests.
void set_session_arrivals(const ArrivalConfig& config, std::uint64_t seed, Workload& workload) {
  Workload starts;
  starts.requests.resize(workload.num_sessions());
  set_arrivals(config, seed, starts);
  workload.mode = starts.mode;
  workload.concurrency = starts.concurrency;
  workload.think_time = starts.think_time;
  for (std::size_t s = 0; s < workload.num_sessions(); ++s) {
    workload.requests[workload.session_begin[s]].arrival = starts.requests[s].arrival;
  }
}

}  // namespace

Workload make_workload(const WorkloadConfig& config, std::uint64_t seed) {
  Workload workload;
  if (!config.trace.file.empty()) {
    workload = read_trace(config.trace, seed);
    join_prefixes(config.trace, config.prefix, seed, workload);
  } else if (!config.classes.empty()) {
    workload = draw_classes(config, seed);
  } else if (config.sessions.kind != SessionKind::None) {
    workload = draw_sessions(with_dataset(config), seed);
  } else {
    workload = draw_requests(with_dataset(config), seed);
  }
  if (config.arrivals.process == ArrivalProcess::Trace && !workload.has_arrivals) {
    fail_config(config.trace.where, "workload.arrivals",
                "missing; '" + config.trace.file +
                    "' has no arrival times; allowed: a process, such as {rate: 4}");
  }
  if (config.arrivals.process == ArrivalProcess::Steps && workload.has_sessions()) {
    fail_config(config.arrivals.where, "workload.arrivals.process",
                "steps cannot start sessions; allowed: arrivals by time");
  }
  if (config.arrivals.process == ArrivalProcess::Trace) {
    place_recorded_arrivals(config.trace, seed, workload);
  } else if (workload.has_sessions()) {
    set_session_arrivals(config.arrivals, seed, workload);
    check_session_times(workload);
  } else if (!config.has_class_rates()) {
    set_arrivals(config.arrivals, seed, workload);
  }
  draw_priorities(config.priority, seed, workload.requests);
  apply_classes_and_limit(config, workload);
  return workload;
}

}  // namespace metronome
