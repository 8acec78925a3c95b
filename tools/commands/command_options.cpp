// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/command_options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <fmt/core.h>
#include <iostream>
#include <type_traits>

#include "core/base/error.h"
#include "core/config/config_reader.h"

namespace metronome {

namespace po = boost::program_options;

bool CommandLine::has(std::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

namespace {

constexpr const char* kFiles = "file";  // Boost's name for the files
constexpr const char* kHelp = "help";

po::value_semantic* semantic_of(bool* variable, const std::string&) {
  return po::bool_switch(variable);
}

template <class Value>
po::value_semantic* semantic_of(Value* variable, const std::string& value_name) {
  return po::value(variable)->value_name(value_name);
}

template <class Value>
po::value_semantic* semantic_of(std::vector<Value>* variable, const std::string& value_name) {
  return po::value(variable)->composing()->value_name(value_name);
}

template <class Value>
po::value_semantic* semantic_of(std::optional<Value>* variable, const std::string& value_name) {
  const auto keep = [variable](const Value& value) { *variable = value; };
  return po::value<Value>()->notifier(keep)->value_name(value_name);
}

po::options_description visible_options(const OptionList& options) {
  po::options_description visible("options");
  for (const CommandOption& option : options) {
    const std::size_t space = std::min(option.syntax.find(' '), option.syntax.size());
    const std::string name(option.syntax.substr(0, space));
    const std::string value_name(option.syntax.substr(std::min(space + 1, option.syntax.size())));
    METRONOME_CHECK(std::holds_alternative<bool*>(option.variable) == value_name.empty(),
                    "an option names its value, where it has one");
    po::value_semantic* const semantic = std::visit(
        [&](auto* variable) { return semantic_of(variable, value_name); }, option.variable);
    visible.add_options()(name.c_str(), semantic, option.help);
  }
  visible.add_options()((kHelp + std::string(",h")).c_str(), "this text");
  return visible;
}

std::string hint(const CommandText& text) {
  return " (see `metronome " + std::string(text.name) + " --help`)";
}

// "jobs" of "jobs,j N".
std::string_view name_of(const CommandOption& option) {
  return option.syntax.substr(0, option.syntax.find_first_of(", "));
}

// "--jobs N" of "jobs,j N (=2)".
std::string usage_of(const CommandOption& option) {
  std::string usage = "--" + std::string(name_of(option));
  const std::size_t space = option.syntax.find(' ');
  if (space == std::string_view::npos) return usage;
  const std::string_view value = option.syntax.substr(space + 1);
  return usage.append(" ").append(value.substr(0, value.find(' ')));
}

// "1 to 1024", "above 0 to 604800 seconds"; empty for an option without a range.
struct RangeText {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const WholeRange& range) const {
    return fmt::format("{} to {}", range.least, range.most);
  }
  std::string operator()(const RealRange& range) const {
    std::string text = range.excludes_least ? "above " : "";
    text += describe_range(range.least, range.most);
    return range.unit.empty() ? text : text.append(" ").append(range.unit);
  }
};

std::string range_text(const NumberRange& range) { return std::visit(RangeText(), range); }

struct AllowedText {
  std::string operator()(const bool*) const { return "no value"; }
  std::string operator()(const std::int32_t*) const { return "a whole number up to 2147483647"; }
  std::string operator()(const std::int64_t*) const { return kWhole; }
  std::string operator()(const std::size_t*) const { return kWhole; }
  std::string operator()(const std::optional<std::int64_t>*) const { return kWhole; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const std::optional<double>*) const { return "a number"; }
  template <class Text>
  std::string operator()(const Text*) const {
    return "a text";
  }
  static constexpr const char* kWhole = "a whole number up to 9223372036854775807";
};

// "; allowed: ..." for an error of the parser, or a suggestion for an unknown name.
std::string allowed_text(const po::error& error, const OptionList& options) {
  const auto* named = dynamic_cast<const po::error_with_option_name*>(&error);
  if (named == nullptr) return {};
  std::string given = named->get_option_name();
  given.erase(0, given.find_first_not_of('-'));
  const auto row = std::find_if(options.begin(), options.end(), [&](const CommandOption& option) {
    const std::string_view names = option.syntax.substr(0, option.syntax.find(' '));
    return name_of(option) == given || names.ends_with("," + given);
  });
  if (row == options.end()) {
    std::vector<std::string_view> names;
    for (const CommandOption& option : options) names.push_back(name_of(option));
    return did_you_mean(given, names);
  }
  if (dynamic_cast<const po::multiple_occurrences*>(&error) != nullptr) return "; allowed: once";
  if (dynamic_cast<const po::validation_error*>(&error) == nullptr) {
    return "; allowed: " + usage_of(*row);
  }
  const std::string range = range_text(row->range);
  return "; allowed: " + (range.empty() ? std::visit(AllowedText(), row->variable) : range);
}

po::variables_map read_values(const CommandText& text, const po::options_description& visible,
                              const OptionList& options, const Arguments& arguments) {
  po::options_description all;
  all.add(visible);
  po::positional_options_description positional;
  if (text.files != FileCount::None) {
    all.add_options()(kFiles, po::value<std::vector<std::string>>());
    positional.add(kFiles, -1);
  }
  const int style = po::command_line_style::unix_style ^ po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional).style(style).run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    throw UsageError(std::string(text.name) + ": " + error.what() + allowed_text(error, options) +
                     hint(text));
  }
  return values;
}

