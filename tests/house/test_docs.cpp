// SPDX-License-Identifier: Apache-2.0
// The documents: what they show is what the program prints, and their links lead somewhere.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;

namespace {

// A fenced block of a page.
struct Block {
  std::string language;  // behind the fence: yaml, text, or nothing
  std::string text;
  std::size_t line = 0;  // of the fence, from 1
};

struct Page {
  std::vector<Block> blocks;
  std::string prose;  // the page without its blocks
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Page parse_page(const std::string& text) {
  Page page;
  bool is_open = false;
  std::size_t number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    if (line.starts_with("```")) {
      if (!is_open) page.blocks.push_back({line.substr(3), "", number});
      is_open = !is_open;
    } else {
      (is_open ? page.blocks.back().text : page.prose) += line + "\n";
    }
  }
  return page;
}

std::string repository_text(const std::string& path) {
  return testing::read_text_file(fs::path(testing::source_dir()) / path);
}

// The pages of the repository, as paths relative to it.
std::vector<std::string> all_pages() {
  const fs::path root = testing::source_dir();
  std::vector<std::string> pages;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string name = entry->path().filename().string();
    const bool is_made = entry.depth() == 0 && (name == "build" || name == "results");
    if (entry->is_directory() && (is_made || name.starts_with('.'))) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && entry->path().extension() == ".md") {
      pages.push_back(entry->path().lexically_relative(root).generic_string());
    }
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

// Whether `shown` is `printed`, where a line "..." stands for any number of lines. Spaces at the
// end of a line do not count.
bool shows(std::vector<std::string> shown, std::vector<std::string> printed) {
  for (std::vector<std::string>* lines : {&shown, &printed}) {
    for (std::string& line : *lines) line.erase(line.find_last_not_of(' ') + 1);
  }
  std::size_t at = 0;
  bool may_skip = false;
  for (const std::string& line : shown) {
    if (line == "...") {
      may_skip = true;
      continue;
    }
    while (may_skip && at < printed.size() && printed[at] != line) ++at;
    if (at == printed.size() || printed[at] != line) return false;
    ++at;
    may_skip = false;
  }
  return may_skip || at == printed.size();
}

// The commands of a block, with lines that end in \ joined.
std::vector<std::string> commands_of(const Block& block) {
  std::vector<std::string> commands;
  bool goes_on = false;
  for (std::string line : lines_of(block.text)) {
    const bool continues = line.ends_with('\\');
    if (continues) line.pop_back();
    if (goes_on) {
      commands.back() += line;
    } else {
      commands.push_back(line);
    }
    goes_on = continues;
  }
  return commands;
}

// The anchor that GitHub gives a heading.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80u) {
      anchor += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

std::set<std::string> anchors_of(const std::string& text) {
  std::set<std::string> anchors;
  for (const std::string& line : lines_of(parse_page(text).prose)) {
    const std::size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || line[level] != ' ') continue;
    std::string anchor = anchor_of(std::string_view(line).substr(level + 1));
    const std::string first = anchor;
    for (int i = 1; !anchors.insert(anchor).second; ++i) anchor = first + "-" + std::to_string(i);
  }
  return anchors;
}

// Targets of [text](target) in prose, without those in `code`.
std::vector<std::string> links_of(const std::string& text) {
  std::vector<std::string> links;
  std::string prose;
  bool is_code = false;
  for (const char c : parse_page(text).prose) {
    if (c == '`') is_code = !is_code;
    if (!is_code) prose += c;
  }
  for (std::size_t at = prose.find("]("); at != std::string::npos; at = prose.find("](", at + 1)) {
    links.push_back(prose.substr(at + 2, prose.find(')', at) - at - 2));
  }
  return links;
}

// The fault of a link on a page, or an empty string.
std::string link_fault(const std::string& page, const std::string& link) {
  if (link.starts_with("http://") || link.starts_with("https://")) return {};
  const std::string file = link.substr(0, link.find('#'));
  const fs::path path = file.empty() ? fs::path(page) : fs::path(page).parent_path() / file;
  const std::string target = path.lexically_normal().generic_string();
  if (target.starts_with("..")) return "leads out of the repository";
  if (!fs::exists(fs::path(testing::source_dir()) / target)) return "leads to no file";
  if (file.size() == link.size()) return {};
  const std::string anchor = link.substr(link.find('#') + 1);
  return anchors_of(repository_text(target)).contains(anchor) ? "" : "leads to no heading";
}

// Runs a page as a reader would, in a scratch folder: writes its scenarios, runs its commands, and
// compares what it shows of each. Files of the repository are where the reader has them.
void follow(const std::string& path, int least_commands) {
  constexpr std::string_view kProgram = "metronome ";
  const testing::ScratchFolder folder;
  for (const char* part : {"scenarios", "tests"}) {
    fs::create_directory_symlink(fs::path(testing::source_dir()) / part,
                                 fs::path(folder.path()) / part);
  }
  std::vector<std::string> printed;
  int num_commands = 0;
  for (const Block& block : parse_page(repository_text(path)).blocks) {
    INFO(path << ":" << block.line);
    if (block.language == "yaml") {
      const std::string first = block.text.substr(0, block.text.find('\n'));
      REQUIRE(first.starts_with("# "));  // the name to write it under
      folder.write(first.substr(2), block.text);
    } else if (block.language == "log") {
      const std::string file = block.text.substr(0, block.text.find('\n'));
      REQUIRE(file.starts_with("# "));  // the log that the others are lines of
      CHECK(shows(lines_of(block.text.substr(file.size() + 1)),
                  lines_of(repository_text(file.substr(2)))));
    } else if (block.language == "text") {
      std::string all;
      for (const std::string& line : printed) all += line + "\n";
      INFO("it prints\n" << all << "and not\n" << block.text);
      CHECK(shows(lines_of(block.text), printed));
    } else if (block.text.starts_with(kProgram)) {
      for (const std::string& command : commands_of(block)) {
        INFO(command);
        REQUIRE(command.starts_with(kProgram));
        const testing::CommandResult result = testing::run_metronome(
            command.substr(kProgram.size()), "cd '" + folder.path() + "' && ");
        INFO(result.err);
        CHECK(result.exit_code == 0);
        printed = lines_of(result.out);
        ++num_commands;
      }
    }
  }
  CHECK(num_commands >= least_commands);
}

}  // namespace

