// SPDX-License-Identifier: Apache-2.0
#include "core/config/config_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <fmt/core.h>
#include <optional>
#include <sstream>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/number_chars.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr std::string_view kAssignmentPrefix = "--set ";
constexpr std::size_t kMaxDepth = 32;  // far above real nesting; keeps recursion over trees shallow

// Builds the tree from the parser's events. YAML::Node would keep duplicate keys and lose the
// difference between quoted and plain scalars.
class TreeBuilder final : public YAML::EventHandler {
 public:
  // `has_lines` is false for an assignment, whose lines mean nothing to the user. `text` must
  // outlive the builder.
  TreeBuilder(std::shared_ptr<const std::string> file, bool has_lines, std::string_view text)
      : file_(std::move(file)), has_lines_(has_lines), text_(text), line_begins_{0} {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_begins_.push_back(i + 1);
    }
  }

  ConfigNode release_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(ConfigNode{}, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_config(at(mark), "", "aliases (*name) are not supported; allowed: the value written out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    ConfigNode node;
    node.kind = ConfigNode::Kind::Scalar;
    node.scalar = value;
    node.is_quoted = tag == "!";
    if (node.is_quoted) refuse_open_quote(mark);
    add(std::move(node), mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::Sequence);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::Map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    ConfigNode node;
    YAML::Mark mark;
    bool has_key = false;
    std::string key;
    SourceLocation key_where;
  };

  SourceLocation at(const YAML::Mark& mark) const {
    return {file_, has_lines_ ? mark.line + 1 : 0};
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor == YAML::NullAnchor) return;
    fail_config(at(mark), "", "anchors (&name) are not supported; allowed: plain values");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail_config(at(mark), "", "tags (!name) are not supported; allowed: plain values");
  }

  // yaml-cpp accepts an unclosed quote as if it closed at the end of the file.
  void refuse_open_quote(const YAML::Mark& mark) const {
    if (static_cast<std::size_t>(mark.line) >= line_begins_.size()) return;
    std::size_t at_char =
        line_begins_[static_cast<std::size_t>(mark.line)] + static_cast<std::size_t>(mark.column);
    const char quote = at_char < text_.size() ? text_[at_char] : '\0';
    if (quote != '\'' && quote != '"') return;  // a block scalar
    for (++at_char; at_char < text_.size(); ++at_char) {
      const bool is_quote = text_[at_char] == quote;
      const bool is_doubled =
          quote == '\'' && at_char + 1 < text_.size() && text_[at_char + 1] == quote;
      if (is_quote && !is_doubled) return;
      if (is_quote || (quote == '"' && text_[at_char] == '\\')) ++at_char;  // an escaped character
    }
    fail_config(at(mark), "",
                "malformed YAML: a quote is opened and not closed; allowed: YAML 1.2");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            ConfigNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (!stack_.empty() && is_key_position()) refuse_key(mark);
    if (stack_.size() >= kMaxDepth) {
      fail_config(at(mark), "", "nested too deeply; allowed: at most 32 levels");
    }
    stack_.push_back(Open{});
    stack_.back().node.kind = kind;
    stack_.back().mark = mark;
  }

  void close() {
    ConfigNode node = std::move(stack_.back().node);
    const YAML::Mark mark = stack_.back().mark;
    stack_.pop_back();
    add(std::move(node), mark);
  }

  bool is_key_position() const {
    return stack_.back().node.kind == ConfigNode::Kind::Map && !stack_.back().has_key;
  }

  [[noreturn]] void refuse_key(const YAML::Mark& mark) const {
    fail_config(at(mark), "",
                "a key must be a word, or a bracket is not closed; allowed: KEY: VALUE");
  }

  void add(ConfigNode node, const YAML::Mark& mark) {
    node.where = at(mark);
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == ConfigNode::Kind::Sequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      set_key(parent, node, mark);
    } else {
      node.where = parent.key_where;
      parent.node.entries.emplace_back(std::move(parent.key), std::move(node));
      parent.has_key = false;
    }
  }

  void set_key(Open& parent, const ConfigNode& node, const YAML::Mark& mark) const {
    if (node.kind != ConfigNode::Kind::Scalar || node.scalar.empty()) refuse_key(mark);
    if (const ConfigNode* first = parent.node.find(node.scalar)) {
      const std::string at_line =
          has_lines_ ? fmt::format(", first given at line {}", first->where.line) : "";
      fail_config(node.where, dotted_path(node.scalar),
                  "duplicate key" + at_line + "; allowed: each key once");
    }
    parent.key = node.scalar;
    parent.key_where = node.where;
    parent.has_key = true;
  }

  // The path of a key of the innermost open mapping.
  std::string dotted_path(const std::string& key) const {
    std::string path;
    for (std::size_t i = 0; i + 1 < stack_.size(); ++i) {
      const Open& level = stack_[i];
      path += level.node.kind == ConfigNode::Kind::Map ? level.key
                                                       : std::to_string(level.node.items.size());
      path += '.';
    }
    return path + key;
  }

  std::shared_ptr<const std::string> file_;
  bool has_lines_;
  std::string_view text_;
  std::vector<std::size_t> line_begins_;
  std::vector<Open> stack_;
  ConfigNode root_;
};

