// SPDX-License-Identifier: Apache-2.0
// Measures an answer for the page of /metrics: its times and its tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"
#include "serve/server/serve_clock.h"
#include "serve/server/serve_metrics.h"

namespace metronome {

class AnswerTimes {
 public:
  using WallTime = std::chrono::steady_clock::time_point;

  // `prompt_tokens`: of each choice; `n`: choices per prompt, as the client asked; `came`: when.
  // Both references outlive the object.
  AnswerTimes(ServeMetrics& metrics, const ServeClock& clock,
              const std::vector<std::int32_t>& prompt_tokens, std::int32_t n, WallTime came);

  // Events of a choice, each at most once but for on_token(). `time` is by the engine's clock.
  void on_arrival(std::int32_t choice, TimeNs time);
  void on_admission(std::int32_t choice, TimeNs time);
  void on_token(std::int32_t choice, TimeNs time, WallTime now);
  // `is_last`: all choices have ended.
  void on_end(std::int32_t choice, EndReason reason, WallTime now, bool is_last);

 private:
  struct Choice {
    WallTime last_token{};
    TimeNs arrived = 0, admitted = kNoTime, first_token = kNoTime, latest_token = kNoTime;
    std::int32_t num_tokens = 0;
    std::int32_t prompt_tokens = 0;
  };

  Choice& at(std::int32_t choice) { return choices_[static_cast<std::size_t>(choice)]; }

  ServeMetrics& metrics_;
  const ServeClock& clock_;
  std::vector<Choice> choices_;
  std::int32_t n_;
  WallTime came_;
};

}  // namespace metronome
