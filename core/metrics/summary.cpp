// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/summary.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/metrics/gap_analysis.h"

namespace metronome {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Per-step token counts of completed requests with index >= `first`: the record's counts minus the
// other requests' tokens. Most runs need no correction.
class CompletedTokens {
 public:
  explicit CompletedTokens(const RunRecord& record, std::size_t first = 0)
      : steps_(record.steps), last_(steps_.size()) {
    for (std::size_t i = 0; i < record.requests.size(); ++i) {
      const std::span<const TokenRun> runs = record.runs_of(i);
      if (runs.empty()) continue;
      if (i >= first && record.requests[i].completed()) {
        ++last_[static_cast<std::size_t>(runs.back().last_step())];
      } else {
        std::span<const std::uint8_t> counts = record.counts_of(i);
        for (const TokenRun& run : runs) {
          subtract(run);
          if (counts.empty()) continue;
          const auto num_steps = static_cast<std::size_t>(run.num_steps);
          subtract_further_tokens(run, counts.first(num_steps));
          counts = counts.subspan(num_steps);
        }
      }
    }
    for (std::size_t s = 1; s < corrections_.size(); ++s) {
      corrections_[s].emitted += corrections_[s - 1].emitted;
      corrections_[s].continued += corrections_[s - 1].continued;
    }
  }

  // Calls visit(step, StepHistory::Output), with these requests' tokens alone.
  template <class Visit>
  void for_each_output(const Visit& visit) const {
    steps_.for_each_output([&](std::size_t s, StepHistory::Output output) {
      if (!corrections_.empty()) {
        output.num_emitted += corrections_[s].emitted;
        output.num_continued += corrections_[s].continued;
      }
      visit(s, output);
    });
  }
  std::int32_t last(std::size_t s) const { return last_[s]; }  // last tokens

 private:
  struct Correction {
    std::int32_t emitted = 0;
    std::int32_t continued = 0;
  };

  // Stores differences between consecutive steps, so removing a run has constant cost.
  void subtract(const TokenRun& run) {
    corrections_.resize(steps_.size() + 1);
    const auto begin = static_cast<std::size_t>(run.first_step);
    const auto end = begin + static_cast<std::size_t>(run.num_steps);
    --corrections_[begin].emitted;
    ++corrections_[end].emitted;
    --corrections_[begin + 1].continued;
    ++corrections_[end].continued;
  }

  // The tokens beyond one in each step.
  void subtract_further_tokens(const TokenRun& run, std::span<const std::uint8_t> counts) {
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const std::size_t step = static_cast<std::size_t>(run.first_step) + k;
      corrections_[step].emitted -= counts[k] - 1;
      corrections_[step + 1].emitted += counts[k] - 1;
    }
  }

  const StepHistory& steps_;
  std::vector<std::int32_t> last_;
  std::vector<Correction> corrections_;  // empty: none
};

std::vector<WeightedTime> gaps_of(const RunRecord& record, const CompletedTokens& tokens,
                                  std::size_t first = 0) {
  std::vector<WeightedTime> gaps;
  gaps.reserve(record.steps.size());
  TimeNs before = 0;
  tokens.for_each_output([&](std::size_t, const StepHistory::Output& output) {
    const TimeNs gap = output.finished_at - std::exchange(before, output.finished_at);
    if (output.num_continued > 0) gaps.push_back({gap, output.num_continued});
  });
  for (std::size_t i = first; i < record.requests.size(); ++i) {
    if (!record.requests[i].completed()) continue;
    const std::span<const TokenRun> runs = record.runs_of(i);
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const auto last = static_cast<std::size_t>(runs[r - 1].last_step());
      const auto next = static_cast<std::size_t>(runs[r].first_step);
      gaps.push_back({record.steps.finished_at(next) - record.steps.finished_at(last), 1});
    }
  }
  return gaps;
}

// The distribution of one figure over the completed requests that have it.
template <class Has, class Get>
Distribution over_completed(const RunRecord& record, std::vector<double>& sample, Has has,
                            Get get) {
  sample.clear();
  for (const RequestRecord& request : record.requests) {
    if (request.completed() && has(request)) {
      sample.push_back(static_cast<double>(get(request)));
    }
  }
  return describe(sample);
}

