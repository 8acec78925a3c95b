// SPDX-License-Identifier: Apache-2.0
// The use that gpu/engine/gemm makes of proposals that the emulated cuBLASLt can be told to make.
#include <algorithm>
#include <initializer_list>
#include <regex>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "gpu/emulator/emulated_gemm.h"
#include "gpu/engine/device_memory.h"
#include "gpu/engine/gemm.h"
#include "gpu/engine/gemm_tuning.h"
#include "gpu/kernels/cuda_check.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::emulator;
using namespace metronome::testing;

namespace {

constexpr std::int64_t kWorkspaceBytes = std::int64_t{1} << 20;
constexpr GemmShape kShape{64, 256, false, false};

class Algorithms {
 public:
  explicit Algorithms(std::uint32_t bits) { set_gemm_algorithms(bits); }
  ~Algorithms() { set_gemm_algorithms(kAllGemmAlgorithms); }
};

// The names of the invariant choices for up to 200 rows, fewest rows first.
std::vector<std::string> invariant_names(GemmStore& store) {
  Gemm(store, kWorkspaceBytes).prepare(kShape, 200);
  std::vector<std::string> names;
  for (const auto& [key, choice] : store.choices()) {
    if (key.is_invariant) names.push_back(choice.name);
  }
  return names;
}

std::string prepare_error(std::uint32_t bits) {
  const Algorithms only(bits);
  return error_of<CudaError>([] {
    GemmStore store("test");
    Gemm(store, kWorkspaceBytes).prepare(kShape, 200);
  });
}

}  // namespace

TEST_CASE("invariant sums run over k in one piece, in kernels that agree", "[gemm]") {
  GemmStore store("test");
  const std::vector<std::string> names = invariant_names(store);
  REQUIRE(names.size() == 8);
  for (const std::string& name : names) {
    CAPTURE(name);
    // Not tile 13, which has the right id and one split, but other bits.
    const bool is_in_order = contains(name, "algo 66, tile 15, stages 0, split-k 1") ||
                             contains(name, "algo 66, tile 20, stages 0, split-k 1");
    CHECK(is_in_order);
  }
}

TEST_CASE("where Hopper's kernels are missing, another family serves all rows", "[gemm]") {
  const Algorithms only(kAllGemmAlgorithms & ~(kSliced | kSmallTile | kLargeTile));
  GemmStore store("test");
  const std::vector<std::string> names = invariant_names(store);
  REQUIRE(names.size() == 8);
  for (const std::string& name : names) CHECK(contains(name, "algo 24"));
}

TEST_CASE("kernels that disagree for some rows are not mixed", "[gemm]") {
  // Up to 64 rows: sliced; up to 112: the small tile. Of another id: all.
  const Algorithms only(kSplitInFloat | kInterleaved | kSliced | kSmallTile);
  GemmStore store("test");
  for (const std::string& name : invariant_names(store)) CHECK(contains(name, "algo 24"));
}

// The error of prepare() in mode Invariant, with these algorithms only.
std::string invariant_fault(std::uint32_t algorithms, std::int64_t max_rows) {
  const Algorithms only(algorithms);
  GemmStore store("test");
  Gemm gemm(store, kWorkspaceBytes);
  gemm.prepare(kShape, max_rows);
  for (const auto& [key, choice] : store.choices()) CHECK_FALSE(key.is_invariant);
  return gemm.invariant_fault();
}

TEST_CASE("an order that some row count has no kernel for is a fault", "[gemm]") {
  const std::string fault = invariant_fault(kSplitInFloat | kSliced | kSmallTile, 200);
  CAPTURE(fault);
  CHECK(contains(fault, "no algorithm that sums in the same order"));
  CHECK(contains(fault, "id 66"));
  CHECK(contains(fault, " rows, n 64, k 256"));
  CHECK(contains(invariant_fault(kSplitInFloat, 200), "no algorithm that sums in the same order"));
}

