// SPDX-License-Identifier: Apache-2.0
#include "models/weights/safetensors.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kWholeFile = "; allowed: a whole file in the safetensors format";

struct TypeInfo {
  std::string_view name;
  std::uint64_t num_bytes;
  TensorType type;
};

constexpr TypeInfo kTypes[] = {
    {"BOOL", 1, TensorType::Other},        {"U8", 1, TensorType::Other},
    {"I8", 1, TensorType::Other},          {"F8_E5M2", 1, TensorType::Other},
    {"F8_E4M3", 1, TensorType::Other},     {"F8_E8M0", 1, TensorType::Other},
    {"F8_E4M3FNUZ", 1, TensorType::Other}, {"F8_E5M2FNUZ", 1, TensorType::Other},
    {"I16", 2, TensorType::Other},         {"U16", 2, TensorType::Other},
    {"F16", 2, TensorType::Float16},       {"BF16", 2, TensorType::BFloat16},
    {"I32", 4, TensorType::Other},         {"U32", 4, TensorType::Other},
    {"F32", 4, TensorType::Float32},       {"F64", 8, TensorType::Other},
    {"I64", 8, TensorType::Other},         {"U64", 8, TensorType::Other},
    {"C64", 8, TensorType::Other},
};

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw ConfigError(printable(path + ": " + message));
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kMaxShown = 160;
  if (text.size() <= kMaxShown) return std::string(text);
  return std::string(text.substr(0, kMaxShown)) + "...";
}

std::string excerpt(const Json& value) {
  // A value may be as long as the file, so only short ones are dumped.
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 16) return fmt::format("{} entries", value.size());
  return shortened(value.dump({.sorts_keys = true}));
}

// Strict JSON: rejects duplicate keys, and nesting deeper than max_depth below the outermost brace.
// `what` is shown in messages.
Json parse_strict_json(std::string_view text, std::size_t max_depth, const std::string& path,
                       const std::string& what) {
  // The parser treats a NUL byte as the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    fail(path, fmt::format("{}: is not JSON, byte {} is NUL; allowed: JSON", what, nul));
  }
  using Reason = JsonError::Reason;
  try {
    return Json::parse(text, {.max_depth = max_depth + 1, .keys_once = true});
  } catch (const JsonError& error) {
    if (error.reason() == Reason::TooDeep) {
      fail(path, fmt::format("{}: is nested too deeply; allowed: {} levels below the outermost",
                             what, max_depth));
    }
    if (error.reason() == Reason::KeyTwice) {
      fail(path,
           what + ": contains '" + shortened(error.key()) + "' twice; allowed: every key once");
    }
    if (error.reason() == Reason::NumberTooLarge) {
      fail(path, what + ": contains a number that is too large for JSON; allowed: JSON");
    }
    fail(path, fmt::format("{}: is not JSON at byte {}; allowed: JSON", what, error.byte()));
  }
}

// A tensor and its byte range, counted from the end of the header.
struct Entry {
  Tensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Reads one tensor's entry in the header.
class EntryReader {
 public:
  EntryReader(const std::string& path, const std::string& name) : path_(path), name_(name) {}

  [[noreturn]] void fail(const std::string& message) const {
    metronome::fail(path_, tensor_label(name_) + ": " + message);
  }

  Entry read(const Json& value) const {
    constexpr const char* kAllowed = "; allowed: dtype, shape, data_offsets";
    if (!value.is_object()) fail("must be an object, got " + excerpt(value) + kAllowed);
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) fail(std::string(key) + " is missing" + kAllowed);
    }
    for (const Json::Member* member : value.sorted_items()) {
      const std::string& key = member->key;
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail("unknown key '" + shortened(key) + "'" + kAllowed);
      }
    }
    Entry entry;
    const TypeInfo& type = read_type(value["dtype"]);
    entry.tensor.name = name_;
    entry.tensor.type = type.type;
    entry.tensor.type_name = type.name;
    entry.tensor.shape = read_shape(value["shape"]);
    read_offsets(value["data_offsets"], entry);
    const std::uint64_t num_bytes = bytes_of(entry.tensor.shape, type);
    if (entry.end - entry.begin != num_bytes) {
      fail(fmt::format("data_offsets span {} bytes; allowed: {}, as {} of shape {} needs",
                       entry.end - entry.begin, num_bytes, entry.tensor.type_name,
                       shape_text(entry.tensor.shape)));
    }
    return entry;
  }

 private:
  const TypeInfo& read_type(const Json& value) const {
    std::string names;
    for (const TypeInfo& type : kTypes) {
      if (value.is_string() && value.string() == type.name) return type;
      names.append(names.empty() ? "" : ", ").append(type.name);
    }
    fail("dtype " + excerpt(value) + " is not known; allowed: " + names);
  }

  static std::optional<std::int64_t> read_count(const Json& value) {
    constexpr std::uint64_t kMax = INT64_MAX;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) return std::nullopt;
    return value.get<std::int64_t>();
  }

  std::vector<std::int64_t> read_shape(const Json& value) const {
    constexpr const char* kAllowed = "; allowed: a list of integers from 0 to 2^63 - 1";
    if (!value.is_array()) fail("shape must be a list, got " + excerpt(value) + kAllowed);
    std::vector<std::int64_t> shape;
    for (const Json& dim : value) {
      const std::optional<std::int64_t> count = read_count(dim);
      if (!count) fail("shape has the entry " + excerpt(dim) + kAllowed);
      shape.push_back(*count);
    }
    return shape;
  }

  void read_offsets(const Json& value, Entry& entry) const {
    constexpr const char* kAllowed = "; allowed: [begin, end] with 0 <= begin <= end";
    const auto refuse = [&] { fail("data_offsets are " + excerpt(value) + kAllowed); };
    if (!value.is_array() || value.size() != 2) refuse();
    const std::optional<std::int64_t> begin = read_count(value[0]);
    const std::optional<std::int64_t> end = read_count(value[1]);
    if (!begin || !end || *begin > *end) refuse();
    entry.begin = static_cast<std::uint64_t>(*begin);
    entry.end = static_cast<std::uint64_t>(*end);
  }

  std::uint64_t bytes_of(const std::vector<std::int64_t>& shape, const TypeInfo& type) const {
    std::int64_t num_bytes = 1;
    bool overflows = false;
    for (const std::int64_t dim : shape) {
      overflows |= __builtin_mul_overflow(num_bytes, dim, &num_bytes);
    }
    overflows |= __builtin_mul_overflow(num_bytes, type.num_bytes, &num_bytes);
    if (overflows) {
      fail("shape " + shape_text(shape) + " overflows; allowed: at most 2^63 - 1 bytes");
    }
    return static_cast<std::uint64_t>(num_bytes);
  }

  const std::string& path_;
  const std::string& name_;
};

