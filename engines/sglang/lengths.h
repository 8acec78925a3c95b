// SPDX-License-Identifier: Apache-2.0
// The requests that SGLang knows the length of, as add_one_req_ignore_eos looks at them (SGLang
// 0.5.23: managers/schedule_policy.py): can all of them go on while the shorter ones end?
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/engine/request.h"

namespace metronome {

class SglangLengths {
 public:
  // Whether the first candidate of a step is noted, and with it all that run.
  bool is_empty() const { return !lefts_; }

  // The step's first: those that run and all candidates.
  void begin(const std::vector<const Request*>& requests, double new_token_ratio) {
    lefts_.emplace();
    for (const Request* request : requests) {
      const Left left = left_of(*request, new_token_ratio);
      if (left.tokens > 0) lefts_->push_back(left);
    }
    std::stable_sort(lefts_->begin(), lefts_->end(),
                     [](const Left& a, const Left& b) { return a.tokens < b.tokens; });
  }

  // A further candidate goes before the first that has not less left, and before the last if all
  // have less, as SGLang's loop leaves it.
  void add(const Request& request, double new_token_ratio) {
    const Left own = left_of(request, new_token_ratio);
    if (own.tokens <= 0) return;
    auto place = std::find_if(lefts_->begin(), lefts_->end(),
                              [&](const Left& other) { return own.tokens <= other.tokens; });
    if (place == lefts_->end() && !lefts_->empty()) --place;
    lefts_->insert(place, own);
  }

  // Whether `room` tokens beside what they hold are enough for all.
  bool can_go_on(std::int64_t room) const {
    std::int64_t freed = 0;
    for (std::size_t i = 0; i < lefts_->size(); ++i) {
      const Left& left = (*lefts_)[i];
      const auto num_others = static_cast<double>(lefts_->size() - i);
      if (static_cast<double>(room + freed) - left.tokens * num_others <= num_others) return false;
      freed += left.held;
    }
    return true;
  }

 private:
  struct Left {
    double tokens;      // of output
    std::int64_t held;  // tokens that it gives back at its end
  };
  static Left left_of(const Request& request, double new_token_ratio) {
    const double share = request.ignores_eos ? 1.0 : new_token_ratio;
    return {request.limit_tokens() * share - request.num_output_tokens(), request.num_tokens()};
  }

  std::optional<std::vector<Left>> lefts_;
};

}  // namespace metronome