void summarize_latencies(const RunRecord& record, const CompletedTokens& tokens, Summary& summary) {
  std::vector<double> sample;
  sample.reserve(record.requests.size());
  const auto has_token = [](const RequestRecord& r) { return r.first_token != kNoTime; };
  const auto was_scheduled = [](const RequestRecord& r) { return r.first_scheduled != kNoTime; };
  const auto has_itl = [](const RequestRecord& r) { return r.has_itl(); };
  // A client may receive several tokens in one event.
  const auto has_gap = [](const RequestRecord& r) { return r.has_itl() && r.max_itl_step >= 0; };
  summary.ttft =
      over_completed(record, sample, has_token, [](const RequestRecord& r) { return r.ttft_ns(); });
  summary.e2el =
      over_completed(record, sample, has_token, [](const RequestRecord& r) { return r.e2el_ns(); });
  summary.tpot =
      over_completed(record, sample, has_itl, [](const RequestRecord& r) { return r.tpot_ns(); });
  summary.jitter =
      over_completed(record, sample, has_gap, [](const RequestRecord& r) { return r.jitter_ns(); });
  const auto index_of = [&record](const RequestRecord& r) {
    return static_cast<std::size_t>(&r - record.requests.data());
  };
  summary.queue = over_completed(record, sample, was_scheduled, [&](const RequestRecord& r) {
    return record.queue_ns(index_of(r));
  });
  if (!record.handed_over.empty()) {
    summary.front_end = over_completed(record, sample, has_token, [&](const RequestRecord& r) {
      return record.front_end_ns(index_of(r));
    });
  }
  std::vector<WeightedTime> gaps = gaps_of(record, tokens);
  summary.itl = describe(gaps);
}

void summarize_requests(const RunRecord& record, const SloConfig& slo, Summary& summary) {
  const bool has_slo = slo.limits_any();
  std::int64_t good = 0;
  std::int64_t num_admitted_tokens = 0;
  std::int64_t num_hit_tokens = 0;
  for (const RequestRecord& request : record.requests) {
    if (request.num_prompt_tokens == 0) continue;  // never reached the engine
    if (request.first_scheduled != kNoTime) num_admitted_tokens += request.num_prompt_tokens;
    num_hit_tokens += request.num_prefix_hit_tokens;
    ++summary.num_requests;
    count_ends(request.reason, 1, summary);
    if (request.completed()) {
      summary.total_input_tokens += request.num_prompt_tokens;
      summary.total_output_tokens += request.num_output_tokens;
    }
    summary.num_preemptions += request.num_preemptions;
    if (has_slo && meets_slo(request, slo)) ++good;
  }
  if (num_admitted_tokens > 0) {
    summary.prefix_hit_rate =
        static_cast<double>(num_hit_tokens) / static_cast<double>(num_admitted_tokens);
  }
  set_rates(has_slo ? std::optional(good) : std::nullopt, summary);
}

// Arrivals of the completed requests that got tokens, in order of time.
std::vector<TimeNs> completed_arrivals(const RunRecord& record) {
  std::vector<TimeNs> arrivals;
  arrivals.reserve(record.requests.size());
  for (const RequestRecord& request : record.requests) {
    if (request.completed() && request.last_token != kNoTime) {
      arrivals.push_back(request.arrival);
    }
  }
  if (!std::is_sorted(arrivals.begin(), arrivals.end())) {
    std::sort(arrivals.begin(), arrivals.end());
  }
  return arrivals;
}

