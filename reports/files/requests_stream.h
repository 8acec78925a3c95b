// SPDX-License-Identifier: Apache-2.0
// Writes requests.jsonl of a fleet while the run goes on: a line for each request when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json_text.h"
#include "core/metrics/fleet_figures.h"
#include "system/file_writer.h"

namespace metronome {

class RequestsStream final : public EndedRequestSink {
 public:
  // Creates the file. Throws as FileWriter does.
  RequestsStream(std::string path, std::int64_t max_bytes, std::vector<std::string> class_names);

  void take(const EndedRequest& ended) override;
  // Returns whether the file has at most `max_bytes`. A larger one is not complete.
  bool finish();

 private:
  void flush();

  FileWriter file_;
  std::int64_t max_bytes_;
  std::vector<std::string> class_names_;
  JsonText json_;
  bool is_too_large_ = false;
};

}  // namespace metronome