CommandLine command_line_of(const po::variables_map& values) {
  CommandLine line;
  for (const auto& [name, value] : values) {
    if (name == kFiles) {
      line.files = value.as<std::vector<std::string>>();
    } else if (!value.defaulted()) {
      line.options.push_back(name);
    }
  }
  return line;
}

bool is_empty_text(const OptionVariable& variable) {
  if (auto* const* text = std::get_if<std::string*>(&variable)) return (*text)->empty();
  if (auto* const* text = std::get_if<std::optional<std::string>*>(&variable)) {
    return **text == "";
  }
  auto* const* texts = std::get_if<std::vector<std::string>*>(&variable);
  return texts != nullptr && std::find((*texts)->begin(), (*texts)->end(), "") != (*texts)->end();
}

void check_texts(const OptionList& options, const CommandLine& line) {
  for (const CommandOption& option : options) {
    const std::string name(name_of(option));
    if (option.empty == EmptyText::Allowed || !line.has(name)) continue;
    if (!is_empty_text(option.variable)) continue;
    throw UsageError("--" + name + ": is empty; allowed: " + usage_of(option));
  }
}

// The value of an option that has a range of `Number`s.
template <class Number>
struct ValueOf {
  Number operator()(const auto* value) const {
    using Value = std::remove_cvref_t<decltype(*value)>;
    if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool> &&
                  std::is_floating_point_v<Value> == std::is_floating_point_v<Number>) {
      return static_cast<Number>(*value);
    }
    METRONOME_CHECK(false, "a range of whole numbers is of whole numbers, one of reals of reals");
    return 0;
  }
  Number operator()(const std::optional<Number>* value) const { return value->value_or(0); }
};

// The fault of an option's value: "7 is out of range"; empty if it has none.
struct OutOfRange {
  const OptionVariable& variable;

  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const WholeRange& range) const {
    const auto value = std::visit(ValueOf<std::int64_t>(), variable);
    if (value >= range.least && value <= range.most) return "";
    return fmt::format("{} is out of range", value);
  }
  std::string operator()(const RealRange& range) const {
    const auto value = std::visit(ValueOf<double>(), variable);
    const bool is_least = value == range.least && range.excludes_least;
    if (value >= range.least && value <= range.most && !is_least) return "";
    const bool is_percent = range.is_share && value > 1 && value <= range.most * 100;
    return format_double(value) + " is out of range" +
           (is_percent ? ", did you mean '" + format_double(value / 100) + "'?" : "");
  }
};

void check_ranges(const OptionList& options, const CommandLine& line) {
  for (const CommandOption& option : options) {
    const std::string name(name_of(option));
    if (!line.has(name)) continue;
    const std::string fault = std::visit(OutOfRange{option.variable}, option.range);
    if (fault.empty()) continue;
    throw UsageError("--" + name + ": " + fault + "; allowed: " + range_text(option.range));
  }
}

void check_files(const CommandText& text, const std::vector<std::string>& files) {
  const std::string name(text.name);
  const std::string kind(text.file_kind);
  if (std::find(files.begin(), files.end(), std::string()) != files.end()) {
    throw UsageError(name + ": " + std::string(text.file_name) +
                     " is empty; allowed: the path of a " + kind);
  }
  if (text.files == FileCount::OneOrMore && files.empty()) {
    throw UsageError(name + ": give at least one " + kind + hint(text));
  }
  const bool has_too_many = text.files == FileCount::AtMostOne && files.size() > 1;
  if (has_too_many || (text.files == FileCount::One && files.size() != 1)) {
    throw UsageError(
        fmt::format("{}: give one {}, not {}{}", name, kind, files.size(), hint(text)));
  }
}

}  // namespace

std::optional<CommandLine> parse_command(const CommandText& text, const OptionList& options,
                                         const Arguments& arguments) {
  const po::options_description visible = visible_options(options);
  CommandLine line = command_line_of(read_values(text, visible, options, arguments));
  if (line.has(kHelp)) {
    std::cout << "usage: metronome " << text.name << ' ' << text.arguments << "\n\n"
              << text.summary << '\n'
              << visible << '\n'
              << text.examples;
    return std::nullopt;
  }
  check_files(text, line.files);
  check_texts(options, line);
  check_ranges(options, line);
  return line;
}

}  // namespace metronome
