// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/rebuilt_requests.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "study/rebuilt/drawn_lengths.h"
#include "study/rebuilt/log_clock.h"
#include "study/rebuilt/request_ends.h"

namespace metronome {
namespace {

// A server that counts from 0 again has started again, and lost its requests.
bool is_restart(const LogObservation& before, const LogObservation& after) {
  return after.number >= 0 && after.number <= before.number;
}

// The longest stretch of iterations of one rank without a restart.
struct Stretch {
  std::vector<LogObservation> iterations;
  std::vector<std::string> remarks;
};

Stretch longest_stretch(const EngineLog& log) {
  std::map<std::int32_t, std::vector<Stretch>> ranks;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration) continue;
    std::vector<Stretch>& own = ranks[seen.rank];
    if (own.empty() || is_restart(own.back().iterations.back(), seen)) own.emplace_back();
    own.back().iterations.push_back(seen);
  }
  Stretch* longest = nullptr;
  std::size_t num_restarts = 0;
  for (auto& [rank, own] : ranks) {
    num_restarts += own.size() - 1;
    for (Stretch& one : own) {
      if (longest == nullptr || one.iterations.size() > longest->iterations.size()) longest = &one;
    }
  }
  METRONOME_CHECK(longest != nullptr, "a log with iterations");
  Stretch chosen = std::move(*longest);
  const LogObservation& first = chosen.iterations.front();
  const LogObservation& last = chosen.iterations.back();
  if (num_restarts > 0) {
    chosen.remarks.push_back(fmt::format(
        "The iterations begin again {} in the log: requests are those of lines {} to "
        "{}, the longest stretch.",
        num_restarts == 1 ? "once" : fmt::format("{} times", num_restarts), first.line, last.line));
  }
  if (ranks.size() > 1) {
    chosen.remarks.push_back(
        fmt::format("The log has {} data-parallel engines: requests are those of engine {}, and "
                    "replays have this engine alone.",
                    ranks.size(), first.rank));
  }
  return chosen;
}

bool has_several_ranks(const EngineLog& log) {
  return std::any_of(
      log.observations.begin(), log.observations.end(), [&log](const LogObservation& seen) {
        return seen.kind == Observed::Iteration && seen.rank != log.observations.front().rank;
      });
}

class Rebuilder {
 public:
  Rebuilder(const EngineLog& log, const RebuildSetup& setup)
      : setup_(setup), receiving_(log.dialect->receiving), rng_(setup.seed, "rebuilt requests") {
    has_speculation_ = log.has_speculation;
    Stretch stretch = longest_stretch(log);
    out_.iterations = std::move(stretch.iterations);
    out_.remarks = std::move(stretch.remarks);
    // A line does not say which rank receives its request.
    if (!has_several_ranks(log)) {
      for (const LogArrival& arrival : log.arrivals) {
        if (arrival.line <= out_.iterations.back().line) arrivals_.push_back(arrival);
      }
    }
    const LogObservation& last = out_.iterations.back();
    const auto next = std::find_if(
        log.observations.begin(), log.observations.end(), [&last](const LogObservation& seen) {
          return seen.kind == Observed::Report && seen.rank == last.rank && seen.line > last.line;
        });
    ends_idle_ = next != log.observations.end() && next->num_running + next->num_waiting == 0;
    read_clock();
  }

  RebuiltLog run() {
    count_steps();
    admit();
    match_arrivals();
    find_ends();
    draw_prompts();
    place_outputs();
    place_arrivals();
    return std::move(out_);
  }

 private:
  using Iterations = std::vector<LogObservation>;
  std::size_t size() const { return out_.iterations.size(); }
  TimeNs begin_of(std::size_t i) const { return out_.ends[i] - out_.iterations[i].elapsed_ns; }
  static std::int64_t tokens_of(const LogObservation& seen) {
    return seen.num_prefill_tokens + seen.num_decode_tokens;
  }

