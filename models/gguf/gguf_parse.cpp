// SPDX-License-Identifier: Apache-2.0
#include "models/gguf/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fmt/core.h>
#include <optional>

#include "core/base/error.h"
#include "core/base/names.h"

namespace metronome {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they are");

constexpr std::string_view kMagic = "GGUF";
constexpr const char* kWholeFile = "; allowed: a whole file in the GGUF format";
constexpr std::uint64_t kMaxNameBytes = 65535;
constexpr int kMaxDepth = 4;                   // of arrays in arrays
constexpr std::uint64_t kMaxDims = 4;          // ggml's
constexpr std::uint64_t kMinValueBytes = 14;   // a key of one byte with a value of one
constexpr std::uint64_t kMinTensorBytes = 25;  // a name of one byte and no dimension
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMaxAlignment = 1 << 20;

// Every type with a number in ggml.h (enum ggml_type) that is in use. Sizes: GGML_QUANT_SIZES of
// the `gguf` package; Q2_0's: ggml-common.h.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

const GgmlType* find_ggml_type(std::uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string ggml_type_names() {
  std::string names;
  for (const GgmlType& type : kGgmlTypes) names.append(names.empty() ? "" : ", ").append(type.name);
  return names;
}

std::string tensor_text(std::string_view name) { return "tensor " + gguf_shown(name); }

// Reads the file from front to back. `what` names the part in messages.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  [[noreturn]] void fail(const std::string& what, const std::string& message) const {
    throw ConfigError(printable(path_ + ": " + what + ": " + message));
  }

  std::uint64_t place() const { return place_; }
  std::uint64_t left() const { return file_.size() - place_; }

  std::span<const std::byte> take(std::uint64_t num_bytes, const std::string& what) {
    if (num_bytes > left()) {
      fail(what, fmt::format("needs {} bytes at byte {} of {}{}", num_bytes, place_, file_.size(),
                             kWholeFile));
    }
    const auto bytes = file_.subspan(place_, num_bytes);
    place_ += num_bytes;
    return bytes;
  }

