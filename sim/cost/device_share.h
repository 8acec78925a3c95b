// SPDX-License-Identifier: Apache-2.0
// The share of a model on each of `tensor_parallel_size` devices. Every cost model uses it.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/types.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"

namespace metronome {

struct CostModelConfig;

constexpr std::int64_t kMaxTensorParallel = 64;
// Memory for activations and the runtime where no engine is known, 2 GB.
constexpr double kPlainReservedGib = 2e9 / kGib;
// Activations are sent and added in bf16, whatever the data type of the weights.
constexpr double kBytesPerActivation = 2;

// Throws UnplacedConfigError if the model cannot be split evenly over that many devices.
void check_tensor_parallel(const ModelConfig& model, std::int64_t tensor_parallel_size);

// KV heads of one device. With more devices than KV heads, each device has a copy of one head.
std::int64_t device_kv_heads(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Weights of one device's projections (ModelConfig::n_projection_params()). Heads and widths are
// divided. With more devices than KV heads each device has the keys and values of one head. Every
// device has the projections to latent queries and to the cached vector of latent attention (vLLM
// 0.33: ReplicatedLinear in models/deepseek_v2.py).
double device_projection_params(const ModelConfig& model, std::int64_t tensor_parallel_size);
double device_projection_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Bytes of one device's weights: projections as above, whole routers (ReplicatedLinear in vLLM's
// mixtures), and a share of the rest.
double device_weight_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);

// The states of one request on one device: all layers of linear attention, their heads divided.
double device_state_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Bytes of one entry of the cache that a layer reads: keys and values of the device's heads, or the
// cached vector of latent attention, which serves all heads, so that every device has it, and so
// the key of an index. 0 in layers that do not attend.
double device_entry_bytes(const ModelConfig& model, const AttentionPart& attention,
                          std::int64_t tensor_parallel_size);

// Bytes of one token in all layers, and the mean of one in a layer that attends.
double device_token_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);
double device_kv_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Sums that devices exchange for each token in each layer, in addition to activations: MiniMax-M2
// normalises queries and keys over the heads of all devices, and sends the sums of their squares in
// fp32 (vLLM: MiniMaxText01RMSNormTP::forward_qk). 0 for other architectures, whose norms are those
// of a head.
double qk_norm_exchange_bytes(const ModelConfig& model);

// The gap before a step of that many requests: the scenario's, else the hardware's.
TimeNs host_gap_ns(const HardwareSpec& hardware, const CostModelConfig& config,
                   std::size_t num_requests);

// A drafter's part of each device's memory. Its KV is part of the target's blocks.
struct DraftMemory {
  std::string name;  // of the drafter
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;  // in all its layers
};

// Blocks of `block_tokens` tokens that fit beside the weights, those of a drafter among them, into
// each device's `gpu_memory_utilization` share of memory. Throws UnplacedConfigError if none fits
// or if the hardware's memory size is unknown.
std::int64_t kv_capacity_blocks(const ModelConfig& model, const HardwareSpec& hardware,
                                const CostModelConfig& config, std::int64_t block_tokens,
                                const DraftMemory& drafter = {});

// Blocks that the device's whole memory holds beside the weights: no engine can have more. 0 if
// none fits.
std::int64_t most_kv_blocks(const ModelConfig& model, const HardwareSpec& hardware,
                            std::int64_t tensor_parallel_size, std::int64_t block_tokens,
                            const DraftMemory& drafter = {});

}  // namespace metronome