  void read_clock();
  void count_steps();
  bool is_cut(std::size_t i) const;
  bool has_room(std::size_t i) const;
  bool was_idle_before(std::size_t i) const;
  void admit();
  void add_running_ones();
  bool is_gone(std::size_t arrival, std::size_t i) const;
  void match_arrivals();
  void find_ends();
  void draw_prompts();
  void place_outputs();
  void place_arrivals();
  TimeNs earliest_arrival(const RebuiltRequest& request) const;

  const RebuildSetup& setup_;
  std::string_view receiving_;  // LogDialect::receiving
  Rng rng_;
  RebuiltLog out_;
  bool has_speculation_ = false;
  bool ends_idle_ = false;  // no request runs behind the last iteration
  std::vector<LogArrival> arrivals_;
  std::vector<TimeNs> stamps_;           // of arrivals_, on the clock of out_.ends
  std::vector<std::int64_t> num_ended_;  // in each iteration; negative: more go on than did before
  std::vector<const LogArrival*> arrival_of_;  // of each request; nullptr: none
};

// Stamps of arrivals and of iterations are on one clock, in the order of their lines.
void Rebuilder::read_clock() {
  LogClock clock;
  std::vector<TimeNs> stamps(size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    for (; next < arrivals_.size() && arrivals_[next].line < out_.iterations[i].line; ++next) {
      stamps_.push_back(clock.read(arrivals_[next].time));
    }
    stamps[i] = clock.read(out_.iterations[i].time);
  }
  arrivals_.resize(next);
  out_.ends = setup_.ends.empty() ? iteration_ends(out_.iterations, stamps) : setup_.ends;
  TimeNs first = out_.ends.front() - out_.iterations.front().elapsed_ns;
  if (!stamps_.empty() && stamps_.front() != kNoTime) first = std::min(first, stamps_.front());
  for (TimeNs& end : out_.ends) end -= first;
  for (TimeNs& stamp : stamps_) {
    if (stamp != kNoTime) stamp -= first;
  }
}

void Rebuilder::count_steps() {
  out_.num_token_steps.push_back(0);
  for (const LogObservation& seen : out_.iterations) {
    const bool waits = seen.num_running > 0 && seen.num_decode_tokens == 0;
    out_.num_token_steps.push_back(out_.num_token_steps.back() + (waits ? 0 : 1));
  }
}

// Whether the last prompt of the iteration goes on in the next one.
bool Rebuilder::is_cut(std::size_t i) const {
  const LogObservation& seen = out_.iterations[i];
  if (seen.num_prefill_requests == 0 || i + 1 == size()) return false;
  if (out_.iterations[i + 1].num_prefill_requests == 0) return false;
  if (setup_.budget && tokens_of(seen) >= *setup_.budget) return true;
  return setup_.threshold && seen.num_prefill_requests == 1 &&
         seen.num_prefill_tokens == *setup_.threshold;
}

// Whether the iteration would have taken another request.
bool Rebuilder::has_room(std::size_t i) const {
  constexpr double kFull = 0.97;
  const LogObservation& seen = out_.iterations[i];
  const std::int64_t running = seen.num_running + seen.num_prefill_requests;
  const bool has_tokens = !setup_.budget || tokens_of(seen) < *setup_.budget;
  const bool has_place = !setup_.max_running || running < *setup_.max_running;
  return has_tokens && has_place && seen.cache_usage.value_or(0) < kFull;
}

bool Rebuilder::was_idle_before(std::size_t i) const {
  constexpr TimeNs kPause = 20 * kNsPerMs;  // more than the host's work between two iterations
  return out_.iterations[i].num_running == 0 && (i == 0 || begin_of(i) - out_.ends[i - 1] > kPause);
}