// As summarize_peaks(), for steps that are not in order of time.
void summarize_replica_peaks(const RunRecord& record, const CompletedTokens& tokens,
                             const std::vector<TimeNs>& arrivals, Summary& summary) {
  // The first arrival of any request: FleetFigures cannot know which ones will complete.
  TimeNs first_arrival = arrivals.front();
  for (const RequestRecord& request : record.requests) {
    first_arrival = std::min(first_arrival, request.arrival);
  }
  std::map<TimeNs, std::int64_t> by_second;
  tokens.for_each_output([&](std::size_t, const StepHistory::Output& output) {
    if (output.num_emitted == 0) return;
    by_second[(output.finished_at - first_arrival) / kNsPerSecond] += output.num_emitted;
  });
  for (const auto& [second, count] : by_second) {
    summary.max_output_tokens_per_s =
        std::max(summary.max_output_tokens_per_s, static_cast<double>(count));
  }
  std::vector<TimeNs> ends;
  for (const RequestRecord& request : record.requests) {
    if (request.completed() && request.last_token != kNoTime) ends.push_back(request.last_token);
  }
  std::sort(ends.begin(), ends.end());
  std::size_t num_arrived = 0;
  for (std::size_t num_gone = 0; num_gone < ends.size(); ++num_gone) {
    while (num_arrived < arrivals.size() && arrivals[num_arrived] < ends[num_gone]) ++num_arrived;
    summary.max_concurrent_requests = std::max(summary.max_concurrent_requests,
                                               static_cast<std::int64_t>(num_arrived - num_gone));
  }
}

void summarize_peaks(const RunRecord& record, const CompletedTokens& tokens, Summary& summary) {
  const std::vector<TimeNs> arrivals = completed_arrivals(record);
  if (arrivals.empty()) return;
  if (!record.replicas.empty()) return summarize_replica_peaks(record, tokens, arrivals, summary);
  // Steps finish in order of time, so buckets fill in sequence.
  TimeNs bucket = -1;
  std::int64_t in_bucket = 0;
  std::int64_t fullest = 0;
  std::size_t num_arrived = 0;
  std::int64_t num_gone = 0;
  tokens.for_each_output([&](std::size_t s, const StepHistory::Output& output) {
    const TimeNs time = output.finished_at;
    if (output.num_emitted > 0) {
      const TimeNs second = (time - arrivals.front()) / kNsPerSecond;
      in_bucket = (second == bucket ? in_bucket : 0) + output.num_emitted;
      bucket = second;
      fullest = std::max(fullest, in_bucket);
    }
    // A request that arrives exactly at another's last token does not overlap with it.
    while (num_arrived < arrivals.size() && arrivals[num_arrived] < time) ++num_arrived;
    summary.max_concurrent_requests = std::max(summary.max_concurrent_requests,
                                               static_cast<std::int64_t>(num_arrived) - num_gone);
    num_gone += tokens.last(s);
  });
  summary.max_output_tokens_per_s = static_cast<double>(fullest);
}

// Every gap of completed requests, divided among the tokens that ended it.
std::vector<WeightedTime> gaps_per_token(const RunRecord& record) {
  std::vector<WeightedTime> gaps;
  gaps.reserve(record.token_counts.size());
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (!record.requests[i].completed()) continue;
    const std::span<const std::uint8_t> counts = record.counts_of(i);
    std::size_t next = 0;
    TimeNs before = kNoTime;
    for (const TokenRun& run : record.runs_of(i)) {
      for (std::int32_t s = run.first_step; s <= run.last_step(); ++s, ++next) {
        const TimeNs now = record.steps.finished_at(static_cast<std::size_t>(s));
        if (before != kNoTime) gaps.push_back({(now - before) / counts[next], counts[next]});
        before = now;
      }
    }
  }
  return gaps;
}

// Whether the step left a prompt in the queue or uncomputed.
bool has_waiting_prompt(const RunRecord& record, const StepEntry& step) {
  if (step.num_waiting > 0) return true;
  for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
    const auto place = static_cast<std::size_t>(step.first_prefill_chunk + c);
    const PrefillChunk& chunk = record.prefills[place];
    if (chunk.end_position() < record.requests[index(chunk.request)].num_prompt_tokens) return true;
  }
  return false;
}

void count_beside_prompts(const RunRecord& record, DraftSummary& drafts) {
  for (const StepEntry& step : record.steps) {
    if (step.num_draft_tokens == 0 || !has_waiting_prompt(record, step)) continue;
    ++drafts.beside_prompts.num_steps;
    drafts.beside_prompts.num_tokens += step.num_tokens();
    drafts.beside_prompts.num_drafted += step.num_draft_tokens;
    drafts.beside_prompts.num_wasted += step.num_draft_tokens - step.num_accepted_tokens;
  }
}

