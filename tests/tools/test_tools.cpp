// SPDX-License-Identifier: Apache-2.0
// The pieces of the command line that need no running program.
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "system/progress.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

TEST_CASE("progress is a bar, a share and a count", "[tools]") {
  CHECK(progress_text("run", 0, 10) == "run [..............................]   0% 0/10 requests");
  CHECK(progress_text("run", 5, 10) == "run [###############...............]  50% 5/10 requests");
  CHECK(progress_text("run", 10, 10) == "run [##############################] 100% 10/10 requests");
  CHECK(progress_text("run", 0, 0) == "run [..............................]   0% 0/0 requests");
}

TEST_CASE("the remaining time follows from the speed so far", "[tools]") {
  CHECK(remaining_text(1, 5, 10).empty());    // too early to say
  CHECK(remaining_text(60, 0, 10).empty());   // nothing is done
  CHECK(remaining_text(60, 10, 10).empty());  // nothing is left
  CHECK(remaining_text(10, 5, 10) == ", 10 s left");
  CHECK(remaining_text(9, 8, 11) == ", 4 s left");
  CHECK(remaining_text(60, 1, 2) == ", 60 s left");
  CHECK(remaining_text(60, 1, 3) == ", 2 min left");
  CHECK(remaining_text(60, 2, 8) == ", 3 min left");
}

TEST_CASE("rows are aligned and end without spaces", "[tools]") {
  CHECK(aligned_rows({{"a", "bb", "c"}, {"dddd", "e", ""}, {}}) == "a     bb  c\ndddd  e\n\n");
}

TEST_CASE("a line of text is one line", "[tools]") {
  CHECK(one_line("two\nlines\tand \x1b[31mred") == "two lines and \\x1b[31mred");
}

TEST_CASE("text is broken at spaces", "[tools]") {
  CHECK(wrapped("", 4) == "\n");
  CHECK(wrapped("one  two", 4) == "one two\n");
  const std::string word(40, 'x');
  CHECK(wrapped(word + " " + word + " " + word, 10) ==
        word + " " + word + "\n" + std::string(10, ' ') + word + "\n");
  const std::string wide(120, 'y');
  CHECK(wrapped("a " + wide, 2) == "a\n  " + wide + "\n");
  CHECK(wrapped("aa bb cc", 4, 9) == "aa bb\n    cc\n");
}

}  // namespace TEST_FILE