// Requests that were admitted before the log begins.
void Rebuilder::add_running_ones() {
  const std::int64_t num_running = out_.iterations.front().num_running;
  if (num_running == 0) return;
  out_.requests.resize(static_cast<std::size_t>(num_running));
  out_.remarks.push_back(fmt::format(
      "{} before the log: their prompts are drawn, and they arrive at its beginning.",
      num_running == 1 ? "1 request began" : fmt::format("{} requests began", num_running)));
}

void Rebuilder::admit() {
  add_running_ones();
  out_.chunks.resize(size());
  num_ended_.resize(size());
  bool goes_on = false;  // the last request has a prompt that is not complete
  for (std::size_t i = 0; i < size(); ++i) {
    const LogObservation& seen = out_.iterations[i];
    std::int64_t left = seen.num_prefill_requests;
    const bool cut = is_cut(i);
    if (goes_on && left > 0) {
      out_.chunks[i].push_back({out_.requests.size() - 1});
      --left;
    }
    for (; left > 0; --left) {
      out_.chunks[i].push_back({out_.requests.size()});
      out_.requests.emplace_back().first = i;
    }
    for (RebuiltChunk& chunk : out_.chunks[i]) {
      chunk.is_last = !(cut && &chunk == &out_.chunks[i].back());
      if (chunk.is_last) out_.requests[chunk.request].prefilled = i;
    }
    goes_on = cut;
    const std::int64_t running = seen.num_running + seen.num_prefill_requests - (cut ? 1 : 0);
    if (i + 1 < size()) {
      num_ended_[i] = running - out_.iterations[i + 1].num_running;
    } else if (ends_idle_) {
      num_ended_[i] = running;
    }
  }
}

// Whether a request that was received cannot be the one that an idle engine admits in iteration
// `i`: it would have been admitted before.
bool Rebuilder::is_gone(std::size_t arrival, std::size_t i) const {
  constexpr TimeNs kFrontEnd = kStampNs;  // a long prompt is tokenised meanwhile
  if (i > 0 && arrivals_[arrival].line < out_.iterations[i - 1].line) return true;
  const TimeNs stamp = stamps_[arrival];
  return stamp != kNoTime && stamp + kStampNs + kFrontEnd < begin_of(i);
}

// The oldest request that was received and not admitted is the next. Where the engine was idle, the
// earlier ones are gone: they were refused or aborted.
void Rebuilder::match_arrivals() {
  arrival_of_.assign(out_.requests.size(), nullptr);
  std::size_t next = 0;
  for (std::size_t r = 0; r < out_.requests.size(); ++r) {
    RebuiltRequest& request = out_.requests[r];
    if (request.first == kNoIteration) continue;
    const std::size_t i = request.first;
    while (was_idle_before(i) && next < arrivals_.size() && is_gone(next, i)) ++next;
    // Another process may write the line of an iteration before that of its request.
    const std::int64_t until = out_.iterations[std::min(i + 1, size() - 1)].line;
    if (next == arrivals_.size() || arrivals_[next].line >= until) continue;
    arrival_of_[r] = &arrivals_[next++];
    request.has_logged_arrival = true;
    request.max_output_tokens = arrival_of_[r]->max_output_tokens;
  }
  const auto num_lacking = std::count(arrival_of_.begin(), arrival_of_.end(), nullptr);
  if (num_lacking == static_cast<std::ptrdiff_t>(out_.requests.size())) {
    out_.remarks.push_back(
        "The log does not say when requests were received: each arrives between the last iteration "
        "that had room for it and its first one. Where several run, it does not say which one "
        "ended. " +
        std::string(receiving_));
  } else if (num_lacking > 0) {
    out_.remarks.push_back(fmt::format("No line says that {} received.",
                                       num_lacking == 1
                                           ? "1 of the requests was"
                                           : fmt::format("{} of the requests were", num_lacking)));
  }
}

