// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "serve/server/served_journal.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void wait_for(const ServedJournal& journal, std::int64_t num_lines) {
  while (journal.num_durable() < num_lines) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

TEST_CASE("a journal has each line at once, and says when it is durable", "[serve]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/a.jsonl";
  std::atomic<int> num_calls = 0;
  {
    ServedJournal journal(path);
    journal.on_durable([&] { ++num_calls; });
    const ServedJournal::Line first = journal.append("one\n");
    CHECK(content_of(path) == "one\n");
    const ServedJournal::Line none = journal.append("");
    const ServedJournal::Line second = journal.append("three\n");
    CHECK(content_of(path) == "one\nthree\n");
    wait_for(journal, 3);
    CHECK(num_calls >= 1);
    CHECK(journal.read(first) == "one\n");
    CHECK(journal.read(none).empty());
    CHECK(journal.read(second) == "three\n");
  }
  CHECK(content_of(path) == "one\nthree\n");  // it stays
  CHECK(contains(error_of<ConfigError>([&] { ServedJournal again(path); }), path + ": exists"));
  CHECK(content_of(path) == "one\nthree\n");
}

TEST_CASE("an empty or removed journal leaves nothing", "[serve]") {
  const ScratchFolder folder;
  { ServedJournal empty(folder.path() + "/a.jsonl"); }
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/a.jsonl"));
  {
    ServedJournal journal(folder.path() + "/b.jsonl");
    journal.append("x\n");
    journal.remove();
  }
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/b.jsonl"));
}

TEST_CASE("a journal does not follow a link", "[serve]") {
  const ScratchFolder folder;
  const std::string target = folder.write("mine.txt", "precious");
  std::filesystem::create_symlink(target, folder.path() + "/a.jsonl");
  CHECK_FALSE(
      error_of<ConfigError>([&] { ServedJournal journal(folder.path() + "/a.jsonl"); }).empty());
  std::filesystem::create_symlink(folder.path() + "/missing", folder.path() + "/b.jsonl");
  CHECK_FALSE(
      error_of<ConfigError>([&] { ServedJournal journal(folder.path() + "/b.jsonl"); }).empty());
  CHECK(content_of(target) == "precious");
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/missing"));
}

TEST_CASE("when there is no space left, a journal keeps the lines before", "[serve]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/a.jsonl";
  ServedJournal journal(path);
  journal.append("0123456789\n");
  // The limit on the size of files stands for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 15;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of<std::runtime_error>([&] { journal.append("abcdefghij\n"); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  CHECK(contains(error, path + ": cannot write"));
  CHECK(content_of(path) == "0123456789\n");
  journal.append("next\n");
  CHECK(content_of(path) == "0123456789\nnext\n");
}

}  // namespace TEST_FILE
