// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/gap_analysis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/metrics/summary.h"

namespace metronome {
namespace {

bool is_mixed(const StepEntry& step) {
  return step.num_prefill_tokens > 0 && step.num_decode_tokens > 0;
}

// Sums of a weighted least squares fit, accumulated row by row.
class NonNegativeFit {
 public:
  static constexpr std::size_t kNumTerms = 4;
  using Row = std::array<double, kNumTerms>;

  void add(const Row& row, double y) {
    const double weight = 1 / (y * y);  // relative error, so an outlier in a long step weighs no
                                        // more
    for (std::size_t i = 0; i < kNumTerms; ++i) {
      for (std::size_t j = 0; j < kNumTerms; ++j) products_[i][j] += weight * row[i] * row[j];
      targets_[i] += weight * row[i] * y;
    }
  }

  // Tries every subset of the few terms. Returns the best one without negative coefficients.
  Row solve() const {
    Row best{};
    double best_gain = 0;  // the part of the sum of squares that the terms explain
    for (unsigned subset = 1; subset < (1u << kNumTerms); ++subset) {
      Row solution{};
      if (!solve_subset(subset, solution)) continue;
      double gain = 0;
      for (std::size_t i = 0; i < kNumTerms; ++i) gain += solution[i] * targets_[i];
      if (gain > best_gain) {
        best_gain = gain;
        best = solution;
      }
    }
    return best;
  }

 private:
  // Gaussian elimination with pivoting. False when the subset is degenerate or not admissible.
  bool solve_subset(unsigned subset, Row& solution) const {
    std::array<std::size_t, kNumTerms> terms{};
    std::size_t n = 0;
    for (std::size_t i = 0; i < kNumTerms; ++i) {
      if ((subset >> i & 1u) != 0) terms[n++] = i;
    }
    std::array<std::array<double, kNumTerms + 1>, kNumTerms> m{};
    std::array<double, kNumTerms> scale{};  // terms differ by orders of magnitude
    for (std::size_t i = 0; i < n; ++i) {
      scale[i] = std::sqrt(products_[terms[i]][terms[i]]);
      if (scale[i] <= 0) return false;
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        m[i][j] = products_[terms[i]][terms[j]] / (scale[i] * scale[j]);
      }
      m[i][n] = targets_[terms[i]] / scale[i];
    }
    for (std::size_t k = 0; k < n; ++k) {
      std::size_t pivot = k;
      for (std::size_t i = k + 1; i < n; ++i) {
        if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
      }
      constexpr double kDegenerate = 1e-9;
      if (std::abs(m[pivot][k]) < kDegenerate) return false;
      std::swap(m[k], m[pivot]);
      for (std::size_t i = k + 1; i < n; ++i) {
        const double factor = m[i][k] / m[k][k];
        for (std::size_t j = k; j <= n; ++j) m[i][j] -= factor * m[k][j];
      }
    }
    for (std::size_t k = n; k-- > 0;) {
      double value = m[k][n];
      for (std::size_t j = k + 1; j < n; ++j) value -= m[k][j] * solution[terms[j]] * scale[j];
      solution[terms[k]] = value / m[k][k] / scale[k];
      if (solution[terms[k]] < 0) return false;
    }
    return true;
  }

  std::array<Row, kNumTerms> products_{};
  Row targets_{};
};

NonNegativeFit::Row terms_of(const StepEntry& step, bool has_prefill) {
  return {1, static_cast<double>(step.num_decode_tokens), static_cast<double>(step.num_used_blocks),
          has_prefill ? static_cast<double>(step.num_prefill_tokens) : 0};
}

}  // namespace

void GapParts::operator+=(const GapParts& other) {
  decode_ns += other.decode_ns;
  draft_ns += other.draft_ns;
  encode_ns += other.encode_ns;
  prefill_ns += other.prefill_ns;
  host_ns += other.host_ns;
  waiting_ns += other.waiting_ns;
  preemption_ns += other.preemption_ns;
}

std::vector<TimeNs> device_times(const RunRecord& record) {
  std::vector<TimeNs> times;
  times.reserve(record.steps.size());
  TimeNs device_free_at = 0;
  ReplicaStarts starts(record);
  for (const StepEntry& step : record.steps) {
    if (starts.begins(times.size())) device_free_at = 0;
    times.push_back(step.finished_at - std::max(step.started_at, device_free_at));
    device_free_at = step.finished_at;
  }
  return times;
}

