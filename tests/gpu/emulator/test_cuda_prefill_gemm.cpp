// SPDX-License-Identifier: Apache-2.0
// The work that linear layers of prompts do before the kernels in front of them have ended, under
// which schedules, and the shapes that they refuse.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/catch.h"
#include "tests/gpu/emulator/device_values.h"
#include "tests/gpu/gpu_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

bool is_nan(const DeviceArray<bf16>& array) {
  return std::all_of(array.data(), array.data() + array.size(),
                     [](bf16 value) { return std::isnan(to_double(value)); });
}

// Only kernels, and the hook in one, may touch device memory itself.
void write(const DeviceArray<bf16>& array, const Bf16s& content) {
  std::memcpy(static_cast<void*>(array.data()), content.data(), content.size() * sizeof(bf16));
}

struct Case {
  GemmEpilogue epilogue;
  std::int32_t m;  // tokens
  std::int32_t n;
  std::int32_t k;
  PrefillGemmTile tile;
  std::int32_t num_ctas;
};

std::int64_t num_weights(const Case& c) {
  return std::int64_t{c.epilogue == GemmEpilogue::Add ? 1 : 2} * c.n * c.k;
}

PrefillGemmArgs args_of(const Case& c, const DeviceArray<bf16>& w, const DeviceArray<bf16>& x,
                        const DeviceArray<bf16>& y) {
  return {.w = w.data(),
          .x = x.data(),
          .epilogue = c.epilogue,
          .y = y.data(),
          .num_tokens = c.m,
          .n = c.n,
          .k = c.k,
          .tile = c.tile,
          .num_ctas = c.num_ctas};
}

// More steps than stages, several tiles for each CTA, sums of gates and sums that are added.
const std::vector<Case> kCases = {{GemmEpilogue::Add, 300, 136, 712, {64, 2}, 4},
                                  {GemmEpilogue::Silu, 300, 136, 712, {64, 1}, 3},
                                  {GemmEpilogue::Gelu, 300, 136, 456, {160, 2}, 2},
                                  {GemmEpilogue::Add, 300, 136, 392, {256, 2}, 2},
                                  {GemmEpilogue::Silu, 300, 136, 72, {144, 1}, 1},
                                  {GemmEpilogue::Add, 300, 136, 712, {96, 2, 64}, 6},
                                  {GemmEpilogue::Gelu, 300, 136, 328, {256, 1, 64}, 2}};

// As the emulator's tensor cores add: one product after the other.
Bf16s added_in_order(const Case& c, const Bf16s& w, const Bf16s& x, const Bf16s& before) {
  const auto value = [](const Bf16s& values, std::int32_t i) {
    return float_of_bf16(bits_of(values[static_cast<std::size_t>(i)]));
  };
  Bf16s result;
  for (std::int32_t token = 0; token < c.m; ++token) {
    for (std::int32_t output = 0; output < c.n; ++output) {
      float sum = 0;
      for (std::int32_t i = 0; i < c.k; ++i) {
        sum += value(x, token * c.k + i) * value(w, output * c.k + i);
      }
      sum += value(before, token * c.n + output);
      result.push_back(bf16_of_bits(bf16_of_float(sum)));
    }
  }
  return result;
}

