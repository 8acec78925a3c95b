// SPDX-License-Identifier: Apache-2.0
// Which folders a result may replace, and what it leaves of runs that were killed.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "reports/files/result_folder.h"
#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr const char* kMarked = "{\"metronome_schema\": 1}";

// A result with a variant of its own, as `metronome run` leaves it.
struct EarlierResult {
  ScratchFolder scratch;
  std::string target = scratch.path() + "/out";

  EarlierResult() {
    write("summary.json", kMarked);
    for (const std::string variant : {"a/", "b/"}) {
      write(variant + "result.json", kMarked);
      write(variant + "requests.jsonl", "{}\n");
      write(variant + "steps.jsonl", "{}\n");
    }
  }

  void write(const std::string& name, std::string_view text) const {
    scratch.write("out/" + name, text);
  }

  std::string refusal() const {
    try {
      const ResultFolder folder(target);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

std::string refusal_of(const std::string& entry) {
  return "contains '" + entry + "', which is not part of an earlier result, or was changed since; ";
}

}  // namespace

TEST_CASE("an earlier result alone may be replaced", "[reports][folder]") {
  const EarlierResult earlier;
  REQUIRE(earlier.refusal().empty());
  const auto before = folder_content(earlier.target);
  std::string foreign;
  SECTION("a file") {
    foreign = "notes.txt";
    earlier.write("notes.txt", "notes");
  }
  SECTION("the first of several") {
    foreign = "letters";
    fs::create_directory(earlier.target + "/letters");
    earlier.write("notes.txt", "notes");
  }
  SECTION("an empty folder") {
    foreign = "plots";
    fs::create_directory(earlier.target + "/plots");
  }
  SECTION("a file in a variant's folder") {
    foreign = "b";
    earlier.write("b/notes.txt", "notes");
  }
  SECTION("a folder in a variant's folder") {
    foreign = "a";
    fs::create_directory(earlier.target + "/a/plots");
  }
  SECTION("a folder whose result is another tool's") {
    foreign = "c";
    earlier.write("c/result.json", "{}");
  }
  SECTION("a result of its own") {
    foreign = "c";
    earlier.write("c/result.json", kMarked);
    earlier.write("c/summary.json", kMarked);
  }
  SECTION("another tool's result.json") {
    foreign = "result.json";
    earlier.write("result.json", "{}");
  }
  SECTION("lines without a result beside them") {
    foreign = "steps.jsonl";
    earlier.write("steps.jsonl", "{}\n");
  }
  SECTION("a link") {
    foreign = "result.json";
    fs::create_symlink("a/result.json", earlier.target + "/result.json");
  }
  SECTION("a trace of the user's") {
    foreign = "trace.jsonl";
    earlier.write("trace.jsonl", "{\"input_toks\": 5, \"output_toks\": 1}\n");
  }
  SECTION("a hidden file") {
    foreign = ".git";
    earlier.write(".git", "gitdir: elsewhere");
  }
  INFO(earlier.refusal());
  CHECK(contains(earlier.refusal(), refusal_of(foreign)));
  for (const auto& [name, content] : before) CHECK(folder_content(earlier.target)[name] == content);
}

TEST_CASE("lines belong to a result as it lists them", "[reports][folder]") {
  const EarlierResult earlier;
  earlier.write("c/result.json", R"({"metronome_schema": 1, "files": {"requests.jsonl": 3}})");
  earlier.write("c/requests.jsonl", "{}\n");
  REQUIRE(earlier.refusal().empty());
  SECTION("of another size") { earlier.write("c/requests.jsonl", "{\"mine\": 1}\n"); }
  SECTION("beside an empty list") {
    earlier.write("c/result.json", R"({"metronome_schema": 1, "files": {}})");
  }
  SECTION("not in the list") { earlier.write("c/steps.jsonl", "{}\n"); }
  SECTION("not in a list that cannot be read") {
    earlier.write("c/result.json", R"({"metronome_schema": 1, "files": {"requests.jsonl": "3"}})");
  }
  CHECK(contains(earlier.refusal(), refusal_of("c")));
}

TEST_CASE("a result folder knows whether it replaces a result", "[reports][folder]") {
  const EarlierResult earlier;
  ResultFolder folder(earlier.target);
  CHECK(folder.replaces_result());
  folder.write("summary.json", kMarked);
  folder.commit();
  CHECK(folder.replaces_result());
  CHECK(folder_content(earlier.target).size() == 1);
  CHECK_FALSE(ResultFolder(earlier.scratch.path() + "/other").replaces_result());
}

TEST_CASE("what appears in the earlier result during the run is kept", "[reports][folder]") {
  const EarlierResult earlier;
  {
    ResultFolder folder(earlier.target);
    folder.write("summary.json", kMarked);
    earlier.write("notes.txt", "notes");
    CHECK_THROWS_AS(folder.commit(), ConfigError);
  }
  CHECK(folder_content(earlier.target).size() == 8);
  CHECK(std::distance(fs::directory_iterator(earlier.scratch.path()), {}) == 1);
}

TEST_CASE("a result that another run replaces meanwhile is no foreign folder",
          "[reports][folder]") {
  const EarlierResult earlier;
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    for (int i = 0; !is_over; ++i) {
      ResultFolder folder(earlier.target);
      const std::string variant = i % 2 == 0 ? "c" : "d";
      folder.make_subfolder(variant);
      folder.write(variant + "/result.json", kMarked);
      folder.commit();
    }
  });
  std::string refusal;
  std::string cannot_read;
  for (int i = 0; i < 3000 && refusal.empty() && cannot_read.empty(); ++i) {
    try {
      refusal = earlier.refusal();
    } catch (const std::runtime_error& error) {
      cannot_read = error.what();
    }
  }
  is_over = true;
  other.join();
  CHECK(refusal.empty());
  CHECK(cannot_read.empty());
}

