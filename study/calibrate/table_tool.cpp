// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/table_tool.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "system/progress.h"

extern char** environ;

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTool = "import_tables";
constexpr const char* kPython = "python3";

// Both ends are closed when a program begins, but for what it is given as its output.
struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe: no descriptors are left");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
  std::string read_all() const {
    std::string text;
    char bytes[4096];
    while (true) {
      const ssize_t count = read(ends[0], bytes, sizeof bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      text.append(bytes, static_cast<std::size_t>(count));
    }
  }
};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

// The exit status as wait(2) has it; nullopt if the program cannot be started.
std::optional<int> status_of(std::vector<std::string>& command, Pipe& output) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::nullopt;
  output.close_end(1);
  const std::string text = output.read_all();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  throw_if_interrupted();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  throw ConfigError(text.empty() ? std::string(kTool) + ": was stopped"
                                 : printable(last_line(text)));
}

}  // namespace

std::string find_table_tool() {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (const fs::path beside = folder / kTool; path_exists(beside.string())) return beside.string();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const fs::path tool = folder / "tools" / kTool;
    if (path_exists(tool.string())) return tool.string();
  }
  throw UsageError(
      "--import: needs tools/import_tables, which is not above the program; allowed: a program in "
      "its checkout, or a folder that the tool wrote");
}

void run_table_tool(const std::string& tool, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {kPython, tool};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Pipe output;
  if (status_of(command, output)) return;
  throw ConfigError(
      "--import: python3 cannot be run; allowed: a python3 in PATH, or a folder that "
      "tools/import_tables wrote elsewhere");
}

}  // namespace metronome
