// The bytes as a log of vLLM or SGLang.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "reports/files/engine_log.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metronome;
  const std::string text(reinterpret_cast<const char*>(data), size);
  testing::parse_or_refuse([&] {
    std::istringstream in(text);
    const EngineLog log = read_engine_log(in, "fuzz.log", std::nullopt);
    METRONOME_CHECK(!log.observations.empty(), "a log has observations");
    std::int64_t line = 0;
    for (const LogObservation& seen : log.observations) {
      METRONOME_CHECK(seen.line >= line, "observations are in the file's order");
      METRONOME_CHECK(seen.elapsed_ns >= 0 && seen.num_prefill_tokens >= 0, "no count is negative");
      line = seen.line;
    }
  });
  return 0;
}
