// SPDX-License-Identifier: Apache-2.0
// The bytes as a vLLM or SGLang log: they are read, and what is made of them has no overflow.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "engines/log/engine_log.h"
#include "reports/terminal/cache_pressure.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_gaps.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metronome;
  const std::string text(reinterpret_cast<const char*>(data), size);
  testing::parse_or_refuse([&] {
    std::istringstream in(text);
    const EngineLog log = read_engine_log(in, "fuzz.log");
    METRONOME_CHECK(!log.observations.empty(), "a log has observations");
    std::int64_t line = 0;
    for (const LogObservation& seen : log.observations) {
      METRONOME_CHECK(seen.line >= line, "observations are in the file's order");
      METRONOME_CHECK(seen.elapsed_ns >= 0 && seen.num_prefill_tokens >= 0, "no count is negative");
      line = seen.line;
    }
    const LogGaps gaps = gaps_of(log);
    for (const LoggedGap& gap : gaps.gaps) {
      METRONOME_CHECK(gap.gap_ns >= 0 && gap.decode_ns >= 0, "no time is negative");
    }
    Distribution itl;
    (void)blocks_text(diagnosis_blocks(diagnose(gaps, 50.0, 3, itl)), 100);
    (void)pressure_notes(cache_pressure(log), log);
  });
  return 0;
}
