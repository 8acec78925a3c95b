// SPDX-License-Identifier: Apache-2.0
// The text and the files of `metronome bench-serve --find-knee`.
#pragma once

#include <string>

#include "core/base/json.h"
#include "serve/client/knee_search.h"

namespace metronome {

// The folder of a load: "rate-8", "rate-0.25".
std::string knee_folder(double rate);

// A row for each load, by rate, and what follows from them.
std::string knee_text(const KneeResult& result, const KneeOptions& options);

// The content of knee.json, but what names the server and the scenario.
Json knee_json(const KneeResult& result, const KneeOptions& options);

}  // namespace metronome
