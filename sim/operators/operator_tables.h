// SPDX-License-Identifier: Apache-2.0
// Measured operators of one GPU, of several engines: the CSV files that `tools/import_tables
// operators` writes. Times are in microseconds, sizes are those of one device.
//
//   operators.json         where they are from: OperatorMeta
//   gemm.csv               dtype, m, n, k: a product of m tokens with an n x k weight
//   quantize.csv           kind (scale_matrix, computescale), m, k: input of such a product
//   context_attention.csv  dtype, kv_dtype, heads, kv_heads, window, kernel, prompts, tokens
//   decode_attention.csv   the same, sequences, context (without the decoded token)
//                          (latent attention has as many KV heads as heads)
//   latent_products.csv    side (mla_gen_pre, mla_gen_post), dtype, heads, tokens: the products of
//                          each head that enter and leave the latent space of decodes
//   context_states.csv     kernel, key_heads, value_heads, sequences, tokens: linear attention
//   decode_states.csv      the same
//   moe.csv                dtype, tp, distribution, tokens: all experts of a layer
//   collectives.csv        collective, devices, launch (graph, eager), bytes
//
// Every table also has the columns time_us, engine and version. The engine that was asked for comes
// first, then others; of each engine the newest version first.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/curve.h"
#include "sim/link/link.h"

namespace metronome {

struct OperatorMeta {
  std::string package;  // "aiconfigurator-core 0.12.0"
  std::string licence;
  std::string system;           // the package's name of the GPU: "h100_sxm"
  std::string engine;           // that was asked for: "vllm"
  double sm_version = 0;        // compute capability times ten
  double memory_bandwidth = 0;  // peak, bytes/s
  double bfloat16_flops = 0;    // peaks of dense products
  double fp8_flops = 0;
  double fp4_flops = 0;
  std::int64_t head_dim = 0;              // of the attention tables
  std::vector<std::int64_t> latent;       // kv_rank, nope_dim, rope_dim, value_dim; or empty
  std::vector<std::int64_t> experts;      // hidden, expert_ffn, experts a token, experts; or empty
  std::string experts_kernel;             // a part of the name of their kernels; empty: of any
  std::vector<std::int64_t> states;       // key and value head dims, convolution's width; or empty
  std::int64_t expert_parallel_size = 1;  // devices among which whole experts are divided

  bool is_datacenter_blackwell() const { return sm_version >= 100 && sm_version < 110; }
};

struct TableOrigin {
  std::string engine;
  std::string version;

  std::string text() const { return engine + " " + version; }
  bool operator==(const TableOrigin&) const = default;
};

struct ProductTable {
  TableOrigin origin;
  std::string dtype;
  std::map<std::pair<double, double>, Curve> by_shape;  // (n, k): by m
};

struct QuantizeTable {
  TableOrigin origin;
  std::string kind;
  std::map<double, Curve> by_width;  // k: by m
};

// The times of so many sequences of some length each.
using Cells = std::map<std::pair<double, double>, double>;

// Prompts of equal length without history, or decodes of equal context.
struct AttentionCells {
  TableOrigin origin;
  std::string kernel;
  std::string dtype;
  std::string kv_dtype;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;  // 0: none
  Cells us;                 // by sequences, and tokens or context
};

// Queries to the latent space, or values from it.
struct LatentProducts {
  TableOrigin origin;
  bool is_entry = false;
  std::string dtype;
  std::int64_t heads = 0;
  Curve us;  // by tokens
};

// A kernel of one layer of linear attention: its convolution, or its delta rule.
struct StateCells {
  TableOrigin origin;
  bool is_convolution = false;
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  Cells us;  // by sequences, and tokens of each
};

struct ExpertsTable {
  TableOrigin origin;
  std::string dtype;
  std::int64_t tensor_parallel_size = 1;  // devices among which each expert is divided
  std::string distribution;               // of tokens over experts: balanced, power_law_1.2, ...
  Curve us;                               // by tokens
};

struct CollectiveTable {
  TableOrigin origin;
  CollectiveTimes times;
};

struct OperatorTables {
  OperatorMeta meta;
  std::vector<ProductTable> products;
  std::vector<QuantizeTable> quantize;
  std::vector<AttentionCells> context;
  std::vector<AttentionCells> decode;
  std::vector<LatentProducts> latent_products;
  std::vector<StateCells> context_states;
  std::vector<StateCells> decode_states;
  std::vector<ExpertsTable> experts;
  std::vector<CollectiveTable> collectives;
};

// Whether the folder has an operators.json.
bool is_operator_folder(const std::string& folder);

// Of equal rows the least time counts. A family that the folder lacks is empty. Throws ConfigError
// for a malformed file.
OperatorTables read_operator_tables(const std::string& folder);

}  // namespace metronome
