// SPDX-License-Identifier: Apache-2.0
// The bytes as the result file of a benchmark's client: its runs are read, or refused.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "reports/measured/measured_reader.h"
#include "system/file_writer.h"

namespace {

using namespace metronome;

// Removed when the fuzzer ends.
class ResultFile {
 public:
  ResultFile()
      : path_(std::filesystem::temp_directory_path().string() + "/fuzz_measured_" +
              std::to_string(::getpid()) + ".json") {}
  ~ResultFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void check(const MeasuredRun& run, std::size_t size) {
  METRONOME_CHECK(run.requests.size() <= size, "a request takes a byte");
  METRONOME_CHECK(run.num_completed >= 0 && run.num_failed >= 0, "no count is negative");
  METRONOME_CHECK(run.duration_ns >= 0, "no time is negative");
  for (const MeasuredRequest& request : run.requests) {
    METRONOME_CHECK(request.num_prompt_tokens >= kUnknownTokens, "a length is known, or not");
    METRONOME_CHECK(request.ttft_ns == kNoTime || request.ttft_ns >= 0, "no time is negative");
  }
  const std::string text = measured_run_text(run);
  METRONOME_CHECK(text == printable(text), "a run is told in one printable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ResultFile file;
  write_file(file.path(), std::string_view(reinterpret_cast<const char*>(data), size));
  (void)is_measured(file.path());
  try {
    const std::vector<MeasuredRun> runs = read_measured_runs(file.path());
    METRONOME_CHECK(!runs.empty(), "a file has a run");
    for (const MeasuredRun& run : runs) check(run, size);
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    METRONOME_CHECK(text == printable(text), "a message is one printable line");
    METRONOME_CHECK(text.find(file.path()) != std::string::npos, "a message names the file");
  }
  return 0;
}
