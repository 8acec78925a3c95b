// SPDX-License-Identifier: Apache-2.0
// The methods of Python's str.
#include <algorithm>
#include <array>
#include <fmt/core.h>

#include "models/text/jinja/characters.h"
#include "models/text/jinja/methods.h"
#include "models/text/jinja/operators.h"
#include "models/text/utf8.h"

namespace metronome::jinja {
namespace {

Value strip_at(Runtime& runtime, const Value& self, Arguments& arguments, const char* name,
               bool at_left, bool at_right) {
  arguments.bind(name, {"chars"});
  const Value* removed = arguments.find(0);
  const bool has_set = removed != nullptr && !removed->is(Kind::None);
  const std::string* set = has_set ? &arguments.text(0) : nullptr;
  runtime.meter().work(self.text().size() * (1 + (set != nullptr ? set->size() : 0)));
  return runtime.text(std::string(stripped(self.text(), set, at_left, at_right)));
}

Value strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return strip_at(runtime, self, arguments, "strip", true, true);
}
Value lstrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return strip_at(runtime, self, arguments, "lstrip", true, false);
}
Value rstrip(Runtime& runtime, const Value& self, Arguments& arguments) {
  return strip_at(runtime, self, arguments, "rstrip", false, true);
}

std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  return text.size() - stripped(text.substr(at), nullptr, true, false).size();
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char next = read_utf8(text.substr(at));
    if (is_space(next.code_point)) break;
    at += next.num_bytes;
  }
  return at;
}

// The byte ranges of split(); rsplit() is the split of the last parts.
std::vector<std::pair<std::size_t, std::size_t>> parts_of(Runtime& runtime, std::string_view text,
                                                          const std::string* separator) {
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  runtime.meter().work(text.size());
  const auto add = [&](std::size_t begin, std::size_t end) {
    parts.emplace_back(begin, end);
    if (parts.size() % 1024 == 0) runtime.meter().expect(parts.size() * 2 * sizeof(Value));
  };
  if (separator == nullptr) {
    for (std::size_t at = end_of_spaces(text, 0); at < text.size();) {
      const std::size_t end = end_of_word(text, at);
      add(at, end);
      at = end_of_spaces(text, end);
    }
    return parts;
  }
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(*separator, begin)) != text.npos;) {
    add(begin, at);
    begin = at + separator->size();
  }
  add(begin, text.size());
  return parts;
}

const std::string* separator_of(Arguments& arguments) {
  const Value* given = arguments.find(0);
  if (given == nullptr || given->is(Kind::None)) return nullptr;
  if (arguments.text(0).empty()) fail("empty separator");
  return &arguments.text(0);
}

Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("split", {"sep", "maxsplit"});
  return runtime.list(
      split_text(runtime, self.text(), separator_of(arguments), arguments.integer(1, -1)));
}

Value rsplit(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("rsplit", {"sep", "maxsplit"});
  const std::string* separator = separator_of(arguments);
  const std::int64_t max = arguments.integer(1, -1);
  const std::string_view text = self.text();
  std::vector<Value> result;
  if (separator != nullptr && max >= 0) {
    // From the right: separators that overlap are found otherwise than from the left.
    std::string_view rest = text;
    runtime.meter().work(text.size());
    for (std::int64_t i = 0; i < max; ++i) {
      const std::size_t at = rest.rfind(*separator);
      if (at == rest.npos) break;
      result.push_back(runtime.text(std::string(rest.substr(at + separator->size()))));
      rest = rest.substr(0, at);
    }
    result.push_back(runtime.text(std::string(rest)));
    std::reverse(result.begin(), result.end());
    return runtime.list(std::move(result));
  }
  const auto parts = parts_of(runtime, text, separator);
  std::size_t first = 0;
  if (max >= 0 && std::ssize(parts) > max) {
    first = parts.size() - static_cast<std::size_t>(max);
    const std::size_t end = parts[first - 1].second;
    // The rest, from the last parts, keeps its spaces at the left.
    result.push_back(runtime.text(std::string(text.substr(0, end))));
  }
  for (; first < parts.size(); ++first) {
    const auto [begin, end] = parts[first];
    result.push_back(runtime.text(std::string(text.substr(begin, end - begin))));
  }
  return runtime.list(std::move(result));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("splitlines", {"keepends"});
  const bool keeps_ends = arguments.truth(0, false);
  std::vector<Value> result;
  std::string_view rest = self.text();
  runtime.meter().work(rest.size());
  const std::vector<std::string_view> lines = lines_of(rest);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* end = i + 1 < lines.size() ? lines[i + 1].data() : rest.data() + rest.size();
    const std::string_view line =
        keeps_ends
            ? std::string_view(lines[i].data(), static_cast<std::size_t>(end - lines[i].data()))
            : lines[i];
    result.push_back(runtime.text(std::string(line)));
  }
  return runtime.list(std::move(result));
}

