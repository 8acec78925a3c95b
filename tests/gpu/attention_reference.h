// SPDX-License-Identifier: Apache-2.0
// Attention over a paged cache, in double, straight from its definition; and random problems for
// the kernels. Where no position of a sequence is stored, the cache holds NaN; where a table entry
// is not to be read, it holds an id far out of range.
//
//   SequenceContent a = random_content(rng, shape, 200);       // by position, laid out nowhere
//   PagedProblem problem = make_paged_problem(rng, shape, 16, {{&a, 200, 64}, ...});
//   DevicePagedProblem device(problem);                        // device.kv(), device.queries ...
//   ExactRow row = exact_attention(problem, sequence, query, head);
//   |got - row.out[d]| <= attention_tolerance(row, d)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/model/attention_mask.h"
#include "gpu/engine/device_kv_cache.h"
#include "gpu/engine/device_memory.h"
#include "gpu/kernels/kernels.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace metronome::testing {

inline AttentionShape attention_shape(std::int32_t n_heads, std::int32_t n_kv_heads,
                                      std::int32_t head_dim, std::int32_t window = kNoWindow) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  return {n_heads, n_kv_heads, head_dim, window, scale};
}

// Queries, keys and values of a sequence by position. The same content can be chunked and laid out
// in many ways.
struct SequenceContent {
  std::int32_t num_positions = 0;
  std::vector<bf16> queries;  // [num_positions][n_heads][head_dim]
  std::vector<bf16> keys;     // [num_positions][n_kv_heads][head_dim]
  std::vector<bf16> values;   // [num_positions][n_kv_heads][head_dim]
};

inline std::vector<bf16> uniform_bf16(Rng& rng, std::int64_t count, double stddev) {
  std::vector<bf16> values(static_cast<std::size_t>(count));
  const double bound = stddev * std::sqrt(3.0);
  for (bf16& value : values) {
    value = to_bf16((2 * rng.uniform() - 1) * bound);
  }
  return values;
}

// Scaled scores have mean 0 and standard deviation `score_stddev` (with the scale that
// attention_shape sets); values have standard deviation 1.
inline SequenceContent random_content(Rng& rng, const AttentionShape& shape,
                                      std::int32_t num_positions, double score_stddev = 2) {
  const std::int64_t kv_row = std::int64_t{shape.n_kv_heads} * shape.head_dim;
  const std::int64_t query_row = std::int64_t{shape.n_heads} * shape.head_dim;
  SequenceContent content;
  content.num_positions = num_positions;
  content.queries = uniform_bf16(rng, num_positions * query_row, score_stddev);
  content.keys = uniform_bf16(rng, num_positions * kv_row, 1);
  content.values = uniform_bf16(rng, num_positions * kv_row, 1);
  return content;
}

// A sequence's part in a pass: the queries of positions [context_len - query_len, context_len),
// with 0 < query_len <= context_len <= content->num_positions. `content` is only read while the
// problem is made.
struct PagedChunk {
  const SequenceContent* content = nullptr;
  std::int32_t context_len = 0;
  std::int32_t query_len = 0;
};

// The host's copy of what the kernels are given; names and shapes as in gpu/kernels/kernels.h.
// Only positions that a query of the chunk attends to are stored. Table entries of blocks without
// such a position hold kUnreadBlock; between two tables lies one, too.
struct PagedProblem {
  static constexpr std::int32_t kUnreadBlock = 1'000'000'007;

  AttentionShape shape;
  std::int32_t block_size = 0;
  std::int32_t num_blocks = 0;
  std::vector<bf16> queries;  // [num_tokens][n_heads][head_dim]
  std::vector<bf16> keys;     // [num_blocks][n_kv_heads][block_size][head_dim]
  std::vector<bf16> values;   // [num_blocks][n_kv_heads][block_size][head_dim]
  std::vector<std::int32_t> block_tables;
  std::vector<std::int32_t> table_start;   // [num_sequences]
  std::vector<std::int32_t> query_start;   // [num_sequences + 1]
  std::vector<std::int32_t> context_lens;  // [num_sequences]

