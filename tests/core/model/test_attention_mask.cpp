// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/attention_mask.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// One line a query position, one character a KV position: '#' where it attends.
std::vector<std::string> mask(const std::vector<std::int32_t>& position_ids, std::int32_t kv_len,
                              std::int32_t window = kNoWindow) {
  std::vector<std::string> rows;
  for (const std::int32_t q_pos : position_ids) {
    std::string row;
    for (std::int32_t kv_pos = 0; kv_pos < kv_len; ++kv_pos) {
      row += attends(q_pos, kv_pos, window) ? '#' : '.';
    }
    rows.push_back(row);
  }
  return rows;
}

using Rows = std::vector<std::string>;

}  // namespace

TEST_CASE("a prompt in one chunk has the square causal mask", "[model][mask]") {
  CHECK(mask({0, 1, 2, 3}, 4) == Rows{"#...",  //
                                      "##..",  //
                                      "###.",  //
                                      "####"});
}

TEST_CASE("a later chunk sees all that is cached and itself causally", "[model][mask]") {
  CHECK(mask({3, 4, 5}, 6) == Rows{"####..",  //
                                   "#####.",  //
                                   "######"});
  CHECK(mask({5}, 6) == Rows{"######"});  // a decode
}

TEST_CASE("chunks with different starts have their own causal boundaries", "[model][mask]") {
  // The rows of both chunks cover the longest context of the batch.
  CHECK(mask({0, 1, 2}, 7) == Rows{"#......",  //
                                   "##.....",  //
                                   "###...."});
  CHECK(mask({4, 5, 6}, 7) == Rows{"#####..",  //
                                   "######.",  //
                                   "#######"});
}

TEST_CASE("padding at position 0 attends to the first token, so no row is empty", "[model][mask]") {
  CHECK(mask({2, 3, 0, 0}, 4) == Rows{"###.",  //
                                      "####",  //
                                      "#...",  //
                                      "#..."});
  CHECK(mask({2, 3, 0, 0}, 4, 2) == Rows{".##.",  //
                                         "..##",  //
                                         "#...",  //
                                         "#..."});
}

TEST_CASE("a window counts the query's own token", "[model][mask]") {
  CHECK(mask({0, 1, 2, 3, 4}, 5, 3) == Rows{"#....",  //
                                            "##...",  //
                                            "###..",  //
                                            ".###.",  //
                                            "..###"});
  CHECK(mask({0, 1, 2}, 3, 1) == Rows{"#..",  //
                                      ".#.",  //
                                      "..#"});
}

TEST_CASE("a window reaches back into earlier chunks", "[model][mask]") {
  CHECK(mask({4, 5}, 6, 3) == Rows{"..###.",  //
                                   "...###"});
  // As wide as the context it hides nothing, one less hides the first token from the last.
  CHECK(mask({4, 5}, 6, 6) == mask({4, 5}, 6));
  CHECK(mask({4, 5}, 6, 5) == Rows{"#####.",  //
                                   ".#####"});
}

TEST_CASE("first_attended is where attends begins", "[model][mask]") {
  std::vector<std::int32_t> windows{kNoWindow, kNoWindow - 1};
  for (std::int32_t window = 1; window <= 20; ++window) windows.push_back(window);
  for (const std::int32_t window : windows) {
    for (std::int32_t q_pos = 0; q_pos <= 18; ++q_pos) {
      const std::int32_t first = first_attended(q_pos, window);
      for (std::int32_t kv_pos = 0; kv_pos <= 20; ++kv_pos) {
        INFO("window " << window << " query " << q_pos << " kv " << kv_pos);
        CHECK(attends(q_pos, kv_pos, window) == (kv_pos >= first && kv_pos <= q_pos));
      }
    }
  }
}

TEST_CASE("the largest positions do not overflow", "[model][mask]") {
  constexpr std::int32_t kLast = INT32_MAX - 1;
  static_assert(attends(kLast, 0, kNoWindow));
  static_assert(attends(kLast, kLast, 1));
  static_assert(!attends(kLast, kLast - 1, 1));
  static_assert(!attends(0, kLast, kNoWindow));
  static_assert(first_attended(kLast, kNoWindow) == 0);
  static_assert(first_attended(0, kNoWindow) == 0);
  static_assert(first_attended(kLast, 4) == kLast - 3);
  SUCCEED("checked by the compiler");
}

}  // namespace TEST_FILE
