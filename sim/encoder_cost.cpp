// SPDX-License-Identifier: Apache-2.0
#include "sim/encoder_cost.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/real.h"

namespace metronome {

EncoderCost::EncoderCost(const VisionTower& tower, const HardwareSpec& hardware,
                         std::int64_t tensor_parallel_size, std::int64_t bytes_per_weight) {
  METRONOME_CHECK(!tower.is_empty() && hardware.peak_flops > 0,
                  "images need a tower and the peaks of the hardware");
  const double h = real(tower.hidden_dim);
  const double depth = real(tower.depth);
  const double joined = real(tower.merge_size * tower.merge_size) * h;
  linear_flops_per_patch_ =
      2 * (real(tower.patch_inputs()) * h + depth * (4 * h * h + 2 * h * real(tower.ffn_dim)));
  merger_flops_per_embedding_ = 2 *
                                real(1 + static_cast<std::int64_t>(tower.deepstack_layers.size())) *
                                (joined * joined + joined * real(tower.out_dim));
  attention_flops_ = 4 * h * depth;
  patches_per_embedding_ = real(tower.merge_size * tower.merge_size);
  const double num_devices = real(tensor_parallel_size);
  matmul_flops_per_s_ = num_devices * hardware.peak_flops * hardware.matmul_efficiency;
  attention_flops_per_s_ = num_devices * hardware.peak_flops * hardware.attention_efficiency;
  weight_s_ = real(tower.n_params() * bytes_per_weight) /
              (num_devices * hardware.peak_bandwidth * hardware.bandwidth_efficiency);
  overhead_s_ = (hardware.launch_overhead_us + depth * hardware.kernel_overhead_us) * 1e-6;
}

TimeNs EncoderCost::time_ns(std::span<const PlannedEncoding> encodings) const {
  if (encodings.empty()) return 0;
  double linear_flops = 0;
  double attention_flops = 0;
  for (const PlannedEncoding& encoding : encodings) {
    const double num_embeddings = real(encoding.num_embeddings);
    const double num_patches = num_embeddings * patches_per_embedding_;
    linear_flops +=
        num_patches * linear_flops_per_patch_ + num_embeddings * merger_flops_per_embedding_;
    attention_flops += num_patches * num_patches * attention_flops_;
  }
  const double seconds = std::max(linear_flops / matmul_flops_per_s_, weight_s_) +
                         attention_flops / attention_flops_per_s_ + overhead_s_;
  return std::llround(seconds * 1e9);
}

}  // namespace metronome
