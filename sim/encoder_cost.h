// SPDX-License-Identifier: Apache-2.0
// The time in which a vision tower encodes the images of a step, by the roofline of the hardware.
//
//   linear     patches through patch embedding, projections and MLPs of all layers, then embeddings
//              through the mergers: the longer of FLOPs and of the bytes of the tower's weights.
//   attention  every patch of an image attends to every patch of it: 4 n^2 FLOPs per channel and
//              layer.
//   overhead   launches of one forward pass, and of each layer.
// All images of a step are one batch. Tensor parallel devices share weights and patches' work, as
// vLLM's default does (mm_encoder_tp_mode weights); its all-reduces are not counted, nor is the
// time in which a host reads and resizes an image.
#pragma once

#include <cstdint>
#include <span>

#include "core/engine/step_plan.h"
#include "core/hardware/hardware.h"
#include "core/model/layer_parts.h"

namespace metronome {

class EncoderCost {
 public:
  // Requires a tower that is not empty, and hardware with known peaks.
  EncoderCost(const VisionTower& tower, const HardwareSpec& hardware,
              std::int64_t tensor_parallel_size, std::int64_t bytes_per_weight);

  // 0 without encodings. Deterministic; allocates nothing.
  TimeNs time_ns(std::span<const PlannedEncoding> encodings) const;

 private:
  double linear_flops_per_patch_;
  double merger_flops_per_embedding_;
  double attention_flops_;  // of a pair of patches, all layers
  double patches_per_embedding_;
  double weight_s_;  // to read the weights
  double overhead_s_;
  double matmul_flops_per_s_;
  double attention_flops_per_s_;
};

}  // namespace metronome
