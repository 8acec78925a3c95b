// SPDX-License-Identifier: Apache-2.0
// Quantised weights in panels: the stored blocks come back, a product has the bits of the product
// of the floats that they stand for, and so has a forward pass.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/model_catalogue.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantised_panel.h"
#include "cpu/transformer.h"
#include "tests/catch.h"
#include "tests/cpu/kernel_reference.h"
#include "tests/cpu/quantised_source.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

WeightSpec spec(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return {name, rows, cols, WeightRole::Linear};
}

// A tensor whose name is a format's has that format.
TensorType type_by_name(const WeightSpec& spec) {
  for (std::int64_t i = 0; i < kNumBlockFormats; ++i) {
    if (spec.name.starts_with(block_format_at(i).name)) return block_format_at(i).type;
  }
  return TensorType::Float32;
}

Floats1d floats_of(const WeightSource& source, const std::vector<WeightSpec>& specs) {
  Floats1d all;
  for (const WeightSpec& spec : specs) {
    Floats1d values(static_cast<std::size_t>(spec.rows * spec.cols));
    source.read(spec, 0, spec.rows, values.data());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a panel gives back the stored blocks of every format", "[quantised_matrix]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  for (const StripFormat& format : kStripFormats) {
    INFO(to_string(format.type) << " seed " << seed);
    REQUIRE(strip_format(format.type) != nullptr);
    CHECK(strip_format(format.type)->low_rows == format.low_rows);
    CHECK(block_format(format.type)->num_weights == format.block_inputs);
    const std::int64_t num_inputs = 2 * format.block_inputs;
    const std::int64_t row_bytes = stored_bytes(format.type, num_inputs);
    for (const std::int64_t num_rows : {1, 31, 33, 64}) {
      Rng rng(seed, "panel");
      const std::vector<std::byte> blocks = random_blocks(rng, format.type, 2 * num_rows);
      std::vector<std::uint32_t> panel(
          static_cast<std::size_t>(quantised_panel_words(format, num_inputs)), 77u);
      pack_quantised_panel(format, blocks.data(), num_rows, num_inputs, panel.data());
      std::vector<std::byte> row(static_cast<std::size_t>(row_bytes));
      for (std::int64_t j = 0; j < num_rows; ++j) {
        unpack_quantised_row(format, panel.data(), j, num_inputs, row.data());
        REQUIRE(std::equal(row.begin(), row.end(), blocks.begin() + j * row_bytes));
      }
      CHECK_THROWS_AS(unpack_quantised_row(format, panel.data(), 64, num_inputs, row.data()),
                      InvariantError);
    }
  }
  CHECK(strip_format(TensorType::Float16) == nullptr);
}

TEST_CASE("a panel takes little more memory than the stored blocks", "[quantised_matrix]") {
  for (const StripFormat& format : kStripFormats) {
    INFO(to_string(format.type));
    const std::int64_t stored = stored_bytes(format.type, 64 * 1024);
    CHECK(packed_bytes(format.type, 64, 1024) >= stored);
    CHECK(packed_bytes(format.type, 64, 1024) <= stored + stored / 32);
  }
}

TEST_CASE("a quantised product has the bits of the product of floats on every instruction set",
          "[quantised_matrix]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  for (const StripFormat& format : kStripFormats) {
    for (const std::int64_t num_inputs : {1, 3, 9, 20}) {
      if (format.block_inputs == 256 && num_inputs > 3) continue;
      const std::int64_t inputs = num_inputs * format.block_inputs;
      for (const std::int64_t num_outputs : {1, 16, 31, 33, 40, 63, 64}) {
        Rng rng(seed, "product");
        const std::vector<std::byte> blocks =
            random_blocks(rng, format.type, num_outputs * num_inputs);
        Floats1d weights(static_cast<std::size_t>(num_outputs * inputs));
        dequantise(format.type, blocks.data(), num_outputs * num_inputs, weights.data());
        std::vector<std::uint32_t> panel(
            static_cast<std::size_t>(quantised_panel_words(format, inputs)));
        pack_quantised_panel(format, blocks.data(), num_outputs, inputs, panel.data());
        const Floats1d x = random_floats(rng, 25 * inputs);
        for (const std::int64_t num_rows : {1, 2, 3, 6, 7, 25}) {
          if (num_rows == 25 && num_outputs != 40) continue;
          Floats1d expected(static_cast<std::size_t>((num_rows + 1) * (num_outputs + 3)), -7.0f);
          for (std::int64_t m = 0; m < num_rows; ++m) {
            for (std::int64_t j = 0; j < num_outputs; ++j) {
              expected[static_cast<std::size_t>(m * (num_outputs + 3) + j)] =
                  reference_product(x.data() + m * inputs, weights.data() + j * inputs, inputs);
            }
          }
          for (const Kernels* set : kernel_sets()) {
            Floats1d out(expected.size(), -7.0f);
            set->multiply_quantised(format.type, x.data(), inputs, num_rows, panel.data(), inputs,
                                    num_outputs, out.data(), num_outputs + 3);
            INFO(set->name << " seed " << seed << " " << to_string(format.type) << " inputs "
                           << inputs << " outputs " << num_outputs << " rows " << num_rows);
            REQUIRE(first_difference(out, expected) == -1);
          }
        }
      }
    }
  }
}

