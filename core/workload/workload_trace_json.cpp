// SPDX-License-Identifier: Apache-2.0
// Traces as JSON, one object per line. These files are mostly long lists of numbers, so a scanner
// reads the text in one pass without building a tree.
#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/number_chars.h"
#include "core/workload/trace_rows.h"

namespace metronome {

namespace {

// A cursor over the JSON object of one line.
class JsonLine {
 public:
  explicit JsonLine(const TraceLines& lines) : lines_(lines), rest_(lines.line()) {}

  // Calls visit(name) for each field; visit must consume the value. Rejects text after the object.
  template <class Visit>
  void for_each_field(Visit visit) {
    walk_fields(visit);
    skip_space();
    if (!rest_.empty()) fail_syntax();
  }

  // Calls visit(name) for each field of an object inside of the line.
  template <class Visit>
  void walk_fields(Visit visit) {
    expect('{');
    if (accept('}')) return;
    do {
      skip_space();
      const std::string_view name = read_string();
      expect(':');
      visit(name);
    } while (accept(','));
    expect('}');
  }

  std::int64_t read_integer(std::string_view field, std::int64_t min, std::int64_t max) {
    return parse_trace_integer(lines_, read_scalar(), field, min, max);
  }

  TimeNs read_time(std::string_view field, std::int64_t max_value, TimeNs ns_per_unit) {
    return parse_trace_time(lines_, read_scalar(), field, max_value, ns_per_unit);
  }

  // Calls read() for each item of a list; it must consume the item.
  template <class Read>
  void read_items(std::string_view field, const char* allowed, Read read) {
    skip_space();
    if (rest_.empty()) fail_syntax();
    if (!accept('[')) lines_.fail(field, std::string("not a list; allowed: ") + allowed);
    if (accept(']')) return;
    do {
      read();
    } while (accept(','));
    expect(']');
  }

  bool is_at_object() {
    skip_space();
    return rest_.starts_with('{');
  }

  // Consumes a null.
  bool accept_null() {
    skip_space();
    if (!rest_.starts_with("null")) return false;
    const std::string_view after = rest_.substr(4);
    if (!after.empty() && !is_delimiter(after.front())) return false;
    rest_ = after;
    return true;
  }

  // Calls visit(name) for each field of an object, as for_each_field(), and end() behind it, for
  // each object of a list.
  template <class Visit, class End>
  void read_objects(std::string_view field, Visit visit, End end) {
    if (!accept('[')) lines_.fail(field, "not a list; allowed: objects in [ ]");
    if (accept(']')) return;
    do {
      walk_fields(visit);
      end();
    } while (accept(','));
    expect(']');
  }

  // A text with its quotes, or a number or a word, up to the next delimiter. For other values their
  // beginning, for messages.
  std::string_view read_scalar() {
    skip_space();
    if (rest_.starts_with('"')) {
      const char* const begin = rest_.data();
      const std::size_t size = read_string().size() + 2;
      return {begin, size};
    }
    std::size_t end = 0;
    while (end < rest_.size() && !is_delimiter(rest_[end])) ++end;
    if (end == rest_.size()) {
      rest_ = {};
      fail_syntax();
    }
    if (end == 0) fail_syntax();
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return text;
  }

  // Text without escapes but for "\/".
  std::string read_text(std::string_view field) {
    skip_space();
    const std::string_view raw = read_string();
    std::string text;
    text.reserve(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        text += raw[i];
      } else if (i + 1 < raw.size() && raw[i + 1] == '/') {
        text += raw[++i];
      } else {
        lines_.fail(field, "has an escape; allowed: text without");
      }
    }
    return text;
  }

  void skip_value(int depth = 0) {
    constexpr int kMaxDepth = 64;  // limits recursion over hostile input
    if (depth > kMaxDepth) fail_syntax();
    skip_space();
    if (rest_.starts_with('"')) {
      read_string();
    } else if (rest_.starts_with('{')) {
      walk_fields([this, depth](std::string_view) { skip_value(depth + 1); });
    } else if (accept('[')) {
      if (accept(']')) return;
      do {
        skip_value(depth + 1);
      } while (accept(','));
      expect(']');
    } else if (!is_literal(read_scalar())) {
      fail_syntax();
    }
  }

