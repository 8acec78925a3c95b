// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of traces: a trace from text, and its requests as text.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/types.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/core/workload/workload_helpers.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

// Requests as text: "arrival/prompt/output ...", with `+delay` instead of the arrival of a turn
// that waits for the one before; times in ms.
inline std::string summary(const Workload& workload) {
  std::string text;
  std::size_t session = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const RequestSpec& r = workload.requests[i];
    const bool is_first = !workload.has_sessions() || i == workload.session_begin[session];
    session += is_first ? 1 : 0;
    text += is_first ? std::to_string(r.arrival / kNsPerMs)
                     : "+" + std::to_string(workload.delays[i] / kNsPerMs);
    text +=
        "/" + std::to_string(r.num_prompt_tokens) + "/" + std::to_string(r.max_output_tokens) + " ";
  }
  return text;
}

struct TraceFile {
  ScratchFolder folder;

  // `keys` go beside `file`, `beside` beside the trace.
  Workload load(const std::string& text, const std::string& keys = "",
                const std::string& beside = "") {
    folder.write("t", text);
    return make_workload(read_config("{trace: {file: t" + keys + "}" + beside + "}", folder.path()),
                         7);
  }
  std::string error(const std::string& text, const std::string& keys = "") {
    const std::string message = error_of([&] { load(text, keys); });
    const std::size_t at = message.find("/t:");
    return at == std::string::npos ? message : message.substr(at + 1);
  }
};

}  // namespace metronome::testing
