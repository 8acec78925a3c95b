// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/answer_rates.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace metronome {
namespace {

constexpr TimeNs kWindow = 10 * kNsPerSecond;

// Counts that change at steps: changes[s] is added from step s on.
using Changes = std::vector<std::int32_t>;

std::size_t at(std::int32_t step) { return static_cast<std::size_t>(step); }

// Requests in decode during the time that ends with each step, and first tokens at each step.
struct Decoding {
  Changes changes;
  Changes first_tokens;

  explicit Decoding(const RunRecord& record)
      : changes(record.steps.size() + 1), first_tokens(record.steps.size()) {
    for (std::size_t i = 0; i < record.requests.size(); ++i) {
      const auto runs = record.runs_of(i);
      if (runs.empty()) continue;
      const std::size_t first = at(runs.front().first_step);
      const std::size_t last = at(runs.back().last_step());
      ++first_tokens[first];
      ++changes[first + 1];
      --changes[last + 1];
    }
  }
};

// When some prompt is being computed: from a time to the end of each step, kNever for none.
std::vector<TimeNs> prompt_times(const RunRecord& record) {
  struct Progress {
    std::int32_t step = -1;
    std::int32_t end_position = 0;
  };
  const std::size_t num_steps = record.steps.size();
  std::vector<TimeNs> from(num_steps, kNever);
  Changes going_on(num_steps + 1);  // prompts between two of their steps
  std::vector<Progress> last(record.requests.size());
  const std::size_t num_chunks = record.prefills.size();
  std::size_t next = 0;
  std::size_t first = 0;  // of the engine
  ReplicaStarts engines(record);
  for (std::size_t s = 0; s < num_steps && next < num_chunks; ++s) {
    if (engines.begins(s)) first = s;
    const std::int32_t num_of_step = record.steps.num_prefill_chunks(s);
    for (std::int32_t c = 0; c < num_of_step; ++c, ++next) {
      const PrefillChunk& chunk = record.prefills[next];
      Progress& progress = last[index(chunk.request)];
      const RequestRecord& request = record.requests[index(chunk.request)];
      const bool goes_on = progress.step >= 0 && chunk.first_position == progress.end_position &&
                           chunk.first_position < request.num_prompt_tokens;
      if (goes_on) {
        ++going_on[at(progress.step) + 1];
        --going_on[s + 1];
      } else {
        // It was planned while steps before it still ran: at most kMaxInFlight.
        const TimeNs planned = record.steps.planned_at(s);
        for (std::size_t before = s;; --before) {
          const TimeNs began = before > first ? record.steps.finished_at(before - 1) : 0;
          from[before] = std::min(from[before], std::max(planned, began));
          if (before == first || began <= planned) break;
        }
      }
      progress = {static_cast<std::int32_t>(s), chunk.end_position()};
    }
  }
  std::int64_t num = 0;
  ReplicaStarts again(record);
  for (std::size_t s = 0; s < num_steps; ++s) {
    num += going_on[s];
    const bool is_first = again.begins(s);
    if (num > 0) from[s] = is_first ? 0 : record.steps.finished_at(s - 1);
  }
  return from;
}

// The fewest tokens in ten seconds of a stretch of time in which some request is in decode.
class SlowestWindow {
 public:
  void begin(TimeNs time) {
    tokens_.clear();
    first_ = 0;
    sum_ = 0;
    starts_.assign(1, time);
    next_start_ = 0;
  }
  // Tokens at a time within the stretch.
  void add(TimeNs time, std::int64_t num_tokens) {
    // Windows that end before it.
    close_before(time);
    tokens_.push_back({time, num_tokens});
    sum_ += num_tokens;
    starts_.push_back(time);
    if (next_start_ > kMostDone) drop_done();
  }
  // Windows that end within the stretch.
  void end(TimeNs time) { close_before(time + 1); }
  std::optional<std::int64_t> fewest() const { return fewest_; }

 private:
  struct Tokens {
    TimeNs time;
    std::int64_t count;
  };
  static constexpr std::size_t kMostDone = 1 << 16;

  void close_before(TimeNs time) {
    while (next_start_ < starts_.size() && starts_[next_start_] + kWindow < time) {
      const TimeNs start = starts_[next_start_++];
      while (first_ < tokens_.size() && tokens_[first_].time <= start)
        sum_ -= tokens_[first_++].count;
      fewest_ = std::min(fewest_.value_or(sum_), sum_);
    }
  }
  void drop_done() {
    starts_.erase(starts_.begin(), starts_.begin() + static_cast<std::ptrdiff_t>(next_start_));
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(first_));
    next_start_ = first_ = 0;
  }

  std::vector<Tokens> tokens_;  // since the start of the stretch, or of what is still needed
  std::size_t first_ = 0;       // in the open window
  std::int64_t sum_ = 0;        // of tokens_ from first_ on
  std::vector<TimeNs> starts_;  // of windows: that of the stretch, and each time of tokens
  std::size_t next_start_ = 0;
  std::optional<std::int64_t> fewest_;
};

}  // namespace

AnswerRates answer_rates(const RunRecord& record) {
  AnswerRates rates;
  if (!record.has_steps() || record.steps.empty()) return rates;
  const Decoding decoding(record);
  const std::vector<TimeNs> prompts_from = prompt_times(record);
  std::int64_t num_decoding = 0;
  std::int64_t num_tokens = 0;  // during prefill
  double request_ns = 0;        // during prefill
  TimeNs before = 0;            // end of the step before
  SlowestWindow slowest;
  std::size_t s = 0;
  ReplicaStarts engines(record);
  for (const StepEntry& step : record.steps) {
    bool was_decoding = num_decoding > 0;
    if (engines.begins(s)) {
      if (was_decoding) slowest.end(before);
      was_decoding = false;
      before = 0;
    }
    num_decoding += decoding.changes[s];
    if (num_decoding > 0 && !was_decoding) slowest.begin(before);
    if (num_decoding == 0 && was_decoding) slowest.end(before);
    if (num_decoding > 0 && step.num_emitted > 0) slowest.add(step.finished_at, step.num_emitted);
    if (prompts_from[s] != kNever) {
      num_tokens += step.num_emitted - decoding.first_tokens[s];
      request_ns += static_cast<double>(num_decoding) *
                    static_cast<double>(step.finished_at - prompts_from[s]);
    }
    before = step.finished_at;
    ++s;
  }
  if (num_decoding > 0) slowest.end(before);
  if (request_ns > 0) {
    rates.during_prefill = static_cast<double>(num_tokens) / (request_ns / kNsPerSecond);
  }
  if (const auto fewest = slowest.fewest()) {
    rates.slowest_10s = static_cast<double>(*fewest) / (kWindow / kNsPerSecond);
  }
  return rates;
}

}  // namespace metronome
