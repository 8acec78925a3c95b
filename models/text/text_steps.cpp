// SPDX-License-Identifier: Apache-2.0
#include "models/text/text_steps.h"

#include <algorithm>
#include <utility>

#include "models/text/utf8.h"

namespace metronome {
namespace {

std::string replaced(std::string_view text, const NormalizerStep& step, SplitBudget& budget) {
  std::vector<SplitSpan> spans;
  step.pattern->split(text, spans, budget);
  std::string result;
  result.reserve(text.size());
  for (const SplitSpan& span : spans) {
    if (span.is_match) {
      result += step.content;
    } else {
      result += text.substr(span.begin, span.end - span.begin);
    }
  }
  return result;
}

// Joins spans according to `behavior`. The spans in `kept` are the pieces.
void join(const std::vector<SplitSpan>& spans, SplitBehavior behavior,
          std::vector<SplitSpan>& kept) {
  kept.clear();
  if (behavior == SplitBehavior::MergedWithNext) {
    bool follows_match = false;  // in the backward scan
    for (std::size_t i = spans.size(); i-- > 0;) {
      if (spans[i].is_match && !follows_match && !kept.empty()) {
        kept.back().begin = spans[i].begin;
      } else {
        kept.push_back(spans[i]);
      }
      follows_match = spans[i].is_match;
    }
    std::reverse(kept.begin(), kept.end());
    return;
  }
  bool follows_match = false;
  for (const SplitSpan& span : spans) {
    bool is_joined = false;
    if (behavior == SplitBehavior::MergedWithPrevious) is_joined = span.is_match && !follows_match;
    if (behavior == SplitBehavior::Contiguous) is_joined = span.is_match == follows_match;
    if (is_joined && !kept.empty()) {
      kept.back().end = span.end;
    } else if (behavior != SplitBehavior::Removed || !span.is_match) {
      kept.push_back(span);
    }
    follows_match = span.is_match;
  }
}

}  // namespace

std::string normalized(std::string_view text, const std::vector<NormalizerStep>& steps,
                       SplitBudget& budget) {
  std::string result(text);
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case NormalizerKind::Nfc: result = to_nfc(result); break;
      case NormalizerKind::Replace: result = replaced(result, step, budget); break;
      case NormalizerKind::Prepend:
        if (!result.empty()) result.insert(0, step.content);
        break;
    }
  }
  return result;
}

void Pieces::split(std::string_view text, bool begins_text,
                   const std::vector<PreTokenizerStep>& steps, SplitBudget& budget) {
  pieces_.clear();
  changed_.clear();
  begins_text_ = begins_text;
  if (!text.empty()) pieces_.push_back(text);
  for (const PreTokenizerStep& step : steps) apply(step, budget);
}

void Pieces::apply(const PreTokenizerStep& step, SplitBudget& budget) {
  if (!step.pattern && !step.adds_prefix_space && !step.metaspace) return;
  next_.clear();
  bool begins_text = false;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    std::string_view piece = pieces_[i];
    const bool is_first = i == 0 && begins_text_;
    if (step.adds_prefix_space && !piece.starts_with(' ')) {
      piece = changed_.emplace_back(" ").append(piece);
    }
    if (step.metaspace) piece = with_metaspace(piece, is_first, *step.metaspace);
    if (step.pattern) {
      split_piece(piece, step, budget);
    } else {
      next_.push_back(piece);
    }
    // A split may have removed the beginning.
    if (is_first) begins_text = !next_.empty() && next_.front().data() == piece.data();
  }
  begins_text_ = begins_text;
  pieces_.swap(next_);
}

std::string_view Pieces::with_metaspace(std::string_view piece, bool is_first,
                                        const MetaspaceStep& step) {
  std::string text;
  for (const char c : piece) c == ' ' ? text += step.replacement : text += c;
  const bool is_due =
      step.scheme == PrependScheme::Always || (step.scheme == PrependScheme::First && is_first);
  if (is_due && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  return changed_.emplace_back(std::move(text));
}

void Pieces::split_piece(std::string_view piece, const PreTokenizerStep& step,
                         SplitBudget& budget) {
  step.pattern->split(piece, spans_, budget);
  if (step.is_inverted) {
    for (SplitSpan& span : spans_) span.is_match = !span.is_match;
  }
  const bool is_kept_whole = step.behavior == SplitBehavior::Isolated;
  if (!is_kept_whole) join(spans_, step.behavior, kept_);
  for (const SplitSpan& span : is_kept_whole ? spans_ : kept_) {
    if (span.begin < span.end) next_.push_back(piece.substr(span.begin, span.end - span.begin));
  }
}

}  // namespace metronome