void check_metadata(const Json& metadata, const std::string& path) {
  const std::string allowed = "; allowed: an object of strings";
  if (!metadata.is_object()) {
    fail(path,
         std::string(kMetadataKey) + ": must be an object, got " + excerpt(metadata) + allowed);
  }
  for (const Json::Member* member : metadata.sorted_items()) {
    if (member->value.is_string()) continue;
    fail(path, std::string(kMetadataKey) + ": '" + shortened(member->key) +
                   "' must be a string, got " + excerpt(member->value) + allowed);
  }
}

// The tensors must cover the bytes after the header, each byte exactly once.
void check_coverage(const std::vector<Entry>& entries, std::uint64_t num_bytes,
                    const std::string& path) {
  constexpr const char* kAllowed = "; allowed: consecutive tensors, without gap or overlap";
  std::vector<const Entry*> stored;
  for (const Entry& entry : entries) stored.push_back(&entry);
  std::sort(stored.begin(), stored.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  for (const Entry* entry : stored) {
    const std::string label = tensor_label(entry->tensor.name);
    if (entry->end > num_bytes) {
      fail(path, fmt::format("{}: data_offsets end at byte {} of {}{}", label, entry->end,
                             num_bytes, kWholeFile));
    }
    if (entry->begin != covered) {
      fail(path,
           fmt::format(
               "{}: data_offsets begin at byte {}{} the previous tensor, which ends at {}{}", label,
               entry->begin, entry->begin < covered ? ", inside" : ", after a gap behind", covered,
               kAllowed));
    }
    covered = entry->end;
  }
  if (covered != num_bytes) {
    fail(path, fmt::format("its tensors end at byte {} of {} after the header{}", covered,
                           num_bytes, kAllowed));
  }
}

// The JSON header of the file.
std::string_view header_of(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs.")) {
    fail(path, "is a Git LFS pointer; allowed: the file itself, which `git lfs pull` downloads");
  }
  const std::string size = std::to_string(file.size());
  if (file.size() < kLengthBytes) {
    fail(path, "is " + size + " bytes long, too short for a header" + kWholeFile);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    fail(path,
         fmt::format("its header is {} bytes long, or this is another format; allowed: at most {}",
                     length, kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    fail(path, fmt::format("its header is {} bytes long, but the file only {}{}", length, size,
                           kWholeFile));
  }
  const std::string_view header = text.substr(kLengthBytes, length);
  if (!header.starts_with('{')) {
    fail(path, "its header does not begin with a brace; allowed: a JSON object");
  }
  return header;
}

bool is_inside_folder(const std::string& file) {
  if (file.empty() || file.front() == '/' || file.find('\0') != file.npos) return false;
  return ("/" + file + "/").find("/../") == std::string::npos;
}

}  // namespace

std::int64_t Tensor::num_elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) product *= dim;
  return product;
}

std::string tensor_label(std::string_view name) {
  return "tensor '" + printable(shortened(name)) + "'";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t dim : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
  return "[" + shortened(text) + "]";
}

std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::string_view header = header_of(file, path);
  constexpr std::size_t kMaxDepth = 2;  // a tensor's entry, and the lists in it
  const Json document = parse_strict_json(header, kMaxDepth, path, "header");
  std::vector<Entry> entries;  // by name
  for (const Json::Member* member : document.sorted_items()) {
    if (member->key == kMetadataKey) {
      check_metadata(member->value, path);
    } else {
      entries.push_back(EntryReader(path, member->key).read(member->value));
    }
  }
  const std::span<const std::byte> bytes = file.subspan(kLengthBytes + header.size());
  check_coverage(entries, bytes.size(), path);
  std::vector<Tensor> tensors;
  for (Entry& entry : entries) {
    entry.tensor.bytes = bytes.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view json,
                                                           const std::string& path) {
  constexpr std::size_t kMaxDepth = 16;  // the metadata may hold any JSON
  const Json document = parse_strict_json(json, kMaxDepth, path, "index");
  const Json* weight_map = document.find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object()) {
    fail(path, "weight_map: is missing; allowed: an object from tensors to files");
  }
  std::map<std::string, std::string> files;
  for (const Json::Member* member : weight_map->sorted_items()) {
    const Json& value = member->value;
    if (!value.is_string() || !is_inside_folder(value.string())) {
      fail(path, tensor_label(member->key) + ": cannot be in " + excerpt(value) +
                     "; allowed: the name of a file in the same folder");
    }
    files.emplace(member->key, value.string());
  }
  return files;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path),
      file_(path, "a readable file in the safetensors format"),
      tensors_(parse_safetensors(file_.bytes(), path)) {}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Tensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace metronome
