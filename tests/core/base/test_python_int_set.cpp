// SPDX-License-Identifier: Apache-2.0
// The order of sets beside that of CPython.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/base/python_int_set.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::TEST_FILE {
namespace {

std::string text_of(const PythonIntSet& set) {
  std::string text;
  for (const std::int32_t value : set.list()) text += std::to_string(value) + " ";
  return text;
}

// A walk of additions and removals by a generator that Python repeats in three lines:
//   x = x * 1103515245 + 12345 & 0x7fffffff; v = (x >> 8) % bound
//   s.remove(v) if v in s else s.add(v)
std::string after_walk(std::int32_t bound, int num_steps) {
  PythonIntSet set;
  std::set<std::int32_t> plain;
  std::uint32_t x = 1;
  for (int i = 0; i < num_steps; ++i) {
    x = (x * 1103515245u + 12345u) & 0x7fffffffu;
    const auto value = static_cast<std::int32_t>((x >> 8) % static_cast<std::uint32_t>(bound));
    if (plain.erase(value) > 0) {
      set.remove(value);
    } else {
      plain.insert(value);
      set.add(value);
    }
  }
  return text_of(set);
}

TEST_CASE("a set of integers has CPython's order", "[core]") {
  PythonIntSet set;
  for (const std::int32_t value : {7, 8}) set.add(value);
  CHECK(text_of(set) == "8 7 ");
  set.add(8);
  CHECK(set.size() == 2);
  set.remove(8);
  set.remove(7);
  CHECK(set.empty());
  // Printed by CPython 3.11, list(s) after the walk.
  CHECK(after_walk(12, 7) == "11 3 4 ");
  CHECK(after_walk(20, 30) == "0 1 3 4 6 7 9 10 15 16 17 18 ");
  CHECK(after_walk(40, 25) == "0 3 5 7 9 14 16 17 18 21 22 24 26 28 34 35 38 ");
  CHECK(after_walk(40, 61) == "0 2 3 5 6 11 14 17 20 21 23 25 22 26 28 29 32 34 35 38 39 ");
  CHECK(after_walk(100, 40) ==
        "1 5 9 17 24 25 28 29 30 36 42 43 46 54 56 58 60 62 65 67 69 76 86 94 95 96 ");
  CHECK(after_walk(300, 60) ==
        "0 129 1 130 260 5 3 138 269 14 17 276 149 24 25 28 156 286 287 165 294 46 182 58"
        " 186 189 195 67 70 71 72 80 209 96 225 100 236 242 243 114 118 119 246 124 125 2"
        "54 ");
}

TEST_CASE("a set of integers has what was added and not removed", "[core]") {
  Rng rng(1, "sets");
  for (int round = 0; round < 300; ++round) {
    PythonIntSet set;
    std::set<std::int32_t> plain;
    const auto bound = testing::draw(rng, 1, 400);
    for (int i = 0; i < 200; ++i) {
      const auto value = testing::draw(rng, 0, bound);
      if (plain.erase(value) > 0) {
        set.remove(value);
      } else {
        plain.insert(value);
        set.add(value);
      }
      REQUIRE(set.size() == plain.size());
    }
    const std::vector<std::int32_t> listed = set.list();
    CHECK(std::set(listed.begin(), listed.end()) == plain);
    CHECK(listed.size() == plain.size());
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