// With drafts a limit of tokens is none of steps, and no output is exact.
void Rebuilder::find_ends() {
  std::vector<std::int64_t> limits;
  for (RebuiltRequest& request : out_.requests) {
    limits.push_back(request.max_output_tokens);
    if (has_speculation_) request.max_output_tokens = 0;
  }
  RequestEnds ends = find_request_ends(num_ended_, out_.requests, rng_);
  out_.is_settled = std::move(ends.is_settled);
  for (std::size_t r = 0; r < limits.size(); ++r) {
    out_.requests[r].max_output_tokens = limits[r];
    if (has_speculation_) out_.requests[r].is_output_exact = false;
  }
  if (!has_speculation_) return;
  out_.remarks.emplace_back(
      "With drafts a step gives a request several tokens, and the log does not say how many: "
      "outputs are counted in steps.");
}

void Rebuilder::draw_prompts() {
  std::vector<std::int64_t> done(out_.requests.size());
  // First those that are exact: alone in each of their iterations.
  std::vector<bool> is_shared(out_.requests.size());
  for (std::size_t i = 0; i < size(); ++i) {
    for (RebuiltChunk& chunk : out_.chunks[i]) {
      if (out_.chunks[i].size() > 1) {
        is_shared[chunk.request] = true;
      } else {
        chunk.num_tokens = out_.iterations[i].num_prefill_tokens;
        done[chunk.request] += chunk.num_tokens;
      }
    }
  }
  KnownLengths known;
  const auto said = [this](std::size_t r) {
    const bool is_given = r < setup_.prompts.size() && setup_.prompts[r] > 0;
    if (is_given) return setup_.prompts[r];
    return arrival_of_[r] == nullptr ? 0 : arrival_of_[r]->num_prompt_tokens;
  };
  for (std::size_t r = 0; r < out_.requests.size(); ++r) {
    RebuiltRequest& request = out_.requests[r];
    request.is_prompt_exact = request.prefilled != kNoIteration && (!is_shared[r] || said(r) > 0);
    if (!request.is_prompt_exact) continue;
    known.add(said(r) > 0 ? said(r) : done[r], request.max_output_tokens);
  }
  std::fill(done.begin(), done.end(), 0);
  for (std::size_t i = 0; i < size(); ++i) {
    std::vector<RebuiltChunk>& chunks = out_.chunks[i];
    std::vector<OpenPart> parts;
    for (RebuiltChunk& chunk : chunks) {
      chunk.first_position = done[chunk.request];
      parts.push_back({chunk.first_position, out_.requests[chunk.request].max_output_tokens,
                       said(chunk.request), chunk.is_last});
    }
    if (parts.size() > 1) {
      const std::int64_t sum =
          std::max(out_.iterations[i].num_prefill_tokens, static_cast<std::int64_t>(parts.size()));
      const std::vector<std::int64_t> tokens = divide_tokens(sum, parts, known, rng_);
      for (std::size_t c = 0; c < chunks.size(); ++c) chunks[c].num_tokens = tokens[c];
    }
    for (const RebuiltChunk& chunk : chunks) done[chunk.request] += chunk.num_tokens;
  }
  for (std::size_t r = 0; r < out_.requests.size(); ++r) {
    RebuiltRequest& request = out_.requests[r];
    request.num_prompt_tokens = done[r];
    if (request.first != kNoIteration) continue;
    request.num_prompt_tokens = known.empty() ? 1 : known.draw(request.max_output_tokens, rng_);
  }
}

