// SPDX-License-Identifier: Apache-2.0
// The text of one answer, as its tokens come.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/types.h"
#include "models/text/detokenizer.h"
#include "models/text/stop_matcher.h"
#include "serve/server/api_request.h"

namespace metronome {

class AnswerText {
 public:
  // `tokenizer` outlives the text.
  AnswerText(const Tokenizer& tokenizer, const ApiRequest& request)
      : detokenizer_(tokenizer, request.skips_special_tokens),
        stop_strings_(request.stops),
        stops_(request.stops, request.includes_stop),
        includes_stop_(request.includes_stop),
        min_tokens_(request.min_tokens) {}

  // Adds a token. Returns the text that may be shown now; nothing after a stop string. `is_stop`:
  // an end-of-text or stop token, which is no part of the text unless the client asks for it
  // (include_stop_str_in_output, as in vLLM).
  std::string push(TokenId id, bool is_stop);
  // The answer has ended. Returns the text that was held back.
  std::string finish();

  // Whether a stop string is complete: nothing follows it.
  bool is_stopped() const { return stops_.is_stopped(); }
  // The complete stop string.
  std::optional<std::string> stop() const {
    if (!stops_.is_stopped()) return std::nullopt;
    return stop_strings_->all()[*stops_.found()];
  }
  std::int32_t num_tokens() const { return num_tokens_; }

 private:
  // As in vLLM, no stop string is complete within the first min_tokens.
  bool may_stop() const { return num_tokens_ > min_tokens_; }

  Detokenizer detokenizer_;
  std::shared_ptr<const StopStrings> stop_strings_;
  StopMatcher stops_;
  bool includes_stop_;
  std::int32_t min_tokens_;
  std::int32_t num_tokens_ = 0;
  std::string scratch_;
};

}  // namespace metronome
