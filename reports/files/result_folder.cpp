// SPDX-License-Identifier: Apache-2.0
#include "reports/files/result_folder.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "reports/files/result_files.h"
#include "reports/files/result_names.h"
#include "system/file_writer.h"

namespace fs = std::filesystem;

namespace metronome {
namespace {

constexpr const char* kCreatable = "a folder that can be created";
constexpr const char* kEarlier = ".earlier";
// More than removing a folder with its subfolders takes: 32 KiB for each that is open.
constexpr std::size_t kReserveBytes = 256 * 1024;
// The mark of a temporary folder, the first file in it and the first to go.
constexpr const char* kTemporaryMark = ".metronome_temporary";

[[noreturn]] void fail_folder(const std::string& path, const char* what, int error) {
  throw std::runtime_error(path + ": " + what + ": " + std::generic_category().message(error));
}

fs::path absolute_target(const std::string& target) {
  std::error_code error;
  // Follows a link, so that its target folder is replaced and not the link.
  fs::path path = fs::weakly_canonical(fs::absolute(target), error);
  if (error) {
    errno = error.value();
    fail_input(target, kCreatable);
  }
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  if (path.filename().empty()) {
    throw ConfigError(target + ": cannot be a result folder; allowed: " + kCreatable);
  }
  return path;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(*it);
  }
  if (error) fail_folder(folder.string(), "cannot read the folder", error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The text of a file that carries Metronome's mark; nullopt for any other, and for a link.
std::optional<std::string> marked_text(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(fs::symlink_status(path, ignored))) return std::nullopt;
  const std::string mark = '"' + std::string(kResultSchemaKey) + '"';
  std::optional<std::string> text = read_file(path);
  return text && text->find(mark) != std::string::npos ? std::move(text) : std::nullopt;
}

// Whether the file carries the mark of a result, or belongs to a marked file beside it.
bool is_file_of_result(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (entry.is_symlink() || !entry.is_regular_file()) return false;
  const auto beside = [&entry](std::string_view marked) {
    return (entry.path().parent_path() / marked).string();
  };
  if (is_companion_name(name)) {
    const std::optional<Json> result =
        Json::try_parse(marked_text(beside(kResultFile)).value_or(""));
    return result && is_listed_file(*result, entry.path().string());
  }
  if (name == kBestFile || name == kTrialsFile) return is_marked_file(beside(kTuneFile));
  const bool is_known = is_result_file_name(name) || name == kServedTraceFile;
  return is_known && is_marked_file(entry.path().string());
}

// Whether it is a variant's subfolder: a marked result.json and only files that belong to it. A
// folder with a summary.json is a separate result.
bool is_variant_folder(const fs::path& folder) {
  const std::vector<fs::directory_entry> entries = sorted_entries(folder);
  return is_marked_file((folder / kResultFile).string()) &&
         std::all_of(entries.begin(), entries.end(), [](const auto& entry) {
           return is_file_of_result(entry) && entry.path().filename() != kSummaryFile;
         });
}

// Whether a run of Metronome can have created the entry in its result folder.
bool is_of_result(const fs::directory_entry& entry) {
  if (entry.is_symlink()) return false;
  return entry.is_directory() ? is_variant_folder(entry.path()) : is_file_of_result(entry);
}

// Differs for each folder that is moved to the path. Inodes alone do not: a new folder may have the
// inode of a removed one. Zeros: there is no such folder.
std::array<std::int64_t, 3> identity_of(const std::string& folder) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_ino), status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

// Removes the temporary folders of killed runs. Their name is `stem` plus a process id, which is
// only valid on the machine that `stem` names. An ".earlier" result (see exchange_with_target) may
// be the only copy and stays.
void remove_abandoned(const fs::path& parent, const std::string& stem) {
  std::error_code ignored;  // failures to list or remove do no harm
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(stem) || name.ends_with(kEarlier)) continue;
    pid_t process = 0;
    const char* last = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + stem.size(), last, process);
    if (error != std::errc() || rest == last || *rest != '-' || process <= 0) continue;
    if (::kill(process, 0) != 0 && errno == ESRCH) abandoned.push_back(it->path());
  }
  for (const fs::path& path : abandoned) remove_temporary_folder(path.string());
}

