// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a client's JSON object one by one. An invalid field throws ApiError with the
// field and what is allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/types.h"

namespace metronome {

constexpr std::size_t kMaxNameBytes = 16 * 1024;
// Strings, lists and objects, keys of objects included.
constexpr std::size_t kMaxBodyParts = 256 * 1024;

// Throws ApiError if `body` is not JSON, not UTF-8 or not an object, or has a key twice.
Json parse_body(std::string_view body);

// A client's text, shortened for a message.
std::string shown_text(std::string_view text);

// A null field counts as absent.
class ApiFields {
 public:
  // `object` outlives this reader. `prefix` precedes field names in messages ("stream_options.").
  explicit ApiFields(const Json& object, std::string prefix = {});

  bool has(const char* name) const { return find(name) != nullptr; }
  std::optional<std::int64_t> integer(const char* name, std::int64_t min, std::int64_t max) const;
  std::optional<double> number(const char* name, double min, double max) const;
  std::optional<double> number_above_0(const char* name) const;
  bool truth(const char* name, bool otherwise) const;
  // At most kMaxNameBytes: for texts that no model reads.
  std::optional<std::string> name(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  // A text or a list of texts: at most `max_count` of `max_bytes` together.
  std::vector<std::string> texts(const char* name, std::size_t max_count,
                                 std::size_t max_bytes) const;
  // A list of at most `max_count` entries.
  const Json* list(const char* name, std::size_t max_count) const;
  std::vector<TokenId> token_ids(const char* name, std::int64_t vocab_size,
                                 std::size_t max_count) const;
  // An object with token ids as keys and numbers, {"65": -100}; at most `max_count`.
  std::vector<std::pair<TokenId, double>> token_numbers(const char* name, std::int64_t vocab_size,
                                                        std::size_t max_count) const;
  const Json* find(const char* name) const;  // nullptr: absent or null
  // The reader of a nested object.
  std::optional<ApiFields> fields(const char* name) const;

  [[noreturn]] void fail(const std::string& name, const std::string& message) const;
  // Rejects a field whose value differs from the default behaviour, `neutral`.
  void allow_only(const char* name, double neutral) const;
  // Rejects every field that is not one of these, unless it is null.
  void allow_names(std::initializer_list<std::string_view> names) const;

 private:
  const Json* object_;
  std::string prefix_;
};

// Reads a list of at most `max_count` token ids. Throws ApiError for `name`.
std::vector<TokenId> read_token_ids(const Json& list, std::int64_t vocab_size,
                                    std::size_t max_count, const std::string& name);

}  // namespace metronome