void summarize_drafts(const RunRecord& record, Summary& summary) {
  if (record.drafts.num_drafts == 0) return;
  DraftSummary& drafts = summary.drafts.emplace();
  drafts.counts = record.drafts;
  const auto num_drafts = static_cast<double>(record.drafts.num_drafts);
  const auto num_accepted = static_cast<double>(record.drafts.num_accepted());
  drafts.acceptance_length = 1 + num_accepted / num_drafts;
  drafts.acceptance_rate = num_accepted / static_cast<double>(record.drafts.num_drafted());
  std::int64_t num_decodes = 0;
  std::int64_t num_received = 0;
  for (const StepEntry& step : record.steps) {
    num_decodes += step.num_decode_tokens - step.num_draft_tokens;
    num_received += step.num_accepted_tokens;
    drafts.num_wasted += step.num_draft_tokens - step.num_accepted_tokens;
  }
  drafts.tokens_per_decode =
      1 + static_cast<double>(num_received) / static_cast<double>(num_decodes);
  count_beside_prompts(record, drafts);
  std::vector<WeightedTime> gaps = gaps_per_token(record);
  drafts.itl_per_token = describe(gaps);
}

// Sums over the steps of one engine.
struct StepSums {
  double block_time = 0;
  double running_time = 0;
  double waiting_time = 0;
  std::int64_t num_tokens = 0;
  std::int64_t peak_blocks = 0;
  TimeNs busy_ns = 0;
};

StepSums sum_steps(const StepHistory& steps, std::size_t begin, std::size_t end, Summary& summary) {
  StepSums sums;
  std::size_t next = begin;
  for (auto at = steps.from(begin); at.position() < end; ++at) {
    const StepEntry& step = *at;
    const TimeNs until =
        ++next < end ? std::min(steps.planned_at(next), step.finished_at) : step.finished_at;
    const auto held = static_cast<double>(std::max<TimeNs>(until - step.planned_at, 0));
    sums.block_time += held * step.num_used_blocks;
    sums.running_time += held * step.num_running;
    sums.waiting_time += held * step.num_waiting;
    sums.peak_blocks = std::max<std::int64_t>(sums.peak_blocks, step.num_used_blocks);
    summary.peak_running = std::max<std::int64_t>(summary.peak_running, step.num_running);
    summary.peak_waiting = std::max<std::int64_t>(summary.peak_waiting, step.num_waiting);
    sums.num_tokens += step.num_tokens();
    sums.busy_ns += step.duration_ns();
    summary.num_failed_steps += step.failed ? 1 : 0;
    summary.num_extrapolated_steps += step.extrapolated ? 1 : 0;
  }
  return sums;
}

// Sets the figures that a client outside the engine cannot measure to undefined.
void summarize_steps(const RunRecord& record, std::int64_t num_blocks, Summary& summary) {
  const StepHistory& steps = record.steps;
  summary.num_steps = static_cast<std::int64_t>(steps.size());
  std::vector<ReplicaRecord> engines = record.replicas;
  if (engines.empty()) engines.push_back({0, steps.size(), num_blocks});
  StepSums all;
  double peak_use = 0;
  double total_blocks = 0;
  for (const ReplicaRecord& engine : engines) {
    const StepSums sums = sum_steps(steps, engine.first_step, engine.end_step(), summary);
    const double blocks =
        engine.num_blocks > 0 ? static_cast<double>(engine.num_blocks) : kUndefined;
    all.block_time += sums.block_time;
    all.running_time += sums.running_time;
    all.waiting_time += sums.waiting_time;
    all.num_tokens += sums.num_tokens;
    all.busy_ns += sums.busy_ns;
    total_blocks += blocks;
    const double use = static_cast<double>(sums.peak_blocks) / blocks;
    peak_use = engine.num_blocks > 0 ? std::max(peak_use, use) : kUndefined;
  }
  if (!steps.empty()) {
    summary.mean_batch_tokens =
        static_cast<double>(all.num_tokens) / static_cast<double>(steps.size());
  }
  if (summary.duration_ns > 0) {
    const auto duration = static_cast<double>(summary.duration_ns);
    summary.busy_share = static_cast<double>(all.busy_ns) / duration;
    if (!record.replicas.empty()) summary.busy_share /= static_cast<double>(engines.size());
    summary.mean_running = all.running_time / duration;
    summary.mean_waiting = all.waiting_time / duration;
    summary.mean_kv_use = all.block_time / duration;  // in blocks; scaled below
  }
  summary.mean_kv_use /= total_blocks;
  summary.peak_kv_use = peak_use;
}

