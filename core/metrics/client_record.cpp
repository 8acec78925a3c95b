// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/client_record.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "core/base/error.h"

namespace metronome {
namespace {

// A token event of a request; `rank` counts events of the same request at the same time.
struct TokenEvent {
  TimeNs time = 0;
  std::int32_t rank = 0;
  std::uint32_t request = 0;
};

std::vector<TokenEvent> events_in_order(std::span<const WatchedRequest> requests) {
  std::vector<TokenEvent> events;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<TimeNs>& times = requests[i].token_times;
    std::int32_t rank = 0;
    for (std::size_t k = 0; k < times.size(); ++k) {
      METRONOME_CHECK(k == 0 || times[k] >= times[k - 1], "tokens come in order");
      rank = k > 0 && times[k] == times[k - 1] ? rank + 1 : 0;
      events.push_back({times[k], rank, static_cast<std::uint32_t>(i)});
    }
  }
  std::sort(events.begin(), events.end(), [](const TokenEvent& a, const TokenEvent& b) {
    return std::tie(a.time, a.rank, a.request) < std::tie(b.time, b.rank, b.request);
  });
  return events;
}

}  // namespace

RunRecord make_client_record(std::span<const WatchedRequest> requests) {
  METRONOME_CHECK(!requests.empty(), "a client sends a request");
  RunRecord record;
  std::vector<std::vector<TokenRun>> runs(requests.size());
  const TokenEvent* last = nullptr;
  StepEntry instant;
  const std::vector<TokenEvent> events = events_in_order(requests);
  for (const TokenEvent& event : events) {
    const bool is_new = last == nullptr || event.time != last->time || event.rank != last->rank;
    if (is_new && last != nullptr) record.steps.push_back(instant);
    last = &event;
    if (is_new) {
      instant = {};
      instant.planned_at = instant.started_at = instant.finished_at = event.time;
    }
    const auto position = static_cast<std::int32_t>(record.steps.size());
    ++instant.num_emitted;
    std::vector<TokenRun>& own = runs[event.request];
    if (!own.empty() && own.back().last_step() == position - 1) {
      ++own.back().num_steps;
    } else {
      own.push_back({position, 1});
    }
  }
  if (last != nullptr) record.steps.push_back(instant);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    record.requests.push_back(requests[i].request);
    record.requests.back().first_run = static_cast<std::uint32_t>(record.runs.size());
    record.runs.insert(record.runs.end(), runs[i].begin(), runs[i].end());
    record.client.push_back(requests[i].view);
  }
  derive_token_facts(record);
  return record;
}

std::vector<TimeNs> token_times(const RunRecord& record, std::size_t i) {
  std::vector<TimeNs> times;
  for (const TokenRun& run : record.runs_of(i)) {
    for (std::int32_t s = run.first_step; s <= run.last_step(); ++s) {
      times.push_back(record.steps.finished_at(static_cast<std::size_t>(s)));
    }
  }
  return times;
}

}  // namespace metronome
