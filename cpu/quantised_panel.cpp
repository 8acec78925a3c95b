// SPDX-License-Identifier: Apache-2.0
#include "cpu/quantised_panel.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/types.h"
#include "models/weights/quantised_blocks.h"

namespace metronome {
namespace {

// The numbers of one block. `quants` are as a panel has them.
struct BlockParts {
  std::uint16_t d = 0;
  std::uint16_t m = 0;
  std::uint8_t scales[16] = {};   // of d, a group each (Q4_K, Q5_K: 8) or 16 inputs each (Q6_K)
  std::uint8_t mins[8] = {};      // of m
  std::uint8_t quants[256] = {};  // of Q8_0 the bits of signed bytes
};

// One half of a stored byte.
struct Nibble {
  std::int64_t byte;
  int shift;
};

// The stored place of the low bits of an input.
Nibble low_place(const StripFormat& format, int input) {
  if (format.block_inputs == kGroupInputs) return {input % 16, input / 16 * 4};
  if (format.type == TensorType::Q6_K) {
    return {input / 128 * 64 + input % 64, input % 128 / 64 * 4};
  }
  return {input / 64 * 32 + input % 32, input % 64 / 32 * 4};
}

// The stored place of the high bits of an input.
Nibble high_place(const StripFormat& format, int input) {
  if (format.block_inputs == kGroupInputs) return {input / 8, input % 8};
  if (format.type == TensorType::Q6_K) return {input / 128 * 32 + input % 32, input % 128 / 32 * 2};
  return {input % 32, input / 32};
}

// Where the fields of a stored block begin, in bytes.
struct StoredFields {
  std::int64_t d;
  std::int64_t m;
  std::int64_t scales;
  std::int64_t high;
  std::int64_t low;
};

StoredFields stored_fields(TensorType type) {
  switch (type) {
    case TensorType::Q4_0: return {.d = 0, .m = 0, .scales = 0, .high = 0, .low = 2};
    case TensorType::Q4_1: return {.d = 0, .m = 2, .scales = 0, .high = 0, .low = 4};
    case TensorType::Q5_0: return {.d = 0, .m = 0, .scales = 0, .high = 2, .low = 6};
    case TensorType::Q5_1: return {.d = 0, .m = 2, .scales = 0, .high = 4, .low = 8};
    case TensorType::Q8_0: return {.d = 0, .m = 0, .scales = 0, .high = 0, .low = 2};
    case TensorType::Q4_K: return {.d = 0, .m = 2, .scales = 4, .high = 0, .low = 16};
    case TensorType::Q5_K: return {.d = 0, .m = 2, .scales = 4, .high = 16, .low = 48};
    case TensorType::Q6_K: return {.d = 208, .m = 0, .scales = 192, .high = 128, .low = 0};
    default: break;
  }
  METRONOME_CHECK(false, "a type without blocks");
}

std::uint16_t half_at(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

std::byte byte_of(int value) { return static_cast<std::byte>(value); }
std::uint8_t small(int value) { return static_cast<std::uint8_t>(value); }

// Eight pairs of 6 bits in 12 bytes; see quantised_blocks.cpp.
void split_pairs(const std::byte* from, BlockParts& parts) {
  const auto at = [from](int i) { return std::to_integer<int>(from[i]); };
  for (int i = 0; i < 4; ++i) {
    parts.scales[i] = small(at(i) & 63);
    parts.mins[i] = small(at(i + 4) & 63);
    parts.scales[i + 4] = small((at(i + 8) & 15) | ((at(i) >> 2) & 48));
    parts.mins[i + 4] = small((at(i + 8) >> 4) | ((at(i + 4) >> 2) & 48));
  }
}

void join_pairs(const BlockParts& parts, std::byte* to) {
  for (int i = 0; i < 4; ++i) {
    to[i] = byte_of(parts.scales[i] | (parts.scales[i + 4] & 48) << 2);
    to[i + 4] = byte_of(parts.mins[i] | (parts.mins[i + 4] & 48) << 2);
    to[i + 8] = byte_of((parts.scales[i + 4] & 15) | (parts.mins[i + 4] & 15) << 4);
  }
}

void split_block(const StripFormat& format, const std::byte* block, BlockParts& parts) {
  const StoredFields at = stored_fields(format.type);
  parts.d = half_at(block + at.d);
  if (format.has_minimum) parts.m = half_at(block + at.m);
  if (format.type == TensorType::Q6_K) {
    std::memcpy(parts.scales, block + at.scales, sizeof(parts.scales));
  } else if (format.block_inputs != kGroupInputs) {
    split_pairs(block + at.scales, parts);
  }
  for (int i = 0; i < format.block_inputs; ++i) {
    if (format.type == TensorType::Q8_0) {
      parts.quants[i] = std::to_integer<std::uint8_t>(block[at.low + i]);
      continue;
    }
    const Nibble low = low_place(format, i);
    int value = (std::to_integer<int>(block[at.low + low.byte]) >> low.shift) & 15;
    if (format.high_rows > 0) {
      const Nibble high = high_place(format, i);
      const int mask = (1 << format.high_rows) - 1;
      value |= ((std::to_integer<int>(block[at.high + high.byte]) >> high.shift) & mask) << 4;
    }
    parts.quants[i] = small(value);
  }
}

void join_block(const StripFormat& format, const BlockParts& parts, std::byte* block) {
  const StoredFields at = stored_fields(format.type);
  std::memset(block, 0, static_cast<std::size_t>(block_format(format.type)->num_bytes));
  std::memcpy(block + at.d, &parts.d, sizeof(parts.d));
  if (format.has_minimum) std::memcpy(block + at.m, &parts.m, sizeof(parts.m));
  if (format.type == TensorType::Q6_K) {
    std::memcpy(block + at.scales, parts.scales, sizeof(parts.scales));
  } else if (format.block_inputs != kGroupInputs) {
    join_pairs(parts, block + at.scales);
  }
  for (int i = 0; i < format.block_inputs; ++i) {
    if (format.type == TensorType::Q8_0) {
      block[at.low + i] = byte_of(parts.quants[i]);
      continue;
    }
    const Nibble low = low_place(format, i);
    block[at.low + low.byte] |= byte_of((parts.quants[i] & 15) << low.shift);
    if (format.high_rows > 0) {
      const Nibble high = high_place(format, i);
      block[at.high + high.byte] |= byte_of(parts.quants[i] >> 4 << high.shift);
    }
  }
}

// Some bits of a strip's block: of output `output` in row `row` of the words from `words` on.
struct Bits {
  std::int64_t word;
  int shift;
  std::uint32_t mask;
};

Bits bits_in_row(std::int64_t words, int row, int output, int shift, int num_bits) {
  return {words + std::int64_t{row} * kStripOutputs + output, shift, (1u << num_bits) - 1};
}

Bits place_of_d(const StripFormat& format, int output) {
  if (format.has_minimum) return {output, 0, 0xffff};
  return {output % (kStripOutputs / 2), output / (kStripOutputs / 2) * 16, 0xffff};
}

Bits place_of_low(const StripFormat& format, int output, int input) {
  const std::int64_t group =
      format.header_words + std::int64_t{input / kGroupInputs} * format.group_words();
  const int in_group = input % kGroupInputs;
  if (format.has_bytes()) {
    const int byte = in_group * kStripOutputs + output;
    return {group + byte / 4, byte % 4 * 8, 0xff};
  }
  return bits_in_row(group, in_group / 8, output, low_bit_place(in_group % 8), 4);
}

Bits place_of_high(const StripFormat& format, int output, int input) {
  const std::int64_t group =
      format.header_words + std::int64_t{input / kGroupInputs} * format.group_words();
  const int per_row = kGroupInputs / format.high_rows;
  const int in_group = input % kGroupInputs;
  return bits_in_row(group, format.low_rows + in_group / per_row, output,
                     high_bit_place(format.high_rows, in_group % per_row), format.high_rows);
}

// Calls move(bits, number) for every number of a block of one output.
template <class Parts, class Move>
void for_parts(const StripFormat& format, int output, Parts& parts, const Move& move) {
  move(place_of_d(format, output), parts.d);
  if (format.has_minimum) move(Bits{output, 16, 0xffff}, parts.m);
  if (format.type == TensorType::Q6_K) {
    for (int i = 0; i < 16; ++i) {
      move(bits_in_row(kStripOutputs / 2, i / 4, output, i % 4 * 8, 8), parts.scales[i]);
    }
  } else if (format.block_inputs != kGroupInputs) {
    for (int i = 0; i < 8; ++i) {
      move(bits_in_row(kStripOutputs, i / 2, output, i % 2 * 16, 8), parts.scales[i]);
      move(bits_in_row(kStripOutputs, i / 2, output, i % 2 * 16 + 8, 8), parts.mins[i]);
    }
  }
}

void put_block(const StripFormat& format, int output, const BlockParts& parts,
               std::uint32_t* words) {
  const auto put = [words](const Bits& bits, std::uint32_t number) {
    words[bits.word] |= (number & bits.mask) << bits.shift;
  };
  for_parts(format, output, parts, put);
  for (int i = 0; i < format.block_inputs; ++i) {
    put(place_of_low(format, output, i), parts.quants[i]);
    if (format.high_rows > 0) put(place_of_high(format, output, i), parts.quants[i] >> 4);
  }
}

void get_block(const StripFormat& format, int output, const std::uint32_t* words,
               BlockParts& parts) {
  const auto get = [words](const Bits& bits, auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>(
        (words[bits.word] >> bits.shift) & bits.mask);
  };
  for_parts(format, output, parts, get);
  for (int i = 0; i < format.block_inputs; ++i) {
    get(place_of_low(format, output, i), parts.quants[i]);
    if (format.high_rows == 0) continue;
    std::uint8_t high = 0;
    get(place_of_high(format, output, i), high);
    parts.quants[i] = small(parts.quants[i] | high << 4);
  }
}

// Blocks of a row.
std::int64_t num_row_blocks(const StripFormat& format, std::int64_t num_inputs) {
  METRONOME_CHECK(num_inputs % format.block_inputs == 0, "a part of a block");
  return num_inputs / format.block_inputs;
}

}  // namespace

const StripFormat* strip_format(TensorType type) {
  const auto* found =
      std::find_if(std::begin(kStripFormats), std::end(kStripFormats),
                   [type](const StripFormat& format) { return format.type == type; });
  return found == std::end(kStripFormats) ? nullptr : found;
}

std::int64_t quantised_panel_words(const StripFormat& format, std::int64_t num_inputs) {
  return kPanelOutputs / kStripOutputs * num_row_blocks(format, num_inputs) * format.block_words();
}

bool has_finite_scales(const StripFormat& format, const std::byte* blocks,
                       std::int64_t num_blocks) {
  constexpr std::uint16_t kExponent = 0x7c00;
  const StoredFields at = stored_fields(format.type);
  const std::int64_t block_bytes = block_format(format.type)->num_bytes;
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    const std::byte* const block = blocks + i * block_bytes;
    if ((half_at(block + at.d) & kExponent) == kExponent) return false;
    if (format.has_minimum && (half_at(block + at.m) & kExponent) == kExponent) return false;
  }
  return true;
}

void pack_quantised_panel(const StripFormat& format, const std::byte* blocks, std::int64_t num_rows,
                          std::int64_t num_inputs, std::uint32_t* panel) {
  METRONOME_CHECK(0 <= num_rows && num_rows <= kPanelOutputs, "more rows than a panel has");
  const std::int64_t num_blocks = num_row_blocks(format, num_inputs);
  const std::int64_t block_bytes = block_format(format.type)->num_bytes;
  std::fill_n(panel, quantised_panel_words(format, num_inputs), 0u);
  BlockParts parts;
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::uint32_t* const strip =
          panel + (row / kStripOutputs * num_blocks + b) * format.block_words();
      split_block(format, blocks + (row * num_blocks + b) * block_bytes, parts);
      put_block(format, static_cast<int>(row % kStripOutputs), parts, strip);
    }
  }
}

void unpack_quantised_row(const StripFormat& format, const std::uint32_t* panel,
                          std::int64_t output, std::int64_t num_inputs, std::byte* blocks) {
  METRONOME_CHECK(0 <= output && output < kPanelOutputs, "an output outside the panel");
  const std::int64_t num_blocks = num_row_blocks(format, num_inputs);
  const std::int64_t block_bytes = block_format(format.type)->num_bytes;
  BlockParts parts;
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    get_block(format, static_cast<int>(output % kStripOutputs),
              panel + (output / kStripOutputs * num_blocks + b) * format.block_words(), parts);
    join_block(format, parts, blocks + b * block_bytes);
  }
}

}  // namespace metronome