// The characters [start, stop) of the search of find(), count() and startswith(), as bytes.
struct Searched {
  std::string_view text;
  std::size_t offset = 0;
  bool is_empty = false;  // start lies behind the text or behind stop
};

Searched searched(const Value& self, Arguments& arguments) {
  const auto& text = self.as<Text>();
  const std::int64_t length = num_characters(text);
  const auto bound = [&](std::size_t parameter, std::int64_t otherwise) {
    const Value* given = arguments.find(parameter);
    if (given == nullptr || given->is(Kind::None)) return otherwise;
    const std::int64_t number = arguments.integer(parameter, otherwise);
    return number < 0 ? std::max<std::int64_t>(number + length, 0) : number;
  };
  const std::int64_t start = bound(1, 0);
  const std::int64_t stop = std::min(bound(2, length), length);
  if (start > stop) return {{}, 0, true};
  const std::size_t begin = byte_of_character(text, start);
  const std::size_t end = byte_of_character(text, stop);
  return {std::string_view(text.bytes).substr(begin, end - begin), begin, false};
}

Value affix_test(Runtime& runtime, const Value& self, Arguments& arguments, const char* name,
                 bool at_start) {
  arguments.bind(name, {"prefix", "start", "end"}, 1);
  const Searched where = searched(self, arguments);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      require_defined(affix);
      fail(std::string(name) + " first arg must be str or a tuple of str, not " +
           std::string(type_name(affix)));
    }
    runtime.meter().work(affix.text().size());
    if (where.is_empty) return false;
    return at_start ? where.text.starts_with(affix.text()) : where.text.ends_with(affix.text());
  };
  if (!arguments.at(0).is(Kind::Tuple)) return Value(matches(arguments.at(0)));
  const auto& affixes = arguments.at(0).as<List>().entries;
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

Value startswith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return affix_test(runtime, self, arguments, "startswith", true);
}
Value endswith(Runtime& runtime, const Value& self, Arguments& arguments) {
  return affix_test(runtime, self, arguments, "endswith", false);
}

std::int64_t found_at(Runtime& runtime, const Value& self, Arguments& arguments, const char* name,
                      bool from_left) {
  arguments.bind(name, {"sub", "start", "end"}, 1);
  const std::string& part = arguments.text(0);
  const Searched where = searched(self, arguments);
  runtime.meter().work(self.text().size() + part.size());
  if (where.is_empty) return -1;
  const std::size_t at = from_left ? where.text.find(part) : where.text.rfind(part);
  if (at == where.text.npos) return -1;
  return character_of_byte(self.as<Text>(), where.offset + at);
}

Value find(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(found_at(runtime, self, arguments, "find", true));
}
Value rfind(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(found_at(runtime, self, arguments, "rfind", false));
}
Value index_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::int64_t at = found_at(runtime, self, arguments, "index", true);
  if (at < 0) fail("substring not found");
  return Value(at);
}
Value rindex(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::int64_t at = found_at(runtime, self, arguments, "rindex", false);
  if (at < 0) fail("substring not found");
  return Value(at);
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("count", {"sub", "start", "end"}, 1);
  const std::string& part = arguments.text(0);
  const Searched where = searched(self, arguments);
  runtime.meter().work(self.text().size());
  if (where.is_empty) return Value(std::int64_t{0});
  if (part.empty()) {
    return Value(1 + character_of_byte(self.as<Text>(), where.offset + where.text.size()) -
                 character_of_byte(self.as<Text>(), where.offset));
  }
  std::int64_t number = 0;
  for (std::size_t at = 0; (at = where.text.find(part, at)) != where.text.npos; at += part.size()) {
    ++number;
  }
  return Value(number);
}

Value replace_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("replace", {"old", "new", "count"}, 2);
  return runtime.text(replaced(runtime, self.text(), arguments.text(0), arguments.text(1),
                               arguments.integer(2, -1)));
}

Value join_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("join", {"iterable"}, 1);
  std::vector<std::string> texts;
  for (const Value& entry : entries_of(runtime, arguments.at(0))) {
    if (!entry.is_string()) {
      fail(fmt::format("sequence item {}: expected str instance, {} found", texts.size(),
                       type_name(entry)));
    }
    texts.push_back(to_text(runtime, entry));
  }
  return runtime.text(joined_texts(runtime, self.text(), texts));
}

template <std::string (*Change)(std::string_view)>
Value changed_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("a change of case", {});
  // Code points take four bytes.
  runtime.meter().expect(self.text().size() * 8);
  runtime.meter().work(self.text().size() * 8);
  return runtime.text(Change(self.text()));
}

