// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/log_gaps.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/run_record.h"
#include "engines/log/batch_pace.h"
#include "engines/log/log_dialect.h"
#include "reports/terminal/batch_times.h"

namespace metronome {
namespace {

// ---- Logs of iterations ----

// Decodes without a prompt, by rank. An iteration does not say how full the cache is; the last
// report before it does.
std::vector<SlowDecodes> slow_iterations(const EngineLog& log) {
  constexpr std::size_t kLeastSteps = 3;
  std::map<std::int32_t, std::vector<DecodeSample>> samples;
  std::map<std::int32_t, double> usage;
  for (const LogObservation& seen : log.observations) {
    if (seen.cache_usage) usage[seen.rank] = *seen.cache_usage;
    if (seen.kind != Observed::Iteration || seen.num_prefill_tokens > 0) continue;
    if (seen.num_decode_tokens == 0 || !seen.is_plausible()) continue;
    samples[seen.rank].push_back({seen.number, seen.time, seen.num_running, usage[seen.rank],
                                  seen.elapsed_ns, seen.line, seen.rank});
  }
  std::vector<SlowDecodes> all;
  for (const auto& [rank, steps] : samples) {
    std::vector<SlowDecodes> spans = find_slow_decodes(steps, kLeastSteps);
    all.insert(all.end(), spans.begin(), spans.end());
  }
  return all;
}

DecodePlace place_of(const LogObservation& iteration) {
  return {iteration.number, iteration.line, iteration.rank};
}

// Steps of slow spans do not count for the estimate. A mixed one has the decodes of its span.
std::vector<TimeNs> estimated_decode_ns(const std::vector<LogObservation>& steps,
                                        const std::vector<SlowDecodes>& slow) {
  RunRecord record;  // only steps, as required for estimates
  for (const LogObservation& seen : steps) {
    StepEntry step;
    // A step without a time is ignored by estimates.
    const bool counts = seen.is_plausible() && span_at(slow, place_of(seen)) == nullptr;
    step.finished_at = counts ? seen.elapsed_ns : 0;
    step.num_prefill_tokens = static_cast<std::int32_t>(seen.num_prefill_tokens);
    step.num_decode_tokens = static_cast<std::int32_t>(seen.num_decode_tokens);
    record.steps.push_back(step);
  }
  std::vector<TimeNs> decode_ns = estimate_decode_ns(record);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SlowDecodes* span = span_at(slow, place_of(steps[i]));
    if (span == nullptr) continue;
    const bool is_pure = steps[i].num_prefill_tokens == 0;
    decode_ns[i] = is_pure ? steps[i].elapsed_ns : std::min(span->step_ns, steps[i].elapsed_ns);
  }
  return decode_ns;
}

LogGaps gaps_of_iterations(const EngineLog& log) {
  LogGaps result;
  result.where_word = "iteration";
  std::vector<LogObservation> steps;
  std::copy_if(log.observations.begin(), log.observations.end(), std::back_inserter(steps),
               [](const LogObservation& seen) { return seen.kind == Observed::Iteration; });
  if (steps.empty()) {
    result.notes = {"The log has no iterations, so the gaps between tokens are unknown. " +
                    std::string(log.dialect->numbering)};
    return result;
  }
  result.slow = slow_iterations(log);
  const std::vector<TimeNs> decode_ns = estimated_decode_ns(steps, result.slow);
  std::int64_t num_implausible = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LogObservation& step = steps[i];
    num_implausible += step.is_plausible() ? 0 : 1;
    result.gaps.push_back({step.number, step.elapsed_ns, decode_ns[i], step.num_running,
                           step.num_running, step.num_prefill_tokens,
                           step.num_prefill_tokens > 0 ? 1 : 0, step.line, step.rank});
  }
  result.notes = {
      "The log has no requests: each generation request of an iteration counts as waiting for all "
      "of it. The time between iterations is not in the log.",
      "The split of a mixed iteration into decode and prefill is an estimate from the iterations "
      "without context tokens."};
  if (num_implausible > 0) {
    result.notes.push_back(count_text(num_implausible, "iteration") +
                           " took less than 0.2 ms, which is too fast for a GPU. With asynchronous "
                           "scheduling vLLM logs how long it waited for a result. Log again with "
                           "--no-async-scheduling.");
  }
  return result;
}