  template <class Number>
  Number number(const std::string& what) {
    Number value = 0;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::span<const std::byte> string(const std::string& what) {
    const auto num_bytes = number<std::uint64_t>(what);
    return take(num_bytes, what);
  }

  std::string name(const std::string& what) {
    const auto bytes = string(what);
    if (bytes.empty() || bytes.size() > kMaxNameBytes) {
      fail(what,
           fmt::format("has a name of {} bytes; allowed: 1 to {}", bytes.size(), kMaxNameBytes));
    }
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
  std::uint64_t place_ = 0;
};

GgufType read_type(Cursor& cursor, const std::string& what) {
  const auto type = cursor.number<std::uint32_t>(what);
  if (type > static_cast<std::uint32_t>(GgufType::Float64)) {
    cursor.fail(what,
                fmt::format("has a value of type {}, which is not known; allowed: 0 to 12", type));
  }
  return static_cast<GgufType>(type);
}

void check_truths(const Cursor& cursor, std::span<const std::byte> bytes, const std::string& what) {
  for (const std::byte byte : bytes) {
    if (std::to_integer<int>(byte) > 1) {
      cursor.fail(what, fmt::format("has a BOOL of {}; allowed: 0, 1", std::to_integer<int>(byte)));
    }
  }
}

// Advances behind the elements of an array. Each has at least one byte of the file, so the time is
// linear in the file.
void skip_elements(Cursor& cursor, GgufType type, std::uint64_t count, int depth,
                   const std::string& what) {
  if (const std::size_t size = size_of(type); size > 0) {
    const std::uint64_t most = cursor.left() / size;
    if (count > most) {
      cursor.fail(what, fmt::format("has {} elements, and the file has room for {}{}", count, most,
                                    kWholeFile));
    }
    const auto bytes = cursor.take(count * size, what);
    if (type == GgufType::Bool) check_truths(cursor, bytes, what);
    return;
  }
  constexpr std::uint64_t kLengthBytes = 8;  // of the length before a string
  if (count > cursor.left() / kLengthBytes) {
    cursor.fail(what, fmt::format("has {} elements, and the file has room for {}{}", count,
                                  cursor.left() / kLengthBytes, kWholeFile));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (type == GgufType::String) {
      cursor.string(what);
      continue;
    }
    if (depth == kMaxDepth) {
      cursor.fail(what, fmt::format("nests arrays too deeply; allowed: {} levels", kMaxDepth));
    }
    const GgufType inner = read_type(cursor, what);
    skip_elements(cursor, inner, cursor.number<std::uint64_t>(what), depth + 1, what);
  }
}

GgufValue read_value(Cursor& cursor, std::span<const std::byte> file, const std::string& what) {
  GgufValue value;
  value.type = read_type(cursor, what);
  if (value.type == GgufType::String) {
    value.bytes = cursor.string(what);
  } else if (value.type == GgufType::Array) {
    value.element_type = read_type(cursor, what);
    value.count = cursor.number<std::uint64_t>(what);
    const std::uint64_t begin = cursor.place();
    skip_elements(cursor, value.element_type, value.count, 1, what);
    value.bytes = file.subspan(begin, cursor.place() - begin);
  } else {
    value.bytes = cursor.take(size_of(value.type), what);
    if (value.type == GgufType::Bool) check_truths(cursor, value.bytes, what);
  }
  return value;
}

// A tensor whose bytes are not known yet.
struct Placed {
  GgufTensor tensor;
  std::uint64_t begin = 0;  // from the beginning of the data
  std::uint64_t num_bytes = 0;
};

std::uint64_t read_shape(Cursor& cursor, GgufTensor& tensor, const std::string& what) {
  const auto num_dims = cursor.number<std::uint32_t>(what);
  if (num_dims > kMaxDims) {
    cursor.fail(what, fmt::format("has {} dimensions; allowed: at most {}", num_dims, kMaxDims));
  }
  std::int64_t num_elements = 1;
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    const auto dim = cursor.number<std::uint64_t>(what);
    if (dim < 1 || dim > INT64_MAX || __builtin_mul_overflow(num_elements, dim, &num_elements)) {
      cursor.fail(
          what,
          fmt::format("has a dimension of {}; allowed: at least 1, and 2^63 - 1 elements in all",
                      dim));
    }
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return static_cast<std::uint64_t>(num_elements);
}

Placed read_tensor(Cursor& cursor, std::uint64_t index) {
  Placed placed;
  GgufTensor& tensor = placed.tensor;
  tensor.name = cursor.name(fmt::format("tensor {}", index));
  const std::string what = tensor_text(tensor.name);
  const std::uint64_t num_elements = read_shape(cursor, tensor, what);
  const auto type = cursor.number<std::uint32_t>(what);
  tensor.type = find_ggml_type(type);
  if (tensor.type == nullptr) {
    cursor.fail(
        what, fmt::format("has type {}, which is not known; allowed: {}", type, ggml_type_names()));
  }
  const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const auto block = static_cast<std::uint64_t>(tensor.type->block_elements);
  if (row % tensor.type->block_elements != 0) {
    cursor.fail(what, fmt::format("has rows of {} elements of {}; allowed: multiples of {}", row,
                                  tensor.type->name, block));
  }
  placed.begin = cursor.number<std::uint64_t>(what);
  if (__builtin_mul_overflow(num_elements / block, tensor.type->block_bytes, &placed.num_bytes)) {
    cursor.fail(what, "has more than 2^64 bytes" + std::string(kWholeFile));
  }
  return placed;
}

template <class Entry, class Name>
void sort_by_name(std::vector<Entry>& entries, const Name& name_of, const Cursor& cursor,
                  const char* kind) {
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return name_of(a) < name_of(b); });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [&](const Entry& a, const Entry& b) { return name_of(a) == name_of(b); });
  if (twice == entries.end()) return;
  cursor.fail(kind + gguf_shown(name_of(*twice)), "appears twice; allowed: once");
}

std::uint64_t alignment_of(const GgufContents& contents, const Cursor& cursor) {
  const std::string key = "general.alignment";
  for (const auto& [name, value] : contents.values) {
    if (name != key) continue;
    const std::string allowed =
        fmt::format("; allowed: a UINT32 that is a power of two, at most {}", kMaxAlignment);
    if (value.type != GgufType::Uint32) cursor.fail(key, "is " + gguf_type_text(value) + allowed);
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      cursor.fail(key, fmt::format("is {}{}", alignment, allowed));
    }
    return alignment;
  }
  return kDefaultAlignment;
}

