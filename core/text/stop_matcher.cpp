#include "core/text/stop_matcher.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace metronome {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), matched_(stops_.size()), include_stop_(include_stop) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw std::invalid_argument("a stop string is empty");
    std::vector<std::size_t>& fallback = fallbacks_.emplace_back(stop.size() + 1);
    for (std::size_t n = 2; n <= stop.size(); ++n) {
      std::size_t length = fallback[n - 1];
      while (length > 0 && stop[length] != stop[n - 1]) length = fallback[length];
      fallback[n] = stop[length] == stop[n - 1] ? length + 1 : 0;
    }
  }
}

std::size_t StopMatcher::advance(std::size_t stop, char byte) {
  const std::string& text = stops_[stop];
  std::size_t& length = matched_[stop];
  while (length > 0 && text[length] != byte) length = fallbacks_[stop][length];
  if (text[length] == byte) ++length;
  return length;
}

std::string StopMatcher::push(std::string_view text) {
  if (is_stopped()) return {};
  for (const char byte : text) {
    held_ += byte;
    for (std::size_t stop = 0; stop < stops_.size(); ++stop) {
      if (advance(stop, byte) == stops_[stop].size() && !found_) found_ = stop;
    }
    if (found_) {
      if (!include_stop_) held_.resize(held_.size() - stops_[*found_].size());
      return std::exchange(held_, {});
    }
  }
  std::size_t num_kept = 0;
  if (!include_stop_ && !matched_.empty()) {
    num_kept = *std::max_element(matched_.begin(), matched_.end());
  }
  std::string out = held_.substr(0, held_.size() - num_kept);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace metronome
