// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/first_tokens.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/distribution.h"
#include "core/base/math.h"
#include "core/metrics/gap_analysis.h"

namespace metronome {
namespace {

struct PartName {
  std::string_view key;
  std::string_view words;
};
// In the order of FirstTokenPart.
constexpr PartName kNames[] = {
    {"front_end_ms", "the front end"},
    {"slots_ms", "waiting for a slot"},
    {"blocks_ms", "waiting for KV blocks"},
    {"encoder_ms", "waiting for the encoding of images"},
    {"queued_behind_prompts_ms", "waiting in the queue behind prompts of others"},
    {"held_ms", "waiting in the queue for a step without prompts"},
    {"own_prefill_ms", "its own prefill"},
    {"other_prompts_ms", "prompts of others beside its own"},
    {"encoding_ms", "encoding of images"},
    {"decodes_ms", "decodes in its steps and between them"},
    {"host_ms", "host time"},
    {"recomputation_ms", "preemption before the first token"}};
static_assert(std::size(kNames) == kNumFirstTokenParts);

constexpr std::size_t kFirstReason = static_cast<std::size_t>(FirstTokenPart::Slots);
constexpr std::size_t kNumReasons = 5;
// From this share of used blocks on, a step without prompts left the queue alone for want of
// blocks: engines keep a reserve for outputs.
constexpr double kNearlyFull = 0.9;

FirstTokenPart reason(std::size_t i) { return static_cast<FirstTokenPart>(kFirstReason + i); }

}  // namespace

std::string_view key_of(FirstTokenPart part) { return kNames[static_cast<std::size_t>(part)].key; }
std::string_view part_words(FirstTokenPart part) {
  return kNames[static_cast<std::size_t>(part)].words;
}

TimeNs FirstTokenParts::total_ns() const {
  return std::accumulate(std::begin(ns), std::end(ns), TimeNs{0});
}

TimeNs FirstTokenParts::queue_ns() const {
  return std::accumulate(ns + kFirstReason, ns + kFirstReason + kNumReasons, TimeNs{0});
}

void FirstTokenParts::operator+=(const FirstTokenParts& other) {
  for (std::size_t p = 0; p < kNumFirstTokenParts; ++p) ns[p] += other.ns[p];
}

FirstTokenPart FirstTokenParts::largest() const {
  return static_cast<FirstTokenPart>(std::max_element(std::begin(ns), std::end(ns)) -
                                     std::begin(ns));
}

FirstTokens::FirstTokens(const RunRecord& record, const EngineLimits& limits)
    : record_(record),
      parts_(record.requests.size()),
      own_ns_(record.requests.size()),
      own_first_(record.requests.size(), -1) {
  sum_steps();
  find_reasons(limits);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!has_first_token(i) || record.requests[i].first_scheduled == kNoTime) continue;
    split_queue(i, parts_[i]);
    split_service(i, parts_[i]);
  }
}

// Times of the steps, and of each request's own chunks.
void FirstTokens::sum_steps() {
  const std::size_t num_steps = record_.steps.size();
  planned_.reserve(num_steps);
  finished_.reserve(num_steps);
  for (std::vector<TimeNs>* sums : {&decode_, &prefill_, &encode_}) {
    sums->reserve(num_steps + 1);
    sums->push_back(0);
  }
  if (num_steps == 0) return;
  const GapCauses causes(record_, 0, static_cast<std::int32_t>(num_steps) - 1);
  std::int32_t s = 0;
  for (const StepEntry& step : record_.steps) {
    planned_.push_back(step.planned_at);
    finished_.push_back(step.finished_at);
    const TimeNs encode_ns = causes.encode_ns(s);
    const TimeNs prefill_ns = causes.prefill_ns(s) - encode_ns;
    decode_.push_back(decode_.back() + causes.decode_ns(s));
    prefill_.push_back(prefill_.back() + prefill_ns);
    encode_.push_back(encode_.back() + encode_ns);
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const PrefillChunk& chunk =
          record_.prefills[static_cast<std::size_t>(step.first_prefill_chunk + c)];
      const RequestRecord& request = record_.requests[index(chunk.request)];
      std::int32_t& first = own_first_[index(chunk.request)];
      if (first < 0) first = s;
      if (request.first_token != kNoTime && step.finished_at > request.first_token) continue;
      own_ns_[index(chunk.request)] +=
          static_cast<TimeNs>(static_cast<double>(prefill_ns) * chunk.num_tokens /
                              static_cast<double>(step.num_prefill_tokens));
    }
    ++s;
  }
}

QueueReasons::QueueReasons(const RunRecord& record, const EngineLimits& limits)
    : record_(record), limits_(limits) {
  for (std::size_t i = 0; i < record_.requests.size(); ++i) {
    if (record_.requests[i].first_scheduled != kNoTime) admitted_.push_back(i);
  }
  std::stable_sort(admitted_.begin(), admitted_.end(), [&](std::size_t a, std::size_t b) {
    return record_.requests[a].first_scheduled < record_.requests[b].first_scheduled;
  });
}

