// SPDX-License-Identifier: Apache-2.0
// A file that grows, is rotated, is truncated or goes.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "system/followed_file.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

// All that a file gives.
struct Reader {
  explicit Reader(const std::string& path) : file(path, "--log") {}

  FileChange read() {
    FileChange change = FileChange::None;
    do {
      change = file.read([this](std::string_view bytes) { text += bytes; });
    } while (file.has_more());
    return change;
  }
  std::string take() { return std::exchange(text, {}); }

  FollowedFile file;
  std::string text;
};

TEST_CASE("a file is read as it grows, with lines in parts", "[system][follow]") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("server.log", "a\nb");
  Reader reader(path);
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take() == "a\nb");
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take().empty());
  append(path, "c\nd\n");
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take() == "c\nd\n");
}

TEST_CASE("after a rotation the old file is read to its end, then the new one", "[follow]") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("server.log", "a\n");
  Reader reader(path);
  reader.read();
  append(path, "b\ncut");
  fs::rename(path, path + ".1");
  CHECK(reader.read() == FileChange::Gone);
  append(path + ".1", " late");
  CHECK(reader.read() == FileChange::None);  // said once
  CHECK(reader.take() == "a\nb\ncut late");
  append(path + ".1", "!");
  append(path, "new\n");
  CHECK(reader.read() == FileChange::Replaced);
  CHECK(reader.take() == "!\nnew\n");  // the cut line has an end
  append(path, "more\n");
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take() == "more\n");
}

TEST_CASE("a file that became shorter is read from its start", "[follow]") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("server.log", "first\nsecond, cut");
  Reader reader(path);
  reader.read();
  reader.take();
  fs::resize_file(path, 0);
  append(path, "x\n");
  CHECK(reader.read() == FileChange::Truncated);
  CHECK(reader.take() == "\nx\n");
}

TEST_CASE("of a long file the start and the end are read", "[follow]") {
  const ScratchFolder scratch;
  std::string all;
  for (int i = 0; i < 1000; ++i) all += std::to_string(10'000 + i) + "\n";  // six bytes each
  const std::string path = scratch.write("server.log", all);
  Reader reader(path);
  reader.file.skip_middle(15, 12);
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take() == "10000\n10001\n100\n10998\n10999\n");
  append(path, "more\n");
  CHECK(reader.read() == FileChange::None);
  CHECK(reader.take() == "more\n");
  Reader whole(path);
  whole.file.skip_middle(6'000, 12);
  whole.read();
  CHECK(whole.take() == all + "more\n");
}

TEST_CASE("a pipe ends, and a missing file is an error", "[follow]") {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  Reader reader(path);
  CHECK(reader.read() == FileChange::None);
  {
    std::ofstream writer(path);
    writer << "a\nb" << std::flush;
    CHECK(reader.read() == FileChange::None);
    CHECK(reader.take() == "a\nb");
  }
  CHECK(reader.read() == FileChange::Ended);
  CHECK(reader.read() == FileChange::None);
  const std::string missing = scratch.path() + "/none.log";
  CHECK(error_of<std::runtime_error>([&] { FollowedFile(missing, "--log"); }) ==
        "--log: " + missing + " does not exist; allowed: a file, or - for standard input");
  CHECK(contains(error_of<std::runtime_error>([&] { FollowedFile(scratch.path(), "--log"); }),
                 "is a folder"));
}

}  // namespace TEST_FILE
