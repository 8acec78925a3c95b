// SPDX-License-Identifier: Apache-2.0
// Stop strings against a search of the whole text after each byte.
#include <algorithm>
#include <stdexcept>

#include "models/text/stop_matcher.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

struct Stopped {
  std::string text;
  std::optional<std::size_t> found;
};

// The text cut as vLLM's check_stop_strings cuts it when characters come one at a time.
Stopped stopped_plainly(const std::string& text, const std::vector<std::string>& stops,
                        bool include_stop) {
  for (std::size_t size = 1; size <= text.size(); ++size) {
    const std::string_view seen = std::string_view(text).substr(0, size);
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (!seen.ends_with(stops[i])) continue;
      return {std::string(seen.substr(0, include_stop ? size : size - stops[i].size())), i};
    }
  }
  return {text, std::nullopt};
}

// How much of the end of a text must be held back.
std::size_t num_held(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t num = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) num = std::max(num, n);
    }
  }
  return num;
}

StopMatcher matcher_of(std::vector<std::string> stops, bool include_stop = false) {
  return StopMatcher(std::make_shared<const StopStrings>(std::move(stops)), include_stop);
}

std::string random_word(Rng& rng, std::int32_t min, std::int32_t max) {
  std::string word;
  for (std::int32_t n = draw(rng, min, max); n > 0; --n) word += chance(rng, 0.6) ? 'a' : 'b';
  if (chance(rng, 0.1)) word += 'c';
  return word;
}

}  // namespace

TEST_CASE("a text ends at its first stop string, in whatever parts it comes", "[stop_matcher]") {
  constexpr std::uint64_t kSeed = 31;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "stops");
  int num_stopped = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> stops;
    for (std::int32_t n = draw(rng, 0, 3); n > 0; --n) stops.push_back(random_word(rng, 1, 6));
    const std::string text = random_word(rng, 0, 30);
    const bool include_stop = chance(rng, 0.4);
    CAPTURE(stops, text, include_stop);
    const Stopped expected = stopped_plainly(text, stops, include_stop);
    StopMatcher matcher = matcher_of(stops, include_stop);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const auto size = static_cast<std::size_t>(draw(rng, 0, 4));
      const std::string part = text.substr(at, size);
      at += part.size();
      out += matcher.push(part);
      if (matcher.is_stopped()) {
        // At the first part in which a stop string ends, and nothing goes out any more.
        REQUIRE(expected.found.has_value());
        REQUIRE(out == expected.text);
      } else {
        const std::string so_far = text.substr(0, at);
        const std::size_t held = include_stop ? 0 : num_held(so_far, stops);
        REQUIRE(out == so_far.substr(0, at - held));
      }
    }
    out += matcher.finish();
    REQUIRE(out == expected.text);
    REQUIRE(matcher.found() == expected.found);
    num_stopped += matcher.is_stopped();
  }
  CHECK(num_stopped > 1000);
}

TEST_CASE("stop strings across token borders", "[stop_matcher]") {
  StopMatcher matcher = matcher_of({"\n\n", "END"});
  CHECK(matcher.push("one\n") == "one");
  CHECK(matcher.push("two E") == "\ntwo ");
  CHECK(matcher.push("N") == "");
  CHECK(matcher.push("E") == "EN");
  CHECK(matcher.push("ND of it") == "");
  CHECK(matcher.found() == 1u);
}

TEST_CASE("a stop string that ends too early is text", "[stop_matcher]") {
  StopMatcher matcher = matcher_of({"ab", "bc"});
  CHECK(matcher.push("xab", false) == "x");  // "bc" may follow
  CHECK(matcher.push("a", false) == "ab");
  CHECK(matcher.push("ba") == "");
  CHECK(matcher.found() == 0u);
  StopMatcher overlapping = matcher_of({"ab", "bc"}, true);
  CHECK(overlapping.push("xab", false) == "xab");
  CHECK(overlapping.push("c") == "c");
  CHECK(overlapping.found() == 1u);
}

TEST_CASE("of stop strings that end together the first in the list counts", "[stop_matcher]") {
  StopMatcher shorter_first = matcher_of({"b", "ab"});
  CHECK(shorter_first.push("xa") == "x");
  CHECK(shorter_first.push("b") == "a");
  CHECK(shorter_first.found() == 0u);
  StopMatcher longer_first = matcher_of({"ab", "b"});
  CHECK(longer_first.push("xab") == "x");
  CHECK(longer_first.found() == 0u);
  StopMatcher complete_first = matcher_of({"abcd", "bc"}, true);
  CHECK(complete_first.push("xabcd") == "xabc");
  CHECK(complete_first.found() == 1u);
  CHECK(complete_first.push("more") == "");
  CHECK(complete_first.finish() == "");
}

TEST_CASE("no stop string, no delay; an empty one is refused", "[stop_matcher]") {
  StopMatcher none(nullptr);
  CHECK(none.push("text") == "text");
  CHECK(none.finish() == "");
  CHECK_FALSE(none.is_stopped());
  CHECK_FALSE(error_of<std::invalid_argument>([] { StopStrings({"a", ""}); }).empty());
}

}  // namespace TEST_FILE
