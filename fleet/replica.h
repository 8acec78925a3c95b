// SPDX-License-Identifier: Apache-2.0
// One engine of a fleet, with its simulated device.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/event.h"
#include "core/engine/front_end.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/prompt.h"
#include "core/engine/request_source.h"
#include "fleet/router.h"
#include "sim/cold_start.h"
#include "sim/sim_executor.h"

namespace metronome {

struct Simulation;

// A first token, or an end.
struct ReplicaEvent {
  TimeNs time = 0;
  ReplicaId replica = 0;
  std::int64_t sequence = 0;  // of the replica's events
  std::uint32_t request = 0;  // its number in the run
  bool has_ended = false;
  RequestState state = RequestState::Waiting;  // after the event
  std::int32_t num_output_tokens = 0;          // has_ended
};

struct ReplicaStart {
  bool is_off = false;    // until the fleet adds it
  bool may_fail = false;  // or its requests may wait elsewhere before it gets them
  bool tells_first_tokens = true;
};

class Replica {
 public:
  // All outlive the replica. `prompts` has requests by their numbers in the run. The parts of
  // `sinks` for this replica get its events; one without such a part gets none.
  Replica(ReplicaId id, Simulation& simulation, const PromptSource& prompts, bool has_images,
          const ReplicaStart& start, std::span<EventSink* const> sinks);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // A request that the router sends at `now`. Times never fall.
  void send(std::uint32_t number, const RequestSpec& spec, TimeNs now);

  // See Engine. Events are appended to `events`.
  void advance(TimeNs until, std::vector<ReplicaEvent>& events);
  TimeNs advance_to_change(TimeNs until, std::vector<ReplicaEvent>& events);

  // It fails, after it has advanced to that time: its requests end, steps under way go on, and its
  // cache is empty. Returns the requests in the order in which they were sent.
  struct Interrupted {
    std::uint32_t number = 0;  // in the run
    RequestSpec spec;
  };
  std::vector<Interrupted> fail();
  // It starts anew with an empty cache. Requires that it has no request.
  void restart();

  ReplicaReport report() const;
  // The hashes by which its cache finds a prompt.
  HashChain chain_of(const PrefixHasher& hasher, std::uint32_t number,
                     const RequestSpec& spec) const;
  std::int64_t count_cached(const HashChain& chain) const {
    return engine_.kv_cache().count_cached(chain);
  }
  const Engine& engine() const { return engine_; }
  // Whether a sink takes the events of several replicas itself.
  bool shares_sinks() const { return shares_sinks_; }
  std::uint32_t number_of(RequestId request) const { return (*numbers_)[index(request)]; }

 private:
  // Its requests have other ids in this engine than in the run.
  class Prompts final : public PromptSource {
   public:
    Prompts(const PromptSource& run, const std::vector<std::uint32_t>& numbers)
        : run_(run), numbers_(numbers) {}
    std::span<const TokenId> prompt_ids(RequestId request) const override {
      return run_.prompt_ids(in_run(request));
    }
    std::span<const PromptSegment> prompt_segments(RequestId request) const override {
      return run_.prompt_segments(in_run(request));
    }
    std::span<const EncoderItem> encoder_items(RequestId request) const override {
      return run_.encoder_items(in_run(request));
    }
    std::uint64_t number_of(RequestId request) const override {
      return run_.number_of(in_run(request));
    }

   private:
    RequestId in_run(RequestId request) const { return RequestId{numbers_[index(request)]}; }
    const PromptSource& run_;
    const std::vector<std::uint32_t>& numbers_;
  };

  // Gives the engine what the router sent, as its front end hands it over.
  class Feed final : public RequestSource {
   public:
    explicit Feed(const FrontEnd& front_end) : hand_over_(front_end) {}
    // Returns when the engine sees it.
    TimeNs push(const RequestSpec& spec, TimeNs now);
    // The requests that the engine has not seen; it will see none of them.
    std::vector<RequestSpec> take_back();
    void exchange(Engine& engine, TimeNs now, bool receives) override;
    TimeNs next_time(const Engine&) const override;
    std::optional<TimeNs> wait(const Engine&) override { return std::nullopt; }
    std::optional<Quiet> quiet(const Engine& engine) const override {
      return Quiet{next_time(engine), INT64_MAX};
    }

   private:
    struct Sent {
      TimeNs handed_over;
      RequestSpec spec;
    };
    HandOver hand_over_;
    std::deque<Sent> sent_;
  };

  // Sees first tokens and ends.
  class Watch final : public EventSink {
   public:
    Watch(Replica& replica, bool tells_first_tokens)
        : replica_(replica), tells_first_tokens_(tells_first_tokens) {}
    void on_event(const Event& event, const Request& request) override;
    bool takes_runs() const override { return true; }
    void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {
    }

   private:
    Replica& replica_;
    bool tells_first_tokens_;
  };

  ReplicaId id_;
  std::shared_ptr<std::vector<std::uint32_t>> numbers_;
  std::shared_ptr<std::vector<TimeNs>> handed_over_;  // null: see ReplicaStart
  std::vector<RequestSpec> specs_;                    // by RequestId, as handed_over_
  Prompts prompts_;
  Feed feed_;
  Watch watch_;
  bool shares_sinks_ = false;
  std::vector<ReplicaEvent>* events_ = nullptr;  // of the advance under way
  PrefixHasher hasher_;
  SimExecutor simulated_;
  ColdStart executor_;
  Engine engine_;
};

}  // namespace metronome
