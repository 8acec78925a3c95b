// SPDX-License-Identifier: Apache-2.0
#include "core/config/config_writer.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/json.h"

namespace metronome {
namespace {

std::string dump(const Json& json, int indent = -1) {
  // Invalid UTF-8 (a path may hold any byte) is replaced instead of rejected.
  return json.dump({.indent = indent, .replaces_bad_utf8 = true});
}

// Replaces the bytes that are not UTF-8.
Json valid_text(const std::string& text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
  return Json::parse(dump(text));
}

Json to_json(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json to_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(to_json(value));
  return list;
}

Json to_json(const std::vector<std::vector<std::int64_t>>& rows) {
  Json list = Json::array();
  for (const std::vector<std::int64_t>& row : rows) list.push_back(row);
  return list;
}

template <class T>
Json to_json(const std::optional<T>& value, const char* unset) {
  if (value.has_value()) return *value;
  return unset == nullptr ? Json() : Json(unset);
}

ConfigNode to_node(const Json& json) {
  ConfigNode node;
  if (json.is_object()) {
    node.kind = ConfigNode::Kind::Map;
    for (const auto& [key, value] : json.items()) node.entries.emplace_back(key, to_node(value));
  } else if (json.is_array()) {
    node.kind = ConfigNode::Kind::Sequence;
    for (const Json& item : json) node.items.push_back(to_node(item));
  } else if (!json.is_null()) {
    node.kind = ConfigNode::Kind::Scalar;
    node.is_quoted = json.is_string();
    node.scalar = node.is_quoted ? json.get<std::string>() : dump(json);
  }
  return node;
}

std::string dotted_key(const std::vector<std::string>& sections, const char* key) {
  std::string path;
  for (const std::string& section : sections) path.append(section).append(".");
  return path + key;
}

class JsonWriter final : public FieldVisitor {
 public:
  enum class Bytes : std::uint8_t { All, Utf8 };  // of texts: kept, or replaced

  JsonWriter(const std::vector<std::string>& omitted, Bytes bytes)
      : omitted_(omitted), bytes_(bytes) {
    objects_.push_back(Json::object());
  }

  Json finish() {
    METRONOME_CHECK(objects_.size() == 1, "a section is still open");
    return std::move(objects_.front());
  }

  void integer(const char* key, std::int64_t& value, std::int64_t, std::int64_t,
               const char*) override {
    put(key, value);
  }
  void number(const char* key, double& value, double, double, const char*) override {
    put(key, to_json(value));
  }
  void boolean(const char* key, bool& value, const char*) override { put(key, value); }
  void text(const char* key, std::string& value, const char*) override {
    put(key, bytes_ == Bytes::Utf8 ? valid_text(value) : Json(value));
  }
  void choice(const char* key, int& value, std::span<const std::string_view> names,
              const char*) override {
    put(key, names[static_cast<std::size_t>(value)]);
  }
  void integers(const char* key, std::vector<std::int64_t>& value, std::int64_t, std::int64_t,
                const char*) override {
    put(key, value);
  }
  void numbers(const char* key, std::vector<double>& value, double, double, const char*) override {
    put(key, to_json(value));
  }
  void integer_rows(const char* key, std::vector<std::vector<std::int64_t>>& value, std::size_t,
                    std::int64_t, std::int64_t, const char*) override {
    put(key, to_json(value));
  }
  bool open_section(const char* key, const char*) override {
    sections_.emplace_back(key);
    objects_.push_back(Json::object());
    return true;
  }
  void mappings(const char* key, std::vector<Json>& values, const char*) override {
    if (!values.empty()) put(key, Json(values));
  }
  void close_section() override {
    Json closed = std::move(objects_.back());
    objects_.pop_back();
    const std::string key = sections_.back();
    sections_.pop_back();
    put(key.c_str(), std::move(closed));
  }
  void integer_or_auto(const char* key, std::optional<std::int64_t>& value, std::int64_t,
                       std::int64_t, const char*) override {
    put(key, to_json(value, "auto"));
  }
  void boolean_or_auto(const char* key, std::optional<bool>& value, const char*) override {
    put(key, value.has_value() ? Json(*value) : Json("auto"));
  }
  void optional_number(const char* key, std::optional<double>& value, double, double,
                       const char*) override {
    put(key, value.has_value() ? to_json(*value) : Json());
  }
  void optional_integer(const char* key, std::optional<std::int64_t>& value, std::int64_t,
                        std::int64_t, const char*) override {
    put(key, to_json(value, nullptr));
  }

 private:
  void put(const char* key, Json value) {
    const std::string path = dotted_key(sections_, key);
    if (std::find(omitted_.begin(), omitted_.end(), path) != omitted_.end()) return;
    objects_.back()[key] = std::move(value);
  }

  const std::vector<std::string>& omitted_;
  Bytes bytes_;
  std::vector<std::string> sections_;
  std::vector<Json> objects_;  // the root, then one per open section
};

class KeyDocumenter final : public FieldVisitor {
 public:
  std::vector<DocumentedKey> take() { return std::move(keys_); }

