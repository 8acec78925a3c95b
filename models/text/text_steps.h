// SPDX-License-Identifier: Apache-2.0
// The steps of a tokenizer.json before words are merged: normalizers and pre-tokenizers.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/split_pattern.h"

namespace metronome {

enum class NormalizerKind { Nfc, Replace, Prepend };

struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::Nfc;
  std::optional<SplitPattern> pattern;  // Replace
  std::string content;                  // Replace, Prepend
};

// The text after all steps. Prepend leaves an empty text empty.
std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps,
                       SplitBudget& budget);

// The fate of a Split's matches (the names of `tokenizers`).
enum class SplitBehavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };

// Which pieces Metaspace begins with its character.
enum class PrependScheme { Never, First, Always };

// Replaces the spaces of each piece by a character. A piece that does not begin with the character
// gets one in front; First: only the piece at the very beginning of a text.
struct MetaspaceStep {
  std::string replacement;
  PrependScheme scheme = PrependScheme::Always;
};

struct PreTokenizerStep {
  std::optional<MetaspaceStep> metaspace;  // comes before the split
  std::optional<SplitPattern> pattern;     // empty: no split
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool is_inverted = false;        // the text between matches counts as match
  bool adds_prefix_space = false;  // ByteLevel: before each piece that does not begin with a space
};

// The pieces of a text, none of them empty.
class Pieces {
 public:
  // Replaces the pieces by those of `text`, which must outlive them. `begins_text`: nothing of the
  // whole text stands before it. Throws as SplitPattern::split().
  void split(std::string_view text, bool begins_text, const std::vector<PreTokenizerStep>& steps,
             SplitBudget& budget);
  const std::vector<std::string_view>& all() const { return pieces_; }

 private:
  void apply(const PreTokenizerStep& step, SplitBudget& budget);
  void split_piece(std::string_view piece, const PreTokenizerStep& step, SplitBudget& budget);
  std::string_view with_metaspace(std::string_view piece, bool is_first, const MetaspaceStep& step);

  std::vector<std::string_view> pieces_, next_;
  std::vector<SplitSpan> spans_, kept_;
  std::deque<std::string> changed_;  // pieces that are no part of the text
  bool begins_text_ = false;         // the first piece does
};

}  // namespace metronome