std::vector<TimeNs> estimate_decode_ns(const RunRecord& record) {
  constexpr std::int64_t kEnoughSteps = 16;
  std::int64_t num_pure = 0;
  for (const StepEntry& step : record.steps) {
    num_pure += step.num_prefill_tokens == 0 && step.duration_ns() > 0 ? 1 : 0;
  }
  const bool uses_all = num_pure < kEnoughSteps;
  NonNegativeFit fit;
  for (const StepEntry& step : record.steps) {
    if (step.duration_ns() == 0 || (!uses_all && step.num_prefill_tokens > 0)) continue;
    fit.add(terms_of(step, uses_all), static_cast<double>(step.duration_ns()));
  }
  const NonNegativeFit::Row parts = fit.solve();
  std::vector<TimeNs> decode_ns;
  decode_ns.reserve(record.steps.size());
  for (const StepEntry& step : record.steps) {
    if (!is_mixed(step)) {
      decode_ns.push_back(step.num_prefill_tokens > 0 ? 0 : step.duration_ns());
      continue;
    }
    const NonNegativeFit::Row terms = terms_of(step, false);
    double alone = 0;
    for (std::size_t i = 0; i < terms.size(); ++i) alone += parts[i] * terms[i];
    decode_ns.push_back(std::min<TimeNs>(step.duration_ns(), std::llround(alone)));
  }
  return decode_ns;
}

GapCauses::GapCauses(const RunRecord& record, std::int32_t first_step, std::int32_t last_step)
    : record_(record), first_step_(first_step), preemptions_(record.preemptions) {
  std::stable_sort(preemptions_.begin(), preemptions_.end(),
                   [](const auto& a, const auto& b) { return a.request < b.request; });
  sum_steps(last_step);
}

void GapCauses::sum_steps(std::int32_t last_step) {
  std::vector<TimeNs> estimates;  // if a step needs one
  TimeNs device_free_at = first_step_ > 0 ? record_.steps.finished_at(at(first_step_ - 1)) : 0;
  TimeNs decode_sum = 0;
  TimeNs prefill_sum = 0;
  TimeNs encode_sum = 0;
  ReplicaStarts starts(record_);
  StepHistory::Iterator it = record_.steps.from(at(first_step_));
  for (std::int32_t s = first_step_; s <= last_step; ++s, ++it) {
    const StepEntry& step = *it;
    if (starts.begins(at(s))) device_free_at = 0;  // the device is another one
    const TimeNs duration = step.finished_at - std::max(step.started_at, device_free_at);
    device_free_at = step.finished_at;
    TimeNs decode_ns = step.num_prefill_tokens > 0 ? 0 : duration;
    if (is_mixed(step)) {
      const bool is_known = step.decode_only_ns != kNoTime;
      if (!is_known && !std::exchange(is_estimated_, true)) estimates = estimate_decode_ns(record_);
      decode_ns = std::min(duration, is_known ? step.decode_only_ns : estimates[at(s)]);
    }
    decode_sum_.push_back(decode_sum += decode_ns);
    if (record_.drafts.num_drafts > 0) draft_times_.push_back(step.draft_ns);
    prefill_sum_.push_back(prefill_sum += duration - decode_ns);
    if (record_.has_encodings) {
      encode_sum_.push_back(encode_sum += std::min(step.encode_ns, duration - decode_ns));
    }
  }
}

bool GapCauses::is_preempted(const TokenGap& gap) const {
  if (gap.request == kNoRequest) return false;
  if (record_.requests[index(gap.request)].num_preemptions == 0) return false;
  // With two steps in flight, a preemption may be planned before the gap's first token exists. It
  // is never planned before the step of that token.
  const TimeNs from = record_.steps.planned_at(at(gap.step_before));
  const TimeNs until = record_.steps.finished_at(at(gap.step_after));
  const auto first = std::lower_bound(
      preemptions_.begin(), preemptions_.end(), PreemptionRecord{from, gap.request},
      [](const PreemptionRecord& a, const PreemptionRecord& b) {
        return std::tie(a.request, a.time) < std::tie(b.request, b.time);
      });
  return first != preemptions_.end() && first->request == gap.request && first->time < until;
}

