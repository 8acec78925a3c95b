// SPDX-License-Identifier: Apache-2.0
// Makes the tree of a template.
#pragma once

#include <string_view>

#include "models/text/jinja/syntax.h"

namespace metronome::jinja {

// Throws SyntaxError for a template that jinja2 refuses, and for one that uses what is not
// supported: the message names it and says what is allowed. `source` is UTF-8.
Body parse_template(std::string_view source);

}  // namespace metronome::jinja