TEST_CASE("checker: what a page shows", "[docs][checker]") {
  using Lines = std::vector<std::string>;
  const Lines printed = {"a", "b ", "c"};
  CHECK(shows({"a", "b", "c"}, printed));
  CHECK(shows({"a", "..."}, printed));
  CHECK(shows({"...", "c"}, printed));
  CHECK_FALSE(shows({"a", "b"}, printed));
  CHECK_FALSE(shows({"a", "c"}, printed));
  CHECK_FALSE(shows({"a", "...", "d", "..."}, printed));
  CHECK(commands_of({"", "metronome run \\\n  x\nmetronome list keys\n"}) ==
        Lines{"metronome run   x", "metronome list keys"});
  CHECK(anchor_of("`engine`, and more: 2") == "engine-and-more-2");
  CHECK(anchors_of("# A b\n## A b\n```\n# c\n```\n") == std::set<std::string>{"a-b", "a-b-1"});
  CHECK(links_of("[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n") == Lines{"b.md#c"});
  CHECK(link_fault("README.md", "nowhere.md") == "leads to no file");
  CHECK(link_fault("README.md", "#nowhere") == "leads to no heading");
  CHECK(link_fault("README.md", "../x.md") == "leads out of the repository");
  CHECK(link_fault("docs/README.md", "../core").empty());
}

TEST_CASE("links lead to files and headings", "[docs]") {
  const std::vector<std::string> pages = all_pages();
  CHECK(pages.size() > 30);
  for (const std::string& page : pages) {
    for (const std::string& link : links_of(repository_text(page))) {
      INFO(page << ": (" << link << ") " << link_fault(page, link));
      CHECK(link_fault(page, link).empty());
    }
  }
}

TEST_CASE("the reference is what the program says", "[docs]") {
  const testing::CommandResult result =
      testing::run_program(testing::source_dir() + "/tools/make_reference",
                           "--check --program '" + testing::metronome_program() + "'");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("README is short, and does what it shows", "[docs]") {
  CHECK(lines_of(repository_text("README.md")).size() <= 120);
  follow("README.md", 3);
}

TEST_CASE("README's recording is of this program", "[docs]") {
  const testing::CommandResult result =
      testing::run_program(testing::source_dir() + "/tools/record_terminal",
                           "--check --program '" + testing::metronome_program() + "'");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("READMEs of folders are short", "[docs]") {
  for (const std::string& page : all_pages()) {
    if (!page.ends_with("/README.md") || page.starts_with("docs/")) continue;
    if (page.starts_with("reports/published/") || page.starts_with("tests/goldens/")) continue;
    INFO(page);
    CHECK(lines_of(repository_text(page)).size() <= 30);
  }
}

// [slow]: it tunes.
TEST_CASE("the tutorial does what it shows", "[docs][slow]") { follow("docs/tutorial.md", 9); }

TEST_CASE("the pages about SLOs and capacity do what they show", "[docs][slow]") {
  follow("docs/guide/choose_slo.md", 5);
  follow("docs/guide/capacity.md", 6);
}

// [slow]: it tunes.
TEST_CASE("the questions of one line have the answers that their page shows", "[docs][slow]") {
  follow("docs/guide/one_line.md", 6);
}

TEST_CASE("the pages about engines' logs do what they show", "[docs]") {
  follow("docs/guide/diagnose_vllm.md", 4);
  follow("docs/guide/diagnose_sglang.md", 4);
}

TEST_CASE("the page about fleets does what it shows", "[docs]") {
  follow("docs/guide/fleet.md", 3);
}

TEST_CASE("the page about GPU files does what it shows", "[docs]") {
  follow("docs/guide/gpu_file.md", 1);
}

TEST_CASE("the changes begin with this version, and say what it does to results", "[docs]") {
  const std::string changes = repository_text("CHANGELOG.md");
  const testing::CommandResult version = testing::run_metronome("--version");
  const std::string number = version.out.substr(0, version.out.find('\n')).substr(10);
  const std::size_t first = changes.find("\n## ");
  CHECK(changes.substr(first + 4).starts_with(number + " ("));
  std::size_t num_releases = 0;
  for (std::size_t at = first; at != std::string::npos; at = changes.find("\n## ", at + 1)) {
    const std::string release = changes.substr(at, changes.find("\n## ", at + 1) - at);
    INFO(release);
    CHECK(release.find("\n**Results**: ") != std::string::npos);
    ++num_releases;
  }
  CHECK(num_releases >= 1);
}

}  // namespace TEST_FILE
