// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer_text.h"

namespace metronome {

std::string AnswerText::push(TokenId id, bool is_stop) {
  ++num_tokens_;
  if (is_stop && !includes_stop_) return {};
  scratch_.clear();
  detokenizer_.push(id, scratch_);
  return stops_.push(scratch_, may_stop());
}

std::string AnswerText::finish() {
  scratch_.clear();
  detokenizer_.finish(scratch_);
  return stops_.push(scratch_, may_stop()) + stops_.finish();
}

}  // namespace metronome
