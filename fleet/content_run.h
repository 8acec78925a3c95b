// SPDX-License-Identifier: Apache-2.0
// Token contents as routers compare them: runs of tokens that come from one source.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace metronome {

// Tokens [first, first + count) of a source. Equal tokens have the same source and position there,
// so two prompts are equal up to where their runs differ. A single token may be a source by itself.
struct ContentRun {
  std::uint64_t source = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;  // >= 1
};

// A place in a list of runs.
class ContentCursor {
 public:
  explicit ContentCursor(std::span<const ContentRun> runs) : runs_(runs) {}

  bool at_end() const { return runs_.empty(); }
  // The rest of the run it is in.
  ContentRun rest() const {
    const ContentRun& run = runs_.front();
    return {run.source, run.first + used_, run.count - used_};
  }
  // By at most what is left of the run.
  void advance(std::int64_t count) {
    used_ += count;
    if (used_ < runs_.front().count) return;
    runs_ = runs_.subspan(1);
    used_ = 0;
  }

 private:
  std::span<const ContentRun> runs_;
  std::int64_t used_ = 0;  // tokens of the first run
};

// Advances both by the tokens in which they agree, and returns how many those are.
inline std::int64_t advance_common(ContentCursor& a, ContentCursor& b) {
  std::int64_t common = 0;
  while (!a.at_end() && !b.at_end()) {
    const ContentRun left = a.rest();
    const ContentRun right = b.rest();
    if (left.source != right.source || left.first != right.first) break;
    const std::int64_t count = std::min(left.count, right.count);
    a.advance(count);
    b.advance(count);
    common += count;
  }
  return common;
}

inline std::int64_t count_tokens(std::span<const ContentRun> runs) {
  std::int64_t count = 0;
  for (const ContentRun& run : runs) count += run.count;
  return count;
}

}  // namespace metronome