// Gives each tensor its bytes, which no other tensor has.
void place_tensors(std::vector<Placed>& placed, std::span<const std::byte> data,
                   std::uint64_t alignment, const Cursor& cursor) {
  std::vector<Placed*> by_place;
  for (Placed& entry : placed) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(),
            [](const Placed* a, const Placed* b) { return a->begin < b->begin; });
  std::uint64_t end = 0;
  for (Placed* entry : by_place) {
    const std::string what = tensor_text(entry->tensor.name);
    const std::string begins = fmt::format("begins at byte {} of the data", entry->begin);
    if (entry->begin % alignment != 0) {
      cursor.fail(what, fmt::format("{}; allowed: multiples of {}", begins, alignment));
    }
    if (entry->begin < end) {
      cursor.fail(what, fmt::format("{}, inside the previous tensor, which ends at {}; allowed: "
                                    "tensors that share no byte",
                                    begins, end));
    }
    if (entry->begin > data.size() || entry->num_bytes > data.size() - entry->begin) {
      cursor.fail(what, fmt::format("{} and has {} of {}{}", begins, entry->num_bytes, data.size(),
                                    kWholeFile));
    }
    entry->tensor.bytes = data.subspan(entry->begin, entry->num_bytes);
    end = entry->begin + entry->num_bytes;
  }
}

void check_header(Cursor& cursor, std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs.")) {
    cursor.fail("header", "is a Git LFS pointer; allowed: the file that `git lfs pull` downloads");
  }
  if (!text.starts_with(kMagic)) {
    cursor.fail("header", "does not begin with GGUF" + std::string(kWholeFile));
  }
  cursor.take(kMagic.size(), "header");
  const auto version = cursor.number<std::uint32_t>("version");
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffffU) == 0) {
    cursor.fail("version", "is big-endian; allowed: a little-endian file of version 2 or 3");
  }
  cursor.fail("version", fmt::format("is {}; allowed: 2, 3", version));
}

std::uint64_t read_count(Cursor& cursor, const std::string& what) {
  return cursor.number<std::uint64_t>(what);
}

void check_count(const Cursor& cursor, std::uint64_t count, std::uint64_t min_bytes,
                 const std::string& what) {
  if (count <= cursor.left() / min_bytes) return;
  cursor.fail(what, fmt::format("is {}, and the file has room for {}{}", count,
                                cursor.left() / min_bytes, kWholeFile));
}

}  // namespace

std::size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::Uint8:
    case GgufType::Int8:
    case GgufType::Bool: return 1;
    case GgufType::Uint16:
    case GgufType::Int16: return 2;
    case GgufType::Uint32:
    case GgufType::Int32:
    case GgufType::Float32: return 4;
    case GgufType::Uint64:
    case GgufType::Int64:
    case GgufType::Float64: return 8;
    case GgufType::String:
    case GgufType::Array: break;
  }
  return 0;
}

GgufContents parse_gguf(std::span<const std::byte> file, const std::string& path) {
  Cursor cursor(file, path);
  check_header(cursor, file);
  const std::uint64_t num_tensors = read_count(cursor, "tensor count");
  const std::uint64_t num_values = read_count(cursor, "metadata count");
  check_count(cursor, num_tensors, kMinTensorBytes, "tensor count");
  check_count(cursor, num_values, kMinValueBytes, "metadata count");
  GgufContents contents;
  for (std::uint64_t i = 0; i < num_values; ++i) {
    std::string key = cursor.name(fmt::format("key {}", i));
    const GgufValue value = read_value(cursor, file, gguf_shown(key));
    contents.values.emplace_back(std::move(key), value);
  }
  sort_by_name(
      contents.values, [](const auto& entry) { return std::string_view(entry.first); }, cursor,
      "key ");
  const std::uint64_t alignment = alignment_of(contents, cursor);
  std::vector<Placed> placed;
  for (std::uint64_t i = 0; i < num_tensors; ++i) placed.push_back(read_tensor(cursor, i));
  sort_by_name(
      placed, [](const Placed& entry) { return std::string_view(entry.tensor.name); }, cursor,
      "tensor ");
  const std::uint64_t behind = cursor.place() % alignment;
  const std::uint64_t padding = behind == 0 ? 0 : alignment - behind;
  const std::uint64_t begin = cursor.place() + std::min(padding, cursor.left());
  place_tensors(placed, file.subspan(begin), alignment, cursor);
  for (Placed& entry : placed) contents.tensors.push_back(std::move(entry.tensor));
  return contents;
}

}  // namespace metronome