void relocate(ConfigNode& node, const SourceLocation& where) {
  node.where = where;
  for (ConfigNode& item : node.items) relocate(item, where);
  for (ConfigNode::Entry& entry : node.entries) relocate(entry.value, where);
}

bool is_tab_indented(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::size_t end = text.find_first_not_of(" \t");
  return text.substr(0, end).find('\t') != std::string_view::npos;
}

// The child named by `segment`, created if a mapping lacks it.
ConfigNode& step_into(ConfigNode& node, const std::string& segment, const std::string& above,
                      const SourceLocation& where) {
  if (node.kind == ConfigNode::Kind::Null) node.kind = ConfigNode::Kind::Map;
  if (node.kind == ConfigNode::Kind::Map) {
    if (ConfigNode* child = node.find(segment)) return *child;
    node.entries.emplace_back(segment, ConfigNode{});
    node.entries.back().value.where = where;
    return node.entries.back().value;
  }
  if (node.kind == ConfigNode::Kind::Scalar) {
    fail_config(where, "",
                "'" + clipped(above) + "' is " + node.describe() + ", which has no keys" +
                    "; allowed: a key of a mapping or a position in a list");
  }
  std::size_t position = 0;
  const char* end = segment.data() + segment.size();
  const auto [rest, error] = read_number(segment.data(), end, position);
  if (error != std::errc() || rest != end || position >= node.items.size()) {
    const std::string allowed = node.items.empty() ? "none, the list is empty"
                                                   : fmt::format("0 to {}", node.items.size() - 1);
    fail_config(where, "",
                "'" + clipped(segment) + "' is not a position in the list '" + clipped(above) +
                    "'; allowed: " + allowed);
  }
  return node.items[position];
}

}  // namespace

std::string SourceLocation::to_string() const {
  if (file == nullptr) return "";
  return line > 0 ? fmt::format("{}:{}", *file, line) : *file;
}

