// SPDX-License-Identifier: Apache-2.0
#include "cpu/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/types.h"
#include "cpu/quantised_panel.h"
#include "models/weights/float16.h"
#include "models/weights/quantised_blocks.h"

namespace metronome {
namespace {

// Rows of a product that stay on one thread: several tiles of every kernel.
constexpr std::int64_t kGroupRows = 4 * kAttentionRows;
// A smaller number of multiplications takes less time than waking another thread.
constexpr std::int64_t kFewProducts = 1 << 15;
// A loop has more parts than threads, as other programs slow threads differently. A part has this
// many multiplications if there are enough: some microseconds. A thread has few parts, as each part
// of a panel makes the panel's weights again.
constexpr std::int64_t kPartProducts = 1 << 18;
constexpr std::int64_t kThreadParts = 16;
// Inputs that packing transposes at a time: both sides stay in the L1 cache.
constexpr std::int64_t kPackInputs = 16;

// The index of output j among the 64 outputs of an input in a panel.
template <class Weight>
std::int64_t place_in_panel(std::int64_t j) {
  if constexpr (std::is_same_v<Weight, float>) return j;
  return 2 * (j % kHalfPanel) + j / kHalfPanel;
}

template <class Weight>
Weight stored(float value) {
  if constexpr (std::is_same_v<Weight, float>) {
    return value;
  } else {
    return bf16_of_float(value);
  }
}

// Calls read(spec, first, last, offset) for the tensors that rows [begin, end) of the stack lie in:
// rows [first, last) of a tensor are the stack's from begin + offset on.
template <class Read>
void for_rows_of(const std::vector<WeightSpec>& specs, std::int64_t begin, std::int64_t end,
                 const Read& read) {
  std::int64_t spec_begin = 0;
  for (const WeightSpec& spec : specs) {
    const std::int64_t first = std::max(begin, spec_begin);
    const std::int64_t last = std::min(end, spec_begin + spec.rows);
    if (first < last) read(spec, first - spec_begin, last - spec_begin, first - begin);
    spec_begin += spec.rows;
  }
}

std::int64_t panel_bytes_of(TensorType packed, std::int64_t num_inputs) {
  if (const StripFormat* format = strip_format(packed)) {
    return quantised_panel_words(*format, num_inputs) *
           static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
  return stored_bytes(packed, num_inputs * kPanelOutputs);
}

bool are_scales_finite(const WeightSource& source, const WeightSpec& spec, ThreadPool& pool) {
  const StripFormat& format = *strip_format(source.type(spec));
  std::atomic<bool> is_finite = true;
  pool.for_range(ceil_div(spec.rows, kPanelOutputs), [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::byte> blocks(
        static_cast<std::size_t>(stored_bytes(format.type, kPanelOutputs * spec.cols)));
    for (std::int64_t i = begin; i < end && is_finite; ++i) {
      const std::int64_t first = i * kPanelOutputs;
      const std::int64_t last = std::min(first + kPanelOutputs, spec.rows);
      source.read_blocks(spec, first, last, blocks.data());
      const std::int64_t num_blocks = (last - first) * spec.cols / format.block_inputs;
      if (!has_finite_scales(format, blocks.data(), num_blocks)) is_finite = false;
    }
  });
  return is_finite;
}

template <class Weight>
void pack_rows(const float* rows, std::int64_t num_rows, std::int64_t num_inputs, Weight* panel) {
  for (std::int64_t first = 0; first < num_inputs; first += kPackInputs) {
    const std::int64_t last = std::min(first + kPackInputs, num_inputs);
    for (std::int64_t j = 0; j < num_rows; ++j) {
      Weight* const column = panel + place_in_panel<Weight>(j);
      for (std::int64_t k = first; k < last; ++k) {
        column[k * kPanelOutputs] = stored<Weight>(rows[j * num_inputs + k]);
      }
    }
  }
}

}  // namespace

TensorType packed_type(TensorType stored, std::int64_t cols) {
  if (stored == TensorType::MXFP4 || stored == TensorType::NVFP4) return TensorType::BFloat16;
  const StripFormat* format = strip_format(stored);
  const bool stays =
      stored == TensorType::BFloat16 || (format != nullptr && cols % format->block_inputs == 0);
  return stays ? stored : TensorType::Float32;
}

std::int64_t packed_bytes(TensorType packed, std::int64_t rows, std::int64_t cols) {
  return ceil_div(rows, kPanelOutputs) * panel_bytes_of(packed, cols);
}

PackedMatrix::PackedMatrix(const WeightSource& source, const std::vector<WeightSpec>& specs,
                           ThreadPool& pool) {
  METRONOME_CHECK(!specs.empty(), "a matrix without a tensor");
  num_inputs_ = specs[0].cols;
  for (const WeightSpec& spec : specs) {
    METRONOME_CHECK(spec.cols == num_inputs_, "fused tensors of different widths");
    TensorType type = packed_type(source.type(spec), spec.cols);
    // The kernels' arithmetic is dequantise()'s for finite scales only.
    const bool is_quantised = strip_format(type) != nullptr;
    if (is_quantised && !are_scales_finite(source, spec, pool)) type = TensorType::Float32;
    add_part(type, spec.rows);
  }
  std::int64_t num_bytes = 0;
  for (Part& part : parts_) {
    part.first_panel = num_panels_;
    part.first_byte = num_bytes;
    num_panels_ += ceil_div(part.end - part.begin, kPanelOutputs);
    num_bytes += packed_bytes(part.type, part.end - part.begin, num_inputs_);
  }
  panels_ = MappedMemory(static_cast<std::size_t>(num_bytes), MappedMemory::Pages::Huge);
  pool.for_range(num_panels_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) pack_panel(source, specs, i);
  });
}

