// SPDX-License-Identifier: Apache-2.0
#include "core/model/weight_format.h"

#include <cstddef>

namespace metronome {

std::string_view to_string(WeightFormat format) {
  return kWeightFormatNames[static_cast<std::size_t>(format)];
}

double bytes_of(WeightFormat format, std::int64_t plain_bytes, std::int64_t int4_group_size) {
  switch (format) {
    case WeightFormat::Plain: break;
    case WeightFormat::Fp8: return 1;
    case WeightFormat::Fp8Block: return 1 + 4.0 / (128 * 128);
    case WeightFormat::Nvfp4: return 0.5 + 1.0 / 16;
    case WeightFormat::Mxfp4: return 0.5 + 1.0 / 32;
    case WeightFormat::Mxfp8: return 1 + 1.0 / 32;
    case WeightFormat::Int8:
    case WeightFormat::WeightOnly: return 1;
    case WeightFormat::Int4:
    case WeightFormat::Int4Fp8:
      return 0.5 + (int4_group_size > 0 ? 2.0 / static_cast<double>(int4_group_size) : 0);
  }
  return static_cast<double>(plain_bytes);
}

}  // namespace metronome
