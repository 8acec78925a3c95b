// SPDX-License-Identifier: Apache-2.0
// SGLang's new-token ratio: the share of a request's output that is reserved for it. It decays with
// each decode step, and a retraction estimates it anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/engine/request.h"
#include "engines/sglang/settings.h"

namespace metronome {

class SglangNewTokenRatio {
 public:
  explicit SglangNewTokenRatio(const SglangConfig& settings)
      : initial_(std::min(settings.init_new_token_ratio * settings.schedule_conservativeness, 1.0)),
        least_(std::min(initial_ * settings.min_new_token_ratio_factor, 1.0)),
        decay_((initial_ - least_) / settings.new_token_ratio_decay_steps),
        retract_decode_steps_(settings.retract_decode_steps),
        value_(initial_) {}

  double value() const { return value_; }
  void reset() { value_ = initial_; }
  void decay() { value_ = std::max(value_ - decay_, least_); }

  // From the requests that a retraction left.
  void estimate(const std::vector<Request*>& requests) {
    std::int64_t num_decoded = 0;
    std::int64_t max_new = 0;
    for (const Request* request : requests) {
      num_decoded += request->num_output_tokens() + retract_decode_steps_;
      max_new += request->limit_tokens();
    }
    value_ = std::min(1.0, static_cast<double>(num_decoded) / static_cast<double>(max_new + 1));
  }

 private:
  double initial_;
  double least_;
  double decay_;
  std::int32_t retract_decode_steps_;
  double value_;
};

}  // namespace metronome
