// SPDX-License-Identifier: Apache-2.0
#include "tests/house/tidy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace metronome::testing {

bool is_identifier_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

bool is_source(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view module_of(std::string_view path) {
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Where the literal or comment that opens at `begin` ends; `begin` itself when none opens there.
std::size_t end_of_blank(std::string_view text, std::size_t begin) {
  const std::string_view rest = text.substr(begin);
  const auto after = [&](std::string_view closing, std::size_t from) {
    const std::size_t at = text.find(closing, from);
    return at == std::string_view::npos ? text.size() : at + closing.size();
  };
  if (rest.starts_with("//")) return std::min(text.find('\n', begin), text.size());
  if (rest.starts_with("/*")) return after("*/", begin + 2);
  if (rest.starts_with("R\"")) {
    const std::size_t open = text.find('(', begin);
    if (open == std::string_view::npos) return text.size();
    const std::string delimiter(text.substr(begin + 2, open - begin - 2));
    return after(")" + delimiter + "\"", open);
  }
  const bool is_digit_separator = begin > 0 && is_identifier_char(text[begin - 1]);
  if (rest[0] != '"' && (rest[0] != '\'' || is_digit_separator)) return begin;
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != rest[0]) at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

bool starts_preprocessor_line(std::string_view text, std::size_t at) {
  if (text[at] != '#') return false;
  const std::size_t line = text.rfind('\n', at);
  return trimmed(text.substr(line + 1, at - line - 1)).empty();
}

std::size_t end_of_preprocessor_line(std::string_view text, std::size_t at) {
  std::size_t end = std::min(text.find('\n', at), text.size());
  while (end < text.size() && text[end - 1] == '\\') {
    end = std::min(text.find('\n', end + 1), text.size());
  }
  return end;
}

// Finds function definitions by their braces. `statement` is the code since the last place where
// a declaration can start.
class FunctionScanner {
 public:
  explicit FunctionScanner(std::string_view code) : code_(code) {}

  struct Function {
    std::size_t first_line;
    std::size_t last_line;
  };

  std::vector<Function> scan() {
    for (std::size_t at = 0; at < code_.size(); ++at) {
      const char c = code_[at];
      if (c == '\n') ++line_;
      if (c == '{') {
        open(at);
      } else if (c == '}') {
        close(at);
      } else if (c == ';' && paren_depth_ == 0) {
        statement_ = at + 1;
      }
      if (c == '(') ++paren_depth_;
      if (c == ')') --paren_depth_;
    }
    return std::move(functions_);
  }

 private:
  enum class Kind { Scope, Function, Other };
  struct Brace {
    Kind kind;
    std::size_t first_line;
    std::size_t statement;
  };

  std::string_view statement_text(std::size_t at) const {
    return trimmed(code_.substr(statement_, at - statement_));
  }

  Kind classify(std::string_view statement) const {
    const bool at_scope = braces_.empty() || braces_.back().kind == Kind::Scope;
    if (!at_scope || paren_depth_ != 0) return Kind::Other;
    const bool has_parameters = statement.find('(') != std::string_view::npos;
    for (const std::string_view word :
         {"namespace", "extern", "class", "struct", "enum", "union", "template"}) {
      if (statement.starts_with(word) && !has_parameters) return Kind::Scope;
    }
    if (statement.ends_with("=") || statement.ends_with(",")) return Kind::Other;
    return has_parameters ? Kind::Function : Kind::Other;
  }

  void open(std::size_t at) {
    const std::string_view statement = statement_text(at);
    const auto offset = static_cast<std::size_t>(statement.data() - code_.data());
    const std::size_t first_line =
        statement.empty() ? line_
                          : line_ - static_cast<std::size_t>(std::count(
                                        code_.begin() + static_cast<std::ptrdiff_t>(offset),
                                        code_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    braces_.push_back({classify(statement), first_line, statement_});
    statement_ = at + 1;
  }

  void close(std::size_t at) {
    if (braces_.empty()) return;
    const Brace brace = braces_.back();
    braces_.pop_back();
    // A member initialiser `x_{...}` or a default argument `= {}` does not end its declaration.
    const std::size_t next = code_.find_first_not_of(" \n", at + 1);
    const bool goes_on =
        next != std::string_view::npos &&
        (code_[next] == ',' || code_[next] == '{' || code_[next] == ')' || code_[next] == ';');
    statement_ = goes_on ? brace.statement : at + 1;
    if (brace.kind == Kind::Function && !goes_on) functions_.push_back({brace.first_line, line_});
  }

  std::string_view code_;
  std::size_t line_ = 1;
  std::size_t statement_ = 0;
  int paren_depth_ = 0;
  std::vector<Brace> braces_;
  std::vector<Function> functions_;
};

// Libraries that cost seconds to compile: one file knows them, the others use its interface.
struct Facade {
  std::string_view prefix;  // of the library's headers
  std::string_view path;
};

constexpr Facade kFacades[] = {{"boost/program_options", "tools/commands/command_options.cpp"}};

// Headers of what a browser does not have: threads, signals, and the calls of an operating system,
// whose headers end in ".h" and are in no folder but sys/.
constexpr std::string_view kSystemHeaders[] = {
    "thread", "mutex",     "shared_mutex", "condition_variable", "atomic", "future",
    "latch",  "semaphore", "barrier",      "stop_token",         "csignal"};

bool is_system_header(std::string_view target) {
  const bool is_named = std::find(std::begin(kSystemHeaders), std::end(kSystemHeaders), target) !=
                        std::end(kSystemHeaders);
  const bool is_in_library = target.find('/') != target.npos && !target.starts_with("sys/");
  return is_named || (target.ends_with(".h") && !is_in_library);
}

std::string system_include_fault(std::string_view path, std::string_view target) {
  const std::string name = "<" + std::string(target) + ">";
  const std::string_view module = module_of(path);
  const bool is_cuda = target.starts_with("cuda") || target.starts_with("cublas");
  const bool is_cuda_test = path.starts_with("tests/gpu/");
  if (is_cuda && module != "gpu" && !is_cuda_test) return name + " outside gpu/";
  const bool is_json = path == "core/base/json_io.cpp";
  if (target.starts_with("nlohmann/") && !is_json && path != "tests/core/base/test_json.cpp") {
    return name + ": use core/base/json.h";
  }
  if (target.starts_with("catch2/") && path != "tests/catch.h" && path != "tests/main.cpp") {
    return name + ": use tests/catch.h";
  }
  for (const Facade& facade : kFacades) {
    if (!target.starts_with(facade.prefix) || path == facade.path) continue;
    return name + " outside " + std::string(facade.path);
  }
  const bool runs_anywhere =
      module == "core" || module == "engines" || module == "sim" || module == "fleet";
  if (runs_anywhere && is_system_header(target) && path != "core/base/files.cpp") {
    return name + ": core, engines, sim and fleet run without threads and system calls";
  }
  if (!path.ends_with(".h") || module == "tests") return {};
  for (const std::string_view library : {"yaml-cpp/", "boost/", "fmt/"}) {
    if (target.starts_with(library)) return name + " in a header: keep it in a .cpp file";
  }
  const bool is_standard = target.find_first_of("./") == std::string_view::npos;
  if ((module == "core" || module == "models") && !is_standard) {
    return name + ": headers of " + std::string(module) + " use no other library than std";
  }
  return {};
}

// Functions of the C library whose last bit differs between its versions and between processors.
constexpr std::string_view kInexactFunctions[] = {
    "exp",  "exp2",  "expm1", "log",  "log2",  "log10",  "log1p",  "pow",   "sin",   "cos",
    "tan",  "asin",  "acos",  "atan", "sinh",  "cosh",   "tanh",   "asinh", "acosh", "atanh",
    "cbrt", "hypot", "erf",   "erfc", "atan2", "expint", "tgamma", "lgamma"};

struct Ban {
  std::string_view text;  // found where no identifier character stands before it
  std::string_view instead;
};

constexpr Ban kDeterminismBans[] = {
    {"std::unordered_", "a vector, or std::map: hash order differs between libraries"},
    {"steady_clock", "the injected Clock"},
    {"system_clock", "the injected Clock"},
    {"high_resolution_clock", "the injected Clock"},
    {"clock_gettime", "the injected Clock"},
    {"gettimeofday", "the injected Clock"},
    {"time(nullptr)", "the injected Clock"},
    {"time(NULL)", "the injected Clock"},
    {"rand(", "core/base/rng.h"},
    {"srand(", "core/base/rng.h"},
    {"getenv", "the scenario"},
    {"std::random_device", "core/base/rng.h"},
    {"std::mt19937", "core/base/rng.h"},
    {"std::hash", "mix64: std::hash differs between libraries"},
    {"boost::random", "core/base/rng.h: Boost's distributions call the C library's functions"},
    // Not every standard library has these, or those for real numbers.
    {"std::from_chars", "core/base/number_chars.h"},
    {"std::to_chars", "core/base/number_chars.h"},
    {"std::bit_cast", "core/base/bits.h"},
    {"std::make_shared_for_overwrite", "a shared_ptr of new T[n]"},
};

// Written in halves, so that the rule does not find itself.
constexpr std::array<std::string_view, 5> kBannedWords = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "XX"
    "X",
    "not "
    "implemented",
    "place"
    "holder"};

constexpr std::string_view kTopLevel[] = {"core",
                                          "engines",
                                          "models",
                                          "sim",
                                          "fleet",
                                          "cpu",
                                          "gpu",
                                          "docs",
                                          "scenarios",
                                          "study",
                                          "serve",
                                          "python",
                                          "reports",
                                          "system",
                                          "tools",
                                          "tests",
                                          "build",
                                          "results",
                                          "CMakeLists.txt",
                                          "CMakePresets.json",
                                          "CMakeUserPresets.json",
                                          "README.md",
                                          "ARCHITECTURE.md",
                                          "CONTRIBUTING.md",
                                          "LICENSE",
                                          "NOTICE",
                                          "CHANGELOG.md",
                                          "Containerfile",
                                          "pyproject.toml",
                                          "SECURITY.md",
                                          "compile_commands.json"};

bool occurs_as_word(std::string_view line, std::string_view text) {
  for (std::size_t at = line.find(text); at != std::string_view::npos;
       at = line.find(text, at + 1)) {
    if (at == 0 || !is_identifier_char(line[at - 1])) return true;
  }
  return false;
}

// The first std:: distribution named in the line, or nothing.
std::string_view std_distribution(std::string_view line) {
  constexpr std::string_view kStd = "std::";
  for (std::size_t at = line.find(kStd); at != std::string_view::npos;
       at = line.find(kStd, at + 1)) {
    std::size_t end = at + kStd.size();
    while (end < line.size() && is_identifier_char(line[end])) ++end;
    const std::string_view name = line.substr(at, end - at);
    if (name.ends_with("_distribution")) return name;
  }
  return {};
}

// The first call in the line of a function whose bits differ, in any of its three types, or
// nothing.
std::string_view inexact_call(std::string_view line) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (!is_identifier_char(line[at])) continue;
    const std::size_t begin = at;
    while (at < line.size() && is_identifier_char(line[at])) ++at;
    const std::string_view name = line.substr(begin, at - begin);
    const bool is_called = at < line.size() && line[at] == '(';
    if (!is_called && !line.substr(0, begin).ends_with("std::")) continue;
    for (const std::string_view inexact : kInexactFunctions) {
      const bool has_type = name.size() == inexact.size() + 1 && name.starts_with(inexact) &&
                            (name.back() == 'f' || name.back() == 'l');
      if (name == inexact || has_type) return name;
    }
  }
  return {};
}

}  // namespace

