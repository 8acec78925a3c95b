#include "serve/server/answer_text.h"

namespace metronome {

std::string AnswerText::push(TokenId id) {
  ++num_tokens_;
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
