// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/batch_iterations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "core/base/real.h"
#include "core/base/rng.h"
#include "engines/log/batch_pace.h"
#include "engines/log/log_dialect.h"
#include "study/rebuilt/log_clock.h"

namespace metronome {
namespace {

struct PureInterval {
  std::int64_t num_running = 0;
  TimeNs step_ns = 0;
};

// Times of steps where nothing else was in the way.
struct BatchPace {
  std::vector<PureInterval> decodes;  // ascending by running requests; never empty
  double prefill_ns_per_token = 0;

  // The median of the nearest intervals.
  TimeNs decode_ns(std::int64_t num_running) const {
    constexpr std::size_t kNearest = 5;
    const std::size_t count = std::min(kNearest, decodes.size());
    const auto nearest = std::lower_bound(
        decodes.begin(), decodes.end(), num_running,
        [](const PureInterval& one, std::int64_t value) { return one.num_running < value; });
    const auto before = static_cast<std::size_t>(nearest - decodes.begin());
    std::size_t begin = before > count ? before - count : 0;
    const auto distance = [&](std::size_t i) {
      return std::abs(decodes[i].num_running - num_running);
    };
    while (begin + count < decodes.size() && distance(begin + count) < distance(begin)) ++begin;
    std::vector<TimeNs> times;
    for (std::size_t i = begin; i < begin + count; ++i) times.push_back(decodes[i].step_ns);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  TimeNs prefill_ns(const LogObservation& seen) const {
    const auto tokens = std::llround(real(seen.num_prefill_tokens) * prefill_ns_per_token);
    const TimeNs own = std::max<TimeNs>(tokens, decode_ns(1));
    return seen.elapsed_ns > 0 ? std::min(own, seen.elapsed_ns) : own;
  }
};

bool has_rate(const LogObservation& seen) {
  return seen.kind == Observed::Decode && seen.decode_rate > 0 && seen.num_running > 0;
}

TimeNs step_ns_of(const LogObservation& decode) {
  return std::max<TimeNs>(std::llround(logged_decode_pace(decode)), 1);
}

BatchPace pace_of(const std::vector<LogObservation>& lines) {
  BatchPace pace;
  bool is_pure = false;
  std::optional<PureInterval> shortest;
  for (const LogObservation& seen : lines) {
    if (has_rate(seen)) {
      const PureInterval now = {seen.num_running, step_ns_of(seen)};
      if (is_pure) pace.decodes.push_back(now);
      if (!shortest || now.step_ns < shortest->step_ns) shortest = now;
    }
    is_pure = seen.kind == Observed::Decode;
  }
  if (pace.decodes.empty()) pace.decodes.push_back(*shortest);
  std::sort(pace.decodes.begin(), pace.decodes.end(),
            [](const auto& a, const auto& b) { return a.num_running < b.num_running; });
  pace.prefill_ns_per_token = logged_prefill_pace(lines);
  return pace;
}

class Expander {
 public:
  Expander(std::span<const LogObservation> lines, const BatchMode& mode, BatchPace pace,
           std::uint64_t seed, BatchIterations& out)
      : lines_(lines), mode_(mode), pace_(std::move(pace)), rng_(seed, "decode steps"), out_(out) {}

  void run() {
    for (const LogObservation& seen : lines_) {
      if (seen.kind == Observed::Prefill) prefill(seen);
      if (seen.kind == Observed::Decode) decode(seen);
    }
    // Lines about decodes alone are timed where there are enough of them.
    constexpr std::ptrdiff_t kEnough = 40;
    if (std::count(is_pure_.begin(), is_pure_.end(), true) >= kEnough) return;
    for (std::size_t i = 0; i < out_.is_timed.size(); ++i) {
      if (out_.log.observations[i].num_prefill_requests == 0) out_.is_timed[i] = true;
    }
  }

 private:
  void prefill(const LogObservation& seen);
  void decode(const LogObservation& seen);
  void add_decodes(std::int64_t count, std::int64_t running_behind, const LogObservation& before,
                   bool is_pure);
  void add(LogObservation seen, bool is_timed, bool is_pure, TimeNs end);
  // Places decode steps from `from` on evenly up to `until`.
  void spread(std::size_t from, TimeNs until);

