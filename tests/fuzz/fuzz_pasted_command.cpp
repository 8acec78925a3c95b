// SPDX-License-Identifier: Apache-2.0
// The bytes as a pasted command: it is read, and so are its flags, or it is refused.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/command_errors.h"
#include "engines/arguments/engine_settings.h"
#include "engines/command/pasted_command.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metronome;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find("config") != std::string::npos) return 0;  // would read files of this machine
  testing::parse_or_refuse([&] {
    try {
      const PastedCommand command = find_command(text, nullptr, "--command");
      const GivenFlags given = flags_of(command, "--command");
      (void)scenario_settings(*command.server, given.arguments);
    } catch (const UsageError& error) {
      throw ConfigError(error.what());
    }
  });
  return 0;
}
