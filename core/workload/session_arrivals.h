// SPDX-License-Identifier: Apache-2.0
// Sends the requests of sessions: each when the one before has ended and its delay has passed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <vector>

#include "core/engine/arrival_source.h"
#include "core/engine/event.h"
#include "core/engine/prompt.h"
#include "core/workload/workload.h"

namespace metronome {

// A sink of the engine's events, to see which request has ended. A session whose request fails is
// over. Requests get ids as they are sent, so this knows their prompts: a prompt's earlier answers
// have the content of the outputs, which the prefix cache may hold.
class SessionArrivals final : public ArrivalSource, public EventSink, public PromptSource {
 public:
  // `workload` has sessions and must outlive this.
  explicit SessionArrivals(const Workload& workload);

  std::optional<RequestSpec> pop_due(TimeNs now, std::int64_t step) override;
  TimeNs next_time() const override { return due_.empty() ? kNever : due_.top().at; }
  std::optional<std::int64_t> next_step() const override { return std::nullopt; }
  void on_ended(TimeNs) override {}  // on_event() says more
  std::size_t num_total() const override { return workload_.requests.size() - num_dropped_; }

  void on_event(const Event& event, const Request& request) override;
  bool takes_runs() const override { return true; }
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}

  // The number of the session of a request that was sent.
  std::uint32_t session_of(RequestId request) const { return sent_[index(request)].session; }

  std::span<const TokenId> prompt_ids(RequestId) const override { return {}; }
  std::span<const PromptSegment> prompt_segments(RequestId request) const override;

 private:
  struct Due {
    TimeNs at;
    std::uint32_t request;  // index in the workload
    bool operator>(const Due& other) const {
      return std::tie(at, request) > std::tie(other.at, other.request);
    }
  };
  struct Sent {
    std::uint32_t request;  // index in the workload
    std::uint32_t session;
    std::uint32_t num_segments;  // of its prompt
  };

  std::uint32_t session_of(std::uint32_t request) const;
  void start_session(TimeNs at);
  void append_segments(std::uint32_t request, std::uint32_t session);

  const Workload& workload_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t next_session_ = 0;                      // ClosedLoop: the first that has not started
  std::size_t num_dropped_ = 0;                       // requests that are never sent
  std::vector<Sent> sent_;                            // by RequestId
  std::vector<std::vector<PromptSegment>> segments_;  // by session: all its prompts so far
  std::vector<std::uint64_t> last_id_;                // by session: RequestId of its last request
};

}  // namespace metronome
