// SPDX-License-Identifier: Apache-2.0
// Headers that commands send to a server: those of --header, and the key of the environment.
#pragma once

#include <string>
#include <vector>

namespace metronome {

// Checks the values of --header, and adds the key of OPENAI_API_KEY. Throws UsageError.
void complete_headers(std::vector<std::string>& headers);

}  // namespace metronome