template <bool (*Holds)(char32_t)>
Value is_each(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("a test of characters", {});
  runtime.meter().work(self.text().size());
  std::string_view rest = self.text();
  if (rest.empty()) return Value(false);
  while (!rest.empty()) {
    const Utf8Char next = read_utf8(rest);
    if (!Holds(next.code_point)) return Value(false);
    rest.remove_prefix(next.num_bytes);
  }
  return Value(true);
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_decimal(c) || is_numeric(c); }

// At least one character has a case, and none has another case.
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value is_cased_as(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("a test of case", {});
  runtime.meter().work(self.text().size());
  bool has_case = false;
  for (std::string_view rest = self.text(); !rest.empty();) {
    const Utf8Char next = read_utf8(rest);
    if (Other(next.code_point) || is_title(next.code_point)) return Value(false);
    has_case = has_case || Wanted(next.code_point);
    rest.remove_prefix(next.num_bytes);
  }
  return Value(has_case);
}

Value is_ascii(Runtime&, const Value& self, Arguments& arguments) {
  arguments.bind("isascii", {});
  return Value(self.as<Text>().is_ascii);
}

Value removeprefix(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("removeprefix", {"prefix"}, 1);
  const std::string& prefix = arguments.text(0);
  return runtime.text(self.text().starts_with(prefix) ? self.text().substr(prefix.size())
                                                      : self.text());
}

Value removesuffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("removesuffix", {"suffix"}, 1);
  const std::string& suffix = arguments.text(0);
  return runtime.text(self.text().ends_with(suffix)
                          ? self.text().substr(0, self.text().size() - suffix.size())
                          : self.text());
}

Value partition_at(Runtime& runtime, const Value& self, Arguments& arguments, bool from_left) {
  arguments.bind("partition", {"sep"}, 1);
  const std::string& separator = arguments.text(0);
  if (separator.empty()) fail("empty separator");
  const std::string& text = self.text();
  runtime.meter().work(text.size());
  const std::size_t at = from_left ? text.find(separator) : text.rfind(separator);
  if (at == text.npos) {
    Value none = runtime.text({});
    return from_left ? runtime.tuple({self, none, none}) : runtime.tuple({none, none, self});
  }
  return runtime.tuple({runtime.text(text.substr(0, at)), arguments.at(0),
                        runtime.text(text.substr(at + separator.size()))});
}

Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return partition_at(runtime, self, arguments, true);
}
Value rpartition(Runtime& runtime, const Value& self, Arguments& arguments) {
  return partition_at(runtime, self, arguments, false);
}

Value padded(Runtime& runtime, const Value& self, Arguments& arguments, bool at_left,
             bool at_right) {
  arguments.bind("a padding", {"width", "fillchar"}, 1);
  const std::string fill = arguments.find(1) ? arguments.text(1) : " ";
  const std::int64_t width = arguments.integer(0, 0);
  const std::int64_t length = num_characters(self.as<Text>());
  if (fill.empty() || read_utf8(fill).num_bytes != fill.size()) {
    fail("The fill character must be exactly one character long");
  }
  if (width <= length) return self;
  const std::int64_t missing = width - length;
  runtime.meter().expect(static_cast<std::size_t>(missing));
  // As CPython centres: an odd rest goes to the left if the width is odd.
  std::int64_t left = at_left ? missing : 0;
  if (at_left && at_right) left = missing / 2 + (missing & width & 1);
  std::string result;
  for (std::int64_t i = 0; i < left; ++i) result += fill;
  result += self.text();
  for (std::int64_t i = left; i < missing; ++i) result += fill;
  return runtime.text(std::move(result));
}

Value ljust(Runtime& runtime, const Value& self, Arguments& arguments) {
  return padded(runtime, self, arguments, false, true);
}
Value rjust(Runtime& runtime, const Value& self, Arguments& arguments) {
  return padded(runtime, self, arguments, true, false);
}
Value center_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  return padded(runtime, self, arguments, true, true);
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("zfill", {"width"}, 1);
  const std::int64_t missing = arguments.integer(0, 0) - num_characters(self.as<Text>());
  if (missing <= 0) return self;
  runtime.meter().expect(static_cast<std::size_t>(missing));
  const std::string& text = self.text();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  return runtime.text(text.substr(0, has_sign) +
                      std::string(static_cast<std::size_t>(missing), '0') + text.substr(has_sign));
}

