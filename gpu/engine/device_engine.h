// SPDX-License-Identifier: Apache-2.0
// Executes passes on a GPU. Owns the KV cache, the device memory of the step arrays, and one
// captured graph for each bucket of decodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "gpu/engine/device_kv_cache.h"
#include "gpu/engine/device_memory.h"
#include "gpu/engine/device_model.h"
#include "gpu/plan/cuda_config.h"
#include "gpu/plan/step_arrays.h"

namespace metronome {

struct DeviceEngineOptions {
  DeviceKvShape kv;
  bool has_window_tables = false;
  std::int32_t max_num_seqs = 1;
  std::int32_t max_drafts = 0;  // that a decode verifies
  Invariance invariance = Invariance::Chunk;
  bool uses_graphs = true;
  bool launches_early = false;  // EarlyLaunches; needs compute capability 9.0
  // Prompts use launch_wgmma_attention. Needs compute capability 9.0 and can_attend_by_wgmma.
  bool attends_by_wgmma = false;
  std::int32_t prefill_span = kPrefillSpan;  // shorter in tests
  PassKernels kernels = {};                  // multiplies_by_wgmma needs compute capability 9.0
  // Of logits, in a step.
  std::int32_t max_rows() const { return max_num_seqs * (1 + max_drafts); }
  bool operator==(const DeviceEngineOptions&) const = default;
};

// Bytes of GPU memory for step arrays: MemoryDemand::step_bytes.
std::int64_t step_block_bytes(const ModelConfig& model, const PassLimits& limits,
                              const DeviceEngineOptions& options);

// A pass that will be copied to the device. Keeps its memory from pass to pass.
struct DevicePass {
  StepArrays arrays;
  std::int32_t bucket = 0;  // size of the graph that replays it; 0: none
  PinnedBytes staging;      // [block_bytes()], the source of the copy
};

class DeviceEngine {
 public:
  // Allocates the cache and captures the graphs. Calls `poll` now and then. The model must outlive
  // this, and serves one engine at a time. Throws CudaError.
  DeviceEngine(DeviceModel& model, const DeviceEngineOptions& options,
               const std::function<void()>& poll = {});

  DeviceModel& model() const { return model_; }
  const DeviceKvCache& kv() const { return kv_; }
  cudaStream_t stream() const { return stream_.get(); }
  std::size_t block_bytes() const { return block_.size(); }  // staging size that fits any pass
  bool has_window_tables() const { return options_.has_window_tables; }
  std::int32_t max_num_seqs() const { return options_.max_num_seqs; }

  // Lays a pass out for this engine. A pass of decodes alone is laid out for a graph if one fits.
  void lay_out(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
               DevicePass& pass) const;

  // Enqueues a pass that was laid out. Do not reuse `pass` before the device is done with it.
  void enqueue(DevicePass& pass);

  // Sampled tokens, indexed by sample_rows[i].out. There are kSampleSteps regions of
  // sample_region() tokens, one for each step in flight. The entries from padding_sample() on take
  // the tokens that nothing reads.
  std::int32_t* sampled() const { return sampled_.data(); }
  std::int32_t sample_region() const { return 2 * options_.max_rows(); }
  std::int32_t padding_sample() const { return kSampleSteps * sample_region(); }
  static constexpr std::int32_t kSampleSteps = 3;

 private:
  std::int32_t bucket_of(std::span<const ScheduledChunk> chunks) const;
  void forward(const StepArrays& arrays);
  void capture(std::int32_t bucket);

  DeviceModel& model_;
  DeviceEngineOptions options_;
  StepGeometry geometry_;
  Stream stream_;
  DeviceKvCache kv_;
  DeviceArray<std::byte> block_;              // [step_block_bytes()]
  DeviceArray<std::int32_t> sampled_;         // [padding_sample() + rows of padding]
  std::vector<std::int32_t> buckets_;         // empty without graphs
  std::map<std::int32_t, GraphExec> graphs_;  // by bucket
};

}  // namespace metronome
