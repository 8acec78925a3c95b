// SPDX-License-Identifier: Apache-2.0
// Reading and replacing files in folders that others can write to.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "core/base/files.h"
#include "core/base/names.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a pipe that nobody writes to is not opened", "[core][base][files]") {
  const ScratchFolder scratch;
  const std::string pipe = scratch.path() + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_FALSE(open_input(pipe));
  CHECK_FALSE(read_file(pipe).has_value());
  CHECK_FALSE(open_input("/dev/zero"));
  CHECK_FALSE(open_input(scratch.path()));
  CHECK(open_input(scratch.write("file", "text")));
  const CommandResult result = run_metronome("run '" + pipe + "'");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, pipe + ": is a pipe or a device; allowed: a readable YAML file"));
}

TEST_CASE("no more is read than the caller allows", "[core][base][files]") {
  const ScratchFolder scratch;
  const std::string file = scratch.write("file", "text");
  CHECK(read_file(file, 4) == "text");
  CHECK_FALSE(read_file(file, 3).has_value());
  CHECK(errno == EFBIG);
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const std::string pipe = "/dev/fd/" + std::to_string(ends[0]);
  REQUIRE(::write(ends[1], "text", 4) == 4);
  CHECK_FALSE(read_file(pipe, 3).has_value());  // does not wait for the end
  CHECK(errno == EFBIG);
  REQUIRE(::write(ends[1], "text", 4) == 4);
  ::close(ends[1]);
  CHECK(read_file(pipe, 4) == "text");
  ::close(ends[0]);
}

TEST_CASE("a scenario larger than any real one is not parsed", "[core][base][files]") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("large.yaml", "model: tiny-llama\n");
  fs::resize_file(path, (16u << 20) + 1);
  const CommandResult result = run_metronome("run '" + path + "'");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, path + ": is larger than 16 MiB"));
}

TEST_CASE("controls that reorder text are shown as bytes", "[core][base][names]") {
  CHECK(printable("a\u202eb\u2066c\u061cd") == "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xd8\\x9cd");
  CHECK(printable("\u202f\u2065\u00d8\u2019") == "\u202f\u2065\u00d8\u2019");  // none of them
  CHECK(bidi_control_length("\u200f") == 3);
  CHECK(bidi_control_length("\u061c.") == 2);
  CHECK(bidi_control_length("") == 0);
  CHECK(bidi_control_length("\xe2\x80") == 0);
}

}  // namespace TEST_FILE
