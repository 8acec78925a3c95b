// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/device_engine.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/profile_range.h"
#include "gpu/kernels/launch.h"
#include "gpu/plan/graph_buckets.h"

namespace metronome {
namespace {

StepGeometry geometry_of(const ModelConfig& config, const PassLimits& limits,
                         const DeviceEngineOptions& options) {
  const bool has_window = config.n_window_layers() > 0;
  return {.block_size = static_cast<std::int32_t>(options.kv.block_size),
          .group = static_cast<std::int32_t>(config.n_heads / config.n_kv_heads),
          .tile_rows = options.attends_by_wgmma ? kWgmmaTileRows : kPrefillTileRows,
          .window = has_window ? static_cast<std::int32_t>(config.sliding_window) : 0,
          .has_window_tables = options.has_window_tables,
          .splits_decodes = options.invariance != Invariance::Full &&
                            can_split_decode(attention_shape_of(config, false)),
          .max_model_len = limits.max_model_len,
          .max_items = limits.max_items,
          .n_kv_heads = static_cast<std::int32_t>(config.n_kv_heads),
          .num_processors = options.attends_by_wgmma ? num_processors() : 0,
          .span_size = options.prefill_span,
          .max_parts = limits.max_parts};
}

std::vector<std::int32_t> buckets_of(const DeviceEngineOptions& options) {
  if (!options.uses_graphs) return {};
  return graph_buckets(options.max_num_seqs);
}

}  // namespace

std::int64_t step_block_bytes(const ModelConfig& model, const PassLimits& limits,
                              const DeviceEngineOptions& options) {
  const StepGeometry geometry = geometry_of(model, limits, options);
  const std::int32_t max_rows = std::min(limits.max_rows, options.max_rows());
  std::size_t bytes = max_pass_bytes(limits.max_tokens, options.max_num_seqs, max_rows, geometry);
  for (const std::int32_t bucket : buckets_of(options)) {
    bytes = std::max(bytes, max_bucket_bytes(bucket, geometry));
  }
  return static_cast<std::int64_t>(bytes);
}

DeviceEngine::DeviceEngine(DeviceModel& model, const DeviceEngineOptions& options,
                           const std::function<void()>& poll)
    : model_(model),
      options_(options),
      geometry_(geometry_of(model.config(), model.limits(), options)),
      stream_(make_stream()),
      kv_(options.kv, options.attends_by_wgmma),
      block_(static_cast<std::size_t>(step_block_bytes(model.config(), model.limits(), options))),
      buckets_(buckets_of(options)) {
  // For padding rows, or the two sequences of the self-test.
  const std::int32_t padding = buckets_.empty() ? 2 : std::max(2, buckets_.back());
  sampled_ = DeviceArray<std::int32_t>(static_cast<std::size_t>(padding_sample() + padding));
  if (options_.kernels.multiplies_by_wgmma) model_.warm_up_wgmma(stream_.get());
  for (const std::int32_t bucket : buckets_) {
    if (poll) poll();
    capture(bucket);
  }
}

std::int32_t DeviceEngine::bucket_of(std::span<const ScheduledChunk> chunks) const {
  const bool is_graph = std::all_of(chunks.begin(), chunks.end(), [](const ScheduledChunk& chunk) {
    return chunk.kind == ChunkKind::Decode && chunk.samples_token;
  });
  return is_graph ? find_bucket(buckets_, static_cast<std::int32_t>(chunks.size())) : 0;
}

void DeviceEngine::lay_out(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
                           DevicePass& pass) const {
  pass.bucket = bucket_of(chunks);
  lay_out_pass(batch, chunks, geometry_, pass.bucket, pass.arrays);
}

// Chooses the mode of matrix products. Prompts always get the same one.
void DeviceEngine::forward(const StepArrays& arrays) {
  const EarlyLaunches early(options_.launches_early);
  const bool is_invariant = options_.invariance == Invariance::Full ||
                            (options_.invariance == Invariance::Chunk && arrays.has_prefill);
  model_.forward(arrays, block_.data(), kv_, is_invariant ? GemmMode::Invariant : GemmMode::Fastest,
                 options_.kernels, sampled_.data(), stream_.get());
}

void DeviceEngine::enqueue(DevicePass& pass) {
  const StepArrays& arrays = pass.arrays;
  PinnedBytes& staging = pass.staging;
  METRONOME_CHECK(arrays.block_bytes <= block_.size(), "a pass fits its memory on the device");
  if (staging.size() < arrays.block_bytes) staging = PinnedBytes(block_.size());
  for (const CopyRange& range : arrays.copies) {
    std::memcpy(staging.data() + range.offset, arrays.bytes.data() + range.offset, range.length);
    check_cuda(cudaMemcpyAsync(block_.data() + range.offset, staging.data() + range.offset,
                               range.length, cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }
  const auto graph = graphs_.find(pass.bucket);
  if (graph == graphs_.end()) return forward(arrays);
  check_cuda(cudaGraphLaunch(graph->second.get(), stream_.get()), "cudaGraphLaunch");
}

// A graph holds addresses. A bucket's addresses do not depend on its contents, so one decode is
// enough. The decode runs once before the capture: the driver loads kernels at their first launch,
// which a capture forbids. Nothing reads what it leaves in the cache.
void DeviceEngine::capture(std::int32_t bucket) {
  ForwardBatch batch;
  batch.clear();
  const BlockId block{0};
  const std::span<const BlockId> blocks(&block, 1);
  batch.append(RequestId{0}, 0, 1, blocks,
               options_.has_window_tables ? blocks : std::span<const BlockId>(), 1);
  const ScheduledChunk chunk = {.request = RequestId{0},
                                .first_position = 0,
                                .num_tokens = 1,
                                .kind = ChunkKind::Decode,
                                .samples_token = true};
  DevicePass pass;
  lay_out_pass(batch, {&chunk, 1}, geometry_, bucket, pass.arrays);
  enqueue(pass);
  check_cuda(cudaStreamSynchronize(stream_.get()), "the first step of a graph");

  graphs_[bucket] = capture_graph(stream_.get(), [&] { forward(pass.arrays); });
  check_cuda(cudaGraphUpload(graphs_[bucket].get(), stream_.get()), "cudaGraphUpload");
}

}  // namespace metronome
