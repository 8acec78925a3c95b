// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/measured_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/core.h>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "reports/files/result_reader.h"
#include "reports/measured/formats.h"
#include "reports/measured/reading.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

const MeasuredFormat* format_of(const MeasuredFile& file) {
  for (const MeasuredFormat& format : measured_formats()) {
    if (!file.documents.empty() && format.has(file.documents.front().json)) return &format;
  }
  if (file.problem.empty()) return nullptr;
  for (const MeasuredFormat& format : measured_formats()) {
    const bool has_mark = std::any_of(format.marks.begin(), format.marks.end(),
                                      [&](std::string_view mark) { return file.has_text(mark); });
    if (has_mark) return &format;
  }
  return nullptr;
}

// The files of one format at a path.
struct FoundFiles {
  const MeasuredFormat* format = nullptr;  // nullptr: none is known
  MeasuredFiles files;
};

bool has_ending(const std::string& path, std::initializer_list<std::string_view> endings) {
  const std::string ending = lower_ascii(fs::path(path).extension().string());
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

// Only these are opened, as a folder may have anything beside them.
std::vector<std::string> candidates_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    const bool is_file = entry->is_regular_file(error) && !error;
    error.clear();
    if (is_file && has_ending(path, {".json", ".jsonl", ".yaml", ".yml", ".csv"})) {
      paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A client may write the same runs as JSON, as YAML and as a table: JSON counts.
void drop_copies(MeasuredFiles& files) {
  const auto is_copy = [](const MeasuredFile& file) {
    return !has_ending(file.path, {".json", ".jsonl"});
  };
  if (!std::all_of(files.begin(), files.end(), is_copy)) std::erase_if(files, is_copy);
}

FoundFiles find_in_folder(const std::string& folder) {
  FoundFiles found;
  for (const std::string& path : candidates_in(folder)) {
    MeasuredFile file = open_measured_file(path, measured_formats_text());
    const MeasuredFormat* format = format_of(file);
    if (format == nullptr) continue;
    if (found.format != nullptr && found.format != format) {
      throw ConfigError(folder + ": has results of " + std::string(found.format->name) + " (" +
                        found.files.front().path + ") and of " + std::string(format->name) + " (" +
                        path + "); allowed: one of the files, or a folder for each");
    }
    found.format = format;
    found.files.push_back(std::move(file));
  }
  drop_copies(found.files);
  return found;
}

FoundFiles find_files(const std::string& path) {
  if (is_folder(path)) return find_in_folder(path);
  FoundFiles found;
  found.files.push_back(open_measured_file(path, measured_formats_text()));
  found.format = format_of(found.files.front());
  return found;
}

// Describes a file of no known format.
std::string looks_text(const MeasuredFile& file) {
  if (!file.problem.empty()) return file.problem;
  if (file.documents.empty())
    return "is neither JSON, nor YAML of benchmarks, nor a table of metrics";
  const Json& first = file.documents.front().json;
  const Json& value = first.is_array() && !first.empty() ? first.front() : first;
  if (!value.is_object()) return "is JSON without objects";
  constexpr std::size_t kNamed = 5;
  std::string keys;
  for (std::size_t i = 0; i < std::min(value.items().size(), kNamed); ++i) {
    keys += (i == 0 ? "" : ", ") + printable(value.items()[i].key);
  }
  return "is no format that is known here; its keys: " + (keys.empty() ? "none" : keys) +
         (value.items().size() > kNamed ? ", ..." : "");
}

[[noreturn]] void refuse(const std::string& path, const FoundFiles& found) {
  if (is_folder(path)) {
    throw ConfigError(path +
                      ": has no file of a known format; allowed: " + measured_formats_text());
  }
  throw ConfigError(path + ": " + printable(looks_text(found.files.front())) +
                    "; allowed: " + measured_formats_text());
}

void require_complete(const FoundFiles& found) {
  for (const MeasuredFile& file : found.files) {
    if (file.problem.empty()) continue;
    throw ConfigError(file.path + ": looks like a result of " + std::string(found.format->name) +
                      " (" + std::string(found.format->made_by) + "), but " +
                      printable(file.problem) + "; allowed: a complete file");
  }
}

std::string listed_runs(const std::vector<MeasuredRun>& runs) {
  constexpr std::size_t kListed = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(runs.size(), kListed); ++i) {
    const std::string load = runs[i].load_text();
    text += fmt::format("{}{} ({}{}{})", i == 0 ? "" : "; ", i + 1, load, load.empty() ? "" : ", ",
                        count_text(runs[i].num_completed + runs[i].num_failed, "request"));
  }
  return runs.size() > kListed ? text + "; ..." : text;
}

}  // namespace

std::string measured_formats_text() {
  std::vector<std::string_view> names;
  for (const MeasuredFormat& format : measured_formats()) names.push_back(format.name);
  return "a result of " + join_names(names);
}

bool is_measured(const std::string& path) {
  if (is_folder(path) ? has_results(path) : !is_plain_file(path)) return false;
  try {
    return find_files(path).format != nullptr;
  } catch (const ConfigError&) {
    return false;
  }
}

std::vector<MeasuredRun> read_measured_runs(const std::string& path) {
  const FoundFiles found = find_files(path);
  if (found.format == nullptr) refuse(path, found);
  require_complete(found);
  std::vector<MeasuredRun> runs;
  try {
    runs = found.format->read(found.files);
  } catch (const JsonError& error) {  // a value of another kind than the reader takes for granted
    throw ConfigError(path + ": looks like a result of " + std::string(found.format->name) +
                      ", but " + printable(error.what()) + "; allowed: a complete file");
  }
  if (runs.empty()) {
    throw ConfigError(path + ": is a result of " + std::string(found.format->name) +
                      " without a run; allowed: at least one");
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].path = path;
    runs[i].number = i + 1;
    runs[i].num_in_file = runs.size();
    complete_run(runs[i]);
  }
  return runs;
}

MeasuredRun read_measured_run(const std::string& path, std::optional<std::int64_t> number) {
  std::vector<MeasuredRun> runs = read_measured_runs(path);
  if (!number && runs.size() > 1) {
    throw ConfigError(path + ": has " + count_text(runs.size(), "run") +
                      "; allowed: --run N with one of " + listed_runs(runs));
  }
  const std::int64_t chosen = number.value_or(1);
  if (chosen < 1 || chosen > static_cast<std::int64_t>(runs.size())) {
    throw ConfigError(
        fmt::format("--run: {} has no run {}; allowed: {}", path, chosen, listed_runs(runs)));
  }
  return std::move(runs[static_cast<std::size_t>(chosen - 1)]);
}

std::string measured_run_text(const MeasuredRun& run) {
  std::string text = printable(run.client);
  if (run.num_in_file > 1) {
    text += fmt::format(", run {} of {}", run.number, run.num_in_file);
  }
  const std::string load = run.load_text();
  if (!load.empty()) text += ", " + load;
  text += ", " + count_text(run.num_completed, "request");
  if (run.num_failed == 0) return text;
  return text + " (" + grouped_text(run.num_failed) + " failed" +
         (run.failures.empty() ? "" : ": " + run.failures) + ")";
}

}  // namespace metronome
