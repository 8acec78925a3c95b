// A result folder that appears whole or not at all: everything is written into a temporary
// folder beside the target, which takes the target's place in one rename.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// The requests of a server that was recorded, beside its results.
constexpr std::string_view kServedTraceFile = "trace.jsonl";

class ResultFolder {
 public:
  // Creates missing parent folders and the temporary folder, and removes temporary folders for the
  // same target whose process on this machine is gone. A target that exists is accepted when it is
  // an empty folder or holds an earlier result of Metronome and nothing else, which commit()
  // replaces; for anything else, and for the current folder or one above it, throws ConfigError.
  // Throws std::runtime_error naming the path when the folder cannot be made.
  explicit ResultFolder(const std::string& target);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;
  // Without commit(): removes the temporary folder and the parents made for it.
  ~ResultFolder();

  const std::string& target() const { return target_; }  // absolute
  // Whether the target holds (before commit()) or held an earlier result.
  bool replaces_result() const { return replaces_result_; }

  // Where to write a file (or "subfolder/file") until commit().
  std::string path(std::string_view name) const;
  // Both throw std::runtime_error naming the path.
  void make_subfolder(std::string_view name);
  void write(std::string_view name, std::string_view content);

  // Moves the folder to its target. Throws std::runtime_error, or ConfigError when something
  // else has appeared there meanwhile; the target is then as it was.
  void commit();

 private:
  void make_parents();
  void make_partial();
  void check_replaceable();
  void exchange_with_target();

  std::string target_;
  std::string partial_;                    // empty once committed
  std::vector<std::string> made_parents_;  // outermost first
  bool replaces_result_ = false;
};

}  // namespace metronome