// The step that gave the token before the request's longest gap.
std::int32_t step_before_longest_gap(const RunRecord& record, std::size_t i) {
  const RequestRecord& request = record.requests[i];
  const std::span<const TokenRun> runs = record.runs_of(i);
  const auto finished_at = [&](std::int32_t step) {
    return record.steps.finished_at(static_cast<std::size_t>(step));
  };
  for (std::size_t r = 1; r < runs.size(); ++r) {
    const std::int32_t before = runs[r - 1].last_step();
    if (runs[r].first_step == request.max_itl_step &&
        finished_at(request.max_itl_step) - finished_at(before) == request.max_itl_ns) {
      return before;
    }
  }
  return request.max_itl_step - 1;
}

// See Summary::present_share.
double share_present(const RunRecord& record, TimeNs duration_ns) {
  if (duration_ns <= 0) return 1;
  std::vector<TimeNs> came(record.replicas.size());
  for (std::size_t r = 0; r < came.size(); ++r) {
    if (record.replicas[r].starts_off) came[r] = kNever;
  }
  double present_ns = 0;
  const auto leaves = [&](std::size_t r, TimeNs at) {
    const TimeNs until = std::min(at, duration_ns);
    if (came[r] < until) present_ns += static_cast<double>(until - came[r]);
    came[r] = kNever;
  };
  for (const FleetEvent& event : record.fleet_events) {
    const auto r = static_cast<std::size_t>(event.replica);
    if (event.change == FleetChange::Added) came[r] = event.time;
    if (event.change == FleetChange::Removed) leaves(r, event.time);
  }
  for (std::size_t r = 0; r < came.size(); ++r) leaves(r, duration_ns);
  return present_ns / static_cast<double>(duration_ns) / static_cast<double>(came.size());
}

}  // namespace

void count_ends(EndReason reason, std::int64_t count, Summary& summary) {
  switch (reason) {
    case EndReason::None: summary.unfinished += count; return;
    case EndReason::Length:
    case EndReason::Stop:
    case EndReason::HandedOver: summary.completed += count; return;
    case EndReason::Aborted: summary.aborted += count; break;
    case EndReason::QueueFull: summary.refused += count; break;
    case EndReason::NeverFits: summary.never_fits += count; break;
    case EndReason::StepFailed: summary.step_failed += count; break;
    case EndReason::Errored: summary.errored += count; break;
  }
  summary.failed += count;
}

void set_rates(std::optional<std::int64_t> good, Summary& summary) {
  const double duration_s = to_seconds(summary.duration_ns);
  const auto per_second = [&](std::int64_t amount) {
    return duration_s > 0 ? static_cast<double>(amount) / duration_s : 0.0;
  };
  summary.request_throughput = per_second(summary.completed);
  summary.output_throughput = per_second(summary.total_output_tokens);
  summary.total_token_throughput =
      per_second(summary.total_input_tokens + summary.total_output_tokens);
  if (!good) return;
  const std::int64_t num_ended = summary.completed + summary.failed;
  summary.good = good;
  summary.request_goodput = per_second(*good);
  summary.slo_attainment =
      num_ended > 0 ? static_cast<double>(*good) / static_cast<double>(num_ended) : kUndefined;
}

