// SPDX-License-Identifier: Apache-2.0
#include "core/run/request_texts.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

RequestTexts::Text& RequestTexts::operator[](RequestId request) {
  texts_.grow_to(index(request) + 1);
  Text& text = texts_[index(request)];
  if (text.token_ids.empty()) {
    METRONOME_CHECK(!text.has_ended, "a request that is forgotten is computed");
    remembered_.push_back(request);
    input_.prompt(request, text.token_ids);
    text.num_prompt_tokens = text.token_ids.size();
    text.sampling = input_.sampling(request);
  }
  return text;
}

bool RequestTexts::ends_request(RequestId request, TokenId token) {
  const SamplingParams& sampling = (*this)[request].sampling;
  const std::vector<TokenId>& stops = sampling.stop_token_ids;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return true;
  return !sampling.ignore_eos && std::find(eos_token_ids_.begin(), eos_token_ids_.end(),
                                           value(token)) != eos_token_ids_.end();
}

void RequestTexts::forget_ended(const RequestTable& requests) {
  std::erase_if(remembered_, [&](RequestId id) {
    Text& text = texts_[index(id)];
    const bool is_forgotten = text.has_ended;
    if (is_forgotten) text = Text();
    text.has_ended = requests[id].has_ended();
    return is_forgotten;
  });
}

void RequestTexts::forget_group(std::size_t group) {
  std::erase_if(remembered_,
                [group](RequestId id) { return index(id) / RequestTable::kGroupSize == group; });
  if (texts_.has_chunk(group)) texts_.forget_chunk(group);
}

}  // namespace metronome