  void integer(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max,
               const char* doc) override {
    add(key, "integer", describe_range(min, max), value, other_integer(value, min, max), doc);
  }
  void number(const char* key, double& value, double min, double max, const char* doc) override {
    add(key, "number", describe_range(min, max), to_json(value), other_number(value, min, max),
        doc);
  }
  void boolean(const char* key, bool& value, const char* doc) override {
    add(key, "boolean", "true, false", value, !value, doc);
  }
  void text(const char* key, std::string& value, const char* doc) override {
    add(key, "string", "any string", value, value + "example", doc);
  }
  void choice(const char* key, int& value, std::span<const std::string_view> names,
              const char* doc) override {
    const auto chosen = static_cast<std::size_t>(value);
    const std::string_view other = names[(chosen + 1) % names.size()];
    add(key, "choice", join_names(names), names[chosen], other, doc);
  }
  void integers(const char* key, std::vector<std::int64_t>& value, std::int64_t min,
                std::int64_t max, const char* doc) override {
    const std::int64_t item = other_integer(value.empty() ? min : value.front(), min, max);
    add(key, "list of integers", describe_range(min, max), value, Json::array({item}), doc);
  }
  void numbers(const char* key, std::vector<double>& value, double min, double max,
               const char* doc) override {
    const double item = other_number(value.empty() ? min : value.front(), min, max);
    add(key, "list of numbers", describe_range(min, max), to_json(value), Json::array({item}), doc);
  }
  void integer_rows(const char* key, std::vector<std::vector<std::int64_t>>& value,
                    std::size_t num_columns, std::int64_t min, std::int64_t max,
                    const char* doc) override {
    Json row = Json::array();
    for (std::size_t i = 0; i < num_columns; ++i)
      row.push_back(std::clamp<std::int64_t>(1, min, max));
    add(key, "list of lists",
        fmt::format("{} integers each, {}", num_columns, describe_range(min, max)), to_json(value),
        Json::array({row}), doc);
  }
  bool open_section(const char* key, const char*) override {
    sections_.emplace_back(key);
    return true;
  }
  void close_section() override { sections_.pop_back(); }
  void integer_or_auto(const char* key, std::optional<std::int64_t>& value, std::int64_t min,
                       std::int64_t max, const char* doc) override {
    add(key, "integer", describe_range(min, max) + ", or auto", to_json(value, "auto"),
        other_integer(value.value_or(min), min, max), doc);
  }
  void boolean_or_auto(const char* key, std::optional<bool>& value, const char* doc) override {
    add(key, "boolean", "true, false, auto", value.has_value() ? Json(*value) : Json("auto"),
        !value.value_or(false), doc);
  }
  void optional_number(const char* key, std::optional<double>& value, double min, double max,
                       const char* doc) override {
    add(key, "number", describe_range(min, max) + ", or null",
        value.has_value() ? to_json(*value) : Json(), other_number(value.value_or(min), min, max),
        doc);
  }
  void optional_integer(const char* key, std::optional<std::int64_t>& value, std::int64_t min,
                        std::int64_t max, const char* doc) override {
    add(key, "integer", describe_range(min, max) + ", or null", to_json(value, nullptr),
        other_integer(value.value_or(min), min, max), doc);
  }

 private:
  static std::int64_t other_integer(std::int64_t value, std::int64_t min, std::int64_t max) {
    return value < max ? value + 1 : min;
  }
  static double other_number(double value, double min, double max) {
    for (const double other : {value + 1, value / 2, min}) {
      if (other != value && other >= min && other <= max) return other;
    }
    return max;
  }

  void add(const char* key, const char* type, std::string allowed, const Json& value,
           const Json& example, const char* doc) {
    keys_.push_back(
        {dotted_key(sections_, key), type, std::move(allowed), dump(value), doc, dump(example)});
  }

  std::vector<std::string> sections_;
  std::vector<DocumentedKey> keys_;
};

class PathFinder final : public FieldVisitor {
 public:
  std::vector<PathField> take() { return std::move(fields_); }

  void path(const char* key, std::string& value, const char*) override {
    fields_.push_back({dotted_key(sections_, key), &value, false});
  }
  void name_or_path(const char* key, std::string& value, const char*) override {
    fields_.push_back({dotted_key(sections_, key), &value, true});
  }
  bool open_section(const char* key, const char*) override {
    sections_.emplace_back(key);
    return true;
  }
  void close_section() override { sections_.pop_back(); }

  void integer(const char*, std::int64_t&, std::int64_t, std::int64_t, const char*) override {}
  void number(const char*, double&, double, double, const char*) override {}
  void boolean(const char*, bool&, const char*) override {}
  void text(const char*, std::string&, const char*) override {}
  void choice(const char*, int&, std::span<const std::string_view>, const char*) override {}
  void integers(const char*, std::vector<std::int64_t>&, std::int64_t, std::int64_t,
                const char*) override {}
  void numbers(const char*, std::vector<double>&, double, double, const char*) override {}
  void integer_rows(const char*, std::vector<std::vector<std::int64_t>>&, std::size_t, std::int64_t,
                    std::int64_t, const char*) override {}
  void integer_or_auto(const char*, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                       const char*) override {}
  void boolean_or_auto(const char*, std::optional<bool>&, const char*) override {}
  void optional_number(const char*, std::optional<double>&, double, double, const char*) override {}
  void optional_integer(const char*, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                        const char*) override {}

 private:
  std::vector<std::string> sections_;
  std::vector<PathField> fields_;
};

}  // namespace

Json fields_to_value(const FieldVisit& visit, const std::vector<std::string>& omitted) {
  JsonWriter writer(omitted, JsonWriter::Bytes::Utf8);
  visit(writer);
  return writer.finish();
}

std::string fields_to_json(const FieldVisit& visit, const std::vector<std::string>& omitted) {
  return dump(fields_to_value(visit, omitted), 2);
}

ConfigNode fields_to_node(const FieldVisit& visit) {
  const std::vector<std::string> nothing_omitted;
  JsonWriter writer(nothing_omitted, JsonWriter::Bytes::All);
  visit(writer);
  return to_node(writer.finish());
}

std::vector<DocumentedKey> document_fields(const FieldVisit& visit) {
  KeyDocumenter documenter;
  visit(documenter);
  return documenter.take();
}

std::vector<PathField> path_fields(const FieldVisit& visit) {
  PathFinder finder;
  visit(finder);
  return finder.take();
}

}  // namespace metronome
