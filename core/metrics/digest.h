// SPDX-License-Identifier: Apache-2.0
// A fingerprint of a run: a 64-bit number over every event and every step with its chunks, in
// order. Two runs with the same decisions at the same times have the same digest, on every compiler
// and machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/event.h"

namespace metronome {

constexpr std::size_t kHexDigits = 16;
std::string hex_digits(std::uint64_t number);  // kHexDigits lower-case digits

class EventDigest final : public EventSink {
 public:
  EventDigest();

  EventSink* of_replica(const ReplicaScope& scope) override;
  bool takes_runs() const override { return true; }
  void on_fleet_event(const FleetEvent& event) override;
  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;
  void on_repeats(const StepRecord& last, std::span<const StepTimes> times) override;

  std::uint64_t value() const;  // of everything so far
  std::string hex() const { return hex_digits(value()); }

 private:
  // The members of a run are `num_steps` steps further than they say.
  void absorb_step(const StepRecord& step, std::int32_t num_steps,
                   std::span<const ScheduledChunk> chunks);

  // Four independent chains keep the multiplier busy; chunk i of a step goes to chain i % 4.
  std::array<std::uint64_t, 4> lanes_;
  std::uint64_t num_words_ = 0;
  // Of a run of several engines, in the order of their numbers.
  std::vector<std::unique_ptr<EventDigest>> replicas_;
  std::vector<ReplicaScope> scopes_;
};

}  // namespace metronome