// Blocks are those of the request that is admitted next.
FirstTokenPart QueueReasons::of_next(const StepEntry& step) {
  while (next_ < admitted_.size() &&
         record_.requests[admitted_[next_]].first_scheduled <= step.planned_at) {
    ++next_;
  }
  if (limits_.max_num_seqs > 0 && step.num_running >= limits_.max_num_seqs) {
    return FirstTokenPart::Slots;
  }
  std::int64_t needed = 0;
  if (next_ < admitted_.size() && limits_.block_tokens > 0) {
    const RequestRecord& request = record_.requests[admitted_[next_]];
    needed = ceil_div(std::int64_t{request.num_prompt_tokens} - request.num_prefix_hit_tokens,
                      limits_.block_tokens);
  }
  const bool has_prompts = step.num_prefill_tokens > 0;
  const bool lacks_blocks =
      step.num_waiting > 0 && step.num_used_blocks + needed > limits_.num_blocks;
  const bool is_nearly_full =
      step.num_used_blocks > kNearlyFull * static_cast<double>(limits_.num_blocks);
  if (limits_.num_blocks > 0 && (lacks_blocks || (!has_prompts && is_nearly_full))) {
    return FirstTokenPart::Blocks;
  }
  return has_prompts ? FirstTokenPart::Prompts : FirstTokenPart::Held;
}

void FirstTokens::find_reasons(const EngineLimits& limits) {
  QueueReasons reasons(record_, limits);
  std::size_t s = 0;
  for (std::vector<TimeNs>& sums : waited_) sums.assign(1, 0);
  for (const StepEntry& step : record_.steps) {
    FirstTokenPart why = reasons.of_next(step);
    if (why == FirstTokenPart::Prompts) {
      const TimeNs encode_ns = encode_[s + 1] - encode_[s];
      const TimeNs prefill_ns = prefill_[s + 1] - prefill_[s];
      if (encode_ns > prefill_ns) why = FirstTokenPart::Encoder;
    }
    reasons_.push_back(why);
    const TimeNs until = s + 1 < planned_.size() ? planned_[s + 1] : step.finished_at;
    for (std::size_t r = 0; r < kNumReasons; ++r) {
      const TimeNs added = reason(r) == why ? until - step.planned_at : 0;
      waited_[r].push_back(waited_[r].back() + added);
    }
    ++s;
  }
}

// The last step planned at or before a time; the number of steps: there is none.
std::size_t FirstTokens::step_at_plan(TimeNs time) const {
  const auto behind = std::upper_bound(planned_.begin(), planned_.end(), time);
  return behind == planned_.begin() ? planned_.size()
                                    : static_cast<std::size_t>(behind - planned_.begin()) - 1;
}

// The first step that ends at or after a time.
std::size_t FirstTokens::step_at_end(TimeNs time) const {
  return static_cast<std::size_t>(std::lower_bound(finished_.begin(), finished_.end(), time) -
                                  finished_.begin());
}

// Plans divide the wait. Before the first plan that sees the request, the step that runs has the
// wait, as a step with prompts or without.
void FirstTokens::split_queue(std::size_t i, FirstTokenParts& parts) const {
  const RequestRecord& request = record_.requests[i];
  parts[FirstTokenPart::FrontEnd] = record_.front_end_ns(i);
  const TimeNs from = request.arrival + record_.front_end_ns(i);
  const TimeNs until = request.first_scheduled;
  if (until <= from) {
    parts[FirstTokenPart::FrontEnd] = until - request.arrival;
    return;
  }
  const std::size_t last =
      own_first_[i] >= 0 ? static_cast<std::size_t>(own_first_[i]) : step_at_plan(until);
  std::size_t first = step_at_plan(from);
  if (first < planned_.size() && first >= last && last > 0) first = last - 1;  // planned together
  TimeNs in_first = until - from;  // the time before the first plan behind its arrival
  const bool has_plans = first < planned_.size() && first < last;
  const std::size_t begin = first < planned_.size() ? first + 1 : 0;
  if (has_plans && begin < last) {
    in_first = planned_[begin] - from;
    for (std::size_t r = 0; r < kNumReasons; ++r) {
      parts[reason(r)] += waited_[r][last] - waited_[r][begin];
    }
    in_first += until - planned_[last];
  }
  FirstTokenPart why = FirstTokenPart::Held;
  if (first < planned_.size()) {
    const bool has_prompts = record_.steps.num_prefill_tokens(first) > 0;
    why = has_plans && begin < last ? reasons_[first]
          : has_prompts             ? FirstTokenPart::Prompts
                                    : FirstTokenPart::Held;
  }
  parts[why] += in_first;
}

