// SPDX-License-Identifier: Apache-2.0
#include "models/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <iterator>

#include "core/base/error.h"
#include "core/base/names.h"
#include "models/gguf/gguf_parse.h"
#include "models/gguf/gguf_parts.h"

namespace metronome {
namespace {

constexpr std::string_view kTypeNames[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                           "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                           "UINT64", "INT64",   "FLOAT64"};

// Keys of models in parts.
constexpr const char* kSplitNumber = "split.no";
constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitTensors = "split.tensors.count";

std::string_view name_of(GgufType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

template <class Number>
Number number_at(const std::byte* bytes) {
  Number value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool is_integer(GgufType type) {
  return type != GgufType::Float32 && type != GgufType::Float64 && type != GgufType::Bool &&
         type != GgufType::String && type != GgufType::Array;
}

bool is_float32(GgufType type) { return type == GgufType::Float32; }
bool is_bool(GgufType type) { return type == GgufType::Bool; }
bool is_string(GgufType type) { return type == GgufType::String; }

// nullopt for a number above 2^63 - 1.
std::optional<std::int64_t> integer_at(GgufType type, const std::byte* bytes) {
  switch (type) {
    case GgufType::Uint8: return number_at<std::uint8_t>(bytes);
    case GgufType::Int8: return number_at<std::int8_t>(bytes);
    case GgufType::Uint16: return number_at<std::uint16_t>(bytes);
    case GgufType::Int16: return number_at<std::int16_t>(bytes);
    case GgufType::Uint32: return number_at<std::uint32_t>(bytes);
    case GgufType::Int32: return number_at<std::int32_t>(bytes);
    case GgufType::Int64: return number_at<std::int64_t>(bytes);
    case GgufType::Uint64: {
      const auto value = number_at<std::uint64_t>(bytes);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default: break;
  }
  METRONOME_CHECK(false, "not an integer");
}

}  // namespace

std::string gguf_shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  const std::string quoted = "'" + printable(text.substr(0, kMaxShown));
  return quoted + (text.size() > kMaxShown ? "...'" : "'");
}

std::string gguf_type_text(const GgufValue& value) {
  if (value.type == GgufType::Array) {
    return fmt::format("an array of {} {}", value.count, name_of(value.element_type));
  }
  return "a " + std::string(name_of(value.type));
}

GgufFile::GgufFile(const std::string& path) : path_(path) {
  files_.emplace_back(path, "a readable file in the GGUF format");
  read(files_.front().bytes());
  add_other_parts();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string path) : path_(std::move(path)) {
  read(bytes);
  add_other_parts();
}

void GgufFile::read(std::span<const std::byte> bytes) {
  GgufContents contents = parse_gguf(bytes, path_);
  values_ = std::move(contents.values);
  tensors_ = std::move(contents.tensors);
}

// As llama_model_loader() of llama.cpp does.
void GgufFile::add_other_parts() {
  const std::int64_t count = integer(kSplitCount).value_or(1);
  if (count <= 1) return;
  const std::string of_count = fmt::format(" of {}", count);
  const std::optional<std::int64_t> number = integer(kSplitNumber);
  if (!number) fail(kSplitNumber, "is missing; allowed: 0 in the first part" + of_count);
  const bool is_part = *number >= 0 && *number < count;
  const std::string first = is_part ? gguf_part_path(path_, *number, count, 0) : "";
  if (*number != 0) {
    fail(kSplitNumber, fmt::format("is {}, that of part {}; allowed: the first part{}", *number,
                                   is_part ? fmt::format("{}{}", *number + 1, of_count) : "none",
                                   first.empty() ? "" : ", " + first));
  }
  if (first.empty()) {
    fail(kSplitCount,
         fmt::format("is {}, and the file's name is not that of the first part{}; allowed: names "
                     "as llama-gguf-split gives them, NAME-00001-of-00003",
                     count, of_count));
  }
  for (std::int64_t i = 1; i < count; ++i) add_part(i, count);
  const auto num_tensors = static_cast<std::int64_t>(tensors_.size());
  if (integer(kSplitTensors) == num_tensors) return;
  fail(kSplitTensors,
       fmt::format("is not {}, the number of tensors in all parts; allowed: the parts of one model",
                   num_tensors));
}

void GgufFile::add_part(std::int64_t number, std::int64_t count) {
  const std::string role =
      fmt::format("part {} of the model whose first part is {}", number + 1, path_);
  GgufFile part;
  part.path_ = gguf_part_path(path_, 0, count, number);
  files_.emplace_back(part.path_, role);
  part.read(files_.back().bytes());
  const auto require = [&](const char* key, std::optional<std::int64_t> wanted) {
    const std::optional<std::int64_t> found = part.integer(key);
    if (found == wanted) return;
    part.fail(key, (found ? fmt::format("is {}", *found) : std::string("is missing")) +
                       "; allowed: " + (wanted ? fmt::format("{}, that of ", *wanted) : "") + role);
  };
  require(kSplitNumber, number);
  require(kSplitCount, count);
  require(kSplitTensors, integer(kSplitTensors));
  for (const GgufTensor& tensor : part.tensors_) {
    if (find_tensor(tensor.name) == nullptr) continue;
    part.fail("tensor " + gguf_shown(tensor.name), "is in an earlier part, too; allowed: " + role);
  }
  const auto middle = static_cast<std::ptrdiff_t>(tensors_.size());
  std::move(part.tensors_.begin(), part.tensors_.end(), std::back_inserter(tensors_));
  std::inplace_merge(tensors_.begin(), tensors_.begin() + middle, tensors_.end(),
                     [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
}

void GgufFile::fail(std::string_view key, const std::string& message) const {
  throw ConfigError(printable(path_ + ": " + std::string(key) + ": " + message));
}

void GgufFile::fail_type(std::string_view key, const GgufValue& value, const char* allowed) const {
  fail(key, "is " + gguf_type_text(value) + "; allowed: " + allowed);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const GgufTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = std::lower_bound(
      values_.begin(), values_.end(), key,
      [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  return found == values_.end() || found->first != key ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type)) fail_type(key, *value, "an integer");
  const std::optional<std::int64_t> number = integer_at(value->type, value->bytes.data());
  if (!number) fail(key, "is above 2^63 - 1; allowed: an integer up to it");
  return number;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::Float32) return number_at<float>(value->bytes.data());
  if (value->type == GgufType::Float64) return number_at<double>(value->bytes.data());
  if (!is_integer(value->type)) fail_type(key, *value, "a number");
  return static_cast<double>(*integer(key));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::Bool) fail_type(key, *value, "a BOOL");
  return value->bytes.front() != std::byte{0};
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::String) fail_type(key, *value, "a STRING");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

const GgufValue* GgufFile::find_array(std::string_view key, const char* allowed,
                                      bool (*is_allowed)(GgufType)) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->type != GgufType::Array || !is_allowed(value->element_type)) {
    fail_type(key, *value, allowed);
  }
  return value;
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  std::vector<std::string_view> texts;
  const GgufValue* value = find_array(key, "an array of STRING", is_string);
  if (value == nullptr) return texts;
  texts.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto size = number_at<std::uint64_t>(at);
    texts.emplace_back(reinterpret_cast<const char*>(at) + sizeof size, size);
    at += sizeof size + size;
  }
  return texts;
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  std::vector<std::int64_t> numbers;
  const GgufValue* value = find_array(key, "an array of integers", is_integer);
  if (value == nullptr) return numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const std::byte* at = value->bytes.data() + i * size_of(value->element_type);
    const std::optional<std::int64_t> number = integer_at(value->element_type, at);
    if (!number) fail(key, "has a number above 2^63 - 1; allowed: integers up to it");
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<float> GgufFile::floats(std::string_view key) const {
  std::vector<float> numbers;
  const GgufValue* value = find_array(key, "an array of FLOAT32", is_float32);
  if (value == nullptr) return numbers;
  numbers.resize(value->count);
  if (value->count > 0) std::memcpy(numbers.data(), value->bytes.data(), value->bytes.size());
  return numbers;
}

std::vector<bool> GgufFile::booleans(std::string_view key) const {
  std::vector<bool> truths;
  const GgufValue* value = find_array(key, "an array of BOOL", is_bool);
  if (value == nullptr) return truths;
  for (const std::byte byte : value->bytes) truths.push_back(byte != std::byte{0});
  return truths;
}

}  // namespace metronome
