// SPDX-License-Identifier: Apache-2.0
#include "sim/drafts/acceptance_log.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/number_chars.h"

namespace metronome {
namespace {

constexpr std::string_view kLine = "SpecDecoding metrics:";
constexpr std::string_view kPositions = "Per-position acceptance rate: ";
constexpr std::string_view kDrafted = "Drafted: ";
constexpr std::int64_t kSecondsPerDay = 24 * 60 * 60;

struct LoggedLine {
  std::optional<std::int64_t> second;  // of the day
  double num_drafted = 0;
  std::vector<double> positions;
};

std::optional<double> number_at(std::string_view text, std::size_t& at) {
  double value = 0;
  const auto [end, error] = read_number(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  at = static_cast<std::size_t>(end - text.data());
  return value;
}

// "12:34:56" anywhere before the message.
std::optional<std::int64_t> second_of_day(std::string_view head) {
  const auto digit = [&](std::size_t i) { return head[i] >= '0' && head[i] <= '9'; };
  for (std::size_t i = 0; i + 8 <= head.size(); ++i) {
    const bool is_time = digit(i) && digit(i + 1) && head[i + 2] == ':' && digit(i + 3) &&
                         digit(i + 4) && head[i + 5] == ':' && digit(i + 6) && digit(i + 7);
    if (!is_time) continue;
    const auto two = [&](std::size_t k) { return (head[k] - '0') * 10 + (head[k + 1] - '0'); };
    return (std::int64_t{two(i)} * 60 + two(i + 3)) * 60 + two(i + 6);
  }
  return std::nullopt;
}

std::optional<LoggedLine> read_line(std::string_view line) {
  const std::size_t message = line.find(kLine);
  const std::size_t list = line.find(kPositions);
  if (message == std::string_view::npos || list == std::string_view::npos) return std::nullopt;
  LoggedLine logged;
  logged.second = second_of_day(line.substr(0, message));
  if (std::size_t at = line.find(kDrafted, message); at != std::string_view::npos) {
    at += kDrafted.size();
    logged.num_drafted = number_at(line, at).value_or(0);
  }
  std::size_t at = list + kPositions.size();
  double before = 1;
  while (const std::optional<double> share = number_at(line, at)) {
    if (!(*share >= 0 && *share <= before)) return std::nullopt;  // not vLLM's
    before = *share;
    logged.positions.push_back(*share);
    if (line.substr(at, 2) != ", ") break;
    at += 2;
  }
  if (logged.positions.empty()) return std::nullopt;
  return logged;
}

// All lines as one.
AcceptanceLine mean_of(const std::vector<LoggedLine>& lines) {
  AcceptanceLine mean{.until = kNever, .positions = {}};
  mean.positions.resize(lines.front().positions.size());
  double all = 0;
  for (const LoggedLine& line : lines) all += line.num_drafted;
  for (const LoggedLine& line : lines) {
    const double share = all > 0 ? line.num_drafted / all : 1 / static_cast<double>(lines.size());
    for (std::size_t i = 0; i < mean.positions.size(); ++i) {
      mean.positions[i] += share * line.positions[i];
    }
  }
  return mean;
}

}  // namespace

std::vector<AcceptanceLine> read_acceptance_log(const std::string& path, const std::string& key) {
  std::vector<LoggedLine> lines;
  bool has_times = true;
  const std::optional<std::string> text = read_file(path);
  if (!text) {
    const std::string problem = input_problem();
    throw UnplacedConfigError(key, printable(path) + " " + problem + "; allowed: a readable file");
  }
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view row = std::string_view(*text).substr(begin, end - begin);
    if (std::optional<LoggedLine> line = read_line(row)) {
      has_times = has_times && line->second.has_value();
      lines.push_back(std::move(*line));
    }
    begin = end + 1;
  }
  if (lines.empty()) {
    throw UnplacedConfigError(key, printable(path) + " has no line \"" + std::string(kLine) +
                                       " ... " + std::string(kPositions) +
                                       "...\"; allowed: the log of a vLLM server with drafts");
  }
  for (const LoggedLine& line : lines) {
    if (line.positions.size() == lines.front().positions.size()) continue;
    throw UnplacedConfigError(key, printable(path) +
                                       " has lines with different numbers of positions; allowed: "
                                       "the log of one server");
  }
  if (!has_times || lines.size() == 1) return {mean_of(lines)};
  std::vector<AcceptanceLine> schedule;
  std::int64_t last = 0;
  std::int64_t until = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::int64_t from = i == 0 ? *lines[0].second : last;
    const std::int64_t to = i == 0 ? *lines[1].second : *lines[i].second;
    until += (to - from + kSecondsPerDay) % kSecondsPerDay;  // a log may pass midnight
    last = *lines[i].second;
    schedule.push_back({until * kNsPerSecond, std::move(lines[i].positions)});
  }
  return schedule;
}

}  // namespace metronome