std::string without_comments(std::string_view text) {
  std::string code(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_blank(text, at);
    const bool is_comment = text.substr(at).starts_with("//") || text.substr(at).starts_with("/*");
    for (std::size_t i = at; is_comment && i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
    at = std::max(end, at + 1);
  }
  return code;
}

std::string code_only(std::string_view text) {
  std::string code(text);
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = starts_preprocessor_line(text, at) ? end_of_preprocessor_line(text, at)
                                                         : end_of_blank(text, at);
    if (end == at) {
      ++at;
      continue;
    }
    for (; at < end; ++at) {
      if (code[at] != '\n') code[at] = ' ';
    }
  }
  return code;
}

std::vector<Violation> check_function_lengths(const SourceFile& file) {
  std::vector<Violation> violations;
  if (!is_source(file.path)) return violations;
  const std::string code = code_only(file.text);
  for (const auto& function : FunctionScanner(code).scan()) {
    const std::size_t lines = function.last_line - function.first_line + 1;
    if (lines <= kMaxFunctionLines) continue;
    violations.push_back({file.path, function.first_line,
                          "function of " + std::to_string(lines) + " lines, at most " +
                              std::to_string(kMaxFunctionLines)});
  }
  return violations;
}

std::vector<Violation> check_file_length(const SourceFile& file) {
  const std::size_t lines = split_lines(file.text).size();
  if (!is_source(file.path) || lines <= kMaxFileLines) return {};
  return {
      {file.path, 0, std::to_string(lines) + " lines, at most " + std::to_string(kMaxFileLines)}};
}