// A request that runs at the end of the log goes on to its limit, or to the usual output.
void Rebuilder::place_outputs() {
  std::vector<std::int64_t> known;
  const auto count = [this](const RebuiltRequest& request, std::size_t last) {
    const std::size_t first = request.prefilled == kNoIteration ? 0 : request.prefilled;
    return out_.num_token_steps[last + 1] - out_.num_token_steps[first + 1] + 1;
  };
  for (RebuiltRequest& request : out_.requests) {
    if (request.last == kNoIteration) continue;
    request.num_output_tokens = count(request, request.last);
    if (request.first != kNoIteration) known.push_back(request.num_output_tokens);
  }
  std::sort(known.begin(), known.end());
  const std::int64_t usual = known.empty() ? 1 : known[known.size() / 2];
  for (RebuiltRequest& request : out_.requests) {
    if (request.last != kNoIteration) continue;
    const std::int64_t now = request.prefilled == kNoIteration && request.first != kNoIteration
                                 ? 1
                                 : count(request, size() - 1);
    const std::int64_t limit = request.max_output_tokens;
    request.num_output_tokens = std::max(now, usual);
    if (limit > 0) request.num_output_tokens = std::min(request.num_output_tokens, limit);
  }
}

// The beginning of the last iteration that had room before the request's first one.
TimeNs Rebuilder::earliest_arrival(const RebuiltRequest& request) const {
  for (std::size_t i = request.first; i-- > 0;) {
    if (has_room(i)) return begin_of(i);
  }
  return 0;
}

void Rebuilder::place_arrivals() {
  for (std::size_t r = 0; r < out_.requests.size(); ++r) {
    RebuiltRequest& request = out_.requests[r];
    if (request.first == kNoIteration) continue;
    TimeNs earliest = earliest_arrival(request);
    TimeNs latest = begin_of(request.first);
    if (const LogArrival* arrival = arrival_of_[r]) {
      const auto place = static_cast<std::size_t>(arrival - arrivals_.data());
      const auto next = std::lower_bound(
          out_.iterations.begin(), out_.iterations.end(), arrival->line,
          [](const LogObservation& seen, std::int64_t line) { return seen.line < line; });
      const auto i = static_cast<std::size_t>(next - out_.iterations.begin());
      if (i > 0) earliest = std::max(earliest, out_.ends[i - 1]);
      if (i < size()) latest = std::min(latest, out_.ends[i]);
      if (const TimeNs stamp = stamps_[place]; stamp != kNoTime) {
        earliest = std::max(earliest, stamp);
        latest = std::min(latest, stamp + kStampNs);
      }
    }
    earliest = std::min(earliest, latest);
    request.arrival = was_idle_before(request.first)
                          ? latest
                          : earliest + static_cast<TimeNs>(rng_.uniform() *
                                                           static_cast<double>(latest - earliest));
    request.arrival = std::max<TimeNs>(request.arrival, 0);
    if (request.prefilled != kNoIteration) {
      request.ttft_ns = out_.ends[request.prefilled] - request.arrival;
    }
  }
}

}  // namespace

std::size_t RebuiltLog::num_exact() const {
  return static_cast<std::size_t>(
      std::count_if(requests.begin(), requests.end(),
                    [](const RebuiltRequest& request) { return request.is_exact(); }));
}

RebuildSetup rebuild_setup(const EngineLog& log) {
  const EngineArguments arguments = merged_arguments(log, {});
  RebuildSetup setup;
  setup.budget = count_in_force(arguments, "max_num_batched_tokens");
  setup.threshold = count_in_force(arguments, "long_prefill_token_threshold");
  if (setup.threshold.value_or(0) == 0) setup.threshold.reset();
  setup.max_running = count_in_force(arguments, "max_num_seqs");
  if (setup.budget) return setup;
  // The most tokens of an iteration with prompts, if several have as many.
  std::map<std::int64_t, int> sums;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration || seen.num_prefill_requests == 0) continue;
    ++sums[seen.num_prefill_tokens + seen.num_decode_tokens];
  }
  constexpr int kSeveral = 3;
  if (!sums.empty() && sums.rbegin()->second >= kSeveral) setup.budget = sums.rbegin()->first;
  return setup;
}

RebuiltLog rebuild_requests(const EngineLog& log, const RebuildSetup& setup) {
  return Rebuilder(log, setup).run();
}

}  // namespace metronome