  std::int32_t num_sequences() const { return static_cast<std::int32_t>(context_lens.size()); }
  std::int32_t num_tokens() const { return query_start.back(); }
  std::int32_t query_len(std::int32_t sequence) const {
    const auto s = static_cast<std::size_t>(sequence);
    return query_start[s + 1] - query_start[s];
  }
  // The position of a sequence's query, which are counted from 0.
  std::int32_t position(std::int32_t sequence, std::int32_t query) const {
    return context_lens[static_cast<std::size_t>(sequence)] - query_len(sequence) + query;
  }
  // Where the row of a query lies in queries and in the kernels' output.
  std::size_t query_offset(std::int32_t sequence, std::int32_t query, std::int32_t head) const {
    const std::int64_t token = query_start[static_cast<std::size_t>(sequence)] + query;
    return static_cast<std::size_t>((token * shape.n_heads + head) * shape.head_dim);
  }
  // Where the row of a position lies in keys and values.
  std::size_t kv_offset(std::int32_t sequence, std::int32_t position, std::int32_t kv_head) const {
    const auto entry = table_start[static_cast<std::size_t>(sequence)] + position / block_size;
    const std::int64_t block = block_tables[static_cast<std::size_t>(entry)];
    const std::int64_t row = (block * shape.n_kv_heads + kv_head) * block_size;
    return static_cast<std::size_t>((row + position % block_size) * shape.head_dim);
  }
};

namespace attention_reference {

inline void copy_row(const std::vector<bf16>& from, std::size_t from_offset, std::vector<bf16>& to,
                     std::size_t to_offset, std::int32_t head_dim) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d) {
    to[to_offset + d] = from[from_offset + d];
  }
}

// Block ids 0 .. num_blocks - 1 in random order, so many for the tables and a few spare ones.
inline std::vector<std::int32_t> shuffled_blocks(Rng& rng, std::int32_t num_blocks) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < num_blocks; ++id) ids.push_back(id);
  for (std::int32_t left = num_blocks; left > 1; --left) {
    std::swap(ids[static_cast<std::size_t>(left - 1)],
              ids[static_cast<std::size_t>(draw(rng, 0, left - 1))]);
  }
  return ids;
}

// The first position that a query of the chunk attends to.
inline std::int32_t first_stored(const AttentionShape& shape, const PagedChunk& chunk) {
  return first_attended(chunk.context_len - chunk.query_len, shape.window);
}

inline void make_tables(Rng& rng, const std::vector<PagedChunk>& chunks, PagedProblem& problem) {
  std::int32_t num_blocks = draw(rng, 0, 2);
  for (const PagedChunk& chunk : chunks) {
    num_blocks += (chunk.context_len - 1) / problem.block_size -
                  first_stored(problem.shape, chunk) / problem.block_size + 1;
  }
  std::vector<std::int32_t> free = shuffled_blocks(rng, num_blocks);
  problem.num_blocks = num_blocks;
  problem.query_start.push_back(0);
  for (const PagedChunk& chunk : chunks) {
    if (!problem.block_tables.empty()) problem.block_tables.push_back(PagedProblem::kUnreadBlock);
    problem.table_start.push_back(static_cast<std::int32_t>(problem.block_tables.size()));
    const std::int32_t first_block = first_stored(problem.shape, chunk) / problem.block_size;
    for (std::int32_t i = 0; i <= (chunk.context_len - 1) / problem.block_size; ++i) {
      problem.block_tables.push_back(i < first_block ? PagedProblem::kUnreadBlock : free.back());
      if (i >= first_block) free.pop_back();
    }
    problem.query_start.push_back(problem.query_start.back() + chunk.query_len);
    problem.context_lens.push_back(chunk.context_len);
  }
}

}  // namespace attention_reference

// Lays chunks out in blocks drawn at random.
inline PagedProblem make_paged_problem(Rng& rng, const AttentionShape& shape,
                                       std::int32_t block_size,
                                       const std::vector<PagedChunk>& chunks) {
  using attention_reference::copy_row;
  PagedProblem problem;
  problem.shape = shape;
  problem.block_size = block_size;
  attention_reference::make_tables(rng, chunks, problem);
  const std::int64_t num_rows = std::int64_t{problem.num_blocks} * shape.n_kv_heads * block_size;
  problem.keys.assign(static_cast<std::size_t>(num_rows * shape.head_dim), bf16_nan());
  problem.values = problem.keys;
  problem.queries.resize(static_cast<std::size_t>(problem.num_tokens()) *
                         static_cast<std::size_t>(shape.n_heads * shape.head_dim));
  for (std::int32_t s = 0; s < problem.num_sequences(); ++s) {
    const PagedChunk& chunk = chunks[static_cast<std::size_t>(s)];
    const SequenceContent& content = *chunk.content;
    const auto row_of = [&](std::int64_t position, std::int32_t heads, std::int32_t head) {
      return static_cast<std::size_t>((position * heads + head) * shape.head_dim);
    };
    for (auto p = attention_reference::first_stored(shape, chunk); p < chunk.context_len; ++p) {
      for (std::int32_t head = 0; head < shape.n_kv_heads; ++head) {
        const std::size_t from = row_of(p, shape.n_kv_heads, head);
        const std::size_t to = problem.kv_offset(s, p, head);
        copy_row(content.keys, from, problem.keys, to, shape.head_dim);
        copy_row(content.values, from, problem.values, to, shape.head_dim);
      }
    }
    for (std::int32_t query = 0; query < chunk.query_len; ++query) {
      for (std::int32_t head = 0; head < shape.n_heads; ++head) {
        copy_row(content.queries, row_of(problem.position(s, query), shape.n_heads, head),
                 problem.queries, problem.query_offset(s, query, head), shape.head_dim);
      }
    }
  }
  return problem;
}