// One field of str.format: {}, {0} or {name}.
const Value& format_field(std::string_view field, const Arguments& arguments, std::size_t& next) {
  if (field.find_first_of("!:.[{") != field.npos) {
    fail(
        "format: a field with conversions or attributes is not supported; allowed: {}, {0}, "
        "{name}");
  }
  const bool is_number = !field.empty() && std::all_of(field.begin(), field.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
  if (field.empty() || is_number) {
    if (field.size() > 6) fail("Replacement index is out of range for positional args tuple");
    const std::size_t index = field.empty() ? next++ : std::stoul(std::string(field));
    if (index >= arguments.positional.size()) {
      fail(fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    return arguments.positional[index];
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return value;
  }
  fail("format: there is no argument '" + std::string(field) + "'");
}

Value format_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = self.text();
  std::string result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      result += c;
    } else if (i + 1 < text.size() && text[i + 1] == c) {
      result += text[i++];
    } else if (c == '}') {
      fail("Single '}' encountered in format string");
    } else {
      const std::size_t end = text.find('}', i);
      if (end == text.npos) fail("Single '{' encountered in format string");
      const std::string_view field = std::string_view(text).substr(i + 1, end - i - 1);
      result += to_text(runtime, format_field(field, arguments, next));
      runtime.meter().expect(result.size());
      i = end;
    }
  }
  return runtime.text(std::move(result));
}

struct Method {
  std::string_view name;
  Callable call;
};

constexpr auto kTextMethods = std::to_array<Method>({
    {"capitalize", changed_case<capitalized>},
    {"center", center_method},
    {"count", count},
    {"endswith", endswith},
    {"find", find},
    {"format", format_method},
    {"index", index_method},
    {"isalnum", is_each<is_alphanumeric>},
    {"isalpha", is_each<is_letter>},
    {"isascii", is_ascii},
    {"isdecimal", is_each<is_decimal>},
    {"isdigit", is_each<is_digit>},
    {"islower", is_cased_as<is_lower, is_upper>},
    {"isnumeric", is_each<is_numeric>},
    {"isspace", is_each<is_space>},
    {"isupper", is_cased_as<is_upper, is_lower>},
    {"join", join_method},
    {"ljust", ljust},
    {"lower", changed_case<to_lower>},
    {"lstrip", lstrip},
    {"partition", partition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace_method},
    {"rfind", rfind},
    {"rindex", rindex},
    {"rjust", rjust},
    {"rpartition", rpartition},
    {"rsplit", rsplit},
    {"rstrip", rstrip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"strip", strip},
    {"swapcase", changed_case<swapped_case>},
    {"title", changed_case<to_title>},
    {"upper", changed_case<to_upper>},
    {"zfill", zfill},
});

}  // namespace

std::vector<Value> split_text(Runtime& runtime, std::string_view text, const std::string* separator,
                              std::int64_t max) {
  const auto parts = parts_of(runtime, text, separator);
  std::vector<Value> result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [begin, end] = parts[i];
    if (max >= 0 && std::ssize(result) == max) {
      result.push_back(runtime.text(std::string(text.substr(begin))));  // the rest is one part
      break;
    }
    result.push_back(runtime.text(std::string(text.substr(begin, end - begin))));
  }
  return result;
}

std::string replaced(Runtime& runtime, std::string_view text, std::string_view old_part,
                     std::string_view new_part, std::int64_t max) {
  runtime.meter().work(text.size());
  std::string result;
  std::size_t begin = 0;
  if (old_part.empty()) {
    // Python puts the new part before each character and at the end.
    for (; max != 0 && begin < text.size(); --max) {
      const std::size_t size = read_utf8(text.substr(begin)).num_bytes;
      result.append(new_part).append(text.substr(begin, size));
      begin += size;
      runtime.meter().expect(result.size());
    }
    if (max != 0) result += new_part;
    return result.append(text.substr(begin));
  }
  for (std::size_t at; max != 0 && (at = text.find(old_part, begin)) != text.npos; --max) {
    result.append(text.substr(begin, at - begin)).append(new_part);
    begin = at + old_part.size();
    runtime.meter().expect(result.size());
  }
  return result.append(text.substr(begin));
}

std::string joined_texts(Runtime& runtime, std::string_view separator,
                         const std::vector<std::string>& texts) {
  std::string result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) result += separator;
    result += texts[i];
    runtime.meter().expect(result.size());
  }
  return result;
}

Callable text_method(std::string_view name) {
  const auto* const found =
      std::find_if(kTextMethods.begin(), kTextMethods.end(),
                   [name](const Method& method) { return method.name == name; });
  return found == kTextMethods.end() ? nullptr : found->call;
}

bool is_missing_method(std::string_view name) {
  constexpr std::string_view kMissing[] = {
      "casefold",    "encode",  "expandtabs", "format_map", "isidentifier",
      "isprintable", "istitle", "maketrans",  "translate",  "fromkeys"};
  return std::find(std::begin(kMissing), std::end(kMissing), name) != std::end(kMissing);
}

}  // namespace metronome::jinja
