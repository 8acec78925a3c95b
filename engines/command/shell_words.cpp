// SPDX-License-Identifier: Apache-2.0
#include "engines/command/shell_words.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/names.h"

namespace metronome {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// "NAME" of "NAME=value"; empty: the word is no assignment.
std::string_view assigned_name(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return {};
  if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) return {};
  for (const char c : word.substr(0, equals)) {
    if (!is_name_char(c)) return {};
  }
  return word.substr(0, equals);
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Lines of PowerShell and cmd.exe, where a backslash divides folders and escapes nothing.
bool is_of_windows(std::string_view text) {
  if (text.find("\\\n") != text.npos || text.find("\\\r\n") != text.npos) return false;
  const auto has = [text](std::string_view part, const auto& is_right) {
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
      if (is_right(at)) return true;
    }
    return false;
  };
  const auto follows_blank = [text](std::size_t at) { return at > 0 && is_blank(text[at - 1]); };
  const auto ends_name = [text](std::size_t at) {
    constexpr std::string_view kEnds = " \t\r\n\"'";
    const std::size_t end = at + std::string_view(".exe").size();
    return end == text.size() || kEnds.find(text[end]) != kEnds.npos;
  };
  return has("`\n", follows_blank) || has("`\r\n", follows_blank) || has("^\n", follows_blank) ||
         has("^\r\n", follows_blank) || has(".exe", ends_name);
}

class ShellReader {
 public:
  ShellReader(std::string_view text, const std::string& origin)
      : text_(text), origin_(origin), is_windows_(is_of_windows(text)) {}

  ShellText read() {
    while (at_ < text_.size()) read_next();
    end_command();
    return std::move(shell_);
  }

 private:
  struct HereDocument {
    std::string delimiter;
    bool strips_tabs = false;
  };

  bool is_at(std::string_view part) const { return text_.substr(at_).starts_with(part); }

  void read_next() {
    const char c = text_[at_];
    if (c == '\n') {
      if (documents_.empty() && words_.size() > 0) {
        const std::size_t next = next_line_of_command();
        if (next != std::string_view::npos) {
          at_ = next;
          return;
        }
      }
      end_command();
      ++at_;
      read_documents();
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (skip_continuation()) {
      return;
    } else if (c == '#') {
      // A comment between continued lines ends the command in a shell. People mean it not to, but
      // for variables that they export.
      at_ = std::min(text_.find('\n', at_), text_.size());
      is_continued_ = is_continued_ && !has_only_assignments();
      if (is_continued_ && at_ < text_.size()) ++at_;
    } else if (is_at("<<") && !is_at("<<<")) {
      begin_document();
    } else if (c == '>' || c == '<' || is_at("&>") || is_file_number()) {
      read_redirection();
    } else if (c == ';' || c == '|' || c == '&') {
      end_command();
      ++at_;
    } else {
      is_continued_ = false;
      if (!read_list() && !read_expanded()) words_.push_back(read_word());
    }
  }

  // Where the next line with text begins, if it belongs to this command though a shell would end it
  // here: it begins with a flag, or, behind a continued line and empty ones, with blanks. npos: it
  // does not.
  std::size_t next_line_of_command() const {
    std::size_t next = at_;
    std::size_t line = at_;
    for (; next < text_.size() && (text_[next] == '\n' || is_blank(text_[next])); ++next) {
      if (text_[next] == '\n') line = next + 1;
    }
    const std::string_view rest = text_.substr(next);
    const std::size_t dashes = std::min(rest.find_first_not_of('-'), rest.size());
    const bool is_flag = (dashes == 1 || dashes == 2) && dashes < rest.size() &&
                         std::isalpha(static_cast<unsigned char>(rest[dashes])) != 0;
    const bool goes_on = is_flag || (is_continued_ && next > line && !rest.empty());
    return goes_on ? next : std::string_view::npos;
  }

  // The word of NAME=value, `export NAME=value` and so on.
  bool has_only_assignments() const {
    const std::size_t first = !words_.empty() && words_.front() == "export" ? 1 : 0;
    return std::all_of(words_.begin() + static_cast<std::ptrdiff_t>(first), words_.end(),
                       [](const std::string& word) { return !assigned_name(word).empty(); });
  }

  // NAME=(...), NAME+=(...): a list of words. False: there is none.
  bool read_list() {
    if (!has_only_assignments()) return false;
    std::size_t end = at_;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    const std::string name(text_.substr(at_, end - at_));
    const bool adds = text_.substr(end).starts_with("+=(");
    if (name.empty() || (!adds && !text_.substr(end).starts_with("=("))) return false;
    at_ = end + (adds ? 3 : 2);
    std::vector<std::string> outer = std::exchange(words_, {});
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      if (c == '\n' || std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(";|&<>").find(c) != std::string_view::npos) {
        ++at_;  // no part of a list
      } else if (!skip_continuation() && !read_expanded()) {
        words_.push_back(read_word(true));
      }
    }
    at_ = std::min(at_ + 1, text_.size());
    std::vector<std::string>& list = lists_[name];
    if (!adds) list.clear();
    for (std::string& word : words_) list.push_back(std::move(word));
    words_ = std::move(outer);
    return true;
  }