// ---- Logs of batches ----

// A limit that no server reaches keeps sums in their range.
constexpr double kLongestNs = 3.6e12;

// How fast the engine was where nothing else was in the way.
struct Pace {
  TimeNs decode_ns = 0;  // of a decode step
  double prefill_ns_per_token = 0;
  bool is_estimated = false;  // the log has no times of batches
  double requests_per_s = 0;  // then; they come so often
};

// The decodes between two Decode lines of a rank, if no batch of prompts came.
using PureDecodes = std::map<std::int32_t, std::vector<DecodeSample>>;

PureDecodes pure_decodes(const EngineLog& log) {
  PureDecodes pure;
  std::map<std::int32_t, bool> is_pure;  // by rank: no prefill since its last Decode line
  for (const LogObservation& seen : log.observations) {
    if (seen.kind == Observed::Prefill) is_pure[seen.rank] = false;
    if (seen.kind != Observed::Decode) continue;
    if (is_pure[seen.rank] && seen.decode_rate > 0 && seen.num_running > 0) {
      pure[seen.rank].push_back({.where = seen.line,
                                 .time = seen.time,
                                 .num_requests = seen.num_running,
                                 .cache_usage = seen.cache_usage.value_or(0),
                                 .step_ns = std::llround(logged_decode_pace(seen)),
                                 .rank = seen.rank});
    }
    is_pure[seen.rank] = true;
  }
  return pure;
}

// Adds decodes between which prompts came.
void add_least(const std::vector<DecodeSample>& least, PureDecodes& decodes) {
  for (const DecodeSample& sample : least) decodes[sample.rank].push_back(sample);
  for (auto& [rank, samples] : decodes) {
    std::sort(samples.begin(), samples.end(),
              [](const DecodeSample& a, const DecodeSample& b) { return a.where < b.where; });
  }
}

// `log` may say that its server also computes prompts. One that only decodes (disaggregated) logs
// nothing when a request arrives, so it may have been idle between two lines.
std::vector<SlowDecodes> slow_lines(const EngineLog& log, const PureDecodes& pure) {
  constexpr std::size_t kLeastLines = 2;  // of 40 steps each
  constexpr double kAlone = 6;            // times as long, and no line more is needed
  const auto alone = log.has(Observed::Prefill) ? std::optional(kAlone) : std::nullopt;
  std::vector<SlowDecodes> all;
  for (const auto& [rank, samples] : pure) {
    std::vector<SlowDecodes> spans = find_slow_decodes(samples, kLeastLines, alone);
    all.insert(all.end(), spans.begin(), spans.end());
  }
  return all;
}

std::vector<DecodeSample> usual_decodes(const PureDecodes& pure,
                                        const std::vector<SlowDecodes>& slow) {
  std::vector<DecodeSample> usual;
  for (const auto& [rank, samples] : pure) {
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(usual),
                 [&slow](const DecodeSample& one) {
                   return span_at(slow, {one.where, one.line, one.rank}) == nullptr;
                 });
  }
  return usual;
}

// The median over intervals without prefill that are not slow. Without any: the shortest, in which
// least was.
TimeNs decode_pace(const EngineLog& log, const std::vector<DecodeSample>& usual) {
  std::vector<TimeNs> times;
  for (const DecodeSample& sample : usual) times.push_back(sample.step_ns);
  if (!times.empty()) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }
  std::optional<double> shortest;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Decode || seen.decode_rate <= 0 || seen.num_running == 0) continue;
    const double ns = logged_decode_pace(seen);
    shortest = std::min(shortest.value_or(ns), ns);
  }
  return std::llround(shortest.value_or(0));
}

// Batches without a Decode line between them, while requests run.
struct BatchRow {
  std::int64_t first_line = 0, last_line = 0;
  TimeNs ns = 0;