std::vector<Violation> check_columns(const SourceFile& file) {
  std::vector<Violation> violations;
  const std::vector<std::string_view> lines = split_lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Continuation bytes of UTF-8 take no column.
    const auto columns =
        static_cast<std::size_t>(std::count_if(lines[i].begin(), lines[i].end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
        }));
    if (columns <= kMaxColumns) continue;
    violations.push_back(
        {file.path, i + 1,
         std::to_string(columns) + " columns, at most " + std::to_string(kMaxColumns)});
  }
  return violations;
}

std::vector<Violation> check_includes(const SourceFile& file) {
  std::vector<Violation> violations;
  if (!is_source(file.path)) return violations;
  bool has_pragma_once = false;
  const std::vector<std::string_view> lines = split_lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    has_pragma_once = has_pragma_once || line == "#pragma once";
    constexpr std::string_view kInclude = "#include ";
    if (!line.starts_with(kInclude)) continue;
    line.remove_prefix(kInclude.size());
    const bool is_quoted = line.starts_with('"');
    const std::size_t end = line.find(is_quoted ? '"' : '>', 1);
    const std::string_view target = line.substr(1, end - 1);
    const std::string fault =
        is_quoted ? include_fault(file.path, target) : system_include_fault(file.path, target);
    if (!fault.empty()) violations.push_back({file.path, i + 1, fault});
  }
  if (file.path.ends_with(".h") && !has_pragma_once) {
    violations.push_back({file.path, 0, "a header without #pragma once"});
  }
  return violations;
}

