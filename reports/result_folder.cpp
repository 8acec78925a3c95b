#include "reports/result_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "reports/file_writer.h"
#include "reports/result_files.h"

namespace fs = std::filesystem;

namespace metronome {
namespace {

[[noreturn]] void fail_folder(const std::string& path, const char* what, int error) {
  throw std::runtime_error(path + ": " + what + ": " + std::generic_category().message(error));
}

fs::path absolute_target(const std::string& target) {
  std::error_code error;
  // A link is followed, so that the folder it points at is replaced and not the link.
  fs::path path = fs::weakly_canonical(fs::absolute(target), error);
  if (error) fail_folder(target, "cannot resolve the path", error.value());
  if (path.filename().empty()) path = path.parent_path();  // "folder/"
  if (path.filename().empty()) {
    throw ConfigError(target + ": cannot be a result folder; name a folder that can be created");
  }
  return path;
}

// Whether a result file in the folder carries Metronome's mark.
bool holds_result(const fs::path& folder) {
  const std::string mark = '"' + std::string(kResultSchemaKey) + '"';
  for (const char* name : {"result.json", "summary.json"}) {
    std::ifstream file(folder / name, std::ios::binary);
    if (!file) continue;
    std::ostringstream content;
    content << file.rdbuf();
    if (content.str().find(mark) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

ResultFolder::ResultFolder(const std::string& target) : target_(absolute_target(target).string()) {
  check_replaceable();
  try {
    make_parents();
    make_partial();
  } catch (...) {
    for (std::size_t i = made_parents_.size(); i-- > 0;) ::rmdir(made_parents_[i].c_str());
    throw;
  }
}

ResultFolder::~ResultFolder() {
  if (partial_.empty()) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  // Only empty ones go: another run may have put its result into the same parent.
  for (std::size_t i = made_parents_.size(); i-- > 0;) ::rmdir(made_parents_[i].c_str());
}

void ResultFolder::check_replaceable() const {
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (status.type() == fs::file_type::not_found) return;
  if (error) fail_folder(target_, "cannot look at the result folder", error.value());
  if (!fs::is_directory(status)) {
    throw ConfigError(target_ + ": is not a folder; name a folder for the results");
  }
  const bool is_empty = fs::is_empty(target_, error);
  if (error) fail_folder(target_, "cannot read the result folder", error.value());
  if (!is_empty && !holds_result(target_)) {
    throw ConfigError(target_ +
                      ": is not empty and holds no Metronome result; name a folder that does "
                      "not exist, is empty, or holds an earlier result");
  }
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
    } else if (errno != EEXIST) {
      fail_folder(parent, "cannot create the folder", errno);
    }
  }
}

void ResultFolder::make_partial() {
  const fs::path target(target_);
  const std::string stem = (target.parent_path() / ("." + target.filename().string())).string() +
                           ".partial-" + std::to_string(::getpid()) + "-";
  for (int attempt = 0;; ++attempt) {
    const std::string candidate = stem + std::to_string(attempt);
    if (::mkdir(candidate.c_str(), 0777) == 0) {
      partial_ = candidate;
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
  // A file system that cannot exchange: two renames, and back again if the second one fails.
  const std::string earlier = partial_ + ".earlier";
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
  if (::rename(partial_.c_str(), target_.c_str()) == 0) {  // nothing there, or an empty folder
    partial_.clear();
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) {
    fail_folder(target_, "cannot move the results into place", errno);
  }
  exchange_with_target();
  std::error_code ignored;  // the new result is in place; a rest of the old one does no harm
  fs::remove_all(std::exchange(partial_, {}), ignored);
}

}  // namespace metronome