void set_fleet(const RunRecord& record, Summary& summary) {
  double highest = 0;
  for (const ReplicaSummary& replica : summary.replicas) {
    highest = std::max(highest, replica.busy_share);
  }
  if (summary.busy_share > 0) summary.replica_imbalance = highest / summary.busy_share;
  summary.fleet_events = record.fleet_events;
  for (const FleetEvent& event : record.fleet_events) summary.num_retried += event.num_retried;
  summary.present_share = share_present(record, summary.duration_ns);
}

bool meets_slo(const RequestRecord& request, const SloConfig& given) {
  const SloConfig& slo = given.of_class(request.class_number);
  if (!request.completed() || request.first_token == kNoTime) return false;
  const double tpot_ms = request.has_itl() ? request.tpot_ns() / 1e6 : 0.0;
  const double itl_ms = request.has_itl() ? to_ms(request.max_itl_ns) : 0.0;
  return (!slo.ttft_ms || to_ms(request.ttft_ns()) <= *slo.ttft_ms) &&
         (!slo.tpot_ms || tpot_ms <= *slo.tpot_ms) &&
         (!slo.itl_ms || slo.judges_gaps_of_run() || itl_ms <= *slo.itl_ms) &&
         (!slo.e2el_ms || to_ms(request.e2el_ns()) <= *slo.e2el_ms);
}

Stall longest_stall_of(const RunRecord& record, std::size_t i) {
  const RequestRecord& request = record.requests[i];
  if (!request.has_itl() || request.max_itl_step < 0) return {};
  const TokenGap gap{static_cast<RequestId>(i), step_before_longest_gap(record, i),
                     request.max_itl_step, request.max_itl_ns};
  if (record.has_steps()) {
    return explain_gap(record, GapCauses(record, gap.step_before + 1, gap.step_after), gap);
  }
  return {.gap_ns = gap.gap_ns,
          .request = gap.request,
          .step_before = gap.step_before,
          .step_after = gap.step_after,
          .began_at = record.steps.finished_at(static_cast<std::size_t>(gap.step_before)),
          .cause = StallCause::Unseen};
}

std::vector<WeightedTime> pooled_gaps(const RunRecord& record, std::size_t first) {
  return gaps_of(record, CompletedTokens(record, first), first);
}

// Ends when the last request ends; for a run cut short, not before its last step.
TimeNs run_duration(const RunRecord& record) {
  TimeNs end = 0;
  bool is_cut_short = false;
  for (const RequestRecord& request : record.requests) {
    end = std::max({end, request.ended, request.last_token});
    is_cut_short = is_cut_short || request.reason == EndReason::None;
  }
  if (is_cut_short && !record.steps.empty()) {
    end = std::max(end, record.steps.back().finished_at);
  }
  return end;
}

void leave_out_steps(Summary& summary) {
  summary.has_steps = false;
  for (double* figure :
       {&summary.mean_batch_tokens, &summary.busy_share, &summary.prefix_hit_rate,
        &summary.mean_kv_use, &summary.peak_kv_use, &summary.mean_running, &summary.mean_waiting}) {
    *figure = kUndefined;
  }
}

Summary summarize(const RunRecord& record, const SummaryOptions& options) {
  Summary summary;
  summary.duration_ns = run_duration(record);
  const CompletedTokens tokens(record);
  summarize_latencies(record, tokens, summary);
  if (record.has_steps()) summarize_steps(record, options.num_blocks, summary);
  summarize_drafts(record, summary);
  summarize_requests(record, options.slo, summary);
  summarize_peaks(record, tokens, summary);
  summary.rates = answer_rates(record);
  summary.classes = summarize_classes(record, options.slo);
  summary.priorities = summarize_priorities(record, options.slo);
  if (!record.replicas.empty()) {
    summary.replicas = summarize_replicas(record, options.slo);
    set_fleet(record, summary);
  }
  if (!record.has_steps()) leave_out_steps(summary);
  std::optional<std::size_t> longest;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (!request.completed() || !request.has_itl() || request.max_itl_step < 0) continue;
    if (!longest || request.max_itl_ns > record.requests[*longest].max_itl_ns) longest = i;
  }
  if (longest) summary.longest_stall = longest_stall_of(record, *longest);
  return summary;
}

}  // namespace metronome
