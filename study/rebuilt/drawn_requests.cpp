// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/drawn_requests.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>
#include <span>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/math.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/base/rng.h"
#include "study/rebuilt/log_clock.h"

namespace metronome {
namespace {

// Standard deviation / mean of lengths. Azure's conversations of 2023 have 0.96 and 0.77, those of
// Mooncake 1.31 and 0.73 (prompts and outputs).
constexpr double kPromptSpread = 1.0;
constexpr double kOutputSpread = 0.75;
constexpr std::size_t kMostRequests = 2000;  // of which a search takes seconds

double draw_length(double mean, double spread, Rng& rng) {
  const double variance = log_of(1 + spread * spread);
  return rng.lognormal(log_of(std::max(mean, 1.0)) - variance / 2, std::sqrt(variance));
}

// Whole lengths of at least one and at most the given ones, with this sum where that is possible.
// Longer ones than the limit leave the rest to the others.
std::vector<std::int64_t> scaled(const std::vector<double>& drawn,
                                 const std::vector<std::int64_t>& limits, double sum) {
  const std::size_t n = drawn.size();
  std::vector<std::int64_t> lengths(n, 1);
  std::vector<bool> is_full(n);
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    double fixed = 0;
    double open = 0;
    for (std::size_t i = 0; i < n; ++i)
      (is_full[i] ? fixed : open) += is_full[i] ? real(limits[i]) : drawn[i];
    if (open <= 0) break;
    const double factor = std::max(sum - fixed, 0.0) / open;
    bool is_new = false;
    for (std::size_t i = 0; i < n; ++i) {
      if (is_full[i]) continue;
      const double length = std::max(drawn[i] * factor, 1.0);
      is_full[i] = length >= real(limits[i]);
      is_new = is_new || is_full[i];
      lengths[i] = is_full[i] ? limits[i] : std::llround(length);
    }
    if (!is_new) break;
  }
  return lengths;
}

struct MeanLengths {
  double prompt = 0;
  double output = 0;
};

class Drawer {
 public:
  Drawer(const ReportWindows& reports, const DrawSetup& setup)
      : reports_(reports), setup_(setup), rng_(setup.seed, "requests of reports") {
    is_counted_ = reports.has_arrivals || reports.has_answers;
  }

  DrawnRequests run() {
    find_means();
    if (!out_.obstacle.empty()) return std::move(out_);
    choose_windows();
    if (!out_.obstacle.empty()) return std::move(out_);
    place_requests();
    draw_prompts();
    draw_outputs();
    describe_draw();
    return std::move(out_);
  }

 private:
  std::span<const ReportWindow> windows() const {
    return std::span(reports_.windows)
        .subspan(out_.first_window, out_.last_window - out_.first_window + 1);
  }
  // Of a window; drawn lengths have no count of their own.
  double num_requests(const ReportWindow& window) const {
    return is_counted_ ? real(window.arrivals.size()) : window.prompt_tokens / means_.prompt;
  }
  std::int64_t longest_prompt() const {
    return setup_.max_model_len > 1 ? setup_.max_model_len - 1 : INT32_MAX / 2;
  }
  void find_means();
  bool find_means_by_cache(double prompts, double outputs);
  void choose_windows();
  void place_requests();
  void draw_prompts();
  void draw_outputs();
  std::string kept_prompts_text() const;
  void describe_draw();