TEST_CASE("neither a link to nothing nor the current folder takes a result", "[reports][folder]") {
  const ScratchFolder scratch;
  const std::string link = scratch.path() + "/link";
  fs::create_symlink("nothing", link);
  CHECK_THROWS_WITH(ResultFolder(link), link +
                                            ": is a broken link; name a folder for the "
                                            "results");
  CHECK(fs::is_symlink(link));
  for (const char* target : {".", "./", "..", "../..", "x/.."}) {
    INFO(target);
    CHECK_THROWS_AS(ResultFolder(target), ConfigError);
  }
}

TEST_CASE("temporary folders of processes that are gone are removed", "[reports][folder]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/out";
  // The parts of a temporary folder's name, but for the process.
  std::string stem;
  std::string suffix;
  {
    const ResultFolder folder(target);
    const std::string name = fs::path(folder.path("x")).parent_path().string();
    const std::string process = "-" + std::to_string(::getpid()) + "-";
    REQUIRE(name.rfind(process) != std::string::npos);
    stem = name.substr(0, name.rfind(process) + 1);
    suffix = name.substr(name.rfind(process) + process.size() - 1);
  }
  REQUIRE(fs::is_empty(scratch.path()));
  const std::string gone = stem + "2000000000" + suffix;  // above every limit of process ids
  const std::string kept[] = {stem + std::to_string(::getpid()) + "-7",
                              stem + "1-0",
                              stem + "x-0",
                              stem + "2000000000",
                              gone + ".earlier",
                              stem + "99999999999999999999-0",
                              scratch.path() + "/.other.partial-x-2000000000-0"};
  fs::create_directories(gone + "/a");
  scratch.write(fs::path(gone).filename().string() + "/.metronome_temporary", "");
  // Killed before the mark, and after it was taken away to commit.
  const std::string empty = stem + "2000000001" + suffix;
  const std::string complete = stem + "2000000002" + suffix;
  fs::create_directory(empty);
  scratch.write(fs::path(complete).filename().string() + "/result.json", kMarked);
  // Not a result folder's: without a mark, or a link to one.
  const std::string foreign = stem + "2000000003" + suffix;
  scratch.write(fs::path(foreign).filename().string() + "/notes.txt", "notes");
  const std::string link = stem + "2000000004" + suffix;
  const std::string linked = scratch.path() + "/linked";
  scratch.write("linked/.metronome_temporary", "");
  fs::create_directory_symlink(linked, link);
  for (const std::string& path : kept) fs::create_directory(path);
  { const ResultFolder folder(target); }
  for (const std::string& path : {gone, empty, complete}) CHECK_FALSE(fs::exists(path));
  CHECK(read_text_file(foreign + "/notes.txt") == "notes");
  CHECK(fs::is_symlink(link));
  CHECK(fs::exists(linked + "/.metronome_temporary"));
  for (const std::string& path : kept) {
    INFO(path);
    CHECK(fs::exists(path));
  }
}

TEST_CASE("writing a file can be stopped", "[reports][folder]") {
  const ScratchFolder scratch;
  int num_writes = 0;
  FileWriter file(scratch.path() + "/lines", [&num_writes] {
    if (++num_writes == 3) throw std::runtime_error("stop");
  });
  file.write("a\n");
  file.write("b\n");
  CHECK_THROWS_WITH(file.write("c\n"), "stop");
  file.close();
  CHECK(read_text_file(scratch.path() + "/lines") == "a\nb\n");
}

}  // namespace TEST_FILE
