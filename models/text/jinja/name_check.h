// SPDX-License-Identifier: Apache-2.0
// Refuses templates that name what does not exist.
#pragma once

#include "models/text/jinja/syntax.h"

namespace metronome::jinja {

// Throws SyntaxError for filters, tests, methods and functions that do not exist. As in jinja2, an
// unknown filter or test directly inside an `if` is an error only when it runs: published templates
// guard names that not every renderer has. Names that jinja2 has and this renderer lacks are errors
// only when they run anywhere inside an `if`.
void check_names(const Body& body);

}  // namespace metronome::jinja
