// SPDX-License-Identifier: Apache-2.0
// Counts the steps in which a whole prompt waits because the decodes leave it too few tokens.
//
// An engine that takes decodes first and computes prompts whole admits a prompt as long as its
// budget only when nobody decodes: it then serves one request at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metronome {

class HeldPrompts {
 public:
  // Called for each plan with the index of its step. Steps in between were like the last one.
  void begin_plan(std::int64_t step_index);

  // This plan computes no prompt, and the first one that waits has so many tokens.
  void note(std::int32_t num_prompt_tokens);

  // After a run, whose last plan was empty: a sentence for users if this happened in at least one
  // step of a hundred; otherwise empty. It names the budget's key, the budget that has room for the
  // longest prompt beside `max_num_seqs` requests, and the key that lets prompts be computed in
  // chunks.
  std::string remark(std::string_view budget_key, std::string_view chunks_key,
                     std::int64_t max_num_seqs) const;

 private:
  std::int64_t last_step_ = 0;
  std::int64_t num_held_ = 0;  // steps before that one
  std::int32_t longest_ = 0;
  bool is_held_ = false;  // in the last plan
};

}  // namespace metronome
