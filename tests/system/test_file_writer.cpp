// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("replacing a file follows no link and leaves nothing beside it", "[system][files]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/out.html";
  const std::string victim = scratch.write("victim", "precious");
  fs::create_symlink("victim", target);
  fs::create_symlink("victim", target + ".partial");
  replace_file(target, "new");
  CHECK(read_text_file(victim) == "precious");
  CHECK(fs::is_symlink(target + ".partial"));
  CHECK_FALSE(fs::is_symlink(target));
  CHECK(read_text_file(target) == "new");
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 3);
}

TEST_CASE("a file that cannot be replaced stays, and the error names it", "[system][files]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/folder";
  fs::create_directories(target + "/inner");
  CHECK_THROWS_WITH(replace_file(target, "new"), target + ": cannot write: Is a directory");
  CHECK_THROWS_WITH(replace_file(scratch.path() + "/no/file", "new"),
                    scratch.path() + "/no/file: cannot write: No such file or directory");
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 1);
}

TEST_CASE("the new file has the rights that the user's mask leaves", "[system][files]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/file";
  const mode_t mask = ::umask(027);
  replace_file(target, "new");
  ::umask(mask);
  CHECK(fs::status(target).permissions() == fs::perms(0640));
}

TEST_CASE("a folder is made with its parents", "[system][files]") {
  const ScratchFolder scratch;
  const std::string folder = scratch.path() + "/new/deep/folder";
  make_folders(folder);
  make_folders(folder + "/");  // exists
  CHECK(fs::is_directory(folder));
  scratch.write("file", "");
  CHECK_THROWS_AS(make_folders(scratch.path() + "/file/sub"), fs::filesystem_error);
}

}  // namespace TEST_FILE