// The description of kShape for up to 200 rows, with the algorithms of the store.
std::string description(GemmStore& store) {
  Gemm gemm(store, kWorkspaceBytes);
  gemm.prepare(kShape, 200);
  return gemm.describe_invariant({});
}

// In order: of the fewest rows of every bucket, the most, and the last sixteen of those.
std::vector<std::string> chosen_digests(const std::string& text) {
  std::vector<std::string> digests;
  const std::regex line(
      "      digest (\\w+) for \\d+ rows, (\\w+) for \\d+, (\\w+) of their last 16\n");
  for (std::sregex_iterator found(text.begin(), text.end(), line), end; found != end; ++found) {
    for (std::size_t group = 1; group <= 3; ++group) digests.push_back((*found)[group]);
  }
  return digests;
}

TEST_CASE("a fault is described by the algorithms that give the same bits", "[gemm]") {
  const Algorithms only(kSplitInFloat | kSliced | kSmallTile);
  GemmStore store("test");
  const std::string text = description(store);
  CAPTURE(text);
  CHECK(text.starts_with(
      "n 64, k 256, bfloat16 out\n  cuBLASLt has no algorithm that sums in the same order"));
  const std::regex small_tile("  (algo 66, digest \\w{16}), serves rows 16 32 48 64 96\n");
  const std::regex sliced("  (algo 66, digest \\w{16}), serves rows 16 32 48 64\n");
  std::smatch of_small_tile;
  std::smatch of_sliced;
  REQUIRE(std::regex_search(text, of_small_tile, small_tile));
  REQUIRE(std::regex_search(text, of_sliced, sliced));
  CHECK(of_small_tile[1] != of_sliced[1]);
  CHECK(contains(text, "  96 rows:\n    1 of " + of_small_tile[1].str() +
                           "\n  128 rows:\n  192 rows:\n  256 rows:\n"));
  CHECK_FALSE(contains(text, "chosen"));
}

TEST_CASE("chosen algorithms are described by their bits, stored ones too", "[gemm]") {
  GemmStore store("test");
  const std::string text = description(store);
  const std::vector<std::string> digests = chosen_digests(text);
  CAPTURE(text);
  REQUIRE(digests.size() == 8 * 3);
  for (const std::string& digest : digests) CHECK(digest == digests.front());
  CHECK(contains(
      text, "  algo 66, digest " + digests.front() + ", serves rows 16 32 48 64 96 128 192 256\n"));
  CHECK(contains(text, "    2 of algo 66, digest " + digests.front() + "\n"));
  CHECK(contains(text, "    chosen: algo 66, tile "));
  CHECK(description(store) == text);

  const Algorithms with_uneven(kAllGemmAlgorithms | kUneven);
  const GemmStore in_order = store;
  for (auto [key, choice] : in_order.choices()) {
    choice.algorithm = gemm_algorithm_words(kUneven);
    if (key.is_invariant) store.put(key, choice);
  }
  const std::vector<std::string> uneven = chosen_digests(description(store));
  REQUIRE(uneven.size() == 8 * 3);
  for (std::size_t i = 0; i < uneven.size(); ++i) {
    CAPTURE(i);
    const bool is_behind_the_first_rows = i > 2 && i % 3 == 2;
    CHECK((uneven[i] == digests.front()) == !is_behind_the_first_rows);
  }
}

TEST_CASE("a shape that nothing computes is an error", "[gemm]") {
  CHECK(contains(prepare_error(kThin), "no algorithm for a product of 32 rows, n 64, k 256"));
  // Parts that are rounded before they are added do not count.
  CHECK(contains(prepare_error(kSplitInOutputType), "no algorithm for a product of 16 rows"));
}

