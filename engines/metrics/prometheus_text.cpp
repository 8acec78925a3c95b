// SPDX-License-Identifier: Apache-2.0
#include "engines/metrics/prometheus_text.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/names.h"
#include "core/base/number_chars.h"

namespace metronome {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}
bool is_name_char(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Reads a line from left to right.
class SampleReader {
 public:
  explicit SampleReader(std::string_view line) : rest_(line) {}

  bool read(MetricSample& sample) {
    sample.labels.clear();
    skip_blanks();
    sample.name = read_name();
    if (sample.name.empty()) return false;
    skip_blanks();
    if (take('{') && !read_labels(sample)) return false;
    skip_blanks();
    const std::optional<double> value = read_value();
    if (!value) return false;
    sample.value = *value;
    skip_blanks();
    if (rest_.empty() || rest_.front() == '#') return true;  // an exemplar
    if (!read_value()) return false;                         // a time stamp
    skip_blanks();
    return rest_.empty() || rest_.front() == '#';
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view read_name() {
    if (rest_.empty() || !is_letter(rest_.front())) return {};
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_char);
    const std::string_view name = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(name.size());
    return name;
  }
  // Behind the bracket; a comma may be last.
  bool read_labels(MetricSample& sample) {
    while (true) {
      skip_blanks();
      if (take('}')) return true;
      const std::string_view name = read_name();
      skip_blanks();
      if (name.empty() || !take('=')) return false;
      skip_blanks();
      std::string value;
      if (!take('"') || !read_text(value)) return false;
      sample.labels.emplace_back(name, std::move(value));
      skip_blanks();
      if (!take(',') && (rest_.empty() || rest_.front() != '}')) return false;
    }
  }
  // Up to the quote that no backslash escapes.
  bool read_text(std::string& text) {
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (rest_.empty()) return false;
      const char escaped = rest_.front();
      rest_.remove_prefix(1);
      if (escaped == 'n') {
        text += '\n';
      } else {  // an unknown escape stays as it is
        if (escaped != '"' && escaped != '\\') text += '\\';
        text += escaped;
      }
    }
    return false;
  }
  std::optional<double> read_value() {
    const auto end = std::find_if(rest_.begin(), rest_.end(), is_blank);
    std::string_view word = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(word.size());
    if (word.empty()) return std::nullopt;
    const bool is_negative = word.front() == '-';
    if (is_negative || word.front() == '+') word.remove_prefix(1);
    constexpr std::size_t kLongestWord = 8;  // "infinity"
    const std::string lower = word.size() > kLongestWord ? std::string() : lower_ascii(word);
    double value = std::numeric_limits<double>::infinity();
    if (lower == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (lower != "inf" && lower != "infinity") {
      if (word.empty() || word.front() == '-') return std::nullopt;
      const auto [last, error] = read_number(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || last != word.data() + word.size()) return std::nullopt;
    }
    return is_negative ? -value : value;
  }

  std::string_view rest_;
};

}  // namespace

const std::string* MetricSample::label(std::string_view wanted) const {
  for (const auto& one : labels) {
    if (one.first == wanted) return &one.second;
  }
  return nullptr;
}

MetricsRead read_metrics(std::string_view page,
                         const std::function<void(const MetricSample&)>& take) {
  MetricsRead read;
  MetricSample sample;
  for (std::int64_t number = 1; !page.empty(); ++number) {
    const std::size_t end = std::min(page.find('\n'), page.size());
    std::string_view line = page.substr(0, end);
    page.remove_prefix(std::min(end + 1, page.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] == '#') continue;
    if (SampleReader(line).read(sample)) {
      ++read.num_samples;
      take(sample);
    } else if (read.num_broken++ == 0) {
      read.first_broken = number;
    }
  }
  return read;
}

}  // namespace metronome