  void add(std::int64_t line, TimeNs time) {
    if (ns == 0) first_line = line;
    last_line = line;
    ns += time;
  }
  bool operator<(const BatchRow& other) const { return ns < other.ns; }
};

// One scheduler: a data-parallel rank.
class BatchRank {
 public:
  BatchRank(const Pace& pace, const BatchMode& mode, LogGaps& result)
      : pace_(pace), mode_(mode), result_(result) {}

  void prefill(const LogObservation& seen) {
    const TimeNs alone = alone_ns(seen);
    const bool follows = follows_directly(seen, alone);
    const TimeNs time = follows ? seen.elapsed_ns : alone;
    if (!follows || mode_.is_mixed) close();
    if (pause_) {
      pause_->gap_ns += time;
      pause_->num_prefill_tokens += seen.num_prefill_tokens;
      ++pause_->num_prefill_batches;
    } else if (seen.num_running > 0) {
      pause_ = LoggedGap{.where = seen.line,
                         .gap_ns = time,
                         .num_gaps = seen.num_running,
                         .num_waiting = seen.num_running,
                         .num_prefill_tokens = seen.num_prefill_tokens,
                         .num_prefill_batches = 1,
                         .rank = seen.rank};
    }
    prefill_ns_ += time;
    was_idle_ = was_idle_ || seen.num_running == 0;
    last_number_ = seen.number;
    follows_prefill_ = true;
    if (seen.num_running == 0) row_ = {};
    if (seen.num_running > 0 || row_.ns > 0) row_.add(seen.line, time);
    longest_row_ = std::max(longest_row_, row_);
    prompts_waited_ = seen.num_pending_tokens > 0;
    if (pace_.is_estimated || !mode_.has_pending) {
      // A full batch leaves the rest of a prompt.
      prompts_waited_ = prompts_waited_ || seen.num_waiting > 0 ||
                        (mode_.chunk > 0 && seen.num_prefill_tokens >= mode_.chunk);
    }
    if (!pace_.is_estimated) return;
    constexpr double kLikely = 0.7;  // more than one in two, as Poisson arrivals
    likely_came_ = to_seconds(time) * pace_.requests_per_s > kLikely;
  }
  void decode(const LogObservation& seen) {
    close();
    const bool is_first = !has_decodes_;
    has_decodes_ = true;
    follows_prefill_ = false;
    if (!is_first && seen.decode_rate > 0 && seen.num_running > 0) add_decodes(seen);
    prefill_ns_ = 0;
    num_paused_ = 0;
    was_idle_ = false;
    row_ = {};
  }
  void close() {
    if (!pause_) return;
    // With mixed chunks the batch gives the token; without, the decode behind it does.
    pause_->decode_ns =
        mode_.is_mixed ? std::min(pace_.decode_ns, pause_->gap_ns) : pace_.decode_ns;
    if (!mode_.is_mixed) {
      pause_->gap_ns += pace_.decode_ns;
      num_paused_ += pause_->num_waiting;
    }
    result_.gaps.push_back(*pause_);
    pause_.reset();
  }
  std::int64_t num_idle() const { return num_idle_; }
  // Of batches that might be one pause.
  const BatchRow& longest_row() const { return longest_row_; }