// The steps from its admission on divide the rest. What the step before still takes counts, too.
void FirstTokens::split_service(std::size_t i, FirstTokenParts& parts) const {
  const RequestRecord& request = record_.requests[i];
  const TimeNs from = request.first_scheduled;
  const TimeNs span = request.first_token - from;
  if (request.num_preemptions > 0 && request.last_scheduled > from &&
      request.last_scheduled < request.first_token) {
    parts[FirstTokenPart::Recomputation] = span;
    return;
  }
  const std::size_t first =
      own_first_[i] >= 0 ? static_cast<std::size_t>(own_first_[i]) : step_at_plan(from);
  const std::size_t last = step_at_end(request.first_token);
  if (first >= planned_.size() || last >= finished_.size() || last < first) {
    parts[FirstTokenPart::Host] += span;
    return;
  }
  const TimeNs own = std::min(own_ns_[i], span);
  const TimeNs prefill = prefill_[last + 1] - prefill_[first];
  TimeNs rest = span - own;
  parts[FirstTokenPart::OwnPrefill] += own;
  const auto take = [&](FirstTokenPart part, TimeNs ns) {
    const TimeNs taken = std::clamp<TimeNs>(ns, 0, rest);
    parts[part] += taken;
    rest -= taken;
  };
  take(FirstTokenPart::OtherPrompts, prefill - own);
  take(FirstTokenPart::Encoding, encode_[last + 1] - encode_[first]);
  take(FirstTokenPart::Decodes, decode_[last + 1] - decode_[first]);
  if (first > 0 && finished_[first - 1] > from) {  // two steps in flight
    const bool has_prompts = record_.steps.num_prefill_tokens(first - 1) > 0;
    take(has_prompts ? FirstTokenPart::OtherPrompts : FirstTokenPart::Decodes,
         finished_[first - 1] - from);
  }
  parts[FirstTokenPart::Host] += rest;
}

std::int64_t FirstTokens::beyond(TimeNs limit_ns, FirstTokenParts& sum) const {
  std::int64_t num = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!has_first_token(i) || record_.requests[i].ttft_ns() <= limit_ns) continue;
    ++num;
    sum += parts_[i];
  }
  return num;
}

std::vector<std::size_t> FirstTokens::latest(std::size_t max_requests) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (has_first_token(i)) order.push_back(i);
  }
  const std::size_t num = std::min(max_requests, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num), order.end(),
                    [this](std::size_t a, std::size_t b) {
                      const TimeNs of_a = record_.requests[a].ttft_ns();
                      const TimeNs of_b = record_.requests[b].ttft_ns();
                      return of_a != of_b ? of_a > of_b : a < b;
                    });
  order.resize(num);
  return order;
}

FirstTokenCulprit FirstTokens::culprit(std::size_t i) const {
  FirstTokenCulprit worst;
  if (!has_first_token(i) || planned_.empty()) return worst;
  const RequestRecord& request = record_.requests[i];
  const TimeNs from = request.arrival + record_.front_end_ns(i);
  const std::size_t last = step_at_end(request.first_token);
  std::map<std::uint32_t, FirstTokenCulprit> others;
  for (std::size_t s = step_at_end(from + 1); s <= last && s < finished_.size(); ++s) {
    const std::int32_t num_tokens = record_.steps.num_prefill_tokens(s);
    if (num_tokens == 0) continue;
    const TimeNs before = s > 0 ? finished_[s - 1] : 0;
    TimeNs prefill_ns = prefill_[s + 1] - prefill_[s];
    prefill_ns = std::min(prefill_ns, finished_[s] - std::max(from, before));
    const std::int32_t begin = record_.steps.first_prefill_chunk(s);
    for (std::int32_t c = 0; c < record_.steps.num_prefill_chunks(s); ++c) {
      const PrefillChunk& chunk = record_.prefills[static_cast<std::size_t>(begin + c)];
      if (index(chunk.request) == i) continue;
      FirstTokenCulprit& one = others[static_cast<std::uint32_t>(index(chunk.request))];
      one.request = chunk.request;
      one.num_tokens += chunk.num_tokens;
      one.prefill_ns += static_cast<TimeNs>(static_cast<double>(prefill_ns) * chunk.num_tokens /
                                            static_cast<double>(num_tokens));
    }
  }
  for (const auto& [number, one] : others) {
    if (one.prefill_ns > worst.prefill_ns) worst = one;
  }
  return worst;
}

std::vector<FirstTokenRow> first_token_rows(const RunRecord& record, const FirstTokens& tokens,
                                            std::optional<double> ttft_limit_ms) {
  std::vector<double> sample;
  for (const RequestRecord& request : record.requests) {
    if (request.first_token != kNoTime) sample.push_back(static_cast<double>(request.ttft_ns()));
  }
  std::vector<FirstTokenRow> rows;
  if (sample.empty() || !record.replicas.empty()) return rows;
  const auto add = [&](const char* name, std::optional<double> limit_ms) {
    FirstTokenRow row{name, limit_ms, 0, {}};
    row.num_requests = tokens.beyond(limit_ms ? longest_within(*limit_ms) : -1, row.parts);
    rows.push_back(std::move(row));
  };
  add("all", std::nullopt);
  add("over p99", describe(sample).p99_ms);
  if (ttft_limit_ms) add("over the limit", ttft_limit_ms);
  return rows;
}

}  // namespace metronome
