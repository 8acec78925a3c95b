// SPDX-License-Identifier: Apache-2.0
// Samples tokens from logits by the rule of Sampler (core/engine/sampling.h), in five kernels:
//
//   find_largest  the likeliest token of each part of a row; checks that its logits are finite
//   fill_bins     count and weight of the tokens, by distance from the likeliest; greedy rows get
//                 their token
//   find_cut      the key of the last token that top_k and top_p keep
//   weigh_slices  the weight of the kept tokens in each slice of the row
//   draw_token    a token, by one uniform number
//
// Parts and slices only let many blocks share a row. Keys, counts and weights are integers, so the
// order of comparisons and sums does not matter. A row's token depends on that row alone.
//
// The likeliest token weighs 2^44 units (fewer with more than 2^19 tokens). Other weights are
// rounded to units. A sum over n tokens is off by at most n / 2 units; Sampler's sums of doubles
// are off by n * 2^-53 of their value. Both give the same token unless the draw, or the share of
// top_p, is within those bounds of a border between two tokens.
//
// Weights are computed as Sampler's doubles, and min_p compares those. So this file is compiled
// with --fmad=false (nvcc) or -ffp-contract=off (g++).
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/engine/sampling_math.h"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

using Key = unsigned long long;    // key_of() of a token; larger = likelier
using Units = unsigned long long;  // of weight, or a number of tokens

constexpr std::int32_t kThreads = 512;
constexpr std::int32_t kWarps = kThreads / 32;
constexpr unsigned kFullMask = 0xffffffffu;

constexpr Key kNotFinite = ~Key{0};  // greater than the key of any finite logit
constexpr std::int32_t kMaxWeightBits = 44;

// A token's bin is the distance of its logit from the largest, divided by temperature, in steps of
// 1/32. A token in the last bin, at 1023/32 or more, weighs less than half a unit.
constexpr std::int32_t kNumBins = 1024;
constexpr std::int32_t kLastBin = kNumBins - 1;
constexpr double kBinsPerNat = 32;

constexpr std::int32_t kListKeys = 2048;  // number of tokens that a block keeps in shared memory
constexpr std::int32_t kMinPartTokens = 2048;
constexpr std::int32_t kTargetBlocks = 512;  // about as many as an H100 runs at once

// State of a row that the kernels pass on.
struct RowState {
  Key largest;  // of the likeliest token, or kNotFinite
  Key last;     // of the last kept token; 0: all are kept
};

struct Job {
  SampleArgs args;
  std::int32_t num_parts;     // of a row; a part is kWarps slices
  std::int32_t slice_tokens;  // a multiple of 4
  double unit_scale;          // 2^weight bits
  RowState* states;           // [num_rows]
  Key* part_keys;             // [num_rows, num_parts]
  Units* slices;              // [num_rows, num_parts * kWarps]: weight of the kept tokens
  Units* masses;              // [num_rows, kNumBins]: weight of the tokens
  unsigned* counts;           // [num_rows, kNumBins]: their number
};

struct Range {
  std::int32_t begin;
  std::int32_t end;
};

__device__ std::int32_t thread_index() { return static_cast<std::int32_t>(threadIdx.x); }
__device__ std::int32_t warp_index() { return thread_index() / 32; }
__device__ std::int32_t lane_index() { return thread_index() % 32; }

// A row with its parameters. Computes the weights of its tokens.
struct Row {
  const float* logits;  // [vocab_size]
  std::int32_t vocab_size;
  SampleRow params;
  float largest;
  float half_largest;
  float bins_per_half;
  double unit_scale;

  // A larger logit has a lower bin. Halves the logits, so that no difference overflows.
  __device__ std::int32_t bin_of(float logit) const {
    const float bin = (half_largest - logit * 0.5f) * bins_per_half;
    return static_cast<std::int32_t>(fminf(bin, static_cast<float>(kLastBin)));
  }

  __device__ Units weigh(float logit) const {
    if (bin_of(logit) == kLastBin) return 0;
    const double below = static_cast<double>(logit) - static_cast<double>(largest);
    const double weight = exp_of_negative(below / params.temperature);
    return weight >= params.min_p ? static_cast<Units>(weight * unit_scale + 0.5) : 0;
  }