TEST_CASE("stored choices of several families are chosen anew", "[gemm]") {
  GemmStore store("test");
  {
    const Algorithms only(kInterleaved);
    invariant_names(store);
  }
  GemmStore hopper("test");
  invariant_names(hopper);
  const GemmKey key{64, 256, 64, false, false, true};
  REQUIRE(contains(hopper.find(key)->name, "algo 66"));
  store.put(key, *hopper.find(key));
  const GemmKey larger{64, 256, 1024, false, false, true};  // of the family that is left
  store.put(larger, *store.find({64, 256, 128, false, false, true}));
  for (const std::string& name : invariant_names(store)) CHECK(contains(name, "algo 66"));
  CHECK(store.find(larger) == nullptr);
}

TEST_CASE("stored algorithms that the mode does not allow are replaced", "[gemm]") {
  GemmStore good("test");
  invariant_names(good);
  for (const GemmAlgorithmBit bit : {kSplitInOutputType, kSplitInFloat, kThin, kInterleaved}) {
    GemmStore store = good;
    const GemmKey key{64, 256, 16, false, false, true};
    GemmChoice wrong = *store.find(key);
    wrong.algorithm = gemm_algorithm_words(bit);
    store.put(key, wrong);
    invariant_names(store);
    CAPTURE(static_cast<std::uint32_t>(bit));
    CHECK(contains(store.find(key)->name, "algo 66"));
    CHECK(store.find(key)->algorithm != wrong.algorithm);
  }
  GemmStore store = good;
  const GemmKey key{64, 256, 16, false, false, false};
  GemmChoice wrong = *store.find(key);
  wrong.algorithm = gemm_algorithm_words(kSplitInOutputType);
  store.put(key, wrong);
  invariant_names(store);
  CHECK(store.find(key)->algorithm != wrong.algorithm);
}

TEST_CASE("stored algorithms that cannot run for some rows of a bucket are replaced", "[gemm]") {
  GemmStore good("test");
  invariant_names(good);
  // The small tile is for up to 112 rows: for none of the larger bucket, for the fewest of the
  // other.
  for (const std::int64_t rows : {192, 128}) {
    GemmStore store = good;
    const GemmKey key{64, 256, rows, false, false, true};
    GemmChoice wrong = *store.find(key);
    wrong.algorithm = gemm_algorithm_words(kSmallTile);
    store.put(key, wrong);
    invariant_names(store);
    CHECK(store.find(key)->algorithm == gemm_algorithm_words(kLargeTile));
  }
}

TEST_CASE("a stored algorithm that needs more workspace than there is is replaced", "[gemm]") {
  GemmStore store("test");
  invariant_names(store);
  const GemmKey key{64, 256, 128, false, false, false};
  GemmChoice split = *store.find(key);
  split.algorithm = gemm_algorithm_words(kSplitInFloat);
  store.put(key, split);
  {
    GemmStore same = store;
    Gemm(same, kWorkspaceBytes).prepare(kShape, 200);
    CHECK(same.find(key)->algorithm == split.algorithm);
  }
  Gemm(store, 0).prepare(kShape, 200);
  CHECK(store.find(key)->algorithm != split.algorithm);
}

TEST_CASE("kernels for thin matrices are no invariant ones", "[gemm]") {
  CHECK(contains(invariant_fault(kThin | kSplitInFloat, 16),
                 "no algorithm that sums in the same order"));
}

TEST_CASE("Hopper's kernels are asked for where they are not proposed", "[gemm]") {
  const Algorithms only(kAllGemmAlgorithms & ~kSliced);
  GemmStore store("test");
  Gemm(store, kWorkspaceBytes).prepare(kShape, 16);
  const GemmKey key{64, 256, 16, false, false, true};
  REQUIRE(store.find(key) != nullptr);
  CHECK(contains(store.find(key)->name, "algo 66"));
}