  const ReportWindows& reports_;
  const DrawSetup& setup_;
  Rng rng_;
  bool is_counted_ = false;
  bool ends_at_limits_ = false;
  bool has_limits_ = false;
  MeanLengths means_;
  std::vector<std::size_t> window_of_;  // of each request
  DrawnRequests out_;
};

void Drawer::find_means() {
  out_.last_window = reports_.windows.size() - 1;
  double prompts = 0;
  double outputs = 0;
  std::size_t num_requests = 0;
  for (const ReportWindow& window : reports_.windows) {
    prompts += window.prompt_tokens;
    outputs += window.output_tokens;
    num_requests += window.arrivals.size();
  }
  if (prompts <= 0 || outputs <= 0) {
    out_.obstacle = "the reports have no prompts, or no output tokens.";
    return;
  }
  if (is_counted_ && num_requests > 0) {
    means_ = {prompts / real(num_requests), outputs / real(num_requests)};
  } else if (is_counted_ = false; !find_means_by_cache(prompts, outputs)) {
    out_.obstacle =
        "the reports have tokens and not requests: nothing says how many there were. Lines that "
        "say when requests were received, the server's access log, or its line with the size of "
        "the KV cache say it. Or describe the requests in a scenario, and give it with "
        "--scenario.";
  }
}

// A running request holds its prompt, with the tokens found in the prefix cache, and on average
// half of its output and half a block.
bool Drawer::find_means_by_cache(double prompts, double outputs) {
  if (!setup_.pool_tokens) return false;
  double held = 0;
  double running = 0;
  double hits = 0;
  std::size_t num_hits = 0;
  for (const ReportWindow& window : reports_.windows) {
    if (window.num_running == 0 || !window.cache_usage) continue;
    held += *window.cache_usage * real(*setup_.pool_tokens);
    running += real(window.num_running);
    hits += window.hit_rate.value_or(0);
    ++num_hits;
  }
  if (running <= 0 || held <= 0) return false;
  constexpr double kMostHits = 0.95;
  const double share = std::min(hits / real(num_hits), kMostHits);
  const double context = std::max(held / running - real(setup_.block_tokens) / 2, 1.0);
  const double ratio = prompts / outputs;
  means_.output =
      std::max(context / (ratio / (1 - share) + (1 + kOutputSpread * kOutputSpread) / 2), 1.0);
  means_.prompt = std::clamp(means_.output * ratio, 1.0, real(longest_prompt()));
  return true;
}

// All, or the busiest stretch with as many requests as can be searched.
void Drawer::choose_windows() {
  const std::vector<ReportWindow>& all = reports_.windows;
  double count = 0;
  for (const ReportWindow& window : all) count += num_requests(window);
  if (count <= real(kMostRequests)) return;
  double best = -1;
  double load = 0;
  count = 0;
  std::size_t begin = 0;
  for (std::size_t end = 0; end < all.size(); ++end) {
    count += num_requests(all[end]);
    load += real(all[end].num_running + all[end].num_waiting);
    for (; count > real(kMostRequests) && begin < end; ++begin) {
      count -= num_requests(all[begin]);
      load -= real(all[begin].num_running + all[begin].num_waiting);
    }
    if (load <= best) continue;
    best = load;
    out_.first_window = begin;
    out_.last_window = end;
  }
  const ReportWindow& first = all[out_.first_window];
  if (!is_counted_ && num_requests(first) > real(kMostRequests)) {
    out_.obstacle = fmt::format(
        "the report of line {} alone has the tokens of about {} requests, more than the {} that "
        "a search replays.",
        first.line, grouped_text(num_requests(first), 0), grouped_text(real(kMostRequests), 0));
    return;
  }
  out_.remarks.push_back(fmt::format(
      "The log has more requests than a search replays: these are of the busiest reports, lines {} "
      "to {}.",
      all[out_.first_window].line, all[out_.last_window].line));
}

// Arrivals: in the second of a stamp, or else anywhere in their window.
void Drawer::place_requests() {
  const auto add = [this](std::size_t w, TimeNs from, TimeNs until) {
    RebuiltRequest& request = out_.requests.emplace_back();
    request.arrival = from + static_cast<TimeNs>(rng_.uniform() * real(until - from));
    window_of_.push_back(w);
  };
  for (std::size_t w = 0; w < windows().size(); ++w) {
    const ReportWindow& window = windows()[w];
    if (!is_counted_) {
      for (double left = window.prompt_tokens; left > 0;) {
        if (out_.requests.size() >= 2 * kMostRequests) break;
        const double length = std::min(
            {draw_length(means_.prompt, kPromptSpread, rng_), left, real(longest_prompt())});
        left -= length;
        const bool is_rest = left <= 0 && length < means_.prompt / 20;  // cut off by the window
        if (is_rest && !window_of_.empty() && window_of_.back() == w) break;
        add(w, window.begin, window.end);
        out_.requests.back().num_prompt_tokens = std::max<std::int64_t>(std::llround(length), 1);
      }
      continue;
    }
    for (std::size_t a = 0; a < window.arrivals.size(); ++a) {
      const TimeNs stamp = window.stamps[a];
      const TimeNs from = stamp == kNoTime ? window.begin : std::max<TimeNs>(stamp, 0);
      add(w, from, stamp == kNoTime ? window.end : from + kStampNs);
      RebuiltRequest& request = out_.requests.back();
      request.has_logged_arrival = stamp != kNoTime;
      request.max_output_tokens = window.arrivals[a].max_output_tokens;
      request.num_prompt_tokens = window.arrivals[a].num_prompt_tokens;
    }
  }
  has_limits_ = std::any_of(out_.requests.begin(), out_.requests.end(),
                            [](const RebuiltRequest& one) { return one.max_output_tokens > 0; });
}

// A window's prompts are those that arrived in it, or since the last window that booked some.
void Drawer::draw_prompts() {
  if (!is_counted_) return;
  std::size_t begin = 0;
  double sum = 0;
  for (std::size_t w = 0; w < windows().size(); ++w) {
    sum += windows()[w].prompt_tokens;
    std::size_t end = begin;
    while (end < out_.requests.size() && window_of_[end] <= w) ++end;
    const bool is_last = w + 1 == windows().size();
    if (end == begin || (sum <= 0 && !is_last)) continue;
    std::vector<double> open;
    for (std::size_t r = begin; r < end; ++r) {
      RebuiltRequest& request = out_.requests[r];
      request.is_prompt_exact = request.num_prompt_tokens > 0;
      if (request.is_prompt_exact) {
        sum -= real(request.num_prompt_tokens);
      } else {
        open.push_back(draw_length(means_.prompt, kPromptSpread, rng_));
      }
    }
    const std::vector<std::int64_t> lengths =
        scaled(open, std::vector<std::int64_t>(open.size(), longest_prompt()), std::max(sum, 0.0));
    std::size_t next = 0;
    for (std::size_t r = begin; r < end; ++r) {
      RebuiltRequest& request = out_.requests[r];
      if (!request.is_prompt_exact) request.num_prompt_tokens = lengths[next++];
    }
    begin = end;
    sum = 0;
  }
  for (; begin < out_.requests.size(); ++begin) {
    out_.requests[begin].num_prompt_tokens = std::llround(std::max(means_.prompt, 1.0));
  }
}

void Drawer::draw_outputs() {
  double sum = 0;
  for (const ReportWindow& window : windows()) sum += window.output_tokens;
  std::vector<double> drawn;
  std::vector<std::int64_t> limits;
  double most = 0;
  for (const RebuiltRequest& request : out_.requests) {
    std::int64_t limit = request.max_output_tokens > 0 ? request.max_output_tokens : INT32_MAX / 2;
    if (setup_.max_model_len > 0) {
      limit = std::clamp<std::int64_t>(setup_.max_model_len - request.num_prompt_tokens, 1, limit);
    }
    limits.push_back(limit);
    drawn.push_back(draw_length(means_.output, kOutputSpread, rng_));
    most += real(limit);
  }
  constexpr double kNear = 1.1;  // some requests run beyond the last report
  ends_at_limits_ = most <= kNear * sum;
  const std::vector<std::int64_t> lengths = ends_at_limits_ ? limits : scaled(drawn, limits, sum);
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    out_.requests[r].num_output_tokens = lengths[r];
  }
}

