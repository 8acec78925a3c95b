// What of a model each of `tensor_parallel_size` devices holds. The same for every cost model.
#pragma once

#include <cstdint>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/cost/hardware.h"

namespace metronome {

constexpr std::int64_t kMaxTensorParallel = 64;
// Activations travel and are added in bf16 whatever the weights are stored in.
constexpr double kBytesPerActivation = 2;

// Throws UnplacedConfigError when the model cannot be split evenly over that many devices.
void check_tensor_parallel(const ModelConfig& model, std::int64_t tensor_parallel_size);

// KV heads of one device: with more devices than KV heads each has a copy of one.
std::int64_t device_kv_heads(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Of one position in one layer, keys and values.
double device_kv_bytes(const ModelConfig& model, std::int64_t tensor_parallel_size);

// Blocks of `block_tokens` tokens that fit beside the weights into the memory that
// `gpu_memory_utilization` leaves of each device. Throws UnplacedConfigError when not one does, or
// when nothing is known of the hardware's memory.
std::int64_t kv_capacity_blocks(const ModelConfig& model, const HardwareSpec& hardware,
                                const CostModelConfig& config, std::int64_t block_tokens);

}  // namespace metronome
