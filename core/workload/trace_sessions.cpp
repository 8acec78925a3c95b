// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_sessions.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/workload/workload_config.h"
#include "core/workload/workload_cut.h"

namespace metronome {

namespace {

// A prompt that goes on from others has two segments more than the one before. This bounds those of
// a file that gives all its rows one session.
constexpr std::size_t kMaxSharedSegments = 2000;

// The session so far: prompt and output of its last request.
std::int64_t history_of(const RequestSpec& request) {
  return std::int64_t{request.num_prompt_tokens} + request.max_output_tokens;
}

void set_prompt(std::int64_t num_tokens, RequestSpec& request) {
  if (num_tokens > kMaxLengthTokens) {
    throw UnplacedConfigError(
        "workload.trace.file",
        fmt::format("a session is too long; allowed: prompts of at most {} tokens",
                    kMaxLengthTokens));
  }
  request.num_prompt_tokens = static_cast<std::int32_t>(num_tokens);
}

// The requests of each session, in order of their turns; sessions by the arrival of the first.
std::vector<std::vector<std::size_t>> order_sessions(const std::vector<TraceTurn>& turns,
                                                     const Workload& workload) {
  std::vector<std::vector<std::size_t>> sessions;
  std::map<std::uint32_t, std::size_t> places;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto [place, is_new] = places.try_emplace(turns[i].session, sessions.size());
    if (is_new) sessions.emplace_back();
    sessions[place->second].push_back(i);
  }
  for (std::vector<std::size_t>& session : sessions) {
    std::stable_sort(session.begin(), session.end(),
                     [&](std::size_t a, std::size_t b) { return turns[a].turn < turns[b].turn; });
  }
  std::stable_sort(sessions.begin(), sessions.end(), [&](const auto& a, const auto& b) {
    return workload.requests[a.front()].arrival < workload.requests[b.front()].arrival;
  });
  return sessions;
}

// Appends the segments of the requests of sessions, in order.
class SessionPrompts {
 public:
  SessionPrompts(bool counts_new_tokens, const Workload& from, Workload& to)
      : counts_new_tokens_(counts_new_tokens), from_(from), to_(to) {}

  // `before` is the session's request before; nullptr: none.
  void add(std::size_t row, const RequestSpec* before, RequestSpec request) {
    const std::span<const PromptSegment> own =
        from_.prompt_segments(RequestId{static_cast<std::uint32_t>(row)});
    const std::int64_t history = before != nullptr ? history_of(*before) : 0;
    std::int64_t num_new = request.num_prompt_tokens;
    bool is_whole = false;
    if (before != nullptr && counts_new_tokens_) {
      set_prompt(history + num_new, request);
    } else if (before != nullptr) {
      is_whole = !own.empty() || request.num_prompt_tokens <= history;
      if (!is_whole) num_new -= history;
    }
    to_.segment_begin.push_back(static_cast<std::uint32_t>(to_.segments.size()));
    if (own.empty()) {
      to_.segments.push_back({content_id(ContentKind::Request, to_.requests.size()),
                              static_cast<std::int32_t>(num_new)});
    } else {
      to_.segments.insert(to_.segments.end(), own.begin(), own.end());
    }
    to_.has_whole_prompt.push_back(is_whole);
    to_.requests.push_back(request);
  }

 private:
  bool counts_new_tokens_;
  const Workload& from_;
  Workload& to_;
};

}  // namespace

bool waits_for_others(const std::vector<TraceTurn>& turns) {
  const bool has_arrivals = std::any_of(turns.begin(), turns.end(),
                                        [](const TraceTurn& turn) { return turn.has_arrival; });
  const bool lacks_arrivals = std::any_of(turns.begin(), turns.end(),
                                          [](const TraceTurn& turn) { return !turn.has_arrival; });
  if (!lacks_arrivals) return false;
  if (has_arrivals) return true;
  std::vector<std::uint32_t> sessions;
  for (const TraceTurn& turn : turns) sessions.push_back(turn.session);
  std::sort(sessions.begin(), sessions.end());
  return std::adjacent_find(sessions.begin(), sessions.end()) != sessions.end();
}

void make_sessions(const std::vector<TraceTurn>& turns, bool counts_new_tokens,
                   Workload& workload) {
  METRONOME_CHECK(turns.size() == workload.requests.size(), "one turn for each request");
  Workload result;
  result.num_skipped = workload.num_skipped;
  result.class_names = workload.class_names;
  result.unused_fields = workload.unused_fields;
  result.has_arrivals = workload.has_arrivals;
  SessionPrompts prompts(counts_new_tokens, workload, result);
  for (const std::vector<std::size_t>& session : order_sessions(turns, workload)) {
    result.session_begin.push_back(static_cast<std::uint32_t>(result.requests.size()));
    bool is_first = true;
    for (const std::size_t row : session) {
      const std::optional<RequestSpec> before =
          is_first ? std::nullopt : std::optional(result.requests.back());
      RequestSpec request = workload.requests[row];
      if (!is_first) request.arrival = 0;
      result.delays.push_back(is_first ? 0 : turns[row].delay);
      prompts.add(row, before ? &*before : nullptr, request);
      is_first = false;
    }
  }
  result.session_begin.push_back(static_cast<std::uint32_t>(result.requests.size()));
  result.segment_begin.push_back(static_cast<std::uint32_t>(result.segments.size()));
  workload = std::move(result);
}

void share_prompts_of_sessions(const std::vector<TraceTurn>& turns, bool counts_new_tokens,
                               Workload& workload) {
  std::vector<PromptSegment> segments;
  std::vector<std::uint32_t> begins;
  std::map<std::uint32_t, std::size_t> last_of;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    RequestSpec& request = workload.requests[i];
    const auto [last, is_first] = last_of.try_emplace(turns[i].session, i);
    std::int64_t num_new = request.num_prompt_tokens;
    begins.push_back(static_cast<std::uint32_t>(segments.size()));
    if (!is_first) {
      const RequestSpec& before = workload.requests[last->second];
      const std::int64_t history = history_of(before);
      const std::size_t begin = begins[last->second];
      const std::size_t end = begins[last->second + 1];
      if (counts_new_tokens) set_prompt(history + num_new, request);
      if (!counts_new_tokens) num_new -= history;
      if (num_new > 0 && end - begin < kMaxSharedSegments) {
        for (std::size_t s = begin; s < end; ++s) segments.push_back(PromptSegment(segments[s]));
        segments.push_back(
            {content_id(ContentKind::Output, last->second), before.max_output_tokens});
      } else {
        num_new = request.num_prompt_tokens;
      }
      last->second = i;
    }
    const std::span<const PromptSegment> own =
        workload.prompt_segments(RequestId{static_cast<std::uint32_t>(i)});
    std::int64_t num_own = 0;
    for (const PromptSegment& segment : own) num_own += segment.num_tokens;
    if (num_own == num_new) {
      segments.insert(segments.end(), own.begin(), own.end());
    } else {
      segments.push_back({content_id(ContentKind::Request, i), static_cast<std::int32_t>(num_new)});
    }
  }
  begins.push_back(static_cast<std::uint32_t>(segments.size()));
  workload.segments = std::move(segments);
  workload.segment_begin = std::move(begins);
}

}  // namespace metronome
