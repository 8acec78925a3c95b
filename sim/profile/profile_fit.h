// SPDX-License-Identifier: Apache-2.0
// Fits how blocks fill the multiprocessors (profile_blocks.h) to a table of attention times. Checks
// the result against measured unequal decodes that the fit does not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/profile/profile_folder.h"
#include "sim/profile/profile_model.h"
#include "sim/profile/profile_tables.h"

namespace metronome {

// The attention heads of one device.
struct DeviceHeads {
  std::int64_t query = 0;
  std::int64_t kv = 0;
};

struct FillingFit {
  BlockFilling filling;
  std::size_t num_decode_rows = 0;
  std::size_t num_mixed_rows = 0;
  double decode_error = 0;  // mean of |logarithm of fitted over measured|
  double mixed_error = 0;
};

// A deterministic search. nullopt if the table has too few rows of unsplit decodes or of chunks
// beside decodes.
std::optional<FillingFit> fit_filling(const AttentionTable& table, const DeviceHeads& heads,
                                      std::int64_t num_multiprocessors);

// How well the fit predicts the ratios of unequal to equal decodes. The prediction is 1 where
// contexts are split over blocks.
struct FillingCheck {
  std::size_t num_steps = 0;
  double mean_error = 0;           // of |predicted / measured - 1|
  double mean_error_if_equal = 0;  // the error of the constant prediction 1
};

struct FillingChecks {
  FillingCheck decode;  // decodes only, contexts not split
  FillingCheck mixed;

  // Whether modelling the blocks predicts better than ignoring them.
  bool helps() const;
};
FillingChecks check_filling(const BlockFilling& filling, std::span<const UnequalStep> steps,
                            const DeviceHeads& heads);

}  // namespace metronome
