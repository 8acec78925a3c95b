// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_text.h"

#include <algorithm>
#include <utility>

#include "core/base/json.h"

namespace metronome {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

}  // namespace

void JsonText::grow(std::size_t num_bytes) {
  const std::size_t wanted = std::max({2 * capacity_, size_ + num_bytes, std::size_t{4096}});
  // Not value-initialised, which would write megabytes of zeros without need.
  std::unique_ptr<char[]> larger(new char[wanted]);
  if (size_ > 0) std::memcpy(larger.get(), buffer_.get(), size_);
  buffer_ = std::move(larger);
  capacity_ = wanted;
}

void JsonText::new_line() {
  const std::size_t indent = 2 * static_cast<std::size_t>(depth_);
  char* out = reserve(1 + indent);
  *out = '\n';
  std::memset(out + 1, ' ', indent);
  size_ += 1 + indent;
}

void JsonText::separate_indented() {
  const char last = size_ > 0 ? buffer_[size_ - 1] : '\n';
  if (follows_value_) append(",");
  // A value after its key (": ") stays on the key's line.
  if (follows_value_ || last == '{' || last == '[') new_line();
}

void JsonText::open(char bracket) {
  separate();
  *reserve(1) = bracket;
  ++size_;
  ++depth_;
  follows_value_ = false;
}

void JsonText::close(char bracket) {
  --depth_;
  if (is_indented_ && follows_value_) new_line();
  *reserve(1) = bracket;
  ++size_;
  follows_value_ = true;
}

void JsonText::value(std::string_view text) {
  separate();
  char* out = reserve(6 * text.size() + 2);
  *out++ = '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      *out++ = '\\';
      *out++ = c;
    } else if (c == '\n') {
      *out++ = '\\';
      *out++ = 'n';
    } else if (byte < 0x20) {
      std::memcpy(out, "\\u00", 4);
      out[4] = kHexDigits[byte >> 4];
      out[5] = kHexDigits[byte & 15];
      out += 6;
    } else {
      *out++ = c;
    }
  }
  *out++ = '"';
  advance_to(out);
  follows_value_ = true;
}

void JsonText::ms(TimeNs ns) { scaled<kNsPerMs>(ns); }

void JsonText::us(TimeNs ns) { scaled<kNsPerUs>(ns); }

template <TimeNs kNsPerUnit>
void JsonText::scaled(TimeNs ns) {
  constexpr std::uint32_t kFractionPerNs = 100'000'000 / kNsPerUnit;
  separate();
  char* out = reserve(2 * kDecimalBytes);
  if (ns < 0) *out++ = '-';
  const std::uint64_t magnitude =
      ns < 0 ? ~static_cast<std::uint64_t>(ns) + 1 : static_cast<std::uint64_t>(ns);
  out = write_decimal(out, magnitude / kNsPerUnit);
  const auto rest = static_cast<std::uint32_t>(magnitude % kNsPerUnit);
  advance_to(write_decimal_fraction(out, rest * kFractionPerNs));
  follows_value_ = true;
}

void JsonText::raw(std::string_view json) {
  separate();
  while (!json.empty() && (json.back() == '\n' || json.back() == ' ')) json.remove_suffix(1);
  while (!json.empty()) {
    const std::size_t line_end = std::min(json.find('\n'), json.size());
    append(json.substr(0, line_end));
    json.remove_prefix(std::min(line_end + 1, json.size()));
    if (json.empty()) break;
    if (is_indented_) {
      new_line();
    } else {
      append(" ");
    }
  }
  follows_value_ = true;
}

void JsonText::subtree(const Json& json) {
  raw(json.dump({.indent = is_indented_ ? 2 : -1, .replaces_bad_utf8 = true}));
}

}  // namespace metronome
