// SPDX-License-Identifier: Apache-2.0
// Expected texts: one character more or less is a difference, and each file has a test.
#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/expected.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome::testing;

TEST_CASE("a difference from an expected text is shown with its line", "[expected]") {
  const ScratchFolder folder;
  const std::string path = folder.write("text.txt", "one\ntwo\n");
  CHECK(difference_from(path, "one\ntwo\n") == "");
  CHECK(difference_from(path, "one\ntwO\n") ==
        "differs in line 2\n  expected: two\n  actual:   twO");
  CHECK(difference_from(path, "one\n") == "differs in line 2\n  expected: two\n  actual:   (end)");
  CHECK(difference_from(path, "one\ntwo") == "differs in the last line break");
  CHECK(difference_from(folder.path() + "/none.txt", "") == "is missing");
}

TEST_CASE("a name takes the place of what differs between runs", "[expected]") {
  CHECK(with_name_for("/tmp/x", "FOLDER", "/tmp/x/a and /tmp/x") == "FOLDER/a and FOLDER");
}

// A file that no test names would never be compared.
TEST_CASE("every expected text is named by a test", "[expected]") {
  const fs::path tests = fs::path(source_dir()) / "tests";
  std::string sources;
  for (const auto& entry : fs::recursive_directory_iterator(tests)) {
    if (entry.path().extension() != ".cpp") continue;
    sources += read_text_file(entry.path());
  }
  for (const auto& entry : fs::recursive_directory_iterator(tests / "expected")) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(tests / "expected").generic_string();
    INFO(name);
    const bool is_named = sources.find("\"" + name + "\"") != std::string::npos;
    CHECK(is_named);
  }
}

}  // namespace TEST_FILE
