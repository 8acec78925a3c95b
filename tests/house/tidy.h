// SPDX-License-Identifier: Apache-2.0
// SPDX-License-Identifier: Apache-2.0
// SPDX-License-Identifier: Apache-2.0
// SPDX-License-Identifier: Apache-2.0
// The house rules that a program can check: sizes, include directions, determinism, words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace metronome::testing {

struct SourceFile {
  std::string path;  // relative to the repository root, with forward slashes
  std::string text;
};

struct Violation {
  std::string path;
  std::size_t line = 0;  // 1-based; 0 = the file as a whole
  std::string what;
};

constexpr std::size_t kMaxFunctionLines = 70;
constexpr std::size_t kMaxFileLines = 600;
constexpr std::size_t kMaxColumns = 100;
// In halves, so that files which only quote it do not seem to have it.
constexpr std::string_view kLicenceLine =
    "SPDX-License-"
    "Identifier: Apache-2.0";

bool is_identifier_char(char c);
std::string_view trimmed(std::string_view text);  // without blanks around it
bool is_source(std::string_view path);            // C++ or CUDA

// The text with comments, string and character literals and preprocessor lines blanked out.
// Line breaks stay where they are.
std::string code_only(std::string_view text);
// The text with comments alone blanked out.
std::string without_comments(std::string_view text);

std::vector<Violation> check_function_lengths(const SourceFile& file);
std::vector<Violation> check_file_length(const SourceFile& file);
std::vector<Violation> check_columns(const SourceFile& file);
std::vector<Violation> check_includes(const SourceFile& file);
// In core/, engines/, models/ and sim/: what differs between runs, machines or standard libraries.
std::vector<Violation> check_determinism(const SourceFile& file);
// The fault of including "target" in the file at `path`, by the table of rooms; or nothing.
std::string include_fault(std::string_view path, std::string_view target);
// Rooms that may include themselves by way of others: none.
std::vector<std::string> room_cycles();
// An error in the README of a room: it must name what the room may include. Empty: nothing.
std::string readme_fault(const SourceFile& readme);
// Sources outside every room, and headers that nobody includes.
std::vector<Violation> check_orphans(const std::vector<SourceFile>& files);
std::vector<Violation> check_words(const SourceFile& file);
// Comments that say nothing when they are read alone: their first words stand for others ("The same
// for ...").
std::vector<Violation> check_comments(const SourceFile& file);
// Numbers that a .cpp file joins to a text: a `+` beside std::to_string(...). fmt::format writes
// the text as one. Not in gpu/, tests/ and tools/power_loss, which are compiled without fmt.
std::vector<Violation> check_joined_numbers(const SourceFile& file);
// Calls of pip in a tool without --require-hashes or --no-index in the same statement.
std::vector<Violation> check_pip(const SourceFile& file);
// Lines of tools/requirements that are not "NAME==VERSION" and its hashes.
std::vector<Violation> check_requirements(const SourceFile& file);
// A source says its licence in its first two lines.
std::vector<Violation> check_licence(const SourceFile& file);
// A function of an anonymous namespace is not named as one of a header of its folder or of
// core/base. Where files are compiled together, it would hide that one from others.
std::vector<Violation> check_hidden_functions(const std::vector<SourceFile>& files);
// A file of tests is a namespace TEST_FILE, as it may be compiled together with others.
std::vector<Violation> check_test_namespace(const SourceFile& file);
// A type that is defined at namespace scope is defined in one file. Types of anonymous namespaces
// are their file's own; specialisations are no new types.
std::vector<Violation> check_type_names(const std::vector<SourceFile>& files);
// Names of products in code outside engines/ and tests/: identifiers, texts and included files.
// Comments may name a source. A file of the list in tidy_products.cpp has as many as it says there.
// Comparisons of a policy's name with a text, too.
std::vector<Violation> check_product_names(const SourceFile& file);
// Files of that list that are gone, or have none.
std::vector<Violation> check_product_list(const std::vector<SourceFile>& files);
// A name at the top of the repository. Hidden names are not looked at.
std::vector<Violation> check_top_level_name(std::string_view name);

}  // namespace metronome::testing
