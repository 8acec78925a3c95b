// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <fmt/core.h>

namespace metronome {

void throw_invariant_error(const char* condition, const char* file, int line,
                           std::string_view message) {
  std::string text = "internal error: ";
  text.append(message);
  text += fmt::format(" ({} is false at {}:{})", condition, file, line);
  throw InvariantError(text);
}

}  // namespace metronome