GapParts GapCauses::parts(const TokenGap& gap) const {
  GapParts parts;
  const TimeNs whole = record_.steps.finished_at(at(gap.step_after)) -
                       record_.steps.finished_at(at(gap.step_before));
  if (gap.step_before == gap.step_after) return parts;
  if (is_preempted(gap)) {
    parts.preemption_ns = whole;
    return parts;
  }
  parts.draft_ns = draft_ns(gap.step_after);
  parts.decode_ns = decode_ns(gap.step_after) - parts.draft_ns;
  parts.waiting_ns = decode_sum(gap.step_after - 1) - decode_sum(gap.step_before);
  parts.encode_ns = encode_sum(gap.step_after) - encode_sum(gap.step_before);
  parts.prefill_ns = prefill_sum(gap.step_after) - prefill_sum(gap.step_before) - parts.encode_ns;
  parts.host_ns = whole - parts.total_ns();
  return parts;
}

template <class Visit>
void GapCauses::for_each_chunk(std::int32_t position, Visit visit) const {
  const std::int32_t num_prefill_tokens = record_.steps.num_prefill_tokens(at(position));
  if (num_prefill_tokens == 0) return;
  const std::int32_t first = record_.steps.first_prefill_chunk(at(position));
  const std::int32_t end = first + record_.steps.num_prefill_chunks(at(position));
  for (std::int32_t chunk = first; chunk < end; ++chunk) {
    const std::int32_t num_tokens = record_.prefills[at(chunk)].num_tokens;
    const TimeNs added_ns = prefill_ns(position) * num_tokens / num_prefill_tokens;
    if (added_ns > 0) visit(Culprit{chunk, position, added_ns});
  }
}

Culprit GapCauses::worst_chunk(const TokenGap& gap) const {
  Culprit worst;
  if (is_preempted(gap)) return worst;
  for (std::int32_t s = gap.step_before + 1; s <= gap.step_after; ++s) {
    for_each_chunk(s, [&worst](const Culprit& culprit) {
      if (culprit.added_ns > worst.added_ns) worst = culprit;
    });
  }
  return worst;
}

std::int64_t GapCauses::num_prefill_tokens(const TokenGap& gap) const {
  std::int64_t sum = 0;
  for (std::int32_t s = gap.step_before + 1; s <= gap.step_after; ++s) {
    sum += record_.steps.num_prefill_tokens(at(s));
  }
  return sum;
}

Stall explain_gap(const RunRecord& record, const GapCauses& gaps, const TokenGap& gap) {
  Stall stall;
  stall.request = gap.request;
  stall.gap_ns = gap.gap_ns;
  stall.step_before = gap.step_before;
  stall.step_after = gap.step_after;
  stall.began_at = record.steps.finished_at(static_cast<std::size_t>(stall.step_before));
  stall.num_prefill_tokens = gaps.num_prefill_tokens(gap);
  const GapParts parts = gaps.parts(gap);
  stall.encode_ns = parts.encode_ns;
  if (const Culprit worst = gaps.worst_chunk(gap); worst.chunk >= 0) {
    const PrefillChunk& chunk = record.prefills[static_cast<std::size_t>(worst.chunk)];
    stall.cause = parts.is_of_images() ? StallCause::Encoding : StallCause::Prefill;
    stall.prefill_request = chunk.request;
    stall.prefill_position = chunk.first_position;
    stall.prefill_tokens = chunk.num_tokens;
    stall.prefill_step = worst.step;
  } else if (parts.preemption_ns > 0) {
    stall.cause = StallCause::Preemption;
  }
  return stall;
}

GapAnalysis::GapAnalysis(const RunRecord& record)
    : GapCauses(record, 0, static_cast<std::int32_t>(record.steps.size()) - 1) {
  walk_gaps();
}

Culprit GapAnalysis::worst_chunk(const TokenGap& gap) const {
  Culprit worst = GapCauses::worst_chunk(gap);
  if (worst.chunk >= 0) worst.num_delayed = num_delayed(worst.step);
  return worst;
}

std::int32_t GapAnalysis::num_waiting(const TokenGap& gap) const {
  // No step delays the second of two tokens of one step.
  const bool is_own = is_preempted(gap) || gap.step_before == gap.step_after;
  return is_own ? 1 : num_delayed(gap.step_after);
}

