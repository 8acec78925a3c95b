// SPDX-License-Identifier: Apache-2.0
#include "core/run/drafter.h"

namespace metronome {

void NgramDrafter::propose(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
                           RequestTexts& texts, const PollFn& poll) {
  for (std::size_t i = 0; i < num_wanted.size(); ++i) {
    if (num_wanted[i] == 0) continue;
    if (poll) poll();
    RequestTexts::Text& text = texts[batch.requests[i]];
    const std::span<const TokenId> found = lookup_.find(text.token_ids, num_wanted[i]);
    text.drafts.assign(found.begin(), found.end());
  }
}

}  // namespace metronome
