// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --import`: converts published kernel times into a cost model file. Operator
// tables are in import_operators.h.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct ImportOptions {
  std::string folder;
  std::int64_t tensor_parallel_size = 1;
  std::string hardware;  // empty: the folder's value
  std::string model;     // empty: the folder's value
  std::string source;    // origin of the times; empty: the folder's name
  std::string out;       // empty: no file is written
};

// Prints what was read and how well the model of the attention kernel fits it. Throws ConfigError;
// then no file is written.
void import_profile(const ImportOptions& options);

}  // namespace metronome
