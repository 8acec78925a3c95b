// SPDX-License-Identifier: Apache-2.0
// Figures by class and by priority.
#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <map>
#include <optional>

#include "core/metrics/summary.h"

namespace metronome {

namespace {

// Sums over the requests of one group.
struct Group {
  GroupSummary summary;
  std::int64_t num_ended = 0;
  std::int64_t num_good = 0;
  bool has_slo = false;
  std::vector<double> ttft, tpot, e2el;
  TimeNs longest_gap_ns = kNoTime;

  void add(const RequestRecord& request, const SloConfig& slo) {
    ++summary.num_requests;
    has_slo = has_slo || slo.of_class(request.class_number).has_limit();
    if (request.reason != EndReason::None) ++num_ended;
    num_good += meets_slo(request, slo) ? 1 : 0;
    if (!request.completed()) return;
    ++summary.completed;
    if (request.first_token == kNoTime) return;
    ttft.push_back(static_cast<double>(request.ttft_ns()));
    e2el.push_back(static_cast<double>(request.e2el_ns()));
    if (!request.has_itl()) return;
    tpot.push_back(request.tpot_ns());
    longest_gap_ns = std::max(longest_gap_ns, request.max_itl_ns);
  }

  GroupSummary finish(double duration_s) {
    summary.ttft = describe(ttft);
    summary.tpot = describe(tpot);
    summary.e2el = describe(e2el);
    if (longest_gap_ns != kNoTime) summary.longest_gap_ms = to_ms(longest_gap_ns);
    if (!has_slo) return std::move(summary);
    summary.good = num_good;
    summary.request_goodput = duration_s > 0 ? static_cast<double>(num_good) / duration_s : 0.0;
    summary.slo_attainment = num_ended > 0
                                 ? static_cast<double>(num_good) / static_cast<double>(num_ended)
                                 : std::numeric_limits<double>::quiet_NaN();
    return std::move(summary);
  }
};

// Whether the request reached the engine.
bool was_served(const RequestRecord& request) { return request.num_prompt_tokens != 0; }

template <class Key, class KeyOf, class NameOf>
std::vector<GroupSummary> group_by(const RunRecord& record, const SloConfig& slo, KeyOf key_of,
                                   NameOf name_of) {
  std::map<Key, Group> groups;
  for (const RequestRecord& request : record.requests) {
    if (!was_served(request)) continue;
    groups[key_of(request)].add(request, slo);
  }
  const double duration_s = to_seconds(run_duration(record));
  std::vector<GroupSummary> summaries;
  for (auto& [key, group] : groups) {
    group.summary.name = name_of(key);
    summaries.push_back(group.finish(duration_s));
  }
  return summaries;
}

}  // namespace

std::vector<GroupSummary> summarize_classes(const RunRecord& record, const SloConfig& slo) {
  const std::vector<std::string>& names = record.class_names;
  if (names.empty()) return {};
  // Requests without a class come last.
  const auto place = [&names](const RequestRecord& request) -> std::size_t {
    return request.class_number == 0 ? names.size() : request.class_number - std::size_t{1};
  };
  return group_by<std::size_t>(record, slo, place, [&names](std::size_t i) {
    return i < names.size() ? names[i] : std::string("none");
  });
}

namespace {

// Whether classes divide the requests as priorities do: each class has a priority of its own.
bool are_classes(const RunRecord& record) {
  std::map<std::int32_t, std::uint16_t> class_of;
  std::map<std::uint16_t, std::int32_t> priority_of;
  return !record.class_names.empty() &&
         std::all_of(record.requests.begin(), record.requests.end(), [&](const RequestRecord& r) {
           if (!was_served(r)) return true;
           return class_of.emplace(r.priority, r.class_number).first->second == r.class_number &&
                  priority_of.emplace(r.class_number, r.priority).first->second == r.priority;
         });
}

}  // namespace

std::vector<GroupSummary> summarize_priorities(const RunRecord& record, const SloConfig& slo) {
  std::optional<std::int32_t> first;
  const bool differ = std::any_of(record.requests.begin(), record.requests.end(),
                                  [&first](const RequestRecord& request) {
                                    if (!was_served(request)) return false;
                                    if (!first) first = request.priority;
                                    return request.priority != *first;
                                  });
  if (!differ || are_classes(record)) return {};
  return group_by<std::int32_t>(
      record, slo, [](const RequestRecord& request) { return request.priority; },
      [](std::int32_t priority) { return fmt::format("priority {}", priority); });
}

std::vector<GroupSummary> summarize_by_replica(const RunRecord& record, const SloConfig& slo) {
  std::vector<Group> groups(record.replicas.size());
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (record.replica_of[i] < 0 || !was_served(record.requests[i])) continue;
    groups[static_cast<std::size_t>(record.replica_of[i])].add(record.requests[i], slo);
  }
  const double duration_s = to_seconds(run_duration(record));
  std::vector<GroupSummary> summaries;
  for (Group& group : groups) {
    group.summary.name = fmt::format("replica {}", summaries.size());
    summaries.push_back(group.finish(duration_s));
  }
  return summaries;
}

}  // namespace metronome
