// SPDX-License-Identifier: Apache-2.0
// A result folder that appears complete or not at all, after a loss of power too. All files are
// written into a temporary folder beside the target, which one rename then moves to the target.
// Nothing is removed that does not carry Metronome's mark, and no link is followed to remove it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

class Json;

// The recorded requests of a server, beside its results. Every line carries the mark.
constexpr std::string_view kServedTraceFile = "trace.jsonl";

// Whether the path is a file that carries Metronome's mark. False for a link.
bool is_marked_file(const std::string& path);

// Whether a file without a mark is as `result`, the result.json beside it, lists it under `files`:
// a regular file with as many bytes. A result.json of a version without the list accepts any.
bool is_listed_file(const Json& result, const std::string& path);

// Whether a folder contains only an earlier result of Metronome, without a subfolder: what a run
// may replace. False for a link. Throws std::runtime_error if the folder cannot be read.
bool is_earlier_result(const std::string& folder);

// Removes a folder of an ended process if it is what a ResultFolder writes into before commit().
// Anything else, a link too, stays. Failures to read or remove do no harm and are not reported.
void remove_temporary_folder(const std::string& path);

class ResultFolder {
 public:
  // Creates missing parent folders and the temporary folder. Removes temporary folders for the same
  // target whose process on this machine has ended. An existing target must be empty or contain
  // only an earlier result of Metronome, which commit() replaces. Throws ConfigError for any other
  // target, and for the current folder or a parent of it. Throws std::runtime_error with the path
  // if the folder cannot be created.
  explicit ResultFolder(const std::string& target);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;
  // Without commit(): removes the temporary folder and the parents created for it.
  ~ResultFolder();

  const std::string& target() const { return target_; }  // absolute
  // Whether the target contains (before commit()) or contained an earlier result.
  bool replaces_result() const { return replaces_result_; }

  // The path at which to write a file (or "subfolder/file") until commit().
  std::string path(std::string_view name) const;
  // Both throw std::runtime_error with the path.
  void make_subfolder(std::string_view name);
  void write(std::string_view name, std::string_view content);

  // Moves the folder to its target. Throws std::runtime_error, or ConfigError if something else has
  // appeared at the target; the target is then unchanged.
  void commit();

 private:
  void make_parents();
  void make_partial();
  void remove_partial();
  void check_replaceable();
  void check_entries();
  void exchange_with_target();
  void remove_earlier();

  // For the destructor, which may run because there is no memory left.
  std::unique_ptr<char[]> reserve_;
  std::string target_;
  std::string partial_;                    // empty after commit()
  std::vector<std::string> made_parents_;  // outermost first
  bool replaces_result_ = false;
};

}  // namespace metronome