  __device__ bool has_top_k() const { return params.top_k > 0 && params.top_k < vocab_size; }
  __device__ bool has_top_p() const { return params.top_p < 1; }
};

__device__ const float* row_logits(const Job& job) {
  return job.args.logits + static_cast<std::int64_t>(blockIdx.x) * job.args.vocab_size;
}

__device__ Row make_row(const Job& job, const SampleRow& params, Key largest) {
  Row row;
  row.logits = row_logits(job);
  row.vocab_size = job.args.vocab_size;
  row.params = params;
  row.largest = row.logits[index_of(largest)];
  row.half_largest = row.largest * 0.5f;
  // Clamped, because 0 times infinity is NaN. At the limits, all other tokens are in the last bin,
  // or all tokens in the first.
  const double scale = 2 * kBinsPerNat / params.temperature;
  row.bins_per_half = static_cast<float>(scale < 1e-37 ? 1e-37 : scale > 1e38 ? 1e38 : scale);
  row.unit_scale = job.unit_scale;
  return row;
}

__device__ Range slice_range(const Job& job, std::int32_t first_slice, std::int32_t num_slices) {
  const auto token = [&](std::int32_t slice) {
    const std::int64_t begin = static_cast<std::int64_t>(slice) * job.slice_tokens;
    return begin < job.args.vocab_size ? static_cast<std::int32_t>(begin) : job.args.vocab_size;
  };
  return {token(first_slice), token(first_slice + num_slices)};
}

__device__ Range part_range(const Job& job) {
  return slice_range(job, static_cast<std::int32_t>(blockIdx.y) * kWarps, kWarps);
}

// Calls body(id, logit) for the tokens of a range, which `num_threads` threads share. A thread's
// tokens ascend. range.begin must be a multiple of 4, and range.end too, unless it is the
// vocabulary's.
template <class Body>
__device__ void for_each_logit(const float* logits, std::int32_t vocab_size, Range range,
                               std::int32_t thread, std::int32_t num_threads, Body body) {
  if (vocab_size % 4 != 0) {  // most rows are not 16-byte aligned
    for (std::int32_t i = range.begin + thread; i < range.end; i += num_threads) {
      body(i, __ldg(logits + i));
    }
    return;
  }
  const float4* quads = reinterpret_cast<const float4*>(logits);
  for (std::int32_t i = range.begin / 4 + thread; i < range.end / 4; i += num_threads) {
    const float4 quad = __ldg(quads + i);
    body(i * 4, quad.x);
    body(i * 4 + 1, quad.y);
    body(i * 4 + 2, quad.z);
    body(i * 4 + 3, quad.w);
  }
}

struct Crossing {
  std::int32_t index;
  Units before;  // sum of the values before it
};

// The threads of a block exchange their results here.
struct Exchange {
  Units warps[kWarps];
  Crossing crossing;
};

struct Sum {
  __device__ Units operator()(Units a, Units b) const { return a + b; }
};
struct Larger {
  __device__ Units operator()(Units a, Units b) const { return a < b ? b : a; }
};

// All threads get the result. All threads of the block must call it together, as all below.
template <class Combine>
__device__ Units reduce(Units value, Combine combine, Exchange& exchange) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kFullMask, value, lanes));
  }
  if (lane_index() == 0) exchange.warps[warp_index()] = value;
  __syncthreads();
  value = exchange.warps[lane_index() % kWarps];
  for (int lanes = kWarps / 2; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kFullMask, value, lanes));
  }
  __syncthreads();
  return value;
}