std::vector<Violation> check_determinism(const SourceFile& file) {
  std::vector<Violation> violations;
  const std::string_view module = module_of(file.path);
  const bool decides = module == "core" || module == "engines" || module == "models" ||
                       module == "sim" || module == "fleet";
  if (!is_source(file.path) || !decides) return violations;
  // Functions of our own for those of Boost and of the standard library.
  if (file.path == "core/base/rng.cpp" || file.path.starts_with("core/base/number_chars.")) {
    return violations;
  }
  const std::string code = code_only(file.text);
  const std::vector<std::string_view> lines = split_lines(code);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const Ban& ban : kDeterminismBans) {
      if (!occurs_as_word(lines[i], ban.text)) continue;
      violations.push_back(
          {file.path, i + 1, std::string(ban.text) + ": use " + std::string(ban.instead)});
    }
    const std::string_view inexact = inexact_call(lines[i]);
    if (!inexact.empty()) {
      violations.push_back({file.path, i + 1, std::string(inexact) + ": use core/base/math.h"});
    }
    const std::string_view distribution = std_distribution(lines[i]);
    if (distribution.empty()) continue;
    violations.push_back({file.path, i + 1, std::string(distribution) + ": use core/base/rng.h"});
  }
  return violations;
}

std::vector<Violation> check_words(const SourceFile& file) {
  std::vector<Violation> violations;
  const std::vector<std::string_view> lines = split_lines(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const std::string_view word : kBannedWords) {
      if (lines[i].find(word) == std::string_view::npos) continue;
      violations.push_back({file.path, i + 1, "says '" + std::string(word) + "'"});
    }
  }
  return violations;
}

std::vector<Violation> check_joined_numbers(const SourceFile& file) {
  constexpr std::string_view kCall = "std::to_string(";
  const std::string_view module = module_of(file.path);
  const bool has_no_fmt =
      module == "gpu" || module == "tests" || file.path.starts_with("tools/power_loss/");
  if (!file.path.ends_with(".cpp") || has_no_fmt) return {};
  std::vector<Violation> violations;
  const std::string blanked = code_only(file.text);
  const std::string_view code = blanked;
  for (std::size_t at = code.find(kCall); at != code.npos; at = code.find(kCall, at + 1)) {
    std::size_t end = at + kCall.size();
    for (int depth = 1; depth > 0 && end < code.size(); ++end) {
      depth += code[end] == '(' ? 1 : code[end] == ')' ? -1 : 0;
    }
    const bool is_joined =
        trimmed(code.substr(0, at)).ends_with('+') || trimmed(code.substr(end)).starts_with('+');
    if (!is_joined) continue;
    const auto line =
        1 + std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    violations.push_back(
        {file.path, static_cast<std::size_t>(line), "std::to_string in a text: use fmt::format"});
  }
  return violations;
}

std::vector<Violation> check_licence(const SourceFile& file) {
  const std::size_t first = std::min(file.text.find('\n'), file.text.size());
  const std::size_t second = std::min(file.text.find('\n', first + 1), file.text.size());
  // The second line counts where the first names an interpreter.
  if (file.text.substr(0, second).find(kLicenceLine) != std::string::npos) return {};
  return {{file.path, 1, "no line \"" + std::string(kLicenceLine) + '"'}};
}

std::vector<Violation> check_test_namespace(const SourceFile& file) {
  const std::string name = file.path.substr(file.path.rfind('/') + 1);
  const bool is_test = file.path.starts_with("tests/") && name.starts_with("test_");
  if (!is_test || !file.path.ends_with(".cpp")) return {};
  if (file.text.find("TEST_FILE {\n") != std::string::npos) return {};
  return {{file.path, 1, "its helpers are not in a namespace TEST_FILE"}};
}

std::vector<Violation> check_top_level_name(std::string_view name) {
  if (name.starts_with('.')) return {};
  if (std::find(std::begin(kTopLevel), std::end(kTopLevel), name) != std::end(kTopLevel)) return {};
  return {{std::string(name), 0, "not part of the top-level layout"}};
}

}  // namespace metronome::testing
