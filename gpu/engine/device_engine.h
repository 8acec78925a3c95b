// What executes passes on a GPU: a model with a KV cache, the memory that step arrays are copied
// to, and a captured graph for every bucket of decodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/scenario/scenario.h"
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
  Invariance invariance = Invariance::Chunk;
  bool uses_graphs = true;
  bool launches_early = false;  // EarlyLaunches; needs compute capability 9.0
  // Prompts by launch_wgmma_attention; needs compute capability 9.0 and can_attend_by_wgmma.
  bool attends_by_wgmma = false;
  std::int32_t prefill_span = kPrefillSpan;  // shorter in tests
  PassKernels kernels = {};                  // multiplies_by_wgmma needs compute capability 9.0
  bool operator==(const DeviceEngineOptions&) const = default;
};

// What of the GPU's memory step arrays take; MemoryDemand::step_bytes.
std::int64_t step_block_bytes(const ModelConfig& model, const PassLimits& limits,
                              const DeviceEngineOptions& options);

// A pass on its way to the device. Keeps its memory from pass to pass.
struct DevicePass {
  StepArrays arrays;
  std::int32_t bucket = 0;  // of the graph it is replayed with; 0: none
  PinnedBytes staging;      // [block_bytes()], what the device copies from
};

class DeviceEngine {
 public:
  // Allocates the cache and captures the graphs; `poll` is called now and then. The model outlives
  // this, and serves one engine at a time. Throws CudaError.
  DeviceEngine(DeviceModel& model, const DeviceEngineOptions& options,
               const std::function<void()>& poll = {});

  DeviceModel& model() const { return model_; }
  const DeviceKvCache& kv() const { return kv_; }
  cudaStream_t stream() const { return stream_.get(); }
  std::size_t block_bytes() const { return block_.size(); }  // that a pass's staging may need
  bool has_window_tables() const { return options_.has_window_tables; }
  std::int32_t max_num_seqs() const { return options_.max_num_seqs; }

  // Lays a pass out for this engine: for a graph where it is one of decodes only.
  void lay_out(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
               DevicePass& pass) const;

  // Enqueues a pass that was laid out. It must not be used again before the device is done with it.
  void enqueue(DevicePass& pass);

  // What sample_rows[i].out indexes: kSampleSteps regions of sample_region() tokens, one for each
  // step in flight, and behind them room for what nobody wants, from padding_sample().
  std::int32_t* sampled() const { return sampled_.data(); }
  std::int32_t sample_region() const { return 2 * options_.max_num_seqs; }
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
