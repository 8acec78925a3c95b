// SPDX-License-Identifier: Apache-2.0
#include "core/workload/session_arrivals.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

SessionArrivals::SessionArrivals(const Workload& workload)
    : workload_(workload), segments_(workload.num_sessions()), last_id_(workload.num_sessions()) {
  METRONOME_CHECK(workload.has_sessions() && workload.mode != ArrivalMode::Steps,
                  "sessions start by time");
  const bool is_closed_loop = workload.mode == ArrivalMode::ClosedLoop;
  const std::size_t num_first =
      is_closed_loop
          ? std::min(workload.num_sessions(), static_cast<std::size_t>(workload.concurrency))
          : workload.num_sessions();
  sent_.reserve(workload.requests.size());
  for (std::size_t s = 0; s < num_first; ++s) {
    start_session(is_closed_loop ? 0 : workload.requests[workload.session_begin[s]].arrival);
  }
}

std::uint32_t SessionArrivals::session_of(std::uint32_t request) const {
  const std::vector<std::uint32_t>& begins = workload_.session_begin;
  const auto next = std::upper_bound(begins.begin(), begins.end(), request);
  return static_cast<std::uint32_t>(next - begins.begin() - 1);
}

void SessionArrivals::start_session(TimeNs at) {
  if (next_session_ == workload_.num_sessions()) return;
  due_.push({at, workload_.session_begin[next_session_++]});
}

std::optional<RequestSpec> SessionArrivals::pop_due(TimeNs now, std::int64_t) {
  if (due_.empty() || due_.top().at > now) return std::nullopt;
  const Due next = due_.top();
  due_.pop();
  const std::uint32_t session = session_of(next.request);
  append_segments(next.request, session);
  last_id_[session] = sent_.size();
  sent_.push_back({next.request, session, static_cast<std::uint32_t>(segments_[session].size())});
  RequestSpec spec = workload_.requests[next.request];
  spec.arrival = next.at;
  return spec;
}

void SessionArrivals::append_segments(std::uint32_t request, std::uint32_t session) {
  std::vector<PromptSegment>& segments = segments_[session];
  const std::span<const PromptSegment> own = workload_.prompt_segments(RequestId{request});
  if (!workload_.continues_session(request, session)) {
    segments.assign(own.begin(), own.end());
    return;
  }
  const RequestSpec& before = workload_.requests[request - 1];
  const std::int32_t history = before.num_prompt_tokens + before.max_output_tokens;
  segments.push_back(
      {content_id(ContentKind::Output, last_id_[session]), before.max_output_tokens});
  if (own.empty()) {
    segments.push_back({content_id(ContentKind::Request, request),
                        workload_.requests[request].num_prompt_tokens - history});
  } else {
    segments.insert(segments.end(), own.begin(), own.end());
  }
}

void SessionArrivals::on_event(const Event& event, const Request& request) {
  if (event.kind != EventKind::Ended) return;
  const Sent& ended = sent_[index(event.request)];
  const std::uint32_t next = ended.request + 1;
  const std::uint32_t end = workload_.session_begin[ended.session + 1];
  if (next < end && request.state == RequestState::Finished) {
    due_.push({event.time + workload_.delays[next], next});
    return;
  }
  num_dropped_ += end - next;
  if (workload_.mode == ArrivalMode::ClosedLoop) start_session(event.time + workload_.think_time);
}

std::span<const PromptSegment> SessionArrivals::prompt_segments(RequestId request) const {
  const Sent& sent = sent_[index(request)];
  return std::span(segments_[sent.session]).first(sent.num_segments);
}

}  // namespace metronome