TEST_CASE("tensors of several types are stacked", "[quantised_matrix]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2, 3);
  const QuantisedSource source(type_by_name, seed);
  const FloatSource floats(source);
  ThreadPool pool(3);
  Rng rng(seed, "stack");
  for (int trial = 0; trial < 6; ++trial) {
    std::vector<WeightSpec> specs;
    const std::int64_t num_inputs = 256 * static_cast<std::int64_t>(1 + rng() % 2);
    const int num_tensors = static_cast<int>(1 + rng() % 4);
    for (int i = 0; i < num_tensors; ++i) {
      const auto format = static_cast<std::int64_t>(rng() % (kNumBlockFormats + 1));
      std::string name = format == kNumBlockFormats ? std::string("plain")
                                                    : std::string(block_format_at(format).name);
      name += " " + std::to_string(trial) + "." + std::to_string(i);
      specs.push_back(spec(name, static_cast<std::int64_t>(1 + rng() % 150), num_inputs));
    }
    const PackedMatrix matrix(source, specs, pool);
    const PackedMatrix plain(floats, specs, pool);
    REQUIRE(matrix.num_outputs() == plain.num_outputs());
    const std::int64_t num_outputs = matrix.num_outputs();
    INFO("seed " << seed << " trial " << trial << " outputs " << num_outputs);
    Floats1d row(static_cast<std::size_t>(num_inputs));
    const Floats1d expected_rows = floats_of(source, specs);
    for (std::int64_t j = 0; j < num_outputs; ++j) {
      matrix.row(j, row.data());
      REQUIRE(std::memcmp(row.data(), expected_rows.data() + j * num_inputs,
                          row.size() * sizeof(float)) == 0);
    }
    const Floats1d x = random_floats(rng, 50 * num_inputs);
    for (const std::int64_t num_rows : {1, 2, 5, 24, 50}) {
      Floats1d out(static_cast<std::size_t>(num_rows * num_outputs), -7.0f);
      Floats1d expected = out;
      matrix.multiply(x.data(), num_inputs, num_rows, out.data(), num_outputs, pool);
      plain.multiply(x.data(), num_inputs, num_rows, expected.data(), num_outputs, pool);
      INFO("rows " << num_rows);
      REQUIRE(first_difference(out, expected) == -1);
    }
  }
}

TEST_CASE("neighbours of one type share a part, and 256 must divide a row of Q4_K",
          "[quantised_matrix]") {
  const QuantisedSource source(type_by_name, 1);
  ThreadPool pool(2);
  using Types = std::vector<TensorType>;
  const PackedMatrix matrix(
      source, {spec("Q4_K q", 70, 256), spec("Q4_K k", 20, 256), spec("Q6_K v", 20, 256)}, pool);
  CHECK(matrix.part_types() == Types{TensorType::Q4_K, TensorType::Q6_K});
  CHECK(matrix.num_bytes() ==
        packed_bytes(TensorType::Q4_K, 90, 256) + packed_bytes(TensorType::Q6_K, 20, 256));
  CHECK(packed_type(TensorType::Q4_K, 288) == TensorType::Float32);
  CHECK(packed_type(TensorType::Q8_0, 288) == TensorType::Q8_0);
  CHECK(packed_type(TensorType::Float16, 32) == TensorType::Float32);
  CHECK(packed_type(TensorType::Q2_K, 256) == TensorType::Float32);
  CHECK(packed_type(TensorType::MXFP4, 32) == TensorType::BFloat16);
  CHECK(packed_type(TensorType::NVFP4, 64) == TensorType::BFloat16);
}

