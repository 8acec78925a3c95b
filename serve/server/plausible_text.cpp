// SPDX-License-Identifier: Apache-2.0
#include "serve/server/plausible_text.h"

#include <string>
#include <string_view>

#include "core/base/error.h"
#include "models/text/tokenizer.h"

namespace metronome {
namespace {

constexpr std::string_view kSentences[] = {
    "A server that answers many readers at once has to share one device between them.",
    "Whoever waits for the next word notices a pause long before an average does.",
    "So the order in which work is handed out matters as much as how fast it is done.",
    "A long question takes a while to read, and everybody else is kept waiting meanwhile.",
    "Cut into pieces, the same question is read between two words of the others.",
    "Each piece costs a little more than its share, since weights are fetched once a step.",
    "Small pieces keep the rhythm steady, large ones finish the reading sooner.",
    "Somewhere in between lies a size that suits both, and it can be measured.",
    "The memory of what was read before is kept in blocks, so that nothing is computed twice.",
    "When the blocks run out, somebody has to give up a place and come back later.",
    "Two questions that begin alike may share the blocks of their beginning.",
    "A steady pulse, like that of a metronome, is easier to follow than a hurried one.",
    "The first word comes late when the queue is long, however fast the device may be.",
    "That is why a good schedule looks at the clock before it takes more work.",
    "What a step will take can be predicted from what it has to read and to multiply.",
    "Predictions are worth something once somebody has compared them with the facts.",
    "This sentence was not written by a model; it stands in for one that is simulated.",
    "Its words arrive when those of the real one would, and that is all it promises.",
    "Numbers such as 12, 480 or 3.5 appear in answers, and so do names like Ada or Grace.",
    "If the pauses grow, look for the request whose prompt was being read at that time.",
};

}  // namespace

PlausibleText::PlausibleText(const Tokenizer& tokenizer) {
  for (const std::string_view sentence : kSentences) {
    begins_.push_back(tokens_.size());
    const std::string text = (tokens_.empty() ? "" : " ") + std::string(sentence);
    const std::vector<TokenId> ids = tokenizer.encode(text, false);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    METRONOME_CHECK(tokens_.size() > begins_.back(), "every tokenizer has tokens for a sentence");
  }
}

}  // namespace metronome