bool SourceLocation::is_assignment() const {
  return file != nullptr && file->starts_with(kAssignmentPrefix);
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

ConfigNode* ConfigNode::find(std::string_view key) {
  return const_cast<ConfigNode*>(std::as_const(*this).find(key));
}

const ConfigNode* ConfigNode::find_path(std::string_view path) const {
  const ConfigNode* node = this;
  while (node != nullptr && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    node = node->find(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return node;
}

ConfigNode* ConfigNode::find_path(std::string_view path) {
  return const_cast<ConfigNode*>(std::as_const(*this).find_path(path));
}

void ConfigNode::erase(std::string_view key) {
  std::erase_if(entries, [key](const Entry& entry) { return entry.key == key; });
}

std::string ConfigNode::describe() const {
  switch (kind) {
    case Kind::Null: return "nothing";
    case Kind::Sequence: return "a list";
    case Kind::Map: return "a mapping";
    case Kind::Scalar: break;
  }
  const std::string shown = clipped(scalar);
  return is_quoted ? "the quoted string \"" + shown + "\"" : "'" + shown + "'";
}

ConfigNode parse_config_text(std::string_view text, const std::string& name) {
  const auto file = std::make_shared<const std::string>(name);
  std::istringstream stream{std::string(text)};
  const bool is_file = !name.starts_with(kAssignmentPrefix);
  TreeBuilder builder(file, is_file, text);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    ConfigNode root = builder.release_root();
    if (root.where.file == nullptr) root.where = {file, is_file ? 1 : 0};
    TreeBuilder rest(file, is_file, text);
    if (parser.HandleNextDocument(rest)) {
      fail_config(rest.release_root().where, "",
                  "more text after the end of the document; allowed: one document");
    }
    return root;
  } catch (const YAML::Exception& error) {
    const bool has_line = is_file && !error.mark.is_null();
    const SourceLocation where{file, has_line ? error.mark.line + 1 : 0};
    if (has_line && is_tab_indented(text, error.mark.line)) {
      fail_config(where, "", "malformed YAML: tabs cannot indent YAML; allowed: spaces");
    }
    fail_config(where, "", "malformed YAML: " + error.msg + "; allowed: YAML 1.2");
  }
}

ConfigNode load_config_file(const std::string& path) {
  const SourceLocation where{std::make_shared<const std::string>(path), 0};
  constexpr const char* kAllowed = "; allowed: a readable YAML file";
  constexpr std::size_t kMaxBytes = 16 << 20;
  const std::optional<std::string> text = read_file(path, kMaxBytes);
  if (!text && errno == EFBIG) {
    fail_config(where, "", "is larger than 16 MiB; allowed: a smaller YAML file");
  }
  if (!text) fail_config(where, "", input_problem() + kAllowed);
  return parse_config_text(*text, path);
}

void merge_into(ConfigNode& base, const ConfigNode& over) {
  if (base.kind != ConfigNode::Kind::Map || over.kind != ConfigNode::Kind::Map) {
    base = over;
    return;
  }
  for (const ConfigNode::Entry& entry : over.entries) {
    if (ConfigNode* child = base.find(entry.key)) {
      merge_into(*child, entry.value);
    } else {
      base.entries.push_back(entry);
    }
  }
}

SourceLocation assignment_location(std::string_view key) {
  return {std::make_shared<const std::string>(std::string(kAssignmentPrefix).append(key)), 0};
}

std::string_view assignment_key(std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string_view key = assignment.substr(0, equals);
  const bool has_empty_segment = key.empty() || key.front() == '.' || key.back() == '.' ||
                                 key.find("..") != std::string_view::npos;
  if (equals == std::string_view::npos || has_empty_segment) {
    fail_config(assignment_location(assignment), "",
                "malformed assignment; allowed: KEY=VALUE, as in slo.ttft_ms=500");
  }
  return key;
}

ConfigNode config_node(const Json& value, const SourceLocation& where) {
  ConfigNode node;
  node.where = where;
  if (value.is_array()) {
    node.kind = ConfigNode::Kind::Sequence;
    for (const Json& item : value) node.items.push_back(config_node(item, where));
  } else if (value.is_object()) {
    node.kind = ConfigNode::Kind::Map;
    for (const auto& [key, member] : value.items()) {
      node.entries.emplace_back(key, config_node(member, where));
    }
  } else if (!value.is_null()) {
    node.kind = ConfigNode::Kind::Scalar;
    node.is_quoted = value.is_string();
    node.scalar = node.is_quoted ? value.string() : value.dump();
  }
  return node;
}

ConfigNode& section_of(ConfigNode& mapping, const char* key, const SourceLocation& where) {
  if (ConfigNode* const found = mapping.find(key)) return *found;
  ConfigNode section;
  section.kind = ConfigNode::Kind::Map;
  section.where = where;
  return mapping.entries.emplace_back(key, std::move(section)).value;
}

Json json_of(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::Null: return nullptr;
    case ConfigNode::Kind::Sequence: {
      Json list = Json::array();
      for (const ConfigNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case ConfigNode::Kind::Map: {
      Json object = Json::object();
      for (const ConfigNode::Entry& entry : node.entries) object[entry.key] = json_of(entry.value);
      return object;
    }
    case ConfigNode::Kind::Scalar: break;
  }
  if (node.is_quoted) return node.scalar;
  std::optional<Json> value = Json::try_parse(node.scalar);
  const bool is_word = !value || value->is_string() || value->is_structured();
  return is_word ? Json(node.scalar) : std::move(*value);
}

void assign_value(ConfigNode& root, std::string_view path, std::string_view value,
                  std::string_view key) {
  assign_node(root, path, parse_config_text(value, *assignment_location(key).file), key);
}

void assign_node(ConfigNode& root, std::string_view path, ConfigNode value, std::string_view key) {
  const SourceLocation where = assignment_location(key);
  relocate(value, where);
  ConfigNode* node = &root;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string above(path.substr(0, begin == 0 ? 0 : begin - 1));
    node = &step_into(*node, std::string(path.substr(begin, end - begin)), above, where);
    begin = end + 1;
  }
  *node = std::move(value);
}

void apply_assignment(ConfigNode& root, std::string_view assignment) {
  const std::string_view key = assignment_key(assignment);
  assign_value(root, key, assignment.substr(key.size() + 1), key);
}

}  // namespace metronome
