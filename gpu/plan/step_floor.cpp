// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/step_floor.h"

#include <algorithm>

namespace metronome {
namespace {

// Pairs of a query at [begin, end) and a position that it attends to.
double num_pairs(std::int64_t begin, std::int64_t end, std::int64_t window) {
  const auto sum_below = [](std::int64_t n) {
    return 0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  };
  const std::int64_t growing_end = std::clamp(window, begin, end);  // later queries see `window`
  return sum_below(growing_end) - sum_below(begin) +
         static_cast<double>(end - growing_end) * static_cast<double>(window);
}

// Positions that any query at [begin, end) attends to.
std::int64_t num_read(std::int64_t begin, std::int64_t end, std::int64_t window) {
  return end - std::max<std::int64_t>(0, begin - (window - 1));
}

}  // namespace

FloorWork floor_work(const ModelConfig& model, std::span<const ScheduledChunk> chunks) {
  constexpr double kBytes = 2;  // of a bfloat16
  const auto global_layers = static_cast<double>(model.n_global_layers());
  const auto window_layers = static_cast<double>(model.n_window_layers());
  const double pair_flops = 4.0 * static_cast<double>(model.n_heads * model.head_dim);
  const double token_kv_bytes = 2 * kBytes * static_cast<double>(model.n_kv_heads * model.head_dim);
  const auto head_params = static_cast<double>(model.hidden_dim * model.vocab_size);
  const auto linear_params = static_cast<double>(model.n_linear_params());
  double num_rows = 0;
  FloorWork work;
  work.bytes = linear_params * kBytes;
  for (const ScheduledChunk& chunk : chunks) {
    const std::int64_t begin = chunk.first_position;
    const std::int64_t end = chunk.end_position();
    const auto num_tokens = static_cast<double>(chunk.num_tokens);
    const double pairs =
        global_layers * num_pairs(begin, end, end) +
        (window_layers > 0 ? window_layers * num_pairs(begin, end, model.sliding_window) : 0);
    const double read =
        global_layers * static_cast<double>(end) +
        (window_layers > 0
             ? window_layers * static_cast<double>(num_read(begin, end, model.sliding_window))
             : 0);
    work.flops += 2 * linear_params * num_tokens + pair_flops * pairs;
    work.bytes += token_kv_bytes * read;
    if (chunk.samples_token) ++num_rows;
  }
  if (num_rows > 0) work.bytes += head_params * kBytes;
  work.flops += 2 * head_params * num_rows;
  return work;
}

double step_floor_s(const FloorWork& work, const MachineRates& rates) {
  return std::max(work.bytes / rates.copy_bytes_per_s, work.flops / rates.matrix_flops_per_s);
}

}  // namespace metronome