// "prompts keep the sum of each report", or what of it they keep.
std::string Drawer::kept_prompts_text() const {
  constexpr double kNear = 0.02;
  const auto is_near = [](double drawn, double logged) {
    return std::abs(drawn - logged) <= std::max(kNear * logged, 1.0);
  };
  std::vector<double> drawn(windows().size());
  for (std::size_t r = 0; r < out_.requests.size(); ++r) {
    drawn[window_of_[r]] += real(out_.requests[r].num_prompt_tokens);
  }
  bool is_each = true;
  double sum = 0;
  double logged = 0;
  for (std::size_t w = 0; w < drawn.size(); ++w) {
    is_each = is_each && is_near(drawn[w], windows()[w].prompt_tokens);
    sum += drawn[w];
    logged += windows()[w].prompt_tokens;
  }
  if (is_each) return "prompts keep the sum of each report";
  if (is_near(sum, logged)) return "prompts keep the sum of all reports";
  return fmt::format("prompts have {} tokens of the {} of the reports", grouped_text(sum, 0),
                     grouped_text(logged, 0));
}

void Drawer::describe_draw() {
  const auto n = static_cast<std::int64_t>(out_.requests.size());
  const auto num_logged = std::count_if(out_.requests.begin(), out_.requests.end(),
                                        [](const auto& one) { return one.has_logged_arrival; });
  out_.summary = fmt::format("{} drawn to match {}: ", count_text(n, "request"),
                             count_text(windows().size(), "report"));
  if (num_logged > 0) {
    out_.summary += "arrivals as logged, to a second; ";
  } else if (is_counted_) {
    out_.summary += "as many as calls were answered in each; ";
  } else {
    out_.summary += fmt::format(
        "their number and lengths (on average {} prompt and {} output tokens) follow from the use "
        "of the KV cache, to a factor of about two; ",
        grouped_text(means_.prompt, 0), grouped_text(means_.output, 0));
  }
  out_.summary += kept_prompts_text() + "; ";
  out_.summary += ends_at_limits_ ? "outputs end at their max_tokens, as the sum of all says"
                                  : "outputs keep the sum of all";
  if (reports_.num_ranks > 1) {
    out_.remarks.push_back(fmt::format(
        "The log has {} data-parallel engines: requests are those of engine {}, and replays have "
        "this engine alone.",
        reports_.num_ranks, reports_.rank));
  }
  if (std::any_of(windows().begin(), windows().end(),
                  [](const ReportWindow& one) { return one.hit_rate.value_or(0) > 0; })) {
    out_.remarks.emplace_back(
        "Prompts are what the engine computed. Tokens from the prefix cache are missing in them.");
  }
  out_.remarks.push_back(
      "Lengths have the spread of public conversations (standard deviation / mean 1.0 for prompts, "
      "0.75 for outputs)." +
      (setup_.advice.empty() ? "" : " " + setup_.advice));
}

}  // namespace

DrawnRequests draw_requests(const ReportWindows& reports, const DrawSetup& setup) {
  return Drawer(reports, setup).run();
}

}  // namespace metronome
