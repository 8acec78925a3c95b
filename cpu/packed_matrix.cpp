#include "cpu/packed_matrix.h"

#include <algorithm>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/types.h"
#include "core/model/float16.h"

namespace metronome {
namespace {

// Rows of a product that stay on one thread: several tiles of every kernel.
constexpr std::int64_t kGroupRows = 4 * kAttentionRows;
// A smaller number of multiplications takes less time than waking another thread.
constexpr std::int64_t kFewProducts = 1 << 15;
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

// Rows [begin, end) of the stacked tensors.
void read_rows(const WeightSource& source, const std::vector<WeightSpec>& specs, std::int64_t begin,
               std::int64_t end, float* out) {
  std::int64_t spec_begin = 0;
  for (const WeightSpec& spec : specs) {
    const std::int64_t first = std::max(begin, spec_begin);
    const std::int64_t last = std::min(end, spec_begin + spec.rows);
    if (first < last) {
      source.read(spec, first - spec_begin, last - spec_begin, out + (first - begin) * spec.cols);
    }
    spec_begin += spec.rows;
  }
}

}  // namespace

PackedMatrix::PackedMatrix(const WeightSource& source, const std::vector<WeightSpec>& specs,
                           ThreadPool& pool) {
  METRONOME_CHECK(!specs.empty(), "a matrix without a tensor");
  num_inputs_ = specs[0].cols;
  is_bfloat16_ = true;
  for (const WeightSpec& spec : specs) {
    METRONOME_CHECK(spec.cols == num_inputs_, "fused tensors of different widths");
    num_outputs_ += spec.rows;
    is_bfloat16_ = is_bfloat16_ && source.type(spec) == TensorType::BFloat16;
  }
  const std::int64_t num_panels = ceil_div(num_outputs_, kPanelOutputs);
  const std::int64_t num_weights = num_panels * kPanelOutputs * num_inputs_;
  const std::size_t weight_size = is_bfloat16_ ? sizeof(std::uint16_t) : sizeof(float);
  panels_ =
      MappedMemory(static_cast<std::size_t>(num_weights) * weight_size, MappedMemory::Pages::Huge);
  pool.for_range(num_panels, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> rows(static_cast<std::size_t>(kPanelOutputs * num_inputs_));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kPanelOutputs;
      const std::int64_t last = std::min(first + kPanelOutputs, num_outputs_);
      read_rows(source, specs, first, last, rows.data());
      if (is_bfloat16_) {
        pack_panel<std::uint16_t>(i, rows.data(), last - first);
      } else {
        pack_panel<float>(i, rows.data(), last - first);
      }
    }
  });
}

template <class Weight>
void PackedMatrix::pack_panel(std::int64_t index, const float* rows, std::int64_t num_rows) {
  Weight* const packed = panel<Weight>(index);
  for (std::int64_t first = 0; first < num_inputs_; first += kPackInputs) {
    const std::int64_t last = std::min(first + kPackInputs, num_inputs_);
    for (std::int64_t j = 0; j < num_rows; ++j) {
      Weight* const column = packed + place_in_panel<Weight>(j);
      for (std::int64_t k = first; k < last; ++k) {
        column[k * kPanelOutputs] = stored<Weight>(rows[j * num_inputs_ + k]);
      }
    }
  }
}

void PackedMatrix::multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                            float* out, std::int64_t out_stride, ThreadPool& pool) const {
  const Kernels& set = kernels();
  const auto multiply_rows = [&](std::int64_t index, std::int64_t begin, std::int64_t end) {
    const std::int64_t first = index * kPanelOutputs;
    const std::int64_t count = std::min(kPanelOutputs, num_outputs_ - first);
    const float* const from = x + begin * x_stride;
    float* const to = out + begin * out_stride + first;
    if (is_bfloat16_) {
      set.multiply_bf16(from, x_stride, end - begin, panel<std::uint16_t>(index), num_inputs_,
                        count, to, out_stride);
    } else {
      set.multiply_f32(from, x_stride, end - begin, panel<float>(index), num_inputs_, count, to,
                       out_stride);
    }
  };
  // An item is a group of rows times a panel, ordered by panel. So shares are equal even with few
  // panels.
  const std::int64_t num_groups = ceil_div(num_rows, kGroupRows);
  const auto multiply_items = [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t first = begin % num_groups;
      const std::int64_t last = std::min(num_groups, first + end - begin);
      multiply_rows(begin / num_groups, first * kGroupRows, std::min(num_rows, last * kGroupRows));
      begin += last - first;
    }
  };
  const std::int64_t num_items = ceil_div(num_outputs_, kPanelOutputs) * num_groups;
  if (num_rows * num_outputs_ * num_inputs_ <= kFewProducts) {
    multiply_items(0, num_items);
  } else {
    pool.for_range(num_items, multiply_items);
  }
}

void PackedMatrix::row(std::int64_t output, float* out) const {
  METRONOME_CHECK(output >= 0 && output < num_outputs_, "a row outside the matrix");
  const std::int64_t index = output / kPanelOutputs;
  const std::int64_t j = output % kPanelOutputs;
  for (std::int64_t k = 0; k < num_inputs_; ++k) {
    out[k] = is_bfloat16_ ? float_of_bf16(panel<std::uint16_t>(
                                index)[k * kPanelOutputs + place_in_panel<std::uint16_t>(j)])
                          : panel<float>(index)[k * kPanelOutputs + place_in_panel<float>(j)];
  }
}

}  // namespace metronome