 private:
  [[noreturn]] void fail_syntax() const {
    const std::size_t position = lines_.line().size() - rest_.size() + 1;
    lines_.fail(fmt::format("character {}", position),
                rest_.empty() ? "the line ends inside its JSON object; allowed: one whole object "
                                "per line"
                              : "not JSON; allowed: one object per line");
  }

  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  bool accept(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail_syntax();
  }

  // The raw text between quotes. A name with escapes matches no requested name.
  std::string_view read_string() {
    if (!rest_.starts_with('"')) fail_syntax();
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) {
      rest_ = {};
      fail_syntax();
    }
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  static bool is_delimiter(char c) {
    return std::string_view(",]} \t\r\n").find(c) != std::string_view::npos;
  }

  static bool is_literal(std::string_view text) {
    if (text == "true" || text == "false" || text == "null") return true;
    double number = 0;
    const char* end = text.data() + text.size();
    const bool starts_well = text.front() == '-' || (text.front() >= '0' && text.front() <= '9');
    return starts_well && read_number(text.data(), end, number).ptr == end;
  }

  const TraceLines& lines_;
  std::string_view rest_;
};

void mark_seen(const TraceLines& lines, std::string_view field, bool& seen) {
  if (std::exchange(seen, true)) lines.fail(field, "appears twice; allowed: once");
}

// Dispatches the fields of a line to handlers[i] by names[i]; each must appear exactly once. Other
// fields are skipped.
template <std::size_t N, class Handle>
void read_object(const TraceLines& lines, const std::string_view (&names)[N],
                 std::string_view article_and_name, Handle handle) {
  JsonLine json(lines);
  bool seen[N] = {};
  json.for_each_field([&](std::string_view name) {
    const auto found = static_cast<std::size_t>(std::find(names, names + N, name) - names);
    if (found == N) return json.skip_value();
    mark_seen(lines, name, seen[found]);
    handle(found, json);
  });
  for (std::size_t i = 0; i < N; ++i) {
    if (seen[i]) continue;
    lines.fail(names[i], "missing; a line of " + std::string(article_and_name) + " trace has " +
                             join_names(names));
  }
}

constexpr std::string_view kImageNames[] = {"first_token", "rows", "columns", "content", "url"};

// An image of a list of objects, and its fields so far.
struct ImageFields {
  TraceImage image;
  bool seen[std::size(kImageNames)] = {};
};

void read_image_field(std::string_view name, const TraceLines& lines, JsonLine& json,
                      ImageFields& fields) {
  constexpr std::int64_t kMaxContent = (std::int64_t{1} << 56) - 1;
  const auto* const known = std::find(std::begin(kImageNames), std::end(kImageNames), name);
  if (known == std::end(kImageNames)) {
    lines.fail("images",
               quote_for_message(name) + " is not a field; allowed: " + join_names(kImageNames));
  }
  const std::string place = "images." + std::string(name);
  const auto field = static_cast<std::size_t>(known - kImageNames);
  mark_seen(lines, place, fields.seen[field]);
  const auto number = [&](std::int64_t min, std::int64_t max) {
    return static_cast<std::int32_t>(json.read_integer(place, min, max));
  };
  TraceImage& image = fields.image;
  if (field == 0) image.first_token = number(0, kMaxLengthTokens);
  if (field == 1) image.rows = number(1, kMaxImageSide);
  if (field == 2) image.columns = number(1, kMaxImageSide);
  if (field == 3)
    image.content = static_cast<std::uint64_t>(json.read_integer(place, 0, kMaxContent));
  if (field == 4) image.url = json.read_text(place);
}

// Reads the rows of one mapping.
class JsonRowReader {
 public:
  // All must outlive this.
  JsonRowReader(const TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests)
      : lines_(lines),
        mapping_(mapping),
        requests_(requests),
        seen_(mapping.fields.size()),
        seen_ever_(mapping.fields.size()) {}

