// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fmt/core.h>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/config/config_reader.h"
#include "reports/files/content_id.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "system/file_writer.h"
#include "system/progress.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;
// Marks the folder as a sweep's. Runs are claimed by locks on single bytes of this file.
constexpr std::string_view kMark = ".metronome_sweep";
constexpr std::string_view kFailureSuffix = ".failure.json";
constexpr std::size_t kIdLength = 32;
// The id whose lock protects files that belong to no run. No run has this id.
constexpr std::string_view kSummaryLock = "fffffffffffffff";

void require_sweep_folder(const std::string& path) {
  // The order matters: the mark is the first file in the folder, and another process may be about
  // to create it.
  if (fs::is_empty(path) || path_exists(path + "/" + std::string(kMark))) return;
  throw UsageError(printable(path) +
                   ": is not the folder of a sweep; allowed: a folder that is new, empty or "
                   "of an earlier sweep");
}

// Compares result.json with what the id stands for.
bool is_result_of(const Json& result, const SweepRun& run) {
  return result.value("label", "") == run.scenario.name && result.contains("config") &&
         result.at("config") == Json::parse(run.scenario.to_json());
}

// Whether a run's folder has what the run writes, and what its result.json lists.
bool has_all_files(const std::string& folder, const Json& result, const ResultsConfig& wanted) {
  const auto has = [&folder](std::string_view name) {
    return path_exists(folder + "/" + std::string(name));
  };
  if (const Json* files = result.find("files")) {
    for (const auto& [name, ignored] : files->items()) {
      if (!is_companion_name(name) || !is_listed_file(result, folder + "/" + name)) return false;
    }
  }
  // Only backends that compute tokens write outputs.
  const Json* output_digest = result.find("output_digest");
  const bool has_computed = output_digest != nullptr && output_digest->is_string();
  return (!wanted.requests.value_or(true) || has(kRequestsFile)) &&
         (!wanted.steps.value_or(true) || has(kStepsFile)) &&
         (!wanted.trace.value_or(true) || has(kTraceFile)) &&
         (!wanted.outputs || !has_computed || has(kOutputsFile));
}

}  // namespace

bool is_run_id(std::string_view text) {
  return text.size() == kIdLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

SweepFolder::SweepFolder(const std::string& path) : path_(path) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  try {
    make_folders(path_);
    require_sweep_folder(path_);
  } catch (const fs::filesystem_error& error) {
    throw UsageError(printable(path_) +
                     ": cannot be the folder of a sweep: " + error.code().message());
  }
  const std::string mark = path_ + "/" + std::string(kMark);
  lock_file_ = ::open(mark.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_file_ < 0) {
    throw UsageError(printable(mark) +
                     ": cannot be written: " + std::generic_category().message(errno));
  }
}

SweepFolder::~SweepFolder() {
  if (lock_file_ >= 0) ::close(lock_file_);
}

std::string SweepFolder::failure_path(const SweepRun& run) const {
  return run_path(run) + std::string(kFailureSuffix);
}

SweepFolder::State SweepFolder::state_of(const SweepRun& run) const {
  const std::string folder = run_path(run);
  const fs::file_status status = fs::symlink_status(folder);
  if (!fs::exists(status)) return State::Missing;
  if (fs::is_symlink(status)) {
    throw ConfigError(printable(folder) +
                      ": is a link; allowed: another --out, or remove the link");
  }
  const std::optional<std::string> text = read_file(folder + "/" + std::string(kResultFile));
  const Json result = Json::try_parse(text.value_or("")).value_or(Json());
  if (!result.is_object()) return State::Damaged;
  if (!is_result_of(result, run)) {
    throw ConfigError(
        printable(folder) +
        ": contains the result of another configuration, which does not match its name; allowed: "
        "another --out, or remove the folder");
  }
  return has_own_content_id(*text) && has_all_files(folder, result, run.scenario.results)
             ? State::Done
             : State::Damaged;
}

std::size_t SweepFolder::num_others(const SweepPlan& plan) const {
  std::set<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    std::string name = entry.path().filename().string();
    if (is_run_id(name)) others.insert(std::move(name));
  }
  for (const SweepRun& run : plan.runs) others.erase(run.id);
  return others.size();
}

void SweepFolder::remove_leftovers() {
  std::vector<fs::path> hidden;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    // An ".earlier" result may be the only copy (ResultFolder).
    if (name.size() > kIdLength + 1 && name[0] == '.' && is_run_id(name.substr(1, kIdLength)) &&
        !name.ends_with(".earlier")) {
      hidden.push_back(entry.path());
    }
  }
  for (const fs::path& path : hidden) {
    const std::string id = path.filename().string().substr(1, kIdLength);
    if (!lock(id, true)) continue;  // another process is writing it
    remove_temporary_folder(path.string());
    lock(id, false);
  }
}

// These locks belong to the process and end with it, on any machine that shares the folder. The
// locked byte need not exist. If two ids share a byte, they only wait for each other.
bool SweepFolder::lock(std::string_view id, bool is_wanted) {
  std::uint64_t offset = 0;
  std::from_chars(id.data(), id.data() + 15, offset, 16);  // 60 bits: a positive offset
  struct flock range = {};
  range.l_type = is_wanted ? F_WRLCK : F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  while (::fcntl(lock_file_, F_SETLK, &range) != 0) {
    if (errno == EACCES || errno == EAGAIN) return false;
    if (errno == EINTR) continue;
    throw std::runtime_error(path_ + "/" + std::string(kMark) +
                             ": cannot be locked: " + std::generic_category().message(errno));
  }
  return true;
}

bool SweepFolder::try_claim(const SweepRun& run) { return lock(run.id, true); }

void SweepFolder::release(const SweepRun& run) { lock(run.id, false); }

void SweepFolder::set_damaged_aside(const SweepRun& run) {
  if (is_earlier_result(run_path(run))) return;
  std::string kept = run_path(run) + ".damaged";
  for (int i = 2; fs::exists(fs::symlink_status(kept)); ++i) {
    kept = fmt::format("{}.damaged-{}", run_path(run), i);
  }
  fs::rename(run_path(run), kept);
}

void SweepFolder::write_failure(const SweepRun& run, std::string_view message) {
  Json failure;
  failure[std::string(kResultSchemaKey)] = kResultSchema;
  failure["label"] = run.scenario.name;
  failure["run_number"] = run.run_number;
  failure["error"] = printable(message);
  failure["config"] = Json::parse(run.scenario.to_json());
  replace_file(failure_path(run), failure.dump(2) + "\n");
}

void SweepFolder::remove_failure(const SweepRun& run) {
  std::error_code ignored;
  if (is_marked_file(failure_path(run))) fs::remove(failure_path(run), ignored);
}

std::optional<std::string> SweepFolder::read_failure(const SweepRun& run) const {
  const std::optional<std::string> text = read_file(failure_path(run));
  if (!text) return std::nullopt;
  const Json failure = Json::try_parse(*text).value_or(Json());
  if (!failure.is_object()) return "failed for a reason that cannot be read";
  return failure.value("error", "").get<std::string>();
}

void SweepFolder::write_summary(std::string_view name, std::string_view content) {
  while (!lock(kSummaryLock, true)) {
    throw_if_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  replace_file(path_ + "/" + std::string(name), content);
  lock(kSummaryLock, false);
}

}  // namespace metronome
