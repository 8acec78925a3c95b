// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

namespace metronome {

void throw_invariant_error(const char* condition, const char* file, int line,
                           std::string_view message) {
  std::string text = "internal error: ";
  text.append(message);
  text += " (";
  text += condition;
  text += " is false at ";
  text += file;
  text += ':';
  text += std::to_string(line);
  text += ')';
  throw InvariantError(text);
}

}  // namespace metronome