// The first of `count` values at which the running sum reaches `needed`. Requires 0 < needed <= the
// sum of all.
template <class ValueAt>
__device__ Crossing find_crossing(std::int32_t count, Units needed, Exchange& exchange,
                                  ValueAt value_at) {
  const std::int32_t run = (count + kThreads - 1) / kThreads;
  const std::int32_t begin = min(thread_index() * run, count);
  const std::int32_t end = min(begin + run, count);
  Units sum = 0;
  for (std::int32_t i = begin; i < end; ++i) sum += value_at(i);
  Units reached = sum;  // by the threads of the warp up to this one
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Units others = __shfl_up_sync(kFullMask, reached, static_cast<unsigned>(lanes));
    if (lane_index() >= lanes) reached += others;
  }
  if (lane_index() == 31) exchange.warps[warp_index()] = reached;
  __syncthreads();
  for (std::int32_t warp = 0; warp < warp_index(); ++warp) reached += exchange.warps[warp];
  Units before = reached - sum;
  if (before < needed && needed <= reached) {  // true for one thread
    std::int32_t index = begin;
    for (Units value = value_at(index); before + value < needed; value = value_at(index)) {
      before += value;
      ++index;
    }
    exchange.crossing = {index, before};
  }
  __syncthreads();
  return exchange.crossing;  // the next call writes it only after another barrier
}

// Whether the largest key already decides the row's token.
__device__ bool is_done(const SampleRow& params, Key largest) {
  return largest == kNotFinite || params.temperature == 0;
}

__global__ void __launch_bounds__(kThreads) find_largest_kernel(Job job) {
  join_kernels();
  __shared__ Exchange exchange;
  std::uint32_t best = 0;  // less than any finite logit
  std::int32_t best_id = 0;
  for_each_logit(row_logits(job), job.args.vocab_size, part_range(job), thread_index(), kThreads,
                 [&](std::int32_t id, float logit) {
                   const bool is_finite = (__float_as_uint(logit) & 0x7f800000u) != 0x7f800000u;
                   const std::uint32_t ordered = is_finite ? ordered_of(logit) : 0xffffffffu;
                   if (ordered <= best) return;
                   best = ordered;
                   best_id = id;
                 });
  const Key own = best == 0xffffffffu ? kNotFinite
                  : best == 0         ? 0
                                      : Key{best} << 32 | ~static_cast<std::uint32_t>(best_id);
  const Key largest = reduce(own, Larger{}, exchange);
  const std::int64_t row = blockIdx.x;
  if (thread_index() == 0) job.part_keys[row * job.num_parts + blockIdx.y] = largest;
  if (blockIdx.y > 0 || job.args.rows[row].temperature == 0) return;
  for (std::int32_t bin = thread_index(); bin < kNumBins; bin += kThreads) {
    job.masses[row * kNumBins + bin] = 0;
    job.counts[row * kNumBins + bin] = 0;
  }
}

struct BinsShared {
  Exchange exchange;
  Units masses[kNumBins];
  unsigned counts[kNumBins];
};

__global__ void __launch_bounds__(kThreads) fill_bins_kernel(Job job) {
  join_kernels();
  __shared__ BinsShared shared;
  const std::int64_t row_index = blockIdx.x;
  const SampleRow params = job.args.rows[row_index];
  Key part_key = 0;
  for (std::int32_t i = thread_index(); i < job.num_parts; i += kThreads) {
    part_key = max(part_key, job.part_keys[row_index * job.num_parts + i]);
  }
  const Key largest = reduce(part_key, Larger{}, shared.exchange);
  if (blockIdx.y == 0 && thread_index() == 0) {
    job.states[row_index].largest = largest;
    if (is_done(params, largest)) {
      job.args.tokens[params.out] =
          largest == kNotFinite ? kSampleFailed : static_cast<std::int32_t>(index_of(largest));
    }
  }
  if (is_done(params, largest)) return;
  const Row row = make_row(job, params, largest);
  if (!row.has_top_k() && !row.has_top_p()) return;

  for (std::int32_t bin = thread_index(); bin < kNumBins; bin += kThreads) {
    shared.masses[bin] = 0;
    shared.counts[bin] = 0;
  }
  __syncthreads();
  for_each_logit(row.logits, row.vocab_size, part_range(job), thread_index(), kThreads,
                 [&](std::int32_t, float logit) {
                   const std::int32_t bin = row.bin_of(logit);
                   atomicAdd(&shared.counts[bin], 1u);
                   const Units weight = row.has_top_p() ? row.weigh(logit) : 0;
                   if (weight > 0) atomicAdd(&shared.masses[bin], weight);
                 });
  __syncthreads();
  const std::int64_t first = row_index * kNumBins;
  for (std::int32_t bin = thread_index(); bin < kNumBins; bin += kThreads) {
    if (shared.counts[bin] > 0) atomicAdd(&job.counts[first + bin], shared.counts[bin]);
    if (shared.masses[bin] > 0) atomicAdd(&job.masses[first + bin], shared.masses[bin]);
  }
}