 private:
  // A batch takes at least as long as a decode step: both read the weights.
  TimeNs alone_ns(const LogObservation& seen) const {
    if (pace_.is_estimated) return seen.elapsed_ns;
    const double tokens = static_cast<double>(seen.num_prefill_tokens);
    const TimeNs time = std::max<TimeNs>(
        std::llround(std::min(tokens * pace_.prefill_ns_per_token, kLongestNs)), pace_.decode_ns);
    return seen.elapsed_ns > 0 ? std::min(time, seen.elapsed_ns) : time;
  }
  // Whether no decode ran since the last batch: the steps' numbers say so. Without numbers, the
  // time does. Prompts that waited behind the last batch come next unless the KV cache is full, so
  // then only a far longer time speaks of decodes.
  bool follows_directly(const LogObservation& seen, TimeNs alone) const {
    if (!follows_prefill_ || seen.elapsed_ns == 0) return false;
    if (seen.number >= 0 && last_number_ >= 0) return seen.number == last_number_ + 1;
    if (seen.num_running >= mode_.least_running_for_decode) return false;
    if (pace_.is_estimated) return prompts_waited_ || likely_came_;
    const TimeNs prefill_ns = prompts_waited_ ? 2 * alone : alone;
    return seen.elapsed_ns < prefill_ns + pace_.decode_ns;
  }
  // The gaps since the last Decode line that no batch of prompts lengthened.
  void add_decodes(const LogObservation& seen) {
    const double whole = static_cast<double>(mode_.decode_interval) * logged_decode_pace(seen);
    TimeNs each = std::llround(whole) - prefill_ns_;
    each = std::max(each / mode_.decode_interval, pace_.decode_ns / 2);
    if (was_idle_) {
      each = pace_.decode_ns;
      ++num_idle_;
    }
    const std::int64_t num_gaps =
        std::max<std::int64_t>(mode_.decode_interval * seen.num_running - num_paused_, 0);
    result_.gaps.push_back({.where = seen.line,
                            .gap_ns = each,
                            .decode_ns = each,
                            .num_gaps = num_gaps,
                            .num_waiting = seen.num_running,
                            .rank = seen.rank});
  }

  Pace pace_;
  BatchMode mode_;
  LogGaps& result_;
  std::optional<LoggedGap> pause_;
  bool has_decodes_ = false;
  bool follows_prefill_ = false;
  bool prompts_waited_ = false;  // behind the last batch
  bool likely_came_ = false;     // prompts during the last batch; of an estimate
  std::int64_t last_number_ = -1;
  // Since the last Decode line:
  TimeNs prefill_ns_ = 0;
  std::int64_t num_paused_ = 0;  // gaps that batches of prompts lengthened
  bool was_idle_ = false;        // no request was running
  BatchRow row_, longest_row_;
  std::int64_t num_idle_ = 0;  // intervals
};

// The facts that the log lacks, and their substitutes.
std::vector<std::string> batch_notes(const EngineLog& log, const Pace& pace, bool has_numbers,
                                     std::int64_t num_idle) {
  const std::string token = fixed_text(pace.prefill_ns_per_token / 1000, 1) + " us";
  const std::string requests =
      " The requests that run at a 'Prefill batch' line count as waiting for that batch.";
  std::vector<std::string> notes = {
      "The log has no requests and no times of steps. A decode step takes " +
      ms_text(to_ms(pace.decode_ns)) + " ms, the median where no prompt came" +
      (pace.is_estimated
           ? "." + requests
           : "; a prompt token " + token + ", as where batches followed each other." + requests)};
  if (pace.is_estimated) {
    notes.push_back(
        "The log has no 'input throughput', so the times of batches are estimates: what decode "
        "steps leave of the time between two 'Decode batch' lines, within the times of these "
        "lines. Where that is more than three times the usual time of the prompts, decodes took "
        "the rest. On average a prompt token takes " +
        token + ".");
  }
  if (!has_numbers) {
    notes.push_back(std::string("Batches count as one pause if ") +
                    (pace.is_estimated ? "prompts waited behind the first, or are likely to have "
                                         "come during it."
                                       : "no decode fits between them.") +
                    " " + std::string(log.dialect->numbering));
  }
  if (log.has_speculation) {
    notes.push_back(
        "With speculative decoding a step gives several tokens: each gap counts as their mean.");
  }
  if (num_idle > 0) {
    notes.push_back("In " + grouped_text(num_idle) +
                    " 'Decode batch' lines the server was also without requests: their gaps count "
                    "as the median decode step.");
  }
  return notes;
}

