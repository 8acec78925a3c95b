// The fields of a JSON object that a client sent, read one by one; what is wrong is an ApiError
// that names the field and what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/types.h"

namespace metronome {

// Throws ApiError: not JSON, not UTF-8, not an object.
Json parse_body(std::string_view body);

// A field that is absent and one that is null are the same: nothing was said.
class ApiFields {
 public:
  // `object` outlives this. `prefix` stands before names in messages ("stream_options.").
  explicit ApiFields(const Json& object, std::string prefix = {});

  bool has(const char* name) const { return find(name) != nullptr; }
  std::optional<std::int64_t> integer(const char* name, std::int64_t min, std::int64_t max) const;
  std::optional<double> number(const char* name, double min, double max) const;
  bool truth(const char* name, bool otherwise) const;
  std::optional<std::string> text(const char* name) const;
  std::vector<std::string> texts(const char* name) const;  // a text, or a list of them
  std::vector<TokenId> token_ids(const char* name, std::int64_t vocab_size) const;
  const Json* find(const char* name) const;  // nullptr: absent or null
  // Of an object.
  std::optional<ApiFields> fields(const char* name) const;

  [[noreturn]] void fail(const std::string& name, const std::string& message) const;
  // Refuses a field unless it says what is done without it.
  void allow_only(const char* name, double neutral) const;

 private:
  const Json* object_;
  std::string prefix_;
};

// A list of token ids. Throws ApiError at `name`.
std::vector<TokenId> read_token_ids(const Json& list, std::int64_t vocab_size,
                                    const std::string& name);

}  // namespace metronome
