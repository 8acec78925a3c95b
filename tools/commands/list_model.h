// SPDX-License-Identifier: Apache-2.0
// `metronome list models FILE`: the shape of a model, as it is read.
#pragma once

#include <string>

namespace metronome {

// Prints the parts of the model of that name, or of that file, by kind of layer. Throws ConfigError
// for one that cannot be found or read.
void list_model(const std::string& name_or_path);

}  // namespace metronome
