// A linear layer's weights in the layout of the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model_weights.h"
#include "cpu/kernels.h"
#include "cpu/mapped_memory.h"
#include "cpu/thread_pool.h"

namespace metronome {

// Weights of shape [num_outputs, num_inputs] in panels of 64 outputs. Several tensors may be
// stacked (a fused projection). bfloat16 stays bfloat16 if every tensor has that type; anything
// else becomes float32. Only this class and kernels.cpp choose the kernel.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Reads and packs on all threads. The specs have equal `cols`.
  PackedMatrix(const WeightSource& source, const std::vector<WeightSpec>& specs, ThreadPool& pool);

  std::int64_t num_outputs() const { return num_outputs_; }
  std::int64_t num_inputs() const { return num_inputs_; }
  bool is_bfloat16() const { return is_bfloat16_; }
  std::int64_t num_bytes() const { return static_cast<std::int64_t>(panels_.num_bytes()); }

  // out[m] = weights * x[m], on all threads. x is [num_rows, num_inputs] with x_stride floats
  // between rows. out is [num_rows, num_outputs] with out_stride floats between rows.
  void multiply(const float* x, std::int64_t x_stride, std::int64_t num_rows, float* out,
                std::int64_t out_stride, ThreadPool& pool) const;

  // Row `output` of the weights, [num_inputs]; used for embeddings.
  void row(std::int64_t output, float* out) const;

 private:
  template <class Weight>
  void pack_panel(std::int64_t panel, const float* rows, std::int64_t num_rows);
  template <class Weight>
  Weight* panel(std::int64_t index) const {
    return panels_.as<Weight>() + index * num_inputs_ * kPanelOutputs;
  }

  std::int64_t num_outputs_ = 0;
  std::int64_t num_inputs_ = 0;
  bool is_bfloat16_ = false;
  // [num_panels, num_inputs, kPanelOutputs], see kernels.h; padding outputs are 0.
  MappedMemory panels_;
};

}  // namespace metronome
