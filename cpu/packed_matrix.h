// SPDX-License-Identifier: Apache-2.0
// A linear layer's weights in the layout of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/mapped_memory.h"
#include "cpu/thread_pool.h"
#include "models/weights/model_weights.h"

namespace metronome {

// The type in which a PackedMatrix keeps a tensor of `stored` type with `cols` inputs: bfloat16 and
// quantised weights of the formats in quantised_panel.h stay what they are, MXFP4 and NVFP4 become
// bfloat16, which has all of their numbers, and anything else becomes float32. So do quantised
// tensors with an infinite or NaN scale, but only the blocks tell.
TensorType packed_type(TensorType stored, std::int64_t cols);

// The bytes of a matrix of this packed type, padding included.
std::int64_t packed_bytes(TensorType packed, std::int64_t rows, std::int64_t cols);

// Weights of shape [num_outputs, num_inputs] in panels of 64 outputs. Several tensors may be
// stacked (a fused projection). Neighbours of one packed type form a part, which begins with a
// panel of its own. A product of quantised weights has the bits of the product of the floats that
// they stand for. Only this class and kernels.cpp choose the kernel.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Reads and packs on all threads. The specs have equal `cols`.
  PackedMatrix(const WeightSource& source, const std::vector<WeightSpec>& specs, ThreadPool& pool);

  std::int64_t num_outputs() const { return num_outputs_; }
  std::int64_t num_inputs() const { return num_inputs_; }
  std::int64_t num_bytes() const { return static_cast<std::int64_t>(panels_.num_bytes()); }
  // The packed type of each part, in order.
  std::vector<TensorType> part_types() const;

  // out[m] = weights * x[m], on all threads. x is [num_rows, num_inputs] with x_stride floats
  // between rows. out is [num_rows, num_outputs] with out_stride floats between rows.
  void multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows, float* out,
                std::int64_t out_stride, ThreadPool& pool) const;

  // Row `output` of the weights, [num_inputs]; used for embeddings.
  void row(std::int64_t output, float* out) const;

 private:
  // Outputs [begin, end) of one packed type.
  struct Part {
    TensorType type;
    std::int64_t begin;
    std::int64_t end;
    std::int64_t first_panel;
    std::int64_t first_byte;
    std::int64_t panel_bytes;
  };
  void add_part(TensorType type, std::int64_t num_rows);
  void pack_panel(const WeightSource& source, const std::vector<WeightSpec>& specs,
                  std::int64_t panel);
  const Part& part_of_panel(std::int64_t panel) const;
  const Part& part_of_output(std::int64_t output) const;
  template <class Word>
  Word* panel_at(const Part& part, std::int64_t panel) const {
    return reinterpret_cast<Word*>(panels_.as<std::byte>() + part.first_byte +
                                   (panel - part.first_panel) * part.panel_bytes);
  }
  void multiply_panel(std::int64_t panel, const float* x, std::int64_t x_stride,
                      std::int64_t num_rows, float* out, std::int64_t out_stride) const;

  std::int64_t num_outputs_ = 0;
  std::int64_t num_inputs_ = 0;
  std::int64_t num_panels_ = 0;
  std::vector<Part> parts_;
  // The panels of every part: [num_inputs, kPanelOutputs] (see kernels.h), or the words of
  // quantised_panel.h. Padding outputs are 0.
  MappedMemory panels_;
};

}  // namespace metronome