// How far the longest gap may be off where the log lacks the times of batches, or the prompts that
// waited behind them. `knows_pauses`: a decode, or none, is known to have run between two batches.
std::string rough_note(const std::vector<LoggedGap>& gaps, const BatchRow& row, bool knows_pauses,
                       TimeNs decode_ns) {
  const auto length = [](const LoggedGap& gap) { return gap.num_gaps > 0 ? gap.gap_ns : 0; };
  TimeNs longest = 0;
  for (const LoggedGap& gap : gaps) longest = std::max(longest, length(gap));
  const std::string text = "The longest gap, " + ms_text(to_ms(longest)) + " ms, is an estimate";
  const TimeNs most = row.ns + decode_ns;
  if (knows_pauses || most <= longest) return text + ".";
  return fmt::format(
      "{}: it may be shorter, or about {} ms if no decode ran between the batches of lines {} to "
      "{}.",
      text, ms_text(to_ms(most)), row.first_line, row.last_line);
}

LogGaps gaps_of_batches(const EngineLog& log) {
  LogGaps result;
  result.where_word = "line";
  PureDecodes pure = pure_decodes(log);
  result.slow = slow_lines(log, pure);
  const std::vector<DecodeSample> usual = usual_decodes(pure, result.slow);
  Pace pace;
  pace.decode_ns = decode_pace(log, usual);
  if (pace.decode_ns == 0) {
    result.notes = {
        "The log has no 'Decode batch' line with a throughput, so the gaps between "
        "tokens are unknown."};
    return result;
  }
  const BatchMode mode = log.dialect->batch_mode(log);
  pace.is_estimated = lacks_batch_times(log);
  const BatchTimes times = estimate_batch_times(log, pace.decode_ns, usual, mode.decode_interval);
  if (pace.is_estimated && times.ns_per_token == 0) {
    result.notes = {
        "The log has no 'input throughput' and no prompts between two 'Decode batch' lines of a "
        "busy server, so the gaps between tokens are unknown."};
    return result;
  }
  // The time that a log gives to a batch is that since the one before, with its decodes.
  add_least(times.least_decodes, pure);
  result.slow = slow_lines(log, pure);
  pace.prefill_ns_per_token =
      pace.is_estimated ? times.ns_per_token : logged_prefill_pace(log.observations);
  pace.requests_per_s = pace.is_estimated ? times.requests_per_s : 0;
  std::map<std::int32_t, BatchRank> ranks;
  bool has_numbers = false;
  for (const LogObservation& seen : pace.is_estimated ? times.observations : log.observations) {
    BatchRank& rank = ranks.try_emplace(seen.rank, pace, mode, result).first->second;
    if (seen.kind == Observed::Prefill) rank.prefill(seen);
    if (seen.kind == Observed::Decode) rank.decode(seen);
    has_numbers = has_numbers || seen.number >= 0;
  }
  std::int64_t num_idle = 0;
  BatchRow row;
  for (auto& [number, rank] : ranks) {
    rank.close();
    num_idle += rank.num_idle();
    row = std::max(row, rank.longest_row());
  }
  result.notes = batch_notes(log, pace, has_numbers, num_idle);
  const bool knows_pauses = has_numbers || mode.is_mixed;
  const bool lacks_pending = !knows_pauses && !mode.has_pending && log.has(Observed::Prefill);
  if ((pace.is_estimated || lacks_pending) && !result.gaps.empty()) {
    std::string note = rough_note(result.gaps, row, knows_pauses, pace.decode_ns);
    if (!pace.is_estimated) {
      note = "The log has no '#pending-token', which says whether prompts waited behind a batch. " +
             note;
    }
    result.notes.insert(result.notes.begin() + (pace.is_estimated ? 2 : 1), std::move(note));
  }
  return result;
}

}  // namespace

LogGaps gaps_of(const EngineLog& log) {
  LogGaps result =
      log.dialect->form == LogForm::Iterations ? gaps_of_iterations(log) : gaps_of_batches(log);
  const std::vector<LogObservation>& all = log.observations;
  result.has_ranks = std::any_of(all.begin(), all.end(), [&all](const LogObservation& seen) {
    return seen.rank != all.front().rank;
  });
  std::vector<std::string> slow =
      slow_decode_notes(result.slow, result.where_word, result.has_ranks);
  result.notes.insert(result.notes.begin(), slow.begin(), slow.end());
  return result;
}

}  // namespace metronome