// Inputs, and what is added to, come to be with the first thread that waits.
void check_early_launch(std::uint64_t seed, const Case& c) {
  emulator::set_seed(seed);
  Rng rng(seed, "prefill_gemm");
  const Bf16s inputs = random_bf16(rng, c.m * c.k);
  const Bf16s before = random_bf16(rng, c.m * c.n);
  const DeviceArray<bf16> w = on_device(random_bf16(rng, num_weights(c)));
  const DeviceArray<bf16> x = on_device(Bf16s(inputs.size(), bf16_nan()));
  const DeviceArray<bf16> y = on_device(Bf16s(before.size(), bf16_nan()));
  bool has_arrived = false;
  bool was_untouched = false;
  emulator::set_join_hook([&] {
    if (has_arrived) return;
    has_arrived = true;
    was_untouched = is_nan(y);
    write(x, inputs);
    write(y, before);
  });
  {
    const EarlyLaunches early(true);
    launch_prefill_gemm(args_of(c, w, x, y), nullptr);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  CAPTURE(seed, c.k, c.tile.rows, c.tile.columns, c.tile.cluster);
  CHECK(has_arrived);
  CHECK(was_untouched);
  const Bf16s result = y.download();

  emulator::set_join_hook(nullptr);
  const DeviceArray<bf16> other_y = on_device(before);
  launch_prefill_gemm(args_of(c, w, x, other_y), nullptr);
  CHECK(first_difference(other_y.download(), result) == -1);
  CHECK(std::none_of(result.begin(), result.end(),
                     [](bf16 value) { return std::isnan(to_double(value)); }));
}

}  // namespace

TEST_CASE("a product of prompts touches nothing but weights before it has waited") {
  const FreshEmulator fresh;
  for (std::uint64_t seed = 0; seed < 2 * kCases.size(); ++seed) {
    check_early_launch(seed, kCases[seed % kCases.size()]);
  }
  // One that asks for inputs too early is found out where the thread that does comes before all
  // others, which it seldom does.
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    check_early_launch(seed, {GemmEpilogue::Add, 8, 8, 64, {64, 1}, 1});
  }
}

// A stage that is given back too early is overwritten under some schedule.
TEST_CASE("a product of prompts is of sums over k in order, under every schedule") {
  const FreshEmulator fresh;
  for (const Case& c : kCases) {
    Rng rng(1, "prefill_gemm schedules");
    const Bf16s weights = random_bf16(rng, num_weights(c));
    const Bf16s inputs = random_bf16(rng, c.m * c.k);
    const Bf16s before = random_bf16(rng, c.m * c.n);
    const DeviceArray<bf16> w = on_device(weights);
    const DeviceArray<bf16> x = on_device(inputs);
    Bf16s first;
    if (c.epilogue == GemmEpilogue::Add) first = added_in_order(c, weights, inputs, before);
    for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
      emulator::set_seed(seed);
      const DeviceArray<bf16> y = on_device(before);
      launch_prefill_gemm(args_of(c, w, x, y), nullptr);
      const Bf16s result = y.download();
      if (first.empty()) first = result;
      CAPTURE(seed, c.k, c.tile.rows, c.tile.columns, c.tile.cluster);
      CHECK(first_difference(result, first) == -1);
    }
  }
}

TEST_CASE("a product of prompts has a CTA for each tile, but no more than it may have") {
  const FreshEmulator fresh;
  const auto num_ctas = [](std::int32_t num_tokens, const PrefillGemmTile& tile,
                           std::int32_t at_most) {
    const Case c = {GemmEpilogue::Silu, num_tokens, 72, 64, tile, at_most};
    const DeviceArray<bf16> w = on_device(Bf16s(2 * 72 * 64, to_bf16(0)));
    const DeviceArray<bf16> x = on_device(Bf16s(static_cast<std::size_t>(c.m * c.k), to_bf16(0)));
    const DeviceArray<bf16> y(static_cast<std::size_t>(c.m * c.n));
    std::set<unsigned> ctas;
    emulator::set_join_hook([&] { ctas.insert(blockIdx.x); });
    launch_prefill_gemm(args_of(c, w, x, y), nullptr);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return ctas.size();
  };
  // 72 outputs are three tiles of 32 gates and 32 ups, 300 tokens three of 128 or five of 64.
  CHECK(num_ctas(300, {64, 1}, 1) == 1);
  CHECK(num_ctas(300, {64, 1}, 8) == 8);
  CHECK(num_ctas(300, {64, 1}, 1000) == 9);
  CHECK(num_ctas(300, {64, 2}, 2) == 2);
  CHECK(num_ctas(300, {64, 2}, 7) == 6);
  CHECK(num_ctas(300, {64, 2}, 1000) == 12);
  CHECK(num_ctas(300, {64, 1, 64}, 1000) == 15);
  CHECK(num_ctas(300, {64, 2, 64}, 1000) == 18);
  CHECK(num_ctas(300, {144, 1, 64}, 1000) == 5);
}