namespace {

// One row of Q4_0 whose scale is infinite.
class InfiniteSource final : public WeightSource {
 public:
  TensorType type(const WeightSpec&) const override { return TensorType::Q4_0; }
  void read(const WeightSpec&, std::int64_t, std::int64_t, float* out) const override {
    std::vector<std::byte> blocks(18);
    read_blocks({}, 0, 1, blocks.data());
    dequantise(TensorType::Q4_0, blocks.data(), 1, out);
  }
  void read_blocks(const WeightSpec&, std::int64_t, std::int64_t, std::byte* out) const override {
    std::fill_n(out, 18, std::byte{0x11});
    out[0] = std::byte{0};
    out[1] = std::byte{0x7c};
  }
};

}  // namespace

TEST_CASE("a tensor with an infinite scale is kept as floats", "[quantised_matrix]") {
  ThreadPool pool(1);
  const PackedMatrix matrix(InfiniteSource(), {spec("a", 1, 32)}, pool);
  CHECK(matrix.part_types() == std::vector<TensorType>{TensorType::Float32});
  const Floats1d x(32, 1.0f);
  float out = 0;
  matrix.multiply(x.data(), 32, 1, &out, 1, pool);
  CHECK(out == -std::numeric_limits<float>::infinity());
}

TEST_CASE("a forward pass over quantised weights has the logits of their floats",
          "[quantised_matrix]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  for (int f = 0; f < kNumStripFormats + 2; ++f) {
    ModelConfig model;
    model.name = "random";
    model.n_layers = 2;
    model.n_heads = 4;
    model.n_kv_heads = 2;
    model.head_dim = 64;
    model.hidden_dim = 256;
    model.ffn_dim = 512;
    model.vocab_size = 300;
    model.rope_theta = 1e4;
    model.norm_eps = 1e-5;
    model.has_tied_embeddings = f % 2 == 0;
    // The last two draw a type for each tensor.
    const QuantisedSource source(
        [f, seed](const WeightSpec& spec) {
          Rng rng(seed, spec.name);
          return kStripFormats[static_cast<std::size_t>(f) < kNumStripFormats
                                   ? static_cast<std::size_t>(f)
                                   : rng() % kNumStripFormats]
              .type;
        },
        seed);
    const FloatSource floats(source);
    ThreadPool pool(2);
    Transformer quantised(model, source, pool);
    Transformer plain(model, floats, pool);
    CHECK(quantised.weight_bytes() < plain.weight_bytes() / 3);
    ForwardBatch batch;
    batch.clear();
    batch.requests = {RequestId{0}};
    std::vector<float> logits[2];
    Transformer* const models[] = {&quantised, &plain};
    for (int i = 0; i < 2; ++i) {
      KvStore kv({model.n_layers, model.n_kv_heads, model.head_dim, 4, 16});
      Rng rng(seed, "tokens");
      std::int32_t context = 0;
      for (const std::int32_t num_tokens : {30, 1, 2}) {
        batch.clear();
        batch.requests = {RequestId{0}};
        for (std::int32_t p = 0; p < num_tokens; ++p) {
          batch.positions.push_back(context + p);
          batch.token_ids.push_back(TokenId{static_cast<std::int32_t>(rng() % 300)});
          batch.logit_tokens.push_back(p);
        }
        context += num_tokens;
        batch.query_start.push_back(num_tokens);
        batch.context_lens.push_back(context);
        for (std::int32_t b = 0; b < 4; ++b) batch.block_tables.push_back(BlockId{b});
        batch.table_start.push_back(4);
        std::vector<float> now;
        models[i]->forward(batch, kv, now);
        logits[i].insert(logits[i].end(), now.begin(), now.end());
      }
    }
    INFO("seed " << seed << " format " << f);
    REQUIRE(std::any_of(logits[0].begin(), logits[0].end(), [](float v) { return v != 0; }));
    REQUIRE(first_difference(logits[0], logits[1]) == -1);
  }
}

}  // namespace TEST_FILE
