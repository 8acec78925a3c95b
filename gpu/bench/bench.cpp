// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/bench.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/run/computed_run.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/bench_timing.h"
#include "gpu/engine/device_engine.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/model_loading.h"
#include "gpu/plan/cuda_config.h"

namespace metronome {
namespace {

constexpr std::int32_t kBlockSize = 16;

// A step in the form that a scheduler hands over. Every sequence has its own consecutive blocks.
class BenchStep {
 public:
  BenchStep(const BenchCase& what, std::int64_t vocab_size) {
    batch_.clear();
    for (std::int32_t i = 0; i < what.num_decodes; ++i) {
      append(what.context - 1, 1, ChunkKind::Decode, vocab_size);
    }
    if (what.chunk_size > 0) append(what.prefix, what.chunk_size, ChunkKind::Prefill, vocab_size);
  }

  static std::int64_t num_blocks(const BenchCase& what) {
    return what.num_decodes * ceil_div(what.context, kBlockSize) +
           ceil_div(what.prefix + what.chunk_size, kBlockSize);
  }
  const ForwardBatch& batch() const { return batch_; }
  const std::vector<ScheduledChunk>& chunks() const { return chunks_; }

 private:
  void append(std::int32_t begin, std::int32_t count, ChunkKind kind, std::int64_t vocab_size) {
    const auto request = static_cast<RequestId>(batch_.requests.size());
    blocks_.clear();
    for (std::int64_t i = 0; i < ceil_div(begin + count, kBlockSize); ++i) {
      blocks_.push_back(static_cast<BlockId>(num_blocks_++));
    }
    batch_.append(request, begin, begin + count, blocks_, {}, 1);
    for (auto t = batch_.positions.size() - static_cast<std::size_t>(count);
         t < batch_.positions.size(); ++t) {
      batch_.token_ids[t] = static_cast<TokenId>(
          (7 * batch_.positions[t] + 13 * static_cast<std::int64_t>(index(request))) % vocab_size);
    }
    chunks_.push_back({.request = request,
                       .first_position = begin,
                       .num_tokens = count,
                       .kind = kind,
                       .samples_token = true});
  }

  ForwardBatch batch_;
  std::vector<ScheduledChunk> chunks_;
  std::vector<BlockId> blocks_;  // of the sequence appended last
  std::int32_t num_blocks_ = 0;
};

BenchPoint time_case(DeviceEngine& engine, const BenchCase& what, const MachineRates& rates,
                     std::int32_t repeats) {
  const ModelConfig& model = engine.model().config();
  const BenchStep step(what, model.vocab_size);
  DevicePass pass;
  engine.lay_out(step.batch(), step.chunks(), pass);
  for (SampleRow& row : pass.arrays.view<SampleRow>(pass.arrays.sample_rows)) {
    row.out = engine.padding_sample();
  }
  const Timings times = time_on(engine.stream(), repeats, [&] { engine.enqueue(pass); });
  const FloorWork work = floor_work(model, step.chunks());
  return {.what = what,
          .median_us = median(times.device),
          .fastest_us = *std::min_element(times.device.begin(), times.device.end()),
          .enqueue_us = median(times.host),
          .floor_us = step_floor_s(work, rates) * 1e6,
          .is_memory_bound =
              work.bytes / rates.copy_bytes_per_s > work.flops / rates.matrix_flops_per_s};
}

// Limits for the steps of this run.
struct Room {
  PassLimits limits;
  std::int32_t max_num_seqs = 0;
  std::int64_t kv_blocks = 0;
};

// Empty if the case can run.
std::string reason_to_skip(const BenchCase& what, const Room& room) {
  const std::int32_t num_sequences = what.num_decodes + (what.chunk_size > 0 ? 1 : 0);
  if (std::max(what.context, what.prefix + what.chunk_size) > room.limits.max_model_len) {
    return "a context has at most " + std::to_string(room.limits.max_model_len) + " positions";
  }
  if (num_sequences > room.max_num_seqs) {
    return "a step has at most " + std::to_string(room.max_num_seqs) + " sequences";
  }
  if (what.num_decodes + what.chunk_size > room.limits.max_tokens) {
    return "a step has at most " + std::to_string(room.limits.max_tokens) + " tokens";
  }
  if (BenchStep::num_blocks(what) > room.kv_blocks) {
    return "the GPU has memory for the KV of only " + std::to_string(room.kv_blocks * kBlockSize) +
           " tokens";
  }
  return {};
}

Room find_room(const Scenario& scenario, const ModelConfig& model, const GpuInfo& gpu) {
  Room room;
  room.limits = pass_limits(scenario, model);
  room.max_num_seqs = scenario.engine.max_num_seqs;
  const MemoryPlan plan = plan_memory(scenario, model, room.limits);
  const std::int64_t usable = usable_bytes(gpu, scenario);
  check_memory(scenario, "model", "weights and activations of " + model.name + " take", gpu.name,
               plan.total(), usable);
  room.kv_blocks = kv_blocks_that_fit(model, plan, usable, kBlockSize);
  return room;
}

BenchReport run_bench(const Scenario& given, const std::vector<BenchCase>& cases,
                      std::int32_t repeats, const BenchProgressFn& progress) {
  BenchReport report;
  const auto poll = [&] {
    if (progress) progress(report);
  };
  const GpuInfo gpu = open_gpu(given.backends.get<CudaConfig>().device);
  const ModelSource source = find_model_source(given);
  const ModelConfig& model = source.config;
  const std::string unsupported = unsupported_on_gpu(model);
  if (!unsupported.empty()) throw UnplacedConfigError("model", unsupported);
  Scenario scenario = given;
  scenario.engine.max_model_len =
      std::min(given.engine.max_model_len.value_or(model.max_position_embeddings),
               model.max_position_embeddings);
  const Room room = find_room(scenario, model, gpu);
  DeviceEngineOptions options = engine_options(scenario, model, room.limits);
  check_hopper_options(gpu, scenario, options);
  report.model = model;
  report.device = gpu.text();
  report.rates = measure_rates(gpu, repeats, poll);

  std::int64_t num_blocks = 1;
  for (const BenchCase& what : cases) {
    if (reason_to_skip(what, room).empty()) {
      num_blocks = std::max(num_blocks, BenchStep::num_blocks(what));
    }
  }
  report.kv_tokens = num_blocks * kBlockSize;
  LoadedDeviceModel loaded(source, room.limits, poll);
  options.kv.num_blocks = num_blocks;
  const std::unique_ptr<DeviceEngine> engine = loaded.make_engine(options, poll);
  fill_with_noise(engine->kv().memory(), 3, engine->stream());
  for (const BenchCase& what : cases) {
    poll();
    const std::string why = reason_to_skip(what, room);
    if (why.empty()) {
      report.points.push_back(time_case(*engine, what, report.rates, repeats));
    } else {
      report.skipped.push_back({what, why});
    }
  }
  poll();
  return report;
}

}  // namespace

BenchFn make_gpu_bench() { return run_bench; }

}  // namespace metronome