void PackedMatrix::add_part(TensorType type, std::int64_t num_rows) {
  if (parts_.empty() || parts_.back().type != type) {
    parts_.push_back({.type = type,
                      .begin = num_outputs_,
                      .end = num_outputs_,
                      .first_panel = 0,
                      .first_byte = 0,
                      .panel_bytes = panel_bytes_of(type, num_inputs_)});
  }
  num_outputs_ += num_rows;
  parts_.back().end = num_outputs_;
}

std::vector<TensorType> PackedMatrix::part_types() const {
  std::vector<TensorType> types;
  for (const Part& part : parts_) types.push_back(part.type);
  return types;
}

const PackedMatrix::Part& PackedMatrix::part_of_panel(std::int64_t panel) const {
  return *std::find_if(parts_.rbegin(), parts_.rend(),
                       [panel](const Part& part) { return part.first_panel <= panel; });
}

const PackedMatrix::Part& PackedMatrix::part_of_output(std::int64_t output) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [output](const Part& part) { return output < part.end; });
}

void PackedMatrix::pack_panel(const WeightSource& source, const std::vector<WeightSpec>& specs,
                              std::int64_t panel) {
  const Part& part = part_of_panel(panel);
  const std::int64_t begin = part.begin + (panel - part.first_panel) * kPanelOutputs;
  const std::int64_t end = std::min(begin + kPanelOutputs, part.end);
  if (const StripFormat* format = strip_format(part.type)) {
    const std::int64_t row_bytes = stored_bytes(part.type, num_inputs_);
    std::vector<std::byte> blocks(static_cast<std::size_t>((end - begin) * row_bytes));
    for_rows_of(specs, begin, end, [&](const WeightSpec& spec, auto first, auto last, auto offset) {
      source.read_blocks(spec, first, last, blocks.data() + offset * row_bytes);
    });
    pack_quantised_panel(*format, blocks.data(), end - begin, num_inputs_,
                         panel_at<std::uint32_t>(part, panel));
    return;
  }
  std::vector<float> rows(static_cast<std::size_t>((end - begin) * num_inputs_));
  for_rows_of(specs, begin, end, [&](const WeightSpec& spec, auto first, auto last, auto offset) {
    source.read(spec, first, last, rows.data() + offset * num_inputs_);
  });
  if (part.type == TensorType::BFloat16) {
    pack_rows(rows.data(), end - begin, num_inputs_, panel_at<std::uint16_t>(part, panel));
  } else {
    pack_rows(rows.data(), end - begin, num_inputs_, panel_at<float>(part, panel));
  }
}