  std::span<const LogObservation> lines_;
  const BatchMode& mode_;
  BatchPace pace_;
  Rng rng_;
  BatchIterations& out_;
  LogClock clock_;
  std::vector<bool> is_pure_;
  std::int64_t num_running_ = 0;    // behind the last iteration
  std::int64_t since_line_ = 0;     // decode steps since the last line about decodes
  std::int64_t since_prefill_ = 0;  // and since the last batch
  bool has_prefill_ = false;
  bool is_cut_ = false;         // the last batch leaves the rest of a prompt
  bool was_prefill_ = false;    // the last line is a batch
  TimeNs last_prefill_ = 0;     // its end
  std::size_t first_open_ = 0;  // the first iteration behind the last batch
};

void Expander::add(LogObservation seen, bool is_timed, bool is_pure, TimeNs end) {
  seen.kind = Observed::Iteration;
  seen.number = static_cast<std::int64_t>(out_.ends.size());
  out_.log.observations.push_back(std::move(seen));
  out_.is_timed.push_back(is_timed);
  is_pure_.push_back(is_pure);
  out_.ends.push_back(end);
}

void Expander::add_decodes(std::int64_t count, std::int64_t running_behind,
                           const LogObservation& before, bool is_pure) {
  const std::int64_t num_ended = std::max<std::int64_t>(num_running_ - running_behind, 0);
  std::vector<std::int64_t> ends;
  for (std::int64_t i = 0; i < num_ended; ++i) ends.push_back(rng_.uniform_int(0, count - 1));
  std::sort(ends.begin(), ends.end());
  std::size_t next = 0;
  for (std::int64_t step = 0; step < count; ++step) {
    LogObservation seen;
    seen.line = before.line;
    seen.rank = before.rank;
    seen.num_running = std::max<std::int64_t>(num_running_ - static_cast<std::int64_t>(next), 1);
    seen.num_decode_tokens = seen.num_running;
    seen.cache_usage = before.cache_usage;
    seen.elapsed_ns = is_pure ? step_ns_of(before) : pace_.decode_ns(seen.num_running);
    const TimeNs last = out_.ends.empty() ? 0 : out_.ends.back();
    const TimeNs elapsed = seen.elapsed_ns;
    add(std::move(seen), is_pure, is_pure, last + elapsed);
    while (next < ends.size() && ends[next] == step) ++next;
  }
  since_line_ += count;
  since_prefill_ += count;
}

void Expander::spread(std::size_t from, TimeNs until) {
  const std::size_t n = out_.ends.size();
  if (from >= n) return;
  const TimeNs begin = from == 0 ? 0 : out_.ends[from - 1];
  const TimeNs all = std::max<TimeNs>(until - begin, 0);
  const auto count = static_cast<TimeNs>(n - from);
  for (std::size_t i = from; i < n; ++i) {
    const auto k = static_cast<TimeNs>(i - from + 1);
    out_.ends[i] =
        begin + all / count * k + all % count * k / count;  // the product may be too large
  }
}

void Expander::prefill(const LogObservation& seen) {
  const TimeNs own = pace_.prefill_ns(seen);
  const TimeNs decode_ns = pace_.decode_ns(num_running_);
  const std::int64_t most = std::max<std::int64_t>(mode_.decode_interval - 1 - since_line_, 0);
  std::int64_t steps = 0;
  if (has_prefill_ && num_running_ > 0 && !is_cut_ && seen.elapsed_ns > 0) {
    const std::int64_t by_time = (seen.elapsed_ns - own + decode_ns / 4) / decode_ns;
    steps = std::clamp<std::int64_t>(by_time - since_prefill_, 0, most);
    // An idle server says nothing of when the last request ended.
    if (seen.num_running == 0 && steps > 0) steps = rng_.uniform_int(1, steps);
  }
  const bool is_short = seen.elapsed_ns < (is_cut_ ? 2 * own : own + decode_ns * 3 / 4);
  const bool follows = has_prefill_ && steps == 0 && since_prefill_ == 0 && seen.num_running > 0 &&
                       seen.elapsed_ns > 0 && is_short;
  if (steps > 0) add_decodes(steps, seen.num_running, seen, false);
  const TimeNs stamp = clock_.read(seen.time);
  TimeNs end = has_prefill_ && seen.elapsed_ns > 0
                   ? last_prefill_ + seen.elapsed_ns
                   : std::max(stamp, out_.ends.empty() ? 0 : out_.ends.back()) + own;
  if (stamp != kNoTime) end = std::clamp(end, stamp, stamp + kStampNs);
  const TimeNs last = first_open_ == 0 ? end - own : out_.ends[first_open_ - 1];
  end = std::max(end, last + own);
  const TimeNs idle_from = out_.ends.empty() ? last : out_.ends.back();
  if (seen.num_running > 0 || idle_from > end - own) spread(first_open_, end - own);
  LogObservation step = seen;
  step.elapsed_ns = follows ? seen.elapsed_ns : own;
  step.num_decode_tokens = mode_.is_mixed ? seen.num_running : 0;
  is_cut_ = mode_.chunk > 0 && seen.num_prefill_tokens >= mode_.chunk &&
            seen.num_running < mode_.least_running_for_decode;
  add(std::move(step), true, false, end);
  num_running_ = seen.num_running + seen.num_prefill_requests - (is_cut_ ? 1 : 0);
  has_prefill_ = true;
  was_prefill_ = true;
  since_prefill_ = 0;
  last_prefill_ = end;
  first_open_ = out_.ends.size();
}

void Expander::decode(const LogObservation& seen) {
  (void)clock_.read(seen.time);
  const std::int64_t steps = mode_.decode_interval - since_line_;
  const bool is_pure = !was_prefill_ && since_line_ == 0 && has_rate(seen);
  if (steps > 0 && seen.num_running > 0) {
    if (num_running_ == 0) num_running_ = seen.num_running;
    add_decodes(steps, seen.num_running, seen, is_pure);
  }
  num_running_ = seen.num_running;
  since_line_ = 0;
  was_prefill_ = false;
}

// All lines, or the stretch with the most running and waiting requests of those with as many new
// ones as a search takes minutes for.
std::span<const LogObservation> busiest(std::span<const LogObservation> lines) {
  constexpr std::int64_t kMostRequests = 2000;
  std::int64_t count = 0;
  for (const LogObservation& seen : lines) count += seen.num_prefill_requests;
  if (count <= kMostRequests) return lines;
  count = 0;
  double best = -1;
  double load = 0;
  std::size_t begin = 0;
  std::span<const LogObservation> chosen;
  const auto load_of = [](const LogObservation& seen) {
    return real(seen.num_running + seen.num_waiting);
  };
  for (std::size_t end = 0; end < lines.size(); ++end) {
    count += lines[end].num_prefill_requests;
    load += load_of(lines[end]);
    for (; count > kMostRequests && begin < end; ++begin) {
      count -= lines[begin].num_prefill_requests;
      load -= load_of(lines[begin]);
    }
    if (load <= best) continue;
    best = load;
    chosen = lines.subspan(begin, end - begin + 1);
  }
  return chosen;
}

}  // namespace

bool has_timed_batches(const EngineLog& log) {
  return log.dialect->form == LogForm::Batches && log.has_batch_rates &&
         log.has(Observed::Prefill) &&
         std::any_of(log.observations.begin(), log.observations.end(), has_rate);
}

BatchIterations batch_iterations(const EngineLog& log, std::uint64_t seed) {
  std::map<std::int32_t, std::vector<LogObservation>> ranks;
  for (const LogObservation& seen : log.observations) {
    const bool is_step = seen.kind == Observed::Prefill || seen.kind == Observed::Decode;
    if (is_step) ranks[seen.rank].push_back(seen);
  }
  std::erase_if(ranks, [](const auto& one) {
    return std::none_of(one.second.begin(), one.second.end(), has_rate);
  });
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  BatchIterations out;
  out.log = log;
  out.log.observations.clear();
  out.num_ranks = ranks.size();
  out.rank = most->first;
  const std::span<const LogObservation> lines = busiest(most->second);
  if (lines.size() < most->second.size()) {
    out.first_line = lines.front().line;
    out.last_line = lines.back().line;
  }
  for (const LogObservation& seen : lines) out.num_cached_tokens += seen.num_cached_tokens;
  const BatchMode mode = log.dialect->batch_mode(log);
  Expander(lines, mode, pace_of(most->second), seed, out).run();
  return out;
}

}  // namespace metronome
