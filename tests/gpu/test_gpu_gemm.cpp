// SPDX-License-Identifier: Apache-2.0
// Matrix products on the GPU against sums in double precision, and what the two modes promise.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "gpu/engine/gemm.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/gpu/gpu_test.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr std::int64_t kWorkspaceBytes = std::int64_t{4} << 20;
constexpr GemmMode kBothModes[] = {GemmMode::Fastest, GemmMode::Invariant};

std::int64_t padded(std::int64_t m) { return (m + kGemmRows - 1) / kGemmRows * kGemmRows; }

struct Product {
  GemmShape shape;
  std::int64_t m = 0;
  Bf16s w;
  Bf16s x;                // [m][k]
  std::vector<double> y;  // [m][n] before the product: values of y's type
};

Product random_product(Rng& rng, const GemmShape& shape, std::int64_t m) {
  Product product{shape, m, {}, {}, {}};
  product.w = random_bf16(rng, shape.n * shape.k);
  product.x = random_bf16(rng, m * shape.k);
  for (const bf16 value : random_bf16(rng, m * shape.n, 8.0)) {
    product.y.push_back(to_double(value));
  }
  return product;
}

// Memory for y in the type of the shape; all rows there are computed, those of padding from NaNs.
class Output {
 public:
  Output(const Product& product) : product_(product) {
    const auto size = static_cast<std::size_t>(padded(product.m) * product.shape.n);
    if (product.shape.has_float_output) {
      std::vector<float> values(size, 0.0f);
      std::transform(product.y.begin(), product.y.end(), values.begin(),
                     [](double value) { return static_cast<float>(value); });
      floats_ = on_device(values);
    } else {
      Bf16s values(size, to_bf16(0));
      std::transform(product.y.begin(), product.y.end(), values.begin(),
                     [](double value) { return to_bf16(value); });
      bf16s_ = on_device(values);
    }
  }

  void* data() const {
    if (product_.shape.has_float_output) return floats_.data();
    return bf16s_.data();
  }

  // The m rows that were asked for.
  std::vector<double> download() const {
    std::vector<double> values;
    if (product_.shape.has_float_output) {
      for (const float value : floats_.download()) values.push_back(static_cast<double>(value));
    } else {
      for (const bf16 value : bf16s_.download()) values.push_back(to_double(value));
    }
    values.resize(product_.y.size());
    return values;
  }

 private:
  const Product& product_;
  DeviceArray<float> floats_;
  DeviceArray<bf16> bf16s_;
};

// x with the rows of padding, which must not matter.
Bf16s padded_input(const Product& product) {
  Bf16s x = product.x;
  x.resize(static_cast<std::size_t>(padded(product.m) * product.shape.k), bf16_nan());
  return x;
}

std::vector<double> run(const Gemm& gemm, GemmMode mode, const Product& product) {
  const DeviceArray<bf16> w = on_device(product.w);
  const DeviceArray<bf16> x = on_device(padded_input(product));
  const Output y(product);
  const Stream stream = make_stream();
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  gemm.run(product.shape, mode, product.m, w.data(), x.data(), y.data(), stream.get());
  check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return y.download();
}

// The first output that no order of float additions and one rounding can give, or -1.
std::int64_t first_wrong(const Product& product, const std::vector<double>& actual) {
  const GemmShape& shape = product.shape;
  for (std::int64_t i = 0; i < product.m * shape.n; ++i) {
    const std::int64_t row = i / shape.n;
    const std::int64_t column = i % shape.n;
    double sum = 0;
    double magnitudes = 0;
    for (std::int64_t j = 0; j < shape.k; ++j) {
      const double term = to_double(product.x[static_cast<std::size_t>(row * shape.k + j)]) *
                          to_double(product.w[static_cast<std::size_t>(column * shape.k + j)]);
      sum += term;
      magnitudes += std::abs(term);
    }
    const double before = product.y[static_cast<std::size_t>(i)];
    if (shape.adds_output) sum += before;
    // Additions of the tensor cores may drop bits instead of rounding them.
    const double error = (magnitudes + std::abs(before)) * 0x1p-23 * static_cast<double>(shape.k);
    Range expected = widened(exactly(sum), error);
    if (!shape.has_float_output) expected = rounded_to_bf16(expected);
    const double value = actual[static_cast<std::size_t>(i)];
    if (!(expected.low <= value && value <= expected.high)) return i;
  }
  return -1;
}