struct CutShared {
  Exchange exchange;
  Units masses[kNumBins];
  unsigned counts[kNumBins];
  Units digits[256];
  Key list[kListKeys];
  unsigned num_listed;
};

// The tokens in bins [first_bin, last_bin], which include the wanted one. Few tokens are listed;
// many are read from the row each time.
struct Window {
  std::int32_t first_bin;
  std::int32_t last_bin;
  bool is_listed;
};

template <class Body>
__device__ void for_each_in_row(const Row& row, const Window& window, Body body) {
  for_each_logit(row.logits, row.vocab_size, {0, row.vocab_size}, thread_index(), kThreads,
                 [&](std::int32_t id, float logit) {
                   const std::int32_t bin = row.bin_of(logit);
                   if (bin < window.first_bin || bin > window.last_bin) return;
                   body(Key{key_of(logit, static_cast<std::size_t>(id))}, logit);
                 });
}

// Calls body(key, logit).
template <class Body>
__device__ void for_each_in_window(const Row& row, const Window& window, const CutShared& shared,
                                   Body body) {
  if (!window.is_listed) {
    for_each_in_row(row, window, body);
    return;
  }
  const auto num_listed = static_cast<std::int32_t>(shared.num_listed);
  for (std::int32_t i = thread_index(); i < num_listed; i += kThreads) {
    body(shared.list[i], row.logits[index_of(shared.list[i])]);
  }
}

// Opens the window of a bin. Adds all likelier tokens if these can be listed, too.
__device__ Window open_window(const Row& row, std::int32_t bin, CutShared& shared) {
  Units own_count = 0;
  for (std::int32_t i = thread_index(); i <= bin; i += kThreads) own_count += shared.counts[i];
  const bool takes_all = reduce(own_count, Sum{}, shared.exchange) <= kListKeys;
  const Window window = {takes_all ? 0 : bin, bin, takes_all || shared.counts[bin] <= kListKeys};
  if (!window.is_listed) return window;
  if (thread_index() == 0) shared.num_listed = 0;
  __syncthreads();
  for_each_in_row(row, window,
                  [&](Key key, float) { shared.list[atomicAdd(&shared.num_listed, 1u)] = key; });
  __syncthreads();
  return window;
}

// The key of the token at which the window's weights, in descending order, reach `needed`. Finds it
// digit by digit, as Sampler does. weigh(logit) gives weights.
template <class Weigh>
__device__ Key find_last_key(const Row& row, const Window& window, Units needed, CutShared& shared,
                             Weigh weigh) {
  Key last = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (thread_index() < 256) shared.digits[thread_index()] = 0;
    __syncthreads();
    for_each_in_window(row, window, shared, [&](Key key, float logit) {
      // From here on `last` has no digits yet.
      const Key digit = (key ^ last) >> shift;
      if (digit > 255) return;
      const Units weight = weigh(logit);
      if (weight > 0) atomicAdd(&shared.digits[digit], weight);
    });
    __syncthreads();
    const Crossing crossing = find_crossing(256, needed, shared.exchange,
                                            [&](std::int32_t i) { return shared.digits[255 - i]; });
    last |= static_cast<Key>(255 - crossing.index) << shift;
    needed -= crossing.before;
  }
  return last;
}

// The share of `total` that top_p needs, as Sampler computes it, in whole units.
__device__ Units share_of(Units total, double top_p) {
  const double share = top_p * static_cast<double>(total);
  auto needed = static_cast<Units>(share);
  if (static_cast<double>(needed) < share) ++needed;
  return max(Units{1}, min(needed, total));
}