  // The row of the current line.
  const TraceRow& read() {
    row_.clear();
    seen_.assign(seen_.size(), false);
    JsonLine json(lines_);
    json.for_each_field([&](std::string_view name) { read_field({}, name, json); });
    if (!row_.is_request) return row_;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i] || !mapping_.fields[i].is_needed) continue;
      lines_.fail(mapping_.fields[i].name, "missing; a line of " + mapping_.article_and_name() +
                                               " trace has " + mapping_.needed_names());
    }
    return row_;
  }

  // Refuses a name of the scenario that no row has.
  void check_given() const {
    for (std::size_t i = 0; i < seen_ever_.size(); ++i) {
      if (seen_ever_[i] || !mapping_.fields[i].is_given) continue;
      lines_.fail(mapping_.fields[i].name,
                  "is in no row; allowed in workload.trace.columns: a field of the trace");
    }
  }

 private:
  // `prefix` is the path of the object that has the field, with a dot.
  void read_field(const std::string& prefix, std::string_view name, JsonLine& json) {
    const std::string path = prefix + std::string(name);
    const auto mapped = std::find_if(mapping_.fields.begin(), mapping_.fields.end(),
                                     [&](const MappedField& m) { return m.name == path; });
    if (mapped != mapping_.fields.end()) {
      const auto i = static_cast<std::size_t>(mapped - mapping_.fields.begin());
      if (seen_[i]) lines_.fail(path, "appears twice; allowed: once");
      if (!mapped->is_needed && json.accept_null()) return;
      seen_[i] = seen_ever_[i] = true;
      return read_value(*mapped, json);
    }
    const std::string inside = path + ".";
    const bool has_mapped =
        std::any_of(mapping_.fields.begin(), mapping_.fields.end(),
                    [&](const MappedField& m) { return m.name.starts_with(inside); });
    if (has_mapped && json.is_at_object()) {
      json.walk_fields([&](std::string_view inner) { read_field(inside, inner, json); });
      return;
    }
    // Without usage nobody knows the tokens of a request.
    if (has_mapped && mapping_.skips_failed && json.accept_null()) {
      row_.is_request = false;
      return;
    }
    requests_.note_unused(path);
    json.skip_value();
  }

  void read_value(const MappedField& mapped, JsonLine& json) {
    const std::string& name = mapped.name;
    const auto set = [&] {
      set_trace_value(lines_, mapping_, mapped.field, name, json.read_scalar(), row_);
    };
    switch (mapped.field) {
      case TraceField::Hashes:
        row_.has_hashes = true;
        return json.read_items(name, "whole numbers in [ ]", set);
      case TraceField::Tokens: return json.read_items(name, "whole numbers in [ ]", set);
      case TraceField::Images: {
        ImageFields fields;
        return json.read_objects(
            name, [&](std::string_view field) { read_image_field(field, lines_, json, fields); },
            [&] { row_.images.push_back(std::exchange(fields, {}).image); });
      }
      default: return set();
    }
  }

  const TraceLines& lines_;
  const TraceMapping& mapping_;
  TraceRequests& requests_;
  TraceRow row_;
  std::vector<bool> seen_;       // in this row, by field of the mapping
  std::vector<bool> seen_ever_;  // in any row
};

std::int32_t read_tokens(JsonLine& json, std::string_view field) {
  return static_cast<std::int32_t>(json.read_integer(field, 1, kMaxLengthTokens));
}

}  // namespace

void read_json_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests) {
  JsonRowReader reader(lines, mapping, requests);
  while (lines.next()) requests.add(reader.read(), lines);
  reader.check_given();
}

void parse_logged_arrivals(TraceLines& lines, Workload& workload) {
  static constexpr std::string_view kNames[] = {"arrival_time", "input_toks", "output_toks"};
  std::size_t num_read = 0;
  while (lines.next()) {
    if (num_read == workload.requests.size()) {
      lines.fail("requests",
                 fmt::format("more than the {} of the trace; allowed: as many", num_read));
    }
    RequestSpec& request = workload.requests[num_read++];
    RequestSpec logged;
    read_object(lines, kNames, "a request log's", [&](std::size_t field, JsonLine& json) {
      if (field == 0) request.arrival = json.read_time(kNames[0], kMaxTraceSeconds, kNsPerSecond);
      if (field == 1) logged.num_prompt_tokens = read_tokens(json, kNames[1]);
      if (field == 2) logged.max_output_tokens = read_tokens(json, kNames[2]);
    });
    const auto require_same = [&](std::string_view name, std::int64_t in_log, std::int64_t traced) {
      if (in_log == traced) return;
      lines.fail(
          name,
          fmt::format(
              "{}, but the trace has {}; allowed: a log of the same requests in the same order",
              in_log, traced));
    };
    require_same(kNames[1], logged.num_prompt_tokens, request.num_prompt_tokens);
    require_same(kNames[2], logged.max_output_tokens, request.max_output_tokens);
  }
  if (num_read == workload.requests.size()) return;
  lines.fail("requests", fmt::format("{}, but the trace has {}; allowed: as many", num_read,
                                     workload.requests.size()));
}

}  // namespace metronome
