// SPDX-License-Identifier: Apache-2.0
// Three files of a result folder, separated by the byte 0x1e: result.json, requests.jsonl and
// steps.jsonl. They are read, or refused; what is read has a report.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/names.h"
#include "reports/files/content_id.h"
#include "reports/files/result_names.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "system/file_writer.h"

namespace {

using namespace metronome;

// Removed when the fuzzer ends.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path().string() + "/fuzz_result_" +
              std::to_string(::getpid())) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string_view result;
  for (const std::string_view name : {kResultFile, kRequestsFile, kStepsFile}) {
    const std::size_t end = std::min(rest.find('\x1e'), rest.size());
    write_file(folder.path() + "/" + std::string(name), rest.substr(0, end));
    if (name == kResultFile) result = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  (void)has_own_content_id(result);
  try {
    const StoredRun run = read_result(folder.path());
    METRONOME_CHECK(run.record.requests.size() <= size, "a request takes a line");
    ReportBuilder report(1);
    report.add(read_result_content(folder.path()),
               [&run]() -> const RunRecord& { return run.record; });
    METRONOME_CHECK(!report.empty(), "a result that can be read has a report");
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    METRONOME_CHECK(text == printable(text), "a message is one printable line");
    METRONOME_CHECK(text.find(folder.path()) == 0, "a message names the file");
  }
  return 0;
}
