// SPDX-License-Identifier: Apache-2.0
// The tree of sent prompts against the prompts themselves: random texts, cut into runs at random.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fleet/prefix_tree.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Each letter is a source of its own. Repeated numbers count up, so that "012" may be one run.
std::vector<ContentRun> runs_of(const std::string& text, Rng* cuts = nullptr) {
  std::vector<ContentRun> runs;
  for (const char letter : text) {
    const bool is_number = letter >= '0' && letter <= '9';
    const ContentRun run = is_number ? ContentRun{1, letter - '0', 1}
                                     : ContentRun{static_cast<std::uint64_t>(letter), 0, 1};
    const bool goes_on = !runs.empty() && runs.back().source == run.source &&
                         runs.back().first + runs.back().count == run.first;
    if (goes_on && (cuts == nullptr || chance(*cuts, 0.7))) {
      ++runs.back().count;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

std::int64_t common(const std::string& a, const std::string& b) {
  return std::mismatch(a.begin(),
                       a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                       b.begin())
             .first -
         a.begin();
}

std::string random_text(Rng& rng) {
  static const std::string kParts[] = {"0123", "01", "ab", "a", "b", "45"};
  std::string text;
  for (int i = draw(rng, 0, 6); i > 0; --i) text += kParts[draw(rng, 0, 5)];
  return text;
}

}  // namespace

TEST_CASE("the tree finds the longest prefix sent to each replica", "[fleet]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "prefix tree");
    PrefixTree tree(4);
    std::vector<std::vector<std::string>> sent(4);
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(rng);
      const std::vector<ContentRun> prompt = runs_of(text, &rng);
      std::vector<std::int64_t> expected(4, 0);
      for (std::size_t replica = 0; replica < 4; ++replica) {
        for (const std::string& other : sent[replica]) {
          expected[replica] = std::max(expected[replica], common(text, other));
        }
      }
      std::vector<std::int64_t> found(4);
      tree.match_each(prompt, found);
      REQUIRE(found == expected);
      REQUIRE(tree.match(prompt).num_tokens == *std::max_element(expected.begin(), expected.end()));
      const std::int32_t replica = draw(rng, 0, 3);
      tree.insert(prompt, replica);
      sent[static_cast<std::size_t>(replica)].push_back(text);
      if (chance(rng, 0.05)) {
        tree.remove(replica);
        sent[static_cast<std::size_t>(replica)].clear();
      }
      // The tokens that a replica holds are the different prefixes of what was sent to it.
      for (ReplicaId each = 0; each < 4; ++each) {
        std::set<std::string> prefixes;
        for (const std::string& other : sent[static_cast<std::size_t>(each)]) {
          for (std::size_t n = 1; n <= other.size(); ++n) prefixes.insert(other.substr(0, n));
        }
        REQUIRE(tree.num_tokens(each) == static_cast<std::int64_t>(prefixes.size()));
      }
    }
  }
}

TEST_CASE("a node stays with the replica that created it", "[fleet]") {
  PrefixTree tree(3);
  tree.insert(runs_of("abcdef"), 1);
  tree.insert(runs_of("abcxyz"), 2);  // splits it: "abc" is 1's
  CHECK(tree.match(runs_of("abcq")).owner == 1);
  CHECK(tree.match(runs_of("abcx")).owner == 2);
  CHECK(tree.match(runs_of("abcd")).owner == 1);
  tree.insert(runs_of("abcdef"), 0);
  CHECK(tree.match(runs_of("abcdef")).owner == 1);
  tree.remove(1);
  CHECK(tree.match(runs_of("abcdef")).owner == 0);
  CHECK(tree.match(runs_of("nothing")).owner == -1);
}

TEST_CASE("a cut takes the least recently used leaves of a replica that holds too much",
          "[fleet]") {
  PrefixTree tree(2);
  tree.insert(runs_of("aaaa"), 0);
  tree.insert(runs_of("bbbb"), 0);
  tree.insert(runs_of("cccc"), 0);
  tree.insert(runs_of("cccc"), 1);
  tree.insert(runs_of("aaaa"), 0);  // used again
  tree.evict(8);
  std::vector<std::int64_t> found(2);
  tree.match_each(runs_of("bbbb"), found);
  CHECK(found == std::vector<std::int64_t>{0, 0});
  tree.match_each(runs_of("aaaa"), found);
  CHECK(found == std::vector<std::int64_t>{4, 0});
  tree.match_each(runs_of("cccc"), found);
  CHECK(found == std::vector<std::int64_t>{4, 4});
  CHECK(tree.num_tokens(0) == 8);
  tree.evict(3);
  CHECK(tree.num_tokens(0) == 0);
  CHECK(tree.num_tokens(1) == 0);
}

}  // namespace metronome::testing::TEST_FILE