// The key of the last kept token, from the sums of bins; 0: all are kept.
__device__ Key find_last_kept(const Row& row, CutShared& shared) {
  Key last = 0;
  Window window = {0, -1, false};
  if (row.has_top_k()) {
    const auto top_k = static_cast<Units>(row.params.top_k);
    const Crossing crossing = find_crossing(kNumBins, top_k, shared.exchange, [&](std::int32_t i) {
      return static_cast<Units>(shared.counts[i]);
    });
    if (crossing.index < kLastBin) {  // else only tokens of weight 0 would be dropped
      window = open_window(row, crossing.index, shared);
      const Units ahead = window.first_bin == 0 ? 0 : crossing.before;
      last = find_last_key(row, window, top_k - ahead, shared, [](float) { return Units{1}; });
    }
  }
  if (!row.has_top_p()) return last;

  if (last > 0) {
    Units own_mass = 0;
    for_each_in_window(row, window, shared, [&](Key key, float logit) {
      if (key >= last && row.bin_of(logit) == window.last_bin) own_mass += row.weigh(logit);
    });
    const Units kept_mass = reduce(own_mass, Sum{}, shared.exchange);
    for (std::int32_t i = window.last_bin + thread_index(); i < kNumBins; i += kThreads) {
      shared.masses[i] = i == window.last_bin ? kept_mass : 0;
    }
    __syncthreads();
  }
  Units own_total = 0;
  for (std::int32_t i = thread_index(); i < kNumBins; i += kThreads) own_total += shared.masses[i];
  const Units needed = share_of(reduce(own_total, Sum{}, shared.exchange), row.params.top_p);
  const Crossing crossing = find_crossing(kNumBins, needed, shared.exchange,
                                          [&](std::int32_t i) { return shared.masses[i]; });
  if (crossing.index < window.first_bin || crossing.index > window.last_bin) {
    window = open_window(row, crossing.index, shared);
  }
  // Tokens that top_k dropped come after all needed tokens.
  const Units ahead = window.first_bin == 0 ? 0 : crossing.before;
  return find_last_key(row, window, needed - ahead, shared,
                       [&](float logit) { return row.weigh(logit); });
}

__global__ void __launch_bounds__(kThreads) find_cut_kernel(Job job) {
  join_kernels();
  __shared__ CutShared shared;
  const std::int64_t row_index = blockIdx.x;
  const SampleRow params = job.args.rows[row_index];
  RowState& state = job.states[row_index];
  if (is_done(params, state.largest)) return;
  const Row row = make_row(job, params, state.largest);
  Key last = 0;
  if (row.has_top_k() || row.has_top_p()) {
    for (std::int32_t bin = thread_index(); bin < kNumBins; bin += kThreads) {
      shared.counts[bin] = job.counts[row_index * kNumBins + bin];
      shared.masses[bin] = job.masses[row_index * kNumBins + bin];
    }
    __syncthreads();
    last = find_last_kept(row, shared);
  }
  if (thread_index() == 0) state.last = last;
}

__device__ Units weigh_kept(const Row& row, Key last, std::int32_t id, float logit) {
  return key_of(logit, static_cast<std::size_t>(id)) >= last ? row.weigh(logit) : 0;
}

__device__ Units* row_slices(const Job& job) {
  return job.slices + static_cast<std::int64_t>(blockIdx.x) * job.num_parts * kWarps;
}

__global__ void __launch_bounds__(kThreads) weigh_slices_kernel(Job job) {
  join_kernels();
  const SampleRow params = job.args.rows[blockIdx.x];
  const RowState state = job.states[blockIdx.x];
  if (is_done(params, state.largest)) return;
  const Row row = make_row(job, params, state.largest);
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.y) * kWarps + warp_index();
  Units mass = 0;
  for_each_logit(
      row.logits, row.vocab_size, slice_range(job, slice, 1), lane_index(), 32,
      [&](std::int32_t id, float logit) { mass += weigh_kept(row, state.last, id, logit); });
  for (int lanes = 16; lanes > 0; lanes /= 2) mass += __shfl_xor_sync(kFullMask, mass, lanes);
  if (lane_index() == 0) row_slices(job)[slice] = mass;
}

