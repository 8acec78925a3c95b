// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/gemm_store.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <system_error>
#include <tuple>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "gpu/plan/whole_file.h"

namespace metronome {
namespace {

// Version of the file's layout and of the choosing. A new number discards all choices.
constexpr std::int64_t kVersion = 1;
constexpr const char* kAllowed = "; allowed: a file that Metronome wrote";
constexpr std::size_t kHexDigits = 16;

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw ConfigError(path + ": " + message + kAllowed);
}

// Reports errors at one position of a file.
struct Place {
  std::string path;
  std::string where;  // "choices 3: "
  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    metronome::fail(path, where + key + ": " + message);
  }
};

const Json& member(const Json& object, const char* key, const Place& place) {
  const Json* found = object.find(key);
  if (found == nullptr) place.fail(key, "is missing");
  return *found;
}

std::int64_t positive(const Json& object, const char* key, const Place& place) {
  const Json& value = member(object, key, place);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
      value.get<std::uint64_t>() > kMost) {
    place.fail(key, "must be a count");
  }
  return value.get<std::int64_t>();
}

bool truth(const Json& object, const char* key, const Place& place) {
  const Json& value = member(object, key, place);
  if (!value.is_boolean()) place.fail(key, "must be true or false");
  return value.get<bool>();
}

// Words are written in hexadecimal: JSON readers may not keep 64-bit numbers exact.
std::string to_hex(std::uint64_t word) {
  char digits[kHexDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
  return digits;
}

GemmAlgorithm parse_algorithm(const Json& choice, const Place& place) {
  const Json& words = member(choice, "algorithm", place);
  GemmAlgorithm algorithm{};
  const char* const kWanted = "must be 8 words of 16 hexadecimal digits";
  if (!words.is_array() || words.size() != algorithm.size()) place.fail("algorithm", kWanted);
  for (std::size_t i = 0; i < algorithm.size(); ++i) {
    if (!words[i].is_string()) place.fail("algorithm", kWanted);
    const std::string& digits = words[i].string();
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, algorithm[i], 16);
    if (digits.size() != kHexDigits || error != std::errc() || stop != end) {
      place.fail("algorithm", kWanted);
    }
  }
  return algorithm;
}

std::pair<GemmKey, GemmChoice> parse_choice(const Json& json, const Place& place) {
  GemmKey key;
  key.n = positive(json, "n", place);
  key.k = positive(json, "k", place);
  key.rows = positive(json, "rows", place);
  key.adds_output = truth(json, "adds_output", place);
  key.has_float_output = truth(json, "has_float_output", place);
  key.is_invariant = truth(json, "is_invariant", place);
  GemmChoice choice;
  choice.algorithm = parse_algorithm(json, place);
  const Json& microseconds = member(json, "microseconds", place);
  if (!microseconds.is_number() || microseconds.get<double>() < 0) {
    place.fail("microseconds", "must be a number that is not negative");
  }
  choice.microseconds = microseconds.get<double>();
  const Json& name = member(json, "name", place);
  if (!name.is_string()) place.fail("name", "must be a string");
  choice.name = name.get<std::string>();
  return {key, choice};
}

Json to_json(const GemmKey& key, const GemmChoice& choice) {
  Json words = Json::array();
  for (const std::uint64_t word : choice.algorithm) words.push_back(to_hex(word));
  return {{"n", key.n},
          {"k", key.k},
          {"rows", key.rows},
          {"adds_output", key.adds_output},
          {"has_float_output", key.has_float_output},
          {"is_invariant", key.is_invariant},
          {"algorithm", std::move(words)},
          {"microseconds", choice.microseconds},
          {"name", choice.name}};
}

Json parse_store(const std::string& path, const std::string& text) {
  // The parser treats a NUL byte as the end of its input.
  if (text.find('\0') != std::string::npos) fail(path, "is not JSON");
  try {
    return Json::parse(text, {.keys_once = true});
  } catch (const JsonError& error) {
    refuse_key_twice(error, path);
    fail(path, "is not JSON");
  }
}

// The file's entries by machine: an object of arrays. Empty if there is no file, or one of another
// version.
Json read_machines(const std::string& path) {
  if (path.empty() || !path_exists(path)) return Json::object();
  const std::optional<std::string> text = read_file(path);
  if (!text) fail(path, input_problem());
  const Json document = parse_store(path, *text);
  const Place place{path, ""};
  if (!document.is_object()) fail(path, "must be an object");
  const Json& version = member(document, "version", place);
  if (!version.is_number_integer()) place.fail("version", "must be a number");
  if (version != kVersion) return Json::object();
  const Json& machines = member(document, "machines", place);
  if (!machines.is_object()) place.fail("machines", "must be an object");
  for (const auto& [machine, choices] : machines.items()) {
    if (!choices.is_array()) place.fail("machines", "'" + machine + "' must be an array");
  }
  return machines;
}

}  // namespace

void GemmStore::read(const std::string& path) {
  const Json machines = read_machines(path);
  const Json* found = machines.find(machine_);
  std::map<GemmKey, GemmChoice> parsed;
  for (std::size_t i = 0; found != nullptr && i < found->size(); ++i) {
    const Place place{path, "choice " + std::to_string(i) + " of '" + machine_ + "': "};
    const Json& json = (*found)[i];
    if (!json.is_object()) fail(path, place.where + "must be an object");
    if (!parsed.insert(parse_choice(json, place)).second) {
      place.fail("rows", "appears twice for the same product and rows");
    }
  }
  parsed.merge(choices_);  // parsed entries take precedence
  choices_ = std::move(parsed);
  has_changed_ = false;
}

void GemmStore::write(const std::string& path) const {
  if (path.empty()) return;
  Json machines = read_machines(path);
  Json& mine = machines[machine_] = Json::array();
  for (const auto& [key, choice] : choices_) mine.push_back(to_json(key, choice));
  const Json document = {{"version", kVersion}, {"machines", std::move(machines)}};
  // GPU names come from drivers. Bytes that are not UTF-8 are replaced.
  write_whole_file(path, document.dump({.indent = 1, .replaces_bad_utf8 = true}) + "\n");
}

const GemmChoice* GemmStore::find(const GemmKey& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmStore::put(const GemmKey& key, const GemmChoice& choice) {
  choices_[key] = choice;
  has_changed_ = true;
}

void GemmStore::erase(const GemmKey& key) {
  if (choices_.erase(key) > 0) has_changed_ = true;
}

std::string product_name(const GemmKey& key) {
  return "n " + std::to_string(key.n) + ", k " + std::to_string(key.k) + ", " +
         (key.has_float_output ? "float32" : "bfloat16") + " out" +
         (key.adds_output ? ", added" : "");
}

std::string describe_gemm_choices(const GemmStore& store) {
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool>, std::string> shapes;
  for (const auto& [key, choice] : store.choices()) {
    std::string& lines = shapes[{key.n, key.k, key.adds_output, key.has_float_output}];
    if (lines.empty()) lines = product_name(key) + "\n";
    char columns[64];
    std::snprintf(columns, sizeof columns, "  %6lld rows %-9s %9.1f us  ",
                  static_cast<long long>(key.rows), key.is_invariant ? "invariant" : "fastest",
                  choice.microseconds);
    lines += columns + choice.name + "\n";
  }
  std::string text;
  for (const auto& [shape, lines] : shapes) text += lines;
  return text;
}

}  // namespace metronome