TEST_CASE("a product takes the choice of the smallest bucket it fits into", "[gemm]") {
  constexpr GemmShape kFloats{8, 256, false, true};
  constexpr std::int64_t kMaxRows = 48;
  std::vector<__nv_bfloat16> numbers(static_cast<std::size_t>(kMaxRows * kFloats.k));
  Rng rng(1, "buckets");
  for (__nv_bfloat16& number : numbers) {
    number = __float2bfloat16_rn(static_cast<float>(rng.uniform()));
  }
  DeviceArray<__nv_bfloat16> x(numbers.size());
  x.upload(numbers);
  const DeviceArray<float> y(static_cast<std::size_t>(kMaxRows * kFloats.n));
  // The first row of m rows, with the even products summed apart where is_interleaved says so.
  const auto first_row = [&](std::int64_t m, std::initializer_list<std::int64_t> interleaved) {
    GemmStore store("test");
    Gemm(store, 0).prepare(kFloats, kMaxRows);
    for (const std::int64_t rows : {16, 32, 48}) {
      const bool is_interleaved =
          std::find(interleaved.begin(), interleaved.end(), rows) != interleaved.end();
      GemmChoice choice;
      choice.algorithm = gemm_algorithm_words(is_interleaved ? kInterleaved : kLargeTile);
      store.put({kFloats.n, kFloats.k, rows, false, true, false}, choice);
    }
    Gemm gemm(store, 0);
    gemm.prepare(kFloats, kMaxRows);
    gemm.run(kFloats, GemmMode::Fastest, m, x.data(), x.data(), y.data(), nullptr);
    std::vector<float> row = y.download();
    row.resize(static_cast<std::size_t>(kFloats.n));
    return row;
  };
  const std::vector<float> plain = first_row(16, {});
  const std::vector<float> interleaved = first_row(16, {16});
  REQUIRE(plain != interleaved);
  for (const std::int64_t m : {1, 16, 17, 31, 32, 33, 48}) {
    CAPTURE(m);
    const bool is_in_bucket = m > 16 && m <= 32;
    CHECK(first_row(m, {32}) == (is_in_bucket ? interleaved : plain));
  }
}

TEST_CASE("the fastest algorithm of one row count need not serve any other", "[gemm]") {
  const GemmLibrary library(kWorkspaceBytes);
  GemmProblem problem(kShape, 256);
  const Algorithms only(kSmallTile | kSplitInFloat);
  const std::string of_96 = fastest_gemm(library, problem, 96).name;
  const bool is_available = contains(of_96, "algo 66, tile 15, stages 0, split-k 1") ||
                            contains(of_96, "algo 66, tile 18, stages 0, split-k 4");
  CHECK(is_available);
  set_gemm_algorithms(kSmallTile);
  CHECK(contains(fastest_gemm(library, problem, 96).name, "tile 15"));
  CHECK(contains(error_of<CudaError>([&] { fastest_gemm(library, problem, 128); }),
                 "cuBLASLt has no algorithm for a product of 128 rows, n 64, k 256"));
}

TEST_CASE("an algorithm that needs more workspace than there is is not taken", "[gemm]") {
  const Algorithms only(kSplitInFloat | kInterleaved);
  GemmStore store("test");
  Gemm(store, 0).prepare(kShape, 200);
  for (const auto& [key, choice] : store.choices()) CHECK(contains(choice.name, "algo 24"));
}

// Not a test for hardware: what the library makes of words that are no algorithm, its manual does
// not say.
TEST_CASE("stored algorithms that are none are replaced", "[gemm]") {
  GemmStore good("test");
  invariant_names(good);
  for (const bool is_invariant : {false, true}) {
    const GemmKey key{64, 256, 64, false, false, is_invariant};
    REQUIRE(good.find(key) != nullptr);
    GemmStore store("test");
    for (const auto& [other, choice] : good.choices()) store.put(other, choice);
    GemmChoice broken = *good.find(key);
    broken.algorithm.fill(0xdeadbeefdeadbeef);
    store.put(key, broken);
    const std::vector<std::string> names = invariant_names(store);
    REQUIRE(store.find(key) != nullptr);
    CHECK(store.find(key)->algorithm != broken.algorithm);
    CHECK(names.size() == 8);
  }
}

}  // namespace TEST_FILE
