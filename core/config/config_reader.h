// SPDX-License-Identifier: Apache-2.0
// Reads configuration into plain structs. Each config struct has one function
// `visit_fields(FieldVisitor&, T&)` that states its keys, ranges and meaning once. Three visitors
// use it: they read, print the resolved config and document the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/names.h"
#include "core/config/config_node.h"

namespace metronome {

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  // Integers are in [min, max]. `doc` is one line: meaning and unit.
  virtual void integer(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max,
                       const char* doc) = 0;
  virtual void number(const char* key, double& value, double min, double max, const char* doc) = 0;
  virtual void boolean(const char* key, bool& value, const char* doc) = 0;
  virtual void text(const char* key, std::string& value, const char* doc) = 0;
  // Text that names a file or a folder; empty: none.
  virtual void path(const char* key, std::string& value, const char* doc) { text(key, value, doc); }
  // Text that names a file or a folder, or an entry of a catalogue; looks_like_path()
  // (core/config/catalogue.h) tells them apart. Empty: none.
  virtual void name_or_path(const char* key, std::string& value, const char* doc) {
    text(key, value, doc);
  }
  // `value` is an index into `names`.
  virtual void choice(const char* key, int& value, std::span<const std::string_view> names,
                      const char* doc) = 0;
  virtual void integers(const char* key, std::vector<std::int64_t>& value, std::int64_t min,
                        std::int64_t max, const char* doc) = 0;
  virtual void numbers(const char* key, std::vector<double>& value, double min, double max,
                       const char* doc) = 0;
  // A list of lists of `num_columns` integers each.
  virtual void integer_rows(const char* key, std::vector<std::vector<std::int64_t>>& value,
                            std::size_t num_columns, std::int64_t min, std::int64_t max,
                            const char* doc) = 0;
  // A nested mapping. Fields visited between open and close belong to it. open_section() returns
  // false when the visitor skips the section (when reading an absent section, defaults stay). Then
  // neither its fields are visited nor close_section() is called.
  virtual bool open_section(const char* key, const char* doc) = 0;
  virtual void close_section() = 0;
  // A list of mappings, whose keys the visitor's caller reads; empty: not written.
  virtual void mappings(const char*, std::vector<Json>&, const char*) {}
  // An integer that may also be the word `auto`, stored as nullopt.
  virtual void integer_or_auto(const char* key, std::optional<std::int64_t>& value,
                               std::int64_t min, std::int64_t max, const char* doc) = 0;
  // A boolean that may also be the word `auto`, stored as nullopt.
  virtual void boolean_or_auto(const char* key, std::optional<bool>& value, const char* doc) = 0;
  // A number that may be absent (or null), stored as nullopt.
  virtual void optional_number(const char* key, std::optional<double>& value, double min,
                               double max, const char* doc) = 0;
  virtual void optional_integer(const char* key, std::optional<std::int64_t>& value,
                                std::int64_t min, std::int64_t max, const char* doc) = 0;

  void integer(const char* key, std::int32_t& value, std::int64_t min, std::int64_t max,
               const char* doc) {
    std::int64_t wide = value;
    integer(key, wide, min, max, doc);
    value = static_cast<std::int32_t>(wide);
  }
  template <class Enum, std::size_t N>
  void choice(const char* key, Enum& value, const std::string_view (&names)[N], const char* doc) {
    int chosen = static_cast<int>(value);
    choice(key, chosen, std::span<const std::string_view>(names, N), doc);
    value = static_cast<Enum>(chosen);
  }
};

// Where a key that a section does not have belongs ("cost_model.dtype"); empty: nowhere known.
using PlaceOfKey = std::string (*)(std::string_view key);

// Fills fields from a mapping and throws ConfigError at the first mistake. A wrong type or a value
// out of range throws when its field is visited. An unknown key throws when its section is closed,
// at the outermost level in finish(). That message has the key's place if `place_of` knows one,
// else the nearest known key; and the list of allowed keys. `path` is the dotted prefix shown in
// messages ("scheduler"; empty at the root of a document).
//
// Types are strict. An integer is plain decimal digits (`2.5`, `1e3`, `"7"` are not integers). A
// number is a plain decimal, or `inf` where max is infinite; "inf" may be quoted, as in JSON. A
// boolean is `true` or `false`. Text and choices are any scalar. `node` must outlive the reader.
class ConfigReader final : public FieldVisitor {
 public:
  ConfigReader(const ConfigNode& node, std::string path, PlaceOfKey place_of = nullptr);

  using FieldVisitor::choice;
  using FieldVisitor::integer;
  void integer(const char*, std::int64_t&, std::int64_t, std::int64_t, const char*) override;
  void number(const char*, double&, double, double, const char*) override;
  void boolean(const char*, bool&, const char*) override;
  void text(const char*, std::string&, const char*) override;
  void choice(const char*, int&, std::span<const std::string_view>, const char*) override;
  void integers(const char*, std::vector<std::int64_t>&, std::int64_t, std::int64_t,
                const char*) override;
  void numbers(const char*, std::vector<double>&, double, double, const char*) override;
  void integer_rows(const char*, std::vector<std::vector<std::int64_t>>&, std::size_t, std::int64_t,
                    std::int64_t, const char*) override;
  bool open_section(const char*, const char*) override;
  void close_section() override;
  void mappings(const char*, std::vector<Json>&, const char*) override;
  void integer_or_auto(const char*, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                       const char*) override;
  void boolean_or_auto(const char*, std::optional<bool>&, const char*) override;
  void optional_number(const char*, std::optional<double>&, double, double, const char*) override;
  void optional_integer(const char*, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                        const char*) override;

  // Accepts the key without reading it (it is read elsewhere). Returns its node or nullptr.
  const ConfigNode* take(const char* key);

  // Throws for unknown keys. Sections check their own keys in close_section().
  void finish();

 private:
  struct Level {
    const ConfigNode* node;
    std::string path;
    std::vector<std::string> known;
  };
  const ConfigNode* lookup(const char* key);
  std::string dotted(std::string_view key) const;
  void refuse_unknown_keys(const Level& level) const;

  std::vector<Level> levels_;
  PlaceOfKey place_of_;
};

// Throws ConfigError "where: key: message", always on one line. Leaves the key out when it is empty
// or when `where` is an assignment to that key.
[[noreturn]] void fail_config(const SourceLocation& where, std::string_view key,
                              std::string_view message);

// Throws what fail_config() throws, as an UnknownKeyError.
[[noreturn]] void fail_unknown_key(const SourceLocation& where, std::string_view key,
                                   std::string_view message);

// "0.5", "1000000", "1e+100", "nan": the shortest digits that read back as the same number.
std::string format_double(double value);
// "1 to 64", "at least 0", "0 to 0.95": the values a range allows.
std::string describe_range(std::int64_t min, std::int64_t max);
std::string describe_range(double min, double max);

// A choice whose value is kept as its name.
void choose_name(FieldVisitor& visitor, const char* key, std::string& value,
                 std::span<const std::string_view> names, const char* doc);

}  // namespace metronome