// A problem's arrays in device memory.
struct DevicePagedProblem {
  DeviceArray<bf16> queries, keys, values;
  DeviceArray<std::int32_t> block_tables, table_start, query_start, context_lens;
  std::int32_t block_size = 0;

  explicit DevicePagedProblem(const PagedProblem& problem)
      : queries(on_device(problem.queries)),
        keys(on_device(problem.keys)),
        values(on_device(problem.values)),
        block_tables(on_device(problem.block_tables)),
        table_start(on_device(problem.table_start)),
        query_start(on_device(problem.query_start)),
        context_lens(on_device(problem.context_lens)),
        block_size(problem.block_size) {}

  PagedKv kv() const {
    return {keys.data(), values.data(), block_tables.data(), table_start.data(), block_size};
  }

  PrefillAttentionArgs prefill_args(const AttentionShape& shape,
                                    const DeviceArray<PrefillTile>& tiles,
                                    const DeviceArray<bf16>& out) const {
    return {.shape = shape,
            .kv = kv(),
            .queries = queries.data(),
            .query_start = query_start.data(),
            .context_lens = context_lens.data(),
            .tiles = tiles.data(),
            .num_tiles = static_cast<std::int32_t>(tiles.size()),
            .out = out.data()};
  }

  KvTensors tensors(const AttentionShape& shape) const {
    DeviceKvShape cache = {.n_layers = 1,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim,
                           .num_blocks = 1,
                           .block_size = block_size};
    cache.num_blocks = static_cast<std::int64_t>(keys.size()) / cache.layer_elements();
    return make_kv_tensors(keys.data(), values.data(), cache);
  }
};

// One query of one head: the softmax-weighted mean of the values, and of their absolute values.
struct ExactRow {
  std::vector<double> out;        // [head_dim]
  std::vector<double> magnitude;  // [head_dim]
};

// `query` counts the sequence's queries in this pass from 0.
inline ExactRow exact_attention(const PagedProblem& problem, std::int32_t sequence,
                                std::int32_t query, std::int32_t head) {
  const AttentionShape& shape = problem.shape;
  const auto head_dim = static_cast<std::size_t>(shape.head_dim);
  const std::int32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
  const std::int32_t position = problem.position(sequence, query);
  const bf16* q = problem.queries.data() + problem.query_offset(sequence, query, head);

  std::vector<double> scores;
  std::vector<std::size_t> offsets;
  double maximum = -std::numeric_limits<double>::infinity();
  for (std::int32_t p = 0; p <= position; ++p) {
    if (!attends(position, p, shape.window)) continue;
    offsets.push_back(problem.kv_offset(sequence, p, kv_head));
    double dot = 0;
    for (std::size_t d = 0; d < head_dim; ++d) {
      dot += to_double(q[d]) * to_double(problem.keys[offsets.back() + d]);
    }
    scores.push_back(dot * static_cast<double>(shape.scale));
    maximum = std::max(maximum, scores.back());
  }
  ExactRow row{std::vector<double>(head_dim, 0.0), std::vector<double>(head_dim, 0.0)};
  double total = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - maximum);
    total += weight;
    for (std::size_t d = 0; d < head_dim; ++d) {
      const double value = to_double(problem.values[offsets[i] + d]);
      row.out[d] += weight * value;
      row.magnitude[d] += weight * std::abs(value);
    }
  }
  for (std::size_t d = 0; d < head_dim; ++d) {
    row.out[d] /= total;
    row.magnitude[d] /= total;
  }
  return row;
}

// A bound of the error of kernels that round the softmax weights to bfloat16 before they meet the
// values, divide by the sum of the weights as floats, and round the result: each of the two
// roundings is off by 2^-8 / (1 + 2^-8) of a number at most, the weights' by so much of the
// magnitude. The rest, 2^-12 of the magnitude, is for sums in float (about head_dim * 2^-24 of the
// largest terms of a score, as a relative error of its weight) and an approximate exp2.
inline double attention_tolerance(const ExactRow& row, std::size_t d) {
  constexpr double kRounding = 0x1.0p-8;
  return kRounding * (row.magnitude[d] + std::abs(row.out[d])) + 0x1.0p-12 * row.magnitude[d] +
         1e-30;
}

}  // namespace metronome::testing
