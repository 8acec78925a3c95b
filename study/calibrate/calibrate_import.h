// `metronome calibrate --import`: somebody's kernel times become a cost model file.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct ImportOptions {
  std::string folder;
  std::int64_t tensor_parallel_size = 1;
  std::string hardware;  // empty: as the folder says
  std::string model;     // empty: as the folder says
  std::string source;    // where the times come from; empty: the folder's name
  std::string out;       // empty: nothing is written
};

// Prints what was read and how well the model of the attention kernel fits it. Throws ConfigError,
// then nothing is written.
void import_profile(const ImportOptions& options);

}  // namespace metronome