  // "${NAME[@]}" of a list, and $NAME, ${NAME} or ${NAME:-default} without quotes whose value has
  // several words. A shell would not look at quotes inside of the value. False: there is none.
  bool read_expanded() {
    std::string_view rest = text_.substr(at_);
    const bool is_quoted = rest.starts_with('"');
    if (is_quoted) rest.remove_prefix(1);
    if (!rest.starts_with('$')) return false;
    rest.remove_prefix(1);
    const bool has_brace = rest.starts_with('{');
    if (has_brace) rest.remove_prefix(1);
    std::size_t end = 0;
    while (end < rest.size() && is_name_char(rest[end])) ++end;
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(end);
    const bool is_list = rest.starts_with("[@]") || rest.starts_with("[*]");
    if (is_list) rest.remove_prefix(3);
    const auto value = shell_.variables.find(name);
    std::string_view text = value == shell_.variables.end() ? "" : std::string_view(value->second);
    if (has_brace && !is_list && rest.starts_with(":-")) {
      const std::size_t close = std::min(rest.find('}'), rest.size());
      if (text.empty()) text = rest.substr(2, close - 2);
      rest.remove_prefix(close);
    }
    if (has_brace && !rest.starts_with('}')) return false;
    if (has_brace) rest.remove_prefix(1);
    if (is_quoted && !rest.starts_with('"')) return false;
    if (is_quoted) rest.remove_prefix(1);
    if (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.front())) == 0 &&
        rest.front() != ')' && rest.front() != ';') {
      return false;
    }
    std::vector<std::string> words;
    if (const auto list = lists_.find(name); is_list && list != lists_.end()) {
      words = list->second;
    } else if (!is_list && !is_quoted && text.find_first_of(" \n") != text.npos) {
      count_expanded(name, text.size());
      for (std::vector<std::string>& part : split_shell(text, origin_).commands) {
        for (std::string& word : part) words.push_back(std::move(word));
      }
    } else {
      return false;
    }
    at_ = text_.size() - rest.size();
    constexpr std::size_t kWordSize = 64;
    for (const std::string& word : words) count_expanded(name, word.size() + kWordSize);
    for (std::string& word : words) words_.push_back(std::move(word));
    return true;
  }

  // A backslash at the end of a line, as shells write it, or `^` and a backtick of other ones.
  bool skip_continuation() {
    for (const std::string_view end : {"\\\n", "\\\r\n", "\\ \n", "^\n", "^\r\n", "`\n", "`\r\n"}) {
      if (!is_at(end) || (is_windows_ && end.starts_with('\\'))) continue;
      const bool is_word = at_ > 0 && !is_blank(text_[at_ - 1]);  // "```" of Markdown
      if (is_word && end.starts_with('`')) continue;
      at_ += end.size();
      is_continued_ = true;
      return true;
    }
    return false;
  }

  // "2>".
  bool is_file_number() const {
    return std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 && at_ + 1 < text_.size() &&
           (text_[at_ + 1] == '>' || text_[at_ + 1] == '<');
  }

  void read_redirection() {
    const auto skip_digits = [this] {
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    };
    skip_digits();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (text_[at_] == '>' || text_[at_] == '<' || text_[at_] == '&'))
      ++at_;
    if (at_ > begin && text_[at_ - 1] == '&') return skip_digits();  // "2>&1"
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (at_ < text_.size() && text_[at_] != '\n') written_ = read_word();
  }

  void begin_document() {
    at_ += 2;
    HereDocument document;
    if (at_ < text_.size() && text_[at_] == '-') {
      document.strips_tabs = true;
      ++at_;
    }
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    document.delimiter = read_word();
    documents_.push_back(std::move(document));
  }

  // The lines behind the command's own, up to each delimiter. Their file is that of `> FILE`, or
  // the last word of `tee FILE`.
  void read_documents() {
    for (const HereDocument& document : std::exchange(documents_, {})) {
      std::string content;
      while (at_ < text_.size()) {
        const std::size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string_view line = text_.substr(at_, end - at_);
        at_ = std::min(end + 1, text_.size());
        while (document.strips_tabs && line.starts_with('\t')) line.remove_prefix(1);
        std::string_view shown = line;
        while (shown.ends_with('\r') || shown.ends_with(' ')) shown.remove_suffix(1);
        while (shown.starts_with(' ')) shown.remove_prefix(1);
        if (shown == document.delimiter) break;
        content += std::string(line) + "\n";
      }
      if (!document_file_.empty()) shell_.files[document_file_] = content;
    }
    document_file_.clear();
  }

  void end_command() {
    if (!documents_.empty()) {
      const bool is_tee = words_.size() > 1 && words_.front() == "tee";
      document_file_ = !written_.empty() ? written_ : is_tee ? words_.back() : std::string();
    }
    written_.clear();
    std::vector<std::string> words = std::exchange(words_, {});
    if (is_windows_ && set_windows_variable(words)) return;
    constexpr std::string_view kUnit = "ExecStart=";  // of systemd
    if (!words.empty() && words.front().starts_with(kUnit)) words.front().erase(0, kUnit.size());
    std::size_t first = 0;
    if (!words.empty() && words.front() == "export") first = 1;
    std::size_t at = first;
    for (; at < words.size() && !assigned_name(words[at]).empty(); ++at) {
      const std::string_view name = assigned_name(words[at]);
      shell_.variables[std::string(name)] = words[at].substr(name.size() + 1);
    }
    if (at == words.size()) return;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
    shell_.commands.push_back(std::move(words));
  }

  // Bytes that variables and lists add, in all commands together.
  void count_expanded(const std::string& name, std::size_t size) {
    constexpr std::size_t kMost = 8 << 20;
    expanded_ += size;
    if (expanded_ > kMost) fail_size(name);
  }

  // Of a text that doubles a variable again and again.
  [[noreturn]] void fail_size(const std::string& name) const {
    throw UsageError(origin_ + ": $" + printable(name) +
                     " is too long; allowed: values of up to a megabyte");
  }

  // `$NAME = value` and `$env:NAME = value` of PowerShell, `set NAME=value` of cmd.exe.
  bool set_windows_variable(const std::vector<std::string>& words) {
    if (words.size() == 3 && words[0].starts_with('$') && words[1] == "=") {
      const std::size_t colon = words[0].find(':');
      shell_.variables[words[0].substr(colon == std::string::npos ? 1 : colon + 1)] = words[2];
      return true;
    }
    if (words.size() != 2 || lower_ascii(words[0]) != "set") return false;
    const std::string_view name = assigned_name(words[1]);
    if (name.empty()) return false;
    shell_.variables[std::string(name)] = words[1].substr(name.size() + 1);
    return true;
  }

  std::string read_word(bool is_in_list = false) {
    std::string word;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_in_list && c == ')') break;
      if (c == '\'' || c == '"') {
        read_quoted(c, word);
      } else if (skip_continuation()) {
        break;
      } else if (c == '\\' && at_ + 1 < text_.size() && !is_windows_) {
        word += text_[at_ + 1];
        at_ += 2;
      } else if (c == '$') {
        read_variable(word);
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';' || c == '|' ||
                 c == '&' || c == '>' || c == '<') {
        break;
      } else {
        word += c;
        ++at_;
        if (c == '{' && !word.ends_with("${")) read_braces(word);
      }
    }
    return word;
  }

  // JSON that nobody quoted, {"method": "mtp"}: one word up to the closing brace.
  void read_braces(std::string& word) {
    if (at_ > braces_end_) find_braces();
    const auto close = braces_.find(at_ - 1);
    if (close == braces_.end()) return;
    word += text_.substr(at_, close->second + 1 - at_);
    at_ = close->second + 1;
  }

  // The closing brace of each in the rest of the line.
  void find_braces() {
    braces_.clear();
    std::vector<std::size_t> open;
    braces_end_ = at_ - 1;
    for (; braces_end_ < text_.size() && text_[braces_end_] != '\n'; ++braces_end_) {
      if (text_[braces_end_] == '{') open.push_back(braces_end_);
      if (text_[braces_end_] != '}' || open.empty()) continue;
      braces_[open.back()] = braces_end_;
      open.pop_back();
    }
  }

  void read_quoted(char quote, std::string& word) {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_];
      if (quote == '"' && c == '$') {
        read_variable(word);
        continue;
      }
      if (quote == '"' && c == '\\' && at_ + 1 < text_.size() && !is_windows_) {
        const char next = text_[at_ + 1];
        at_ += 2;
        if (next == '\n') continue;
        if (next != '"' && next != '\\' && next != '$' && next != '`') word += c;
        word += next;
        continue;
      }
      word += c;
      ++at_;
    }
    if (at_ == text_.size()) {
      throw UsageError(origin_ + ": the quote " + std::string(1, quote) + " in '" +
                       printable(text_.substr(begin, 20)) +
                       "' does not end; allowed: a closed one");
    }
    ++at_;
  }

  // $NAME, ${NAME} or ${NAME:-default}; as it stands if the text does not set it.
  void read_variable(std::string& word) {
    const std::size_t begin = at_++;
    const bool has_brace = at_ < text_.size() && text_[at_] == '{';
    if (has_brace) ++at_;
    const std::size_t name_begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    const std::string name(text_.substr(name_begin, at_ - name_begin));
    std::string fallback;
    bool has_fallback = false;
    if (has_brace) {
      const std::size_t close = std::min(text_.find('}', at_), text_.size());
      const std::string_view rest = text_.substr(at_, close - at_);
      has_fallback = rest.starts_with(":-");
      if (has_fallback) fallback = rest.substr(2);
      at_ = std::min(close + 1, text_.size());
    }
    const auto found = shell_.variables.find(name);
    if (found != shell_.variables.end() && !(has_fallback && found->second.empty())) {
      constexpr std::size_t kMost = 1 << 20;
      if (word.size() + found->second.size() > kMost) fail_size(name);
      count_expanded(name, found->second.size());
      word += found->second;
    } else {
      word += has_fallback ? fallback : std::string(text_.substr(begin, at_ - begin));
    }
  }

  std::string_view text_;
  const std::string& origin_;
  bool is_windows_ = false;
  std::size_t at_ = 0;
  bool is_continued_ = false;  // the last word was before a backslash at the end of a line
  std::size_t expanded_ = 0;
  std::map<std::size_t, std::size_t> braces_;  // closing ones by the opening ones of a line
  std::size_t braces_end_ = 0;                 // of that line
  std::vector<std::string> words_;
  std::string written_;  // the file that the command writes
  std::vector<HereDocument> documents_;
  std::string document_file_;
  std::map<std::string, std::vector<std::string>> lists_;  // set in the text: NAME=(word word)
  ShellText shell_;
};

}  // namespace

ShellText split_shell(std::string_view text, const std::string& origin) {
  return ShellReader(text, origin).read();
}

}  // namespace metronome