std::string machine_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

bool is_marked_file(const std::string& path) { return marked_text(path).has_value(); }

bool is_listed_file(const Json& result, const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) return false;
  if (!result.is_object() || !result.contains("files")) return true;
  const Json& files = result["files"];
  const std::string name = fs::path(path).filename().string();
  if (!files.is_object() || !files.contains(name)) return false;
  const Json& num_bytes = files[name];
  return num_bytes.is_number_integer() &&
         fs::file_size(path, error) == num_bytes.get<std::uint64_t>() && !error;
}

bool is_earlier_result(const std::string& folder) {
  if (!fs::is_directory(fs::symlink_status(folder))) return false;
  const std::vector<fs::directory_entry> entries = sorted_entries(folder);
  return std::all_of(entries.begin(), entries.end(), is_file_of_result);
}

void remove_temporary_folder(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(fs::symlink_status(path, ignored))) return;
  if (::rmdir(path.c_str()) == 0) return;  // ended before it had its mark
  const fs::path mark = fs::path(path) / kTemporaryMark;
  try {
    // Without its mark, it was complete and about to be moved to its target.
    const std::vector<fs::directory_entry> entries = sorted_entries(path);
    if (fs::is_regular_file(fs::symlink_status(mark, ignored)) ||
        std::all_of(entries.begin(), entries.end(), is_of_result)) {
      fs::remove_all(path, ignored);
    }
  } catch (const std::exception&) {  // cannot be read
  }
}

ResultFolder::ResultFolder(const std::string& target)
    : reserve_(std::make_unique_for_overwrite<char[]>(kReserveBytes)),
      target_(absolute_target(target).string()) {
  check_replaceable();
  try {
    make_parents();
    make_partial();
  } catch (...) {
    remove_partial();
    throw;
  }
}

ResultFolder::~ResultFolder() {
  if (!partial_.empty()) remove_partial();
}

void ResultFolder::remove_partial() {
  reserve_.reset();
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
  // Removes only empty folders: another run may have put its result into the same parent.
  for (std::size_t i = made_parents_.size(); i-- > 0;) ::rmdir(made_parents_[i].c_str());
}

void ResultFolder::check_replaceable() {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target_, error);
  if (status.type() == fs::file_type::not_found) return;
  if (error) fail_folder(target_, "cannot read the result folder", error.value());
  if (fs::is_symlink(status)) {  // a valid link was already followed
    throw ConfigError(target_ + ": is a broken link; name a folder for the results");
  }
  if (!fs::is_directory(status)) {
    throw ConfigError(target_ + ": is not a folder; name a folder for the results");
  }
  for (fs::path here = fs::current_path(error); !error; here = here.parent_path()) {
    if (here == target_) {
      throw ConfigError(
          target_ +
          ": is the current folder or contains it, and would be replaced; name a folder "
          "below the current one");
    }
    if (!here.has_relative_path()) break;
  }
  for (;;) {
    const std::array<std::int64_t, 3> checked = identity_of(target_);
    try {
      return check_entries();
    } catch (const std::exception&) {
      if (identity_of(target_) == checked) throw;
      // Another run replaced the folder while its entries were read: they are of two folders.
    }
  }
}

void ResultFolder::check_entries() {
  const std::vector<fs::directory_entry> entries = sorted_entries(target_);
  for (const fs::directory_entry& entry : entries) {
    if (is_of_result(entry)) continue;
    throw ConfigError(target_ + ": contains '" + entry.path().filename().string() +
                      "', which is not part of an earlier result, or was changed since; name a "
                      "folder that does not exist, "
                      "is empty, or contains only an earlier result");
  }
  replaces_result_ = !entries.empty();
}