// The second bound lets ptxas take the registers that it would spill otherwise.
__global__ void __launch_bounds__(kThreads, 1) draw_token_kernel(Job job) {
  join_kernels();
  __shared__ Exchange exchange;
  const SampleRow params = job.args.rows[blockIdx.x];
  const RowState state = job.states[blockIdx.x];
  if (is_done(params, state.largest)) return;
  const Row row = make_row(job, params, state.largest);
  const Units* slices = row_slices(job);
  const std::int32_t num_slices = job.num_parts * kWarps;
  Units own_total = 0;
  for (std::int32_t i = thread_index(); i < num_slices; i += kThreads) own_total += slices[i];
  const Units total = reduce(own_total, Sum{}, exchange);
  // The token at which the sum in order of id exceeds the target.
  const double target = uniform_of(params.seed, params.position) * static_cast<double>(total);
  const Units needed = min(static_cast<Units>(target), total - 1) + 1;
  const Crossing slice =
      find_crossing(num_slices, needed, exchange, [&](std::int32_t i) { return slices[i]; });
  const Range range = slice_range(job, slice.index, 1);
  const Crossing token =
      find_crossing(range.end - range.begin, needed - slice.before, exchange, [&](std::int32_t i) {
        const std::int32_t id = range.begin + i;
        return weigh_kept(row, state.last, id, row.logits[id]);
      });
  if (thread_index() == 0) job.args.tokens[params.out] = range.begin + token.index;
}

std::int32_t max_parts(std::int32_t vocab_size) {
  return std::min(kTargetBlocks / 4, (vocab_size - 1) / kMinPartTokens + 1);
}

// Maximum number of parts of all rows, for up to `num_rows` rows.
std::int64_t max_blocks(std::int32_t num_rows, std::int32_t vocab_size) {
  const std::int64_t all = std::int64_t{num_rows} * max_parts(vocab_size);
  return std::max<std::int64_t>(num_rows, std::min<std::int64_t>(all, kTargetBlocks));
}

}  // namespace

void launch_sample(const SampleArgs& args, cudaStream_t stream) {
  if (args.num_rows == 0) return;
  Job job = {};
  job.args = args;
  job.num_parts = std::clamp(kTargetBlocks / args.num_rows, 1, max_parts(args.vocab_size));
  const std::int32_t num_slices = job.num_parts * kWarps;
  job.slice_tokens = ((args.vocab_size - 1) / num_slices / 4 + 1) * 4;
  const auto vocab_bits =
      static_cast<std::int32_t>(std::bit_width(static_cast<std::uint32_t>(args.vocab_size)));
  job.unit_scale = static_cast<double>(Units{1} << std::min(kMaxWeightBits, 63 - vocab_bits));
  const std::int64_t num_rows = args.num_rows;
  const std::int64_t num_blocks = num_rows * job.num_parts;
  job.states = static_cast<RowState*>(args.scratch);
  job.part_keys = reinterpret_cast<Key*>(job.states + num_rows);
  job.slices = job.part_keys + num_blocks;
  job.masses = job.slices + num_blocks * kWarps;
  job.counts = reinterpret_cast<unsigned*>(job.masses + num_rows * kNumBins);
  const auto rows = static_cast<unsigned>(args.num_rows);
  const auto parts = static_cast<unsigned>(job.num_parts);
  const LaunchShape block_a_part = {dim3(rows, parts), dim3(kThreads)};
  const LaunchShape block_a_row = {dim3(rows), dim3(kThreads)};
  launch(find_largest_kernel, block_a_part, stream, job);
  launch(fill_bins_kernel, block_a_part, stream, job);
  launch(find_cut_kernel, block_a_row, stream, job);
  launch(weigh_slices_kernel, block_a_part, stream, job);
  launch(draw_token_kernel, block_a_row, stream, job);
}

std::int64_t sample_scratch_bytes(std::int32_t num_rows, std::int32_t vocab_size) {
  const std::int64_t of_rows = sizeof(RowState) + kNumBins * (sizeof(Units) + sizeof(unsigned));
  const std::int64_t of_blocks = sizeof(Key) + kWarps * sizeof(Units);
  return num_rows * of_rows + max_blocks(num_rows, vocab_size) * of_blocks;
}

}  // namespace metronome
