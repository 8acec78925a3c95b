// SPDX-License-Identifier: Apache-2.0
#include "tests/command_line.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace metronome::testing {

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::map<std::string, std::string> folder_content(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().lexically_relative(folder).string()] = read_text_file(entry.path());
  }
  return files;
}

CommandResult run_program(const std::string& program, const std::string& arguments,
                          const std::string& prefix) {
  const ScratchFolder folder;
  const std::string command = "cd '" + source_dir() + "' && " + prefix + " '" + program + "' " +
                              arguments + " </dev/null >'" + folder.path() + "/out' 2>'" +
                              folder.path() + "/err'";
  const int status = std::system(command.c_str());
  CommandResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.out = read_text_file(folder.path() + "/out");
  result.err = read_text_file(folder.path() + "/err");
  return result;
}

CommandResult run_metronome(const std::string& arguments, const std::string& prefix) {
  return run_program(metronome_program(), arguments, prefix);
}

std::string interrupted_by(const std::string& signal, int cpu_hundredths, int times) {
  constexpr const char* kScript =
      R"(bash -c 'signal=$0; limit=$1; times=$2; shift 2; )"
      R"(env --default-signal=INT,$signal "$@" & p=$!; )"
      R"(while read -ra stat </proc/$p/stat && [[ ${stat[2]} != Z ]]; do )"
      R"(caught=$(sed -n "s/^SigCgt:[[:space:]]*//p" /proc/$p/status); )"
      R"((( (0x$caught >> ($(kill -l $signal) - 1)) & 1 && stat[13] >= limit )) && break; )"
      R"(sleep 0.02; done; while ((times-- > 0)); do kill -s $signal $p; done; wait $p' )";
  return kScript + signal + " " + std::to_string(cpu_hundredths) + " " + std::to_string(times);
}

}  // namespace metronome::testing