// For the same bits: NaNs are none of the results here.
std::vector<double> rows_of(const Product& product, const std::vector<double>& y,
                            std::int64_t first, std::int64_t count) {
  const auto begin = y.begin() + first * product.shape.n;
  return {begin, begin + count * product.shape.n};
}

Product part_of(const Product& product, std::int64_t first, std::int64_t count) {
  Product part = product;
  part.m = count;
  part.x.assign(product.x.begin() + first * product.shape.k,
                product.x.begin() + (first + count) * product.shape.k);
  part.y = rows_of(product, product.y, first, count);
  return part;
}

const GemmShape kShapes[] = {
    {96, 64, false, false}, {64, 256, true, false}, {200, 128, false, true}, {40, 72, true, true}};

}  // namespace

TEST_CASE("products are those of double precision, rounded once", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  Rng rng(1, "gemm");
  for (const GemmShape& shape : kShapes) {
    gemm.prepare(shape, 130);
    for (const std::int64_t m : {1, 7, 16, 17, 48, 63, 130}) {
      const Product product = random_product(rng, shape, m);
      for (const GemmMode mode : kBothModes) {
        CAPTURE(shape.n, shape.k, shape.adds_output, shape.has_float_output, m,
                static_cast<int>(mode));
        CHECK(first_wrong(product, run(gemm, mode, product)) == -1);
      }
    }
  }
}

TEST_CASE("products of shapes that fit no tile", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  const std::uint64_t seed = 2;
  CAPTURE(seed);
  Rng rng(seed, "gemm");
  for (int i = 0; i < 8; ++i) {
    GemmShape shape;
    shape.n = 8 * draw(rng, 1, 20);
    shape.k = 8 * draw(rng, 1, 30);
    shape.adds_output = chance(rng, 0.5);
    shape.has_float_output = chance(rng, 0.5);
    const std::int64_t m = draw(rng, 1, 100);
    gemm.prepare(shape, m);
    const Product product = random_product(rng, shape, m);
    CAPTURE(shape.n, shape.k, shape.adds_output, shape.has_float_output, m);
    for (const GemmMode mode : kBothModes) {
      CHECK(first_wrong(product, run(gemm, mode, product)) == -1);
    }
  }
}

TEST_CASE("a product of no rows does nothing", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  const GemmShape shape{16, 16, false, false};
  gemm.prepare(shape, 16);
  gemm.run(shape, GemmMode::Fastest, 0, nullptr, nullptr, nullptr, nullptr);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  SUCCEED();
}

TEST_CASE("an invariant row is the same in every batch", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  Rng rng(3, "gemm");
  constexpr std::int64_t kAllRows = 300;
  for (const GemmShape& shape :
       {GemmShape{64, 512, false, true}, GemmShape{64, 512, true, true},
        GemmShape{128, 320, false, false}, GemmShape{128, 320, true, false}}) {
    gemm.prepare(shape, kAllRows);
    const Product all = random_product(rng, shape, kAllRows);
    const std::vector<double> expected = run(gemm, GemmMode::Invariant, all);
    for (const std::int64_t m : {1, 5, 16, 17, 30, 40, 64, 100, 128, 150, 257}) {
      for (const std::int64_t first : {std::int64_t{0}, kAllRows - m}) {
        const Product part = part_of(all, first, m);
        CAPTURE(shape.n, shape.k, shape.adds_output, shape.has_float_output, m, first);
        CHECK(run(gemm, GemmMode::Invariant, part) == rows_of(all, expected, first, m));
      }
    }
  }
}

TEST_CASE("choices are of one family and one accumulator where that is promised", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  for (const GemmShape& shape : kShapes) gemm.prepare(shape, 200);
  std::map<GemmShape, std::string> family;  // "algo 66"
  std::map<bool, std::size_t> num_choices;
  for (const auto& [key, choice] : store.choices()) {
    CAPTURE(key.n, key.k, key.rows, key.is_invariant, choice.name);
    ++num_choices[key.is_invariant];
    CHECK(choice.microseconds > 0);
    const std::string algo = choice.name.substr(0, choice.name.find(','));
    // Parts of a split sum are added in float.
    CHECK(choice.name.find("reduction 1") == std::string::npos);
    CHECK(choice.name.find("reduction 4") == std::string::npos);
    if (!key.is_invariant) continue;
    const GemmShape shape{key.n, key.k, key.adds_output, key.has_float_output};
    CHECK(family.emplace(shape, algo).first->second == algo);
    for (const char* thin : {"algo 11", "algo 13", "algo 14", "algo 16"}) CHECK(algo != thin);
    const bool is_whole = choice.name.find("split-k 1") != std::string::npos ||
                          choice.name.find("split-k 0") != std::string::npos;
    CHECK(is_whole);
  }
  // 16, 32, 48, 64, 96, 128, 192, 256.
  CHECK(num_choices[false] == 8 * std::size(kShapes));
  CHECK(num_choices[true] == 8 * std::size(kShapes));
}