// Gaps between consecutive steps are counted per step. Other gaps are examined one by one.
void GapAnalysis::walk_gaps() {
  // First the change of the number of interrupted requests with each step.
  num_delayed_.assign(record().steps.size() + 1, 0);
  for (std::size_t i = 0; i < record().requests.size(); ++i) {
    const auto runs = record().runs_of(i);
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const TokenGap gap{static_cast<RequestId>(i), runs[r - 1].last_step(), runs[r].first_step, 0};
      total_ += parts(gap);
      if (is_preempted(gap)) continue;
      ++num_delayed_[at(gap.step_before + 1)];
      --num_delayed_[at(gap.step_after + 1)];
    }
  }
  std::int32_t num_interrupted = 0;
  for (std::size_t s = 0; s < record().steps.size(); ++s) {
    num_interrupted += num_delayed_[s];
    const std::int32_t num_continued = record().steps.num_continued(s);
    num_delayed_[s] = num_interrupted + num_continued;
    if (num_continued == 0) continue;
    add_step(static_cast<std::int32_t>(s), num_continued, total_);
  }
  num_delayed_.pop_back();
  correct_swift_returns();
}

// Corrects the counts for requests that were preempted and still gave a token in the next step.
// walk_gaps() counted them as continued.
void GapAnalysis::correct_swift_returns() {
  TokenGap last;
  for (const PreemptionRecord& preemption : preemptions()) {
    for (const TokenRun& run : record().runs_of(index(preemption.request))) {
      for (std::int32_t s = run.first_step + 1; s <= run.last_step(); ++s) {
        if (record().steps.finished_at(at(s)) <= preemption.time) continue;
        if (record().steps.planned_at(at(s - 1)) > preemption.time) break;
        const TokenGap gap{preemption.request, s - 1, s, 0};
        const bool is_counted = gap.request == last.request && gap.step_after == last.step_after;
        if (is_counted || !is_preempted(gap)) continue;
        last = gap;
        --num_delayed_[at(s)];
        swift_returns_.push_back(gap);
        move_to_preemption(s, total_);
      }
    }
  }
}

// Adds gaps that end in `step` and began with the step before.
void GapAnalysis::add_step(std::int32_t step, std::int64_t num_gaps, GapParts& sum) const {
  const TimeNs whole =
      record().steps.finished_at(at(step)) - record().steps.finished_at(at(step - 1));
  sum.decode_ns += num_gaps * (decode_ns(step) - draft_ns(step));
  sum.draft_ns += num_gaps * draft_ns(step);
  sum.encode_ns += num_gaps * encode_ns(step);
  sum.prefill_ns += num_gaps * (prefill_ns(step) - encode_ns(step));
  sum.host_ns += num_gaps * (whole - decode_ns(step) - prefill_ns(step));
}

// Moves the gap of one request that ends in `step` to preemption_ns.
void GapAnalysis::move_to_preemption(std::int32_t step, GapParts& sum) const {
  add_step(step, -1, sum);
  sum.preemption_ns +=
      record().steps.finished_at(at(step)) - record().steps.finished_at(at(step - 1));
}

GapSum GapAnalysis::beyond(TimeNs limit_ns) const {
  GapSum sum;
  for (std::size_t i = 0; i < record().requests.size(); ++i) {
    const auto runs = record().runs_of(i);
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const GapParts parts_of_gap =
          parts({static_cast<RequestId>(i), runs[r - 1].last_step(), runs[r].first_step, 0});
      if (parts_of_gap.total_ns() <= limit_ns) continue;
      sum.parts += parts_of_gap;
      ++sum.num_gaps;
    }
  }
  for (std::size_t s = 1; s < record().steps.size(); ++s) {
    const std::int32_t num_continued = record().steps.num_continued(s);
    const TimeNs whole = record().steps.finished_at(s) - record().steps.finished_at(s - 1);
    if (num_continued == 0 || whole <= limit_ns) continue;
    add_step(static_cast<std::int32_t>(s), num_continued, sum.parts);
    sum.num_gaps += num_continued;
  }
  for (const TokenGap& gap : swift_returns_) {
    const TimeNs whole = record().steps.finished_at(at(gap.step_after)) -
                         record().steps.finished_at(at(gap.step_before));
    if (whole > limit_ns) move_to_preemption(gap.step_after, sum.parts);
  }
  return sum;
}