void PackedMatrix::multiply_panel(std::int64_t panel, const float* x, std::int64_t x_stride,
                                  std::int64_t num_rows, float* out,
                                  std::int64_t out_stride) const {
  const Kernels& set = kernels();
  const Part& part = part_of_panel(panel);
  const std::int64_t first = part.begin + (panel - part.first_panel) * kPanelOutputs;
  const std::int64_t count = std::min(kPanelOutputs, part.end - first);
  switch (part.type) {
    case TensorType::Float32:
      return set.multiply_f32(x, x_stride, num_rows, panel_at<float>(part, panel), num_inputs_,
                              count, out + first, out_stride);
    case TensorType::BFloat16:
      return set.multiply_bf16(x, x_stride, num_rows, panel_at<std::uint16_t>(part, panel),
                               num_inputs_, count, out + first, out_stride);
    default:
      return set.multiply_quantised(part.type, x, x_stride, num_rows,
                                    panel_at<std::uint32_t>(part, panel), num_inputs_, count,
                                    out + first, out_stride);
  }
}

void PackedMatrix::multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                            float* out, std::int64_t out_stride, ThreadPool& pool) const {
  // An item is a group of rows times a panel, ordered by panel. So shares are equal even with few
  // panels.
  const std::int64_t num_groups = ceil_div(num_rows, kGroupRows);
  const auto multiply_items = [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t first = begin % num_groups;
      const std::int64_t last = std::min(num_groups, first + end - begin);
      const std::int64_t row = first * kGroupRows;
      multiply_panel(begin / num_groups, x + row * x_stride, x_stride,
                     std::min(num_rows, last * kGroupRows) - row, out + row * out_stride,
                     out_stride);
      begin += last - first;
    }
  };
  const std::int64_t num_items = num_panels_ * num_groups;
  const std::int64_t num_products = num_rows * num_outputs_ * num_inputs_;
  if (num_products <= kFewProducts) return multiply_items(0, num_items);
  const std::int64_t num_threads = pool.num_threads();
  const std::int64_t num_parts =
      std::clamp(num_products / kPartProducts, num_threads, kThreadParts * num_threads);
  pool.for_range(num_items, static_cast<int>(num_parts), multiply_items);
}

void PackedMatrix::row(std::int64_t output, float* out) const {
  METRONOME_CHECK(output >= 0 && output < num_outputs_, "a row outside the matrix");
  const Part& part = part_of_output(output);
  const std::int64_t panel = part.first_panel + (output - part.begin) / kPanelOutputs;
  const std::int64_t j = (output - part.begin) % kPanelOutputs;
  if (const StripFormat* format = strip_format(part.type)) {
    std::vector<std::byte> blocks(static_cast<std::size_t>(stored_bytes(part.type, num_inputs_)));
    unpack_quantised_row(*format, panel_at<std::uint32_t>(part, panel), j, num_inputs_,
                         blocks.data());
    dequantise(part.type, blocks.data(), num_inputs_ / format->block_inputs, out);
    return;
  }
  const auto copy = [&](const auto* weights, auto convert) {
    using Weight = std::remove_const_t<std::remove_pointer_t<decltype(weights)>>;
    const std::int64_t place = place_in_panel<Weight>(j);
    for (std::int64_t k = 0; k < num_inputs_; ++k) {
      out[k] = convert(weights[k * kPanelOutputs + place]);
    }
  };
  if (part.type == TensorType::BFloat16) {
    copy(panel_at<std::uint16_t>(part, panel),
         [](std::uint16_t bits) { return float_of_bf16(bits); });
  } else {
    copy(panel_at<float>(part, panel), [](float value) { return value; });
  }
}

}  // namespace metronome