TEST_CASE("a product of prompts that there is no code for is refused") {
  const FreshEmulator fresh;
  const DeviceArray<bf16> memory = on_device(Bf16s(128 * 128, to_bf16(0)));
  const PrefillGemmArgs good = {.w = memory.data(),
                                .x = memory.data(),
                                .y = memory.data(),
                                .num_tokens = 8,
                                .n = 64,
                                .k = 64,
                                .tile = {64, 2},
                                .num_ctas = 2};
  const auto is_refused = [&](auto&& change) {
    PrefillGemmArgs args = good;
    change(args);
    try {
      launch_prefill_gemm(args, nullptr);
    } catch (const InvariantError&) {
      return true;
    }
    return false;
  };
  CHECK(is_refused([](PrefillGemmArgs& args) { args.epilogue = GemmEpilogue::StoreFloat; }));
  for (const std::int32_t n : {1, 60, 68}) {
    CHECK(is_refused([&](PrefillGemmArgs& args) { args.n = n; }));
  }
  for (const std::int32_t k : {0, 4, 60, 68}) {
    CHECK(is_refused([&](PrefillGemmArgs& args) { args.k = k; }));
  }
  for (const std::int32_t columns : {0, 8, 16, 72, 112, 224, 512}) {
    CHECK(is_refused([&](PrefillGemmArgs& args) { args.tile.columns = columns; }));
  }
  for (const std::int32_t rows : {0, 32, 96, 256}) {
    CHECK(is_refused([&](PrefillGemmArgs& args) { args.tile.rows = rows; }));
  }
  for (const std::int32_t cluster : {0, 3, 4}) {
    CHECK(is_refused([&](PrefillGemmArgs& args) {
      args.tile.cluster = cluster;
      args.num_ctas = 8;
    }));
  }
  CHECK(is_refused([](PrefillGemmArgs& args) { args.num_ctas = 1; }));
  CHECK(is_refused([](PrefillGemmArgs& args) {
    args.tile.cluster = 1;
    args.num_ctas = 0;
  }));
  CHECK(emulator::num_launches() == 0);
  CHECK_FALSE(is_refused([](PrefillGemmArgs&) {}));
  CHECK(emulator::num_launches() == 1);
  CHECK_FALSE(is_refused([](PrefillGemmArgs& args) { args.num_tokens = 0; }));
  CHECK(emulator::num_launches() == 1);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

TEST_CASE("prompts, and all passes that depend on no batch, have their layers' products by wgmma") {
  const FreshEmulator fresh;
  constexpr int kDecodes = 4;  // the prompt's pass gives a token, too
  // An engine runs each kernel once, gated and not, when it is made.
  constexpr std::size_t kWarmUp = 2 * kPrefillGemmRows.size() * kPrefillGemmColumns.size();
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    for (const Invariance invariance : {Invariance::None, Invariance::Chunk, Invariance::Full}) {
      const auto num_launches = [&](bool is_by_wgmma) {
        const std::int64_t before = emulator::num_launches();
        lab.run(
            {.policy = "continuous"}, {{lab.ids(1, 5), kDecodes + 1}},
            {.invariance = invariance, .uses_graphs = false, .multiplies_by_wgmma = is_by_wgmma});
        return emulator::num_launches() - before;
      };
      // Four more a layer, as cuBLASLt's are not counted, and no activation.
      const std::int64_t num_passes = invariance == Invariance::Full ? 1 + kDecodes : 1;
      CAPTURE(lab.model().name, static_cast<int>(invariance));
      CHECK(num_launches(true) - num_launches(false) ==
            static_cast<std::int64_t>(kWarmUp) + 3 * lab.model().n_layers * num_passes);
    }
  }
}

}  // namespace TEST_FILE
