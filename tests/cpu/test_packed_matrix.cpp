// SPDX-License-Identifier: Apache-2.0
// Packed weights: what was read comes back, and a product has the same bits on any number of
// threads and beside any other rows.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "cpu/packed_matrix.h"
#include "models/weights/float16.h"
#include "tests/catch.h"
#include "tests/cpu/kernel_reference.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// Tensors "a", "b", ... of random numbers; "half..." are stored as bfloat16.
class FakeWeights final : public WeightSource {
 public:
  TensorType type(const WeightSpec& spec) const override {
    return spec.name.starts_with("half") ? TensorType::BFloat16 : TensorType::Float32;
  }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    if (spec.name == "bad") throw ConfigError("bad: unreadable");
    Rng rng(9, spec.name);
    Floats1d values = random_floats(rng, spec.rows * spec.cols);
    for (float& value : values) {
      if (type(spec) == TensorType::BFloat16) value = float_of_bf16(bf16_of_float(value));
    }
    std::copy(values.begin() + row_begin * spec.cols, values.begin() + row_end * spec.cols, out);
  }
};

Floats1d stacked(const FakeWeights& source, const std::vector<WeightSpec>& specs) {
  Floats1d all;
  for (const WeightSpec& spec : specs) {
    Floats1d values(static_cast<std::size_t>(spec.rows * spec.cols));
    source.read(spec, 0, spec.rows, values.data());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

using Types = std::vector<TensorType>;

WeightSpec spec(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return {name, rows, cols, WeightRole::Linear};
}

}  // namespace

TEST_CASE("packed rows come back, and bfloat16 takes half the memory", "[packed_matrix]") {
  const FakeWeights source;
  ThreadPool pool(3);
  for (const std::string kind : {"half ", "full "}) {
    // The second tensor begins and ends inside a panel.
    const std::vector<WeightSpec> specs = {spec(kind + "a", 70, 19), spec(kind + "b", 30, 19),
                                           spec(kind + "c", 101, 19)};
    const PackedMatrix matrix(source, specs, pool);
    CHECK(matrix.num_outputs() == 201);
    CHECK(matrix.num_inputs() == 19);
    CHECK(matrix.part_types() ==
          Types{kind == "half " ? TensorType::BFloat16 : TensorType::Float32});
    CHECK(matrix.num_bytes() == 4 * 64 * 19 * (kind == "half " ? 2 : 4));
    const Floats1d expected = stacked(source, specs);
    Floats1d rows(expected.size());
    for (std::int64_t row = 0; row < 201; ++row) matrix.row(row, rows.data() + row * 19);
    CHECK(first_difference(rows, expected) == -1);
    CHECK_THROWS_AS(matrix.row(201, rows.data()), InvariantError);
  }
  const PackedMatrix mixed(source, {spec("half a", 8, 4), spec("full", 8, 4)}, pool);
  CHECK(mixed.part_types() == Types{TensorType::BFloat16, TensorType::Float32});
}

TEST_CASE("a product has one result on any number of threads", "[packed_matrix]") {
  const FakeWeights source;
  for (const std::string name : {"half", "full"}) {
    for (const std::int64_t num_outputs : {5, 64, 192, 201}) {
      const std::int64_t num_inputs = 300;
      const std::vector<WeightSpec> specs = {spec(name, num_outputs, num_inputs)};
      const Floats1d weights = stacked(source, specs);
      const std::int64_t x_stride = num_inputs + 2;
      Rng rng(10, "inputs");
      const Floats1d x = random_floats(rng, 130 * x_stride);
      for (const std::int64_t num_rows : {1, 2, 7, 24, 25, 130}) {
        Floats1d expected(static_cast<std::size_t>(num_rows * (num_outputs + 1)), -1.0f);
        for (std::int64_t m = 0; m < num_rows; ++m) {
          for (std::int64_t j = 0; j < num_outputs; ++j) {
            expected[static_cast<std::size_t>(m * (num_outputs + 1) + j)] = reference_product(
                x.data() + m * x_stride, weights.data() + j * num_inputs, num_inputs);
          }
        }
        for (const int num_threads : {1, 2, 3, 7}) {
          ThreadPool pool(num_threads);
          const PackedMatrix matrix(source, specs, pool);
          Floats1d out(expected.size(), -1.0f);
          matrix.multiply(x.data(), x_stride, num_rows, out.data(), num_outputs + 1, pool);
          INFO(name << " outputs " << num_outputs << " rows " << num_rows << " threads "
                    << num_threads);
          REQUIRE(first_difference(out, expected) == -1);
        }
      }
    }
  }
}

TEST_CASE("what cannot be packed is an error", "[packed_matrix]") {
  const FakeWeights source;
  ThreadPool pool(2);
  CHECK_THROWS_AS(PackedMatrix(source, {spec("half", 200, 8), spec("bad", 200, 8)}, pool),
                  ConfigError);
  CHECK_THROWS_AS(PackedMatrix(source, {spec("a", 8, 8), spec("b", 8, 9)}, pool), InvariantError);
  CHECK_THROWS_AS(PackedMatrix(source, {}, pool), InvariantError);
  CHECK(PackedMatrix().num_bytes() == 0);
}

}  // namespace TEST_FILE
