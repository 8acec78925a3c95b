// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/measured_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <optional>
#include <system_error>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/number_chars.h"
#include "core/base/python_json.h"
#include "core/config/config_node.h"

namespace metronome {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

// Takes the next line off the text, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

void read_lines(std::string_view text, MeasuredFile& file) {
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = trimmed(take_line(text));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", file.path, line_number);
    try {
      file.documents.push_back({where, parse_python_json(line)});
    } catch (const JsonError& error) {
      file.problem = fmt::format("line {} is not JSON: {}", line_number, error.what());
      return;
    }
  }
}

void read_json(std::string_view text, MeasuredFile& file) {
  std::string_view rest = text;
  const std::string_view first = trimmed(take_line(rest));
  if (!trimmed(rest).empty() && Json::try_parse(first)) return read_lines(text, file);
  try {
    file.documents.push_back({file.path, parse_python_json(trimmed(text))});
  } catch (const JsonError& error) {
    file.problem = "is not JSON: " + std::string(error.what());
  }
}

void read_yaml(std::string_view text, MeasuredFile& file) {
  try {
    file.documents.push_back({file.path, json_of(parse_config_text(text, file.path))});
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    const bool has_path = message.starts_with(file.path + ":");
    file.problem = std::string(has_path ? message.substr(file.path.size() + 1) : message);
  }
}

// The cells of a line of CSV. A quoted cell may have commas.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// "1,234.56"; nullopt: not a number.
std::optional<double> number_of(std::string cell) {
  std::erase(cell, ',');
  double number = 0;
  const char* const end = cell.data() + cell.size();
  const auto [stopped, error] = read_number(cell.data(), end, number);
  const bool is_number = error == std::errc() && stopped == end && std::isfinite(number);
  return is_number ? std::optional(number) : std::nullopt;
}

// "Time To First Token (ms)" is the metric time_to_first_token with the unit ms.
struct MetricName {
  std::string key;
  std::string unit;
};

MetricName metric_name(std::string_view cell) {
  MetricName name;
  const std::size_t open = cell.ends_with(')') ? cell.rfind(" (") : std::string_view::npos;
  if (open != std::string_view::npos) {
    name.unit = std::string(cell.substr(open + 2, cell.size() - open - 3));
  }
  name.key = lower_ascii(trimmed(cell.substr(0, open)));
  std::replace(name.key.begin(), name.key.end(), ' ', '_');
  return name;
}

// Blocks of metrics, each below a header that begins with "Metric". Other blocks are skipped.
void read_table(std::string_view text, MeasuredFile& file) {
  Json metrics = Json::object();
  std::vector<std::string> header;
  while (!text.empty()) {
    const std::vector<std::string> cells = cells_of(trimmed(take_line(text)));
    if (cells.front() == "Metric") {
      header = cells;
    } else if (cells.size() != header.size()) {
      header.clear();
    } else {
      const MetricName name = metric_name(cells.front());
      Json metric = Json::object();
      metric["unit"] = name.unit;
      for (std::size_t i = 1; i < cells.size(); ++i) {
        const std::optional<double> number = number_of(cells[i]);
        if (number) metric[header[i] == "Value" ? "avg" : lower_ascii(header[i])] = *number;
      }
      metrics[name.key] = std::move(metric);
    }
  }
  file.documents.push_back({file.path, std::move(metrics)});
}

enum class Layout : std::uint8_t { Unknown, Json, Table, Yaml };

std::string_view without_mark(std::string_view text) {
  return text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

std::string first_bytes(const std::string& path, std::string_view allowed) {
  std::ifstream in = open_input(path, allowed);
  std::string text(MeasuredFile::kLookedAt, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail_input(path, allowed);
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// By the beginning, so that logs of any size are not read. Only guidellm writes YAML.
Layout layout_of(std::string_view beginning) {
  const std::string_view text = trimmed(without_mark(beginning));
  const bool is_list = text.starts_with('[') && trimmed(text.substr(1)).starts_with('{');
  if (text.starts_with('{') || is_list) return Layout::Json;
  if (text.starts_with("Metric,")) return Layout::Table;
  const bool has_benchmarks =
      text.starts_with("benchmarks:") || text.find("\nbenchmarks:") != std::string_view::npos;
  return has_benchmarks ? Layout::Yaml : Layout::Unknown;
}

}  // namespace

bool is_plain_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

MeasuredFile open_measured_file(const std::string& path, std::string_view allowed) {
  MeasuredFile file;
  file.path = path;
  // A pipe can be read once.
  std::string whole = is_plain_file(path) ? std::string() : read_file(path, allowed);
  file.text = whole.empty() ? first_bytes(path, allowed) : whole.substr(0, MeasuredFile::kLookedAt);
  const Layout layout = layout_of(file.text);
  if (layout == Layout::Unknown) return file;
  if (whole.empty()) whole = read_file(path, allowed);
  const std::string_view text = without_mark(whole);
  switch (layout) {
    case Layout::Unknown: break;
    case Layout::Json: read_json(text, file); break;
    case Layout::Table: read_table(text, file); break;
    case Layout::Yaml: read_yaml(text, file); break;
  }
  return file;
}

}  // namespace metronome
