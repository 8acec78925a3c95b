// Stop strings in a text that comes in parts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A text ends at the stop string that is complete first; of several that end at the same place, at
// the one that comes first in the list. So does vLLM's check_stop_strings, and the parts in which
// the text comes change nothing.
//
// Without `include_stop` the text ends before the stop string, and what may be its beginning is
// held back, no more. With it (vLLM's include_stop_str_in_output) the stop string is the end of the
// text, and nothing need be held back.
class StopMatcher {
 public:
  // Throws std::invalid_argument when one of them is empty.
  explicit StopMatcher(std::vector<std::string> stops = {}, bool include_stop = false);

  // What of the text may go out now. Whole characters, when texts and stop strings are. Once
  // stopped, nothing.
  std::string push(std::string_view text);
  // What was held back; nothing once stopped.
  std::string finish();

  bool is_stopped() const { return found_.has_value(); }
  // The index of the stop string that was completed.
  std::optional<std::size_t> found() const { return found_; }
  const std::vector<std::string>& stops() const { return stops_; }

 private:
  // The longest beginning of a stop string that the text ends with, after one more byte.
  std::size_t advance(std::size_t stop, char byte);

  std::vector<std::string> stops_;
  // [stop][n]: how long the longest beginning of the stop string is that its first n bytes end
  // with, but for those n (the failure function of Knuth, Morris and Pratt).
  std::vector<std::vector<std::size_t>> fallbacks_;
  std::vector<std::size_t> matched_;  // bytes of each stop string that the text ends with
  bool include_stop_;
  std::string held_;
  std::optional<std::size_t> found_;
};

}  // namespace metronome