TEST_CASE("stored choices are taken as they are", "[gpu][gemm]") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/gemm.json";
  const std::string machine = gemm_machine_key(kWorkspaceBytes);
  const GemmShape shape{64, 128, true, false};
  GemmStore first(machine);
  Gemm(first, kWorkspaceBytes).prepare(shape, 100);
  CHECK(first.has_changed());
  first.write(path);

  GemmStore second(machine);
  second.read(path);
  CHECK(second.choices() == first.choices());
  Gemm gemm(second, kWorkspaceBytes);
  gemm.prepare(shape, 100);
  gemm.prepare(shape, 20);  // less than before
  CHECK_FALSE(second.has_changed());
  Rng rng(4, "gemm");
  const Product product = random_product(rng, shape, 100);
  for (const GemmMode mode : kBothModes) {
    CHECK(first_wrong(product, run(gemm, mode, product)) == -1);
  }

  gemm.prepare(shape, 200);  // more: 192 and 256 are not there
  CHECK(second.has_changed());
  const Product larger = random_product(rng, shape, 200);
  for (const GemmMode mode : kBothModes) {
    CHECK(first_wrong(larger, run(gemm, mode, larger)) == -1);
  }
}

TEST_CASE("a captured product is that of its inputs at each launch", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  Rng rng(6, "gemm");
  const GemmShape shape{96, 160, true, false};
  gemm.prepare(shape, 48);
  for (const GemmMode mode : kBothModes) {
    const Product product = random_product(rng, shape, 33);
    const Product other = random_product(rng, shape, 33);
    const std::vector<double> expected = run(gemm, mode, product);
    const std::vector<double> expected_other = run(gemm, mode, other);

    const DeviceArray<bf16> w = on_device(product.w);
    const DeviceArray<bf16> x = on_device(padded_input(product));
    const Output y(product);
    const Stream stream = make_stream();
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
    gemm.run(shape, mode, product.m, w.data(), x.data(), y.data(), stream.get());
    check_cuda(cudaStreamEndCapture(stream.get(), &graph), "capture");
    cudaGraphExec_t instantiated = nullptr;
    check_cuda(cudaGraphInstantiate(&instantiated, graph, 0), "cudaGraphInstantiate");
    const GraphExec exec(instantiated);
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");

    const auto launch = [&] {
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      check_cuda(cudaGraphLaunch(exec.get(), stream.get()), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
      return y.download();
    };
    CHECK(launch() == expected);
    w.upload(other.w);
    x.upload(padded_input(other));
    const Output fresh(other);
    check_cuda(
        cudaMemcpy(y.data(), fresh.data(), static_cast<std::size_t>(48 * shape.n) * sizeof(bf16),
                   cudaMemcpyDeviceToDevice),
        "cudaMemcpy");
    CHECK(launch() == expected_other);
  }
}

TEST_CASE("the machine's key tells workspaces apart", "[gpu][gemm]") {
  CHECK(gemm_machine_key(1) == gemm_machine_key(1));
  CHECK(gemm_machine_key(1) != gemm_machine_key(2));
  CHECK(gemm_machine_key(1).find("cuBLASLt") != std::string::npos);
}

TEST_CASE("products that were not prepared are refused", "[gpu][gemm]") {
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  const GemmShape shape{16, 16, false, false};
  const auto run_rows = [&](std::int64_t m) {
    gemm.run(shape, GemmMode::Fastest, m, nullptr, nullptr, nullptr, nullptr);
  };
  CHECK(error_of<InvariantError>([&] { run_rows(1); }).find("prepare") != std::string::npos);
  gemm.prepare(shape, 16);
  CHECK(error_of<InvariantError>([&] { run_rows(17); }).find("more rows") != std::string::npos);
}

}  // namespace TEST_FILE
