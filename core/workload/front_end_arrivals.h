// SPDX-License-Identifier: Apache-2.0
// Arrivals through a front end: the engine sees a request when it is handed over. The request's
// arrival stays the time at which the client sent it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/engine/arrival_source.h"
#include "core/engine/front_end.h"

namespace metronome {

class FrontEndArrivals final : public ArrivalSource {
 public:
  // `clients` must outlive this.
  FrontEndArrivals(ArrivalSource& clients, const FrontEnd& front_end)
      : clients_(clients), hand_over_(front_end) {}

  std::optional<RequestSpec> pop_due(TimeNs now, std::int64_t step) override;
  // Also the next send, whose hand-over is not known yet.
  TimeNs next_time() const override;
  std::optional<std::int64_t> next_step() const override { return clients_.next_step(); }
  void on_ended(TimeNs now) override { clients_.on_ended(now); }
  std::size_t num_total() const override { return clients_.num_total(); }

 private:
  struct Sent {
    TimeNs handed_over;
    RequestSpec spec;
  };
  ArrivalSource& clients_;
  HandOver hand_over_;
  std::deque<Sent> sent_;  // not handed over yet
};

}  // namespace metronome