void ResultFolder::make_parents() {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path parent = fs::path(target_).parent_path(); !fs::exists(parent, error);
       parent = parent.parent_path()) {
    if (error) fail_folder(parent.string(), "cannot reach the folder", error.value());
    missing.push_back(parent);
  }
  for (std::size_t i = missing.size(); i-- > 0;) {
    const std::string parent = missing[i].string();
    if (::mkdir(parent.c_str(), 0777) == 0) {
      made_parents_.push_back(parent);
      sync_folder(fs::path(parent).parent_path().string());
    } else if (errno != EEXIST) {
      fail_folder(parent, "cannot create the folder", errno);
    }
  }
}

void ResultFolder::make_partial() {
  const fs::path target(target_);
  const std::string stem = "." + target.filename().string() + ".partial-" + machine_name() + "-";
  remove_abandoned(target.parent_path(), stem);
  const std::string own = fmt::format("{}{}-", (target.parent_path() / stem).string(), ::getpid());
  for (int attempt = 0;; ++attempt) {
    const std::string candidate = fmt::format("{}{}", own, attempt);
    if (::mkdir(candidate.c_str(), 0777) == 0) {
      partial_ = candidate;
      write(kTemporaryMark, "");
      return;
    }
    if (errno != EEXIST) fail_folder(candidate, "cannot create the folder", errno);
  }
}

std::string ResultFolder::path(std::string_view name) const {
  METRONOME_CHECK(!partial_.empty(), "a committed result folder takes no more files");
  return (fs::path(partial_) / fs::path(name)).string();
}

void ResultFolder::make_subfolder(std::string_view name) {
  const std::string folder = path(name);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_folder(folder, "cannot create the folder", error.value());
}

void ResultFolder::write(std::string_view name, std::string_view content) {
  write_file(path(name), content);
}

void ResultFolder::exchange_with_target() {
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    fail_folder(target_, "cannot replace the result folder", errno);
  }
  // Without an atomic exchange in the file system: two renames. The first is undone if the second
  // fails.
  const std::string earlier = partial_ + kEarlier;
  if (::rename(target_.c_str(), earlier.c_str()) != 0) {
    fail_folder(target_, "cannot replace the result folder", errno);
  }
  if (::rename(partial_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::rename(earlier.c_str(), target_.c_str());
    fail_folder(target_, "cannot replace the result folder", error);
  }
  partial_ = earlier;
}

void ResultFolder::commit() {
  METRONOME_CHECK(!partial_.empty(), "a result folder is committed once");
  check_replaceable();
  if (::unlink(path(kTemporaryMark).c_str()) != 0) {
    fail_folder(partial_, "cannot complete the folder", errno);
  }
  sync_tree(partial_);
  check_replaceable();  // again: writing took time
  const std::string parent = fs::path(target_).parent_path().string();
  if (::rename(partial_.c_str(), target_.c_str()) == 0) {  // target missing or an empty folder
    partial_.clear();
    sync_folder(parent);
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    fail_folder(target_, "cannot move the results into place", errno);
  }
  exchange_with_target();
  sync_folder(parent);
  remove_earlier();
}

// Keeps the files that others put into the target at the last moment.
void ResultFolder::remove_earlier() {
  const std::string earlier = std::exchange(partial_, {});
  const std::vector<fs::directory_entry> entries = sorted_entries(earlier);
  if (std::all_of(entries.begin(), entries.end(), is_of_result)) {
    std::error_code ignored;  // the new result is complete; leftovers of the old one do no harm
    fs::remove_all(earlier, ignored);
    return;
  }
  std::string kept = target_ + kEarlier;
  for (int i = 2; fs::exists(fs::symlink_status(kept)); ++i) {
    kept = fmt::format("{}{}-{}", target_, kEarlier, i);
  }
  if (::rename(earlier.c_str(), kept.c_str()) != 0) kept = earlier;
  throw std::runtime_error(target_ + ": other files were put into it while the results were " +
                           "written; they are in " + kept);
}

}  // namespace metronome
