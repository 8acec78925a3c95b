// SPDX-License-Identifier: Apache-2.0
// Draws requests of several classes. Each class has its own streams of random numbers, so that a
// change of one keeps the others' draws.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/workload/length_draws.h"
#include "core/workload/prefix_draws.h"
#include "core/workload/workload_draws.h"

namespace metronome {

namespace {

// Draws the requests of one class.
class ClassDraws {
 public:
  ClassDraws(const WorkloadConfig& config, std::size_t i, std::uint64_t seed)
      : own_(config.classes[i]),
        number_(static_cast<std::uint16_t>(i + 1)),
        pairs_(seed, "lengths/" + own_.name),
        prompts_(own_.has_prompt_tokens ? own_.prompt_tokens : config.prompt_tokens, seed,
                 "prompt_tokens/" + own_.name),
        outputs_(own_.has_output_tokens ? own_.output_tokens : config.output_tokens, seed,
                 "output_tokens/" + own_.name),
        prefixes_(own_.prefix, seed, "prefix/" + own_.name, i + 1) {}

  // Appends a request and its prompt.
  void add(TimeNs arrival, Workload& workload) {
    RequestSpec request;
    request.arrival = arrival;
    request.class_number = number_;
    request.priority = static_cast<std::int32_t>(own_.priority.value_or(0));
    if (own_.lengths.empty()) {
      request.num_prompt_tokens = static_cast<std::int32_t>(prompts_.next());
      request.max_output_tokens = static_cast<std::int32_t>(outputs_.next());
    } else {
      const auto last = static_cast<std::int64_t>(own_.lengths.size()) - 1;
      const std::vector<std::int64_t>& pair =
          own_.lengths[static_cast<std::size_t>(pairs_.uniform_int(0, last))];
      request.num_prompt_tokens = static_cast<std::int32_t>(pair[0]);
      request.max_output_tokens = static_cast<std::int32_t>(pair[1]);
    }
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    prefixes_.append(workload.segments);
    workload.segments.push_back(
        {content_id(ContentKind::Request, workload.requests.size()), request.num_prompt_tokens});
    request.num_prompt_tokens += prefixes_.num_tokens();
    workload.requests.push_back(request);
  }

 private:
  const ClassConfig& own_;
  std::uint16_t number_;
  Rng pairs_;
  LengthDraws prompts_, outputs_;
  PrefixDraws prefixes_;
};

struct ClassArrival {
  TimeNs at = 0;
  std::size_t class_index = 0;
};

// Classes by their shares, at arrivals that are set later.
std::vector<ClassArrival> by_shares(const WorkloadConfig& config, std::uint64_t seed) {
  std::vector<double> shares;
  for (const ClassConfig& one : config.classes) shares.push_back(one.share);
  Rng rng(seed, "class");
  const WeightedIndex draws(shares.size(), shares);
  std::vector<ClassArrival> arrivals(static_cast<std::size_t>(config.num_requests));
  for (ClassArrival& arrival : arrivals) arrival.class_index = draws.draw(rng);
  return arrivals;
}

// Each class at its own rate; of the requests it has as many as its rate is of all rates.
std::vector<ClassArrival> by_rates(const WorkloadConfig& config, std::uint64_t seed) {
  double total = 0;
  for (const ClassConfig& one : config.classes) total += *one.rate;
  std::vector<ClassArrival> arrivals;
  for (std::size_t i = 0; i < config.classes.size(); ++i) {
    const ClassConfig& one = config.classes[i];
    const double count = static_cast<double>(config.num_requests) * *one.rate / total;
    Workload own;
    own.requests.resize(std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(count))));
    ArrivalConfig process = config.arrivals;
    process.process = ArrivalProcess::Gamma;
    process.rate = *one.rate;
    process.burstiness = one.burstiness;
    set_arrivals(process, seed, own, "arrivals/" + one.name);
    for (const RequestSpec& request : own.requests) arrivals.push_back({request.arrival, i});
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const ClassArrival& a, const ClassArrival& b) { return a.at < b.at; });
  return arrivals;
}

}  // namespace

Workload draw_classes(const WorkloadConfig& config, std::uint64_t seed) {
  METRONOME_CHECK(config.num_requests >= 1, "a workload needs at least one request");
  std::vector<ClassDraws> draws;
  draws.reserve(config.classes.size());
  for (std::size_t i = 0; i < config.classes.size(); ++i) draws.emplace_back(config, i, seed);
  Workload workload;
  workload.class_names = config.trace.class_names;
  for (const ClassArrival& arrival :
       config.has_class_rates() ? by_rates(config, seed) : by_shares(config, seed)) {
    draws[arrival.class_index].add(arrival.at, workload);
  }
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
  return workload;
}

void apply_classes_and_limit(const WorkloadConfig& config, Workload& workload) {
  for (RequestSpec& request : workload.requests) {
    std::optional<std::int64_t> limit = config.max_tokens;
    if (request.class_number > 0 && request.class_number <= config.classes.size()) {
      const ClassConfig& own = config.classes[request.class_number - std::size_t{1}];
      if (own.max_tokens) limit = own.max_tokens;
      if (own.priority) request.priority = static_cast<std::int32_t>(*own.priority);
    }
    if (limit) {
      request.output_limit = static_cast<std::int32_t>(*limit);
      request.max_output_tokens = std::min(request.max_output_tokens, request.output_limit);
    }
    // An answer that is shorter than its limit ends by itself.
    const bool ends_early = request.output_limit > request.max_output_tokens;
    if (ends_early && !request.ignores_eos) request.ignores_eos = false;
  }
}

}  // namespace metronome