// Every gap that ends in one of the `max_steps` steps with the longest gaps, at most `max_per_step`
// of each step.
std::vector<TokenGap> GapAnalysis::gaps_in_runs(std::size_t max_steps,
                                                std::int32_t max_per_step) const {
  const auto length = [&](std::int32_t s) {
    return record().steps.finished_at(at(s)) - record().steps.finished_at(at(s - 1));
  };
  std::vector<std::int32_t> steps;
  for (std::size_t s = 1; s < record().steps.size(); ++s) {
    if (record().steps.num_continued(s) > 0) steps.push_back(static_cast<std::int32_t>(s));
  }
  max_steps = std::min(max_steps, steps.size());
  std::partial_sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(max_steps),
                    steps.end(), [&](std::int32_t a, std::int32_t b) {
                      return length(a) != length(b) ? length(a) > length(b) : a < b;
                    });
  steps.resize(max_steps);
  std::sort(steps.begin(), steps.end());
  std::vector<std::int32_t> num_found(steps.size());
  std::vector<TokenGap> gaps;
  for (std::size_t i = 0; i < record().requests.size(); ++i) {
    for (const TokenRun& run : record().runs_of(i)) {
      auto next = std::upper_bound(steps.begin(), steps.end(), run.first_step);
      for (; next != steps.end() && *next <= run.last_step(); ++next) {
        if (num_found[static_cast<std::size_t>(next - steps.begin())]++ >= max_per_step) continue;
        gaps.push_back({static_cast<RequestId>(i), *next - 1, *next, length(*next)});
      }
    }
  }
  return gaps;
}

std::vector<TokenGap> GapAnalysis::longest_gaps(std::size_t max_gaps,
                                                std::int32_t max_per_step) const {
  std::vector<TokenGap> gaps = gaps_in_runs(max_gaps, max_per_step);
  const auto finished_at = [&](std::int32_t step) { return record().steps.finished_at(at(step)); };
  for (std::size_t i = 0; i < record().requests.size(); ++i) {
    const auto runs = record().runs_of(i);
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const std::int32_t before = runs[r - 1].last_step();
      const std::int32_t after = runs[r].first_step;
      gaps.push_back(
          {static_cast<RequestId>(i), before, after, finished_at(after) - finished_at(before)});
    }
  }
  std::sort(gaps.begin(), gaps.end(), [](const TokenGap& a, const TokenGap& b) {
    return std::tie(b.gap_ns, a.step_after, a.request) <
           std::tie(a.gap_ns, b.step_after, b.request);
  });
  std::vector<std::int32_t> num_taken(record().steps.size());
  std::vector<TokenGap> longest;
  for (const TokenGap& gap : gaps) {
    if (longest.size() == max_gaps) break;
    if (num_taken[at(gap.step_after)]++ < max_per_step) longest.push_back(gap);
  }
  return longest;
}

template <class Visit>
void GapAnalysis::for_each_culprit(Visit visit) const {
  for (std::size_t s = 0; s < record().steps.size(); ++s) {
    if (num_delayed_[s] == 0) continue;
    for_each_chunk(static_cast<std::int32_t>(s), [&](Culprit culprit) {
      culprit.num_delayed = num_delayed_[s];
      visit(culprit);
    });
  }
}

std::vector<Culprit> GapAnalysis::culprits(std::size_t max_culprits) const {
  std::vector<Culprit> all;
  for_each_culprit([&all](const Culprit& culprit) { all.push_back(culprit); });
  const std::size_t size = std::min(max_culprits, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size), all.end(),
                    [](const Culprit& a, const Culprit& b) {
                      return a.stall_ns() != b.stall_ns() ? a.stall_ns() > b.stall_ns()
                                                          : a.chunk < b.chunk;
                    });
  all.resize(size);
  return all;
}

std::vector<CulpritRequest> GapAnalysis::culprit_requests(std::size_t max_requests) const {
  std::vector<CulpritRequest> all(record().requests.size());
  for_each_culprit([&](const Culprit& culprit) {
    const RequestId request = record().prefills[at(culprit.chunk)].request;
    CulpritRequest& sum = all[index(request)];
    sum.request = request;
    ++sum.num_chunks;
    sum.max_delayed = std::max(sum.max_delayed, culprit.num_delayed);
    sum.stall_ns += culprit.stall_ns();
  });
  std::erase_if(all, [](const CulpritRequest& sum) { return sum.num_chunks == 0; });
  std::sort(all.begin(), all.end(), [](const CulpritRequest& a, const CulpritRequest& b) {
    return a.stall_ns != b.stall_ns ? a.stall_ns > b.stall_ns : a.request < b.request;
  });
  if (all.size() > max_requests) all.resize(max_requests);
  return all;
}

}  // namespace metronome
