// Finds stop strings in a text that arrives in parts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A text ends at the stop string that is complete first. If several are complete at the same byte,
// the first in the list wins. vLLM's check_stop_strings does the same. The split into parts does
// not change the result.
//
// Without `include_stop` the text ends before the stop string. Only a possible beginning of a stop
// string is held back. With it (vLLM's include_stop_str_in_output) the text ends with the stop
// string, and nothing is held back.
class StopMatcher {
 public:
  // Throws std::invalid_argument when a stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops = {}, bool include_stop = false);

  // Returns the text that may be sent now. These are whole characters if texts and stop strings
  // are. Returns nothing after a stop.
  std::string push(std::string_view text);
  // Returns the held text; nothing after a stop.
  std::string finish();

  bool is_stopped() const { return found_.has_value(); }
  // The index of the completed stop string.
  std::optional<std::size_t> found() const { return found_; }
  const std::vector<std::string>& stops() const { return stops_; }

 private:
  // The length of the longest prefix of the stop string at the end of the text, after one more
  // byte.
  std::size_t advance(std::size_t stop, char byte);

  std::vector<std::string> stops_;
  // [stop][n]: the failure function of Knuth, Morris and Pratt. It is the length of the longest
  // proper prefix of the stop string's first n bytes that is also their suffix.
  std::vector<std::vector<std::size_t>> fallbacks_;
  std::vector<std::size_t> matched_;  // per stop string: bytes matched at the end of the text
  bool include_stop_;
  std::string held_;
  std::optional<std::size_t> found_;
};

}  // namespace metronome
