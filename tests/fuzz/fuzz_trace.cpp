// SPDX-License-Identifier: Apache-2.0
// The bytes as a trace of any format: it is refused in one line, or its requests are well formed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/workload/workload_trace.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metronome;
  const std::string text(reinterpret_cast<const char*>(data), size);
  TraceConfig config;
  config.file = "fuzz.trace";
  // Conversations need a tokenizer, and a file without requests is not refused by its line.
  const auto is_about_the_file = [](const ConfigError& error) {
    const std::string message = error.what();
    // A message about a missing name lists those that the format has.
    return message.find("workload.trace.") != message.npos ||
           message.find("missing") != message.npos;
  };
  testing::parse_or_refuse([&] {
    try {
      const Workload workload = parse_trace(text, config);
      METRONOME_CHECK(!workload.requests.empty(), "a trace has requests");
      for (std::size_t i = 0; i < workload.requests.size(); ++i) {
        const RequestSpec& request = workload.requests[i];
        METRONOME_CHECK(request.num_prompt_tokens >= 1 && request.max_output_tokens >= 1,
                        "no length is 0");
        METRONOME_CHECK(request.arrival >= 0, "no time is negative");
      }
      if (workload.has_sessions()) {
        METRONOME_CHECK(workload.session_begin.back() == workload.requests.size(),
                        "sessions have all requests");
      }
    } catch (const ConfigError& error) {
      if (!is_about_the_file(error)) throw;
    }
  });
  return 0;
}
