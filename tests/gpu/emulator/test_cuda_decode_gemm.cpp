// SPDX-License-Identifier: Apache-2.0
// The work that linear layers of decodes do before the kernels in front of them have ended, and the
// shared memory they take.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/gpu/emulator/device_values.h"
#include "tests/gpu/gpu_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr std::int32_t kTokens = 3;
constexpr std::int32_t kOutputs = 50;
constexpr std::int32_t kInputs = 264;

// Arrays that a kernel in front may still be writing, and what it writes. Only kernels, and the
// hook in one, may touch device memory itself.
struct Pending {
  DeviceArray<bf16> array;
  Bf16s content;

  explicit Pending(Bf16s values) : array(values.size()), content(std::move(values)) {
    array.upload(Bf16s(content.size(), bf16_nan()));
  }
  void arrive() const {
    std::memcpy(static_cast<void*>(array.data()), content.data(), content.size() * sizeof(bf16));
  }
};

bool is_nan(const bf16* values, std::size_t count) {
  return std::all_of(values, values + count,
                     [](bf16 value) { return std::isnan(to_double(value)); });
}
bool is_nan(const DeviceArray<bf16>& array) { return is_nan(array.data(), array.size()); }

}  // namespace

TEST_CASE("a product touches nothing but weights before it has waited") {
  const FreshEmulator fresh;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    emulator::set_seed(seed);
    Rng rng(seed, "decode_gemm");
    const DeviceArray<bf16> w = on_device(random_bf16(rng, kOutputs * kInputs));
    const DeviceArray<bf16> norm_weight = on_device(random_bf16(rng, kInputs));
    const DeviceArray<bf16> post_weight = on_device(random_bf16(rng, kInputs));
    const Pending x(random_bf16(rng, kTokens * kInputs));
    const Pending update(random_bf16(rng, kTokens * kInputs));
    const Pending y(random_bf16(rng, kTokens * kOutputs));
    const Pending updated(Bf16s(kTokens * kInputs, bf16_nan()));
    const DeviceArray<std::int32_t> rows = on_device(std::vector<std::int32_t>(kTokens, 1 << 30));
    DecodeGemmArgs args = {.w = w.data(),
                           .x = x.array.data(),
                           .rows = rows.data(),
                           .norm_weight = norm_weight.data(),
                           .update = update.array.data(),
                           .post_weight = post_weight.data(),
                           .updated = updated.array.data(),
                           .eps = 1e-5f,
                           .epilogue = GemmEpilogue::Add,
                           .y = y.array.data(),
                           .num_tokens = kTokens,
                           .n = kOutputs,
                           .k = kInputs,
                           .num_ctas = 3};
    bool has_arrived = false;
    bool was_untouched = false;
    emulator::set_join_hook([&] {
      if (has_arrived) return;
      has_arrived = true;
      was_untouched = is_nan(y.array) && is_nan(updated.array);
      for (const Pending* pending : {&x, &update, &y}) pending->arrive();
      for (std::int32_t i = 0; i < kTokens; ++i) rows.data()[i] = kTokens - 1 - i;
    });
    {
      const EarlyLaunches early(true);
      launch_decode_gemm(args, nullptr);
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    CHECK(has_arrived);
    CHECK(was_untouched);
    const Bf16s result = y.array.download();
    const Bf16s residual = updated.array.download();
    CHECK(!is_nan(residual.data(), residual.size()));

    emulator::set_join_hook(nullptr);
    const DeviceArray<bf16> other_y = on_device(y.content);
    args.y = other_y.data();
    launch_decode_gemm(args, nullptr);
    CHECK(first_difference(other_y.download(), result) == -1);
    CHECK(first_difference(updated.array.download(), residual) == -1);
  }
}

TEST_CASE("what a product takes follows from the device's shared memory") {
  const FreshEmulator fresh;
  const auto takes = [](std::int32_t num_tokens, std::int32_t k) {
    return decode_gemm_takes({.num_tokens = num_tokens, .n = 8, .k = k});
  };
  // Llama-3.2-3B's and Qwen3-4B's down products: 227 KB on a Hopper, 163 KB on an A100.
  CHECK(takes(10, 8192));
  CHECK_FALSE(takes(11, 8192));
  CHECK(takes(8, 9728));
  CHECK(takes(16, 3072));
  emulator::set_compute_capability(8, 0);
  CHECK(takes(4, 8192));
  CHECK_FALSE(takes(8, 8192));
  CHECK(takes(8, 3072));
}

TEST_CASE("a fused layer is seven kernels") {
  const FreshEmulator fresh;
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    constexpr std::int32_t kDecodes = 4;  // the prompt's pass gives a token, too
    const auto num_launches = [&](bool is_fused) {
      const std::int64_t before = emulator::num_launches();
      lab.run({.policy = "continuous"}, {{lab.ids(1, 5), kDecodes + 1}},
              {.invariance = Invariance::Chunk, .uses_graphs = false, .fuses_decodes = is_fused});
      return emulator::num_launches() - before;
    };
    // Apart they are ten, of which four are cuBLASLt's and not counted. Outside of layers a norm is
    // a product then, and where there are post norms, the last of them has no kernel of its own.
    const std::int64_t more = lab.model().n_layers - (lab.model().has_post_norms ? 1 : 0);
    CAPTURE(lab.model().name);
    CHECK(num_launches(true) - num_launches(false) == kDecodes * more);
  }
}

TEST_CASE("what does not fit is computed apart, beside what is fused") {
  // Of sixteen decodes on a device with 99 KB for a block. Gemma: the residual stream changes
  // place.
  for (const bool is_wide : {false, true}) {
    const FreshEmulator fresh;
    emulator::set_compute_capability(8, 6);
    ModelConfig model = small_gpu_model(Family::Gemma3);
    model.hidden_dim = is_wide ? 1152 : 64;
    model.ffn_dim = is_wide ? 64 : 2048;
    REQUIRE(decode_gemm_takes({.num_tokens = 16, .n = 64, .k = 64}));
    REQUIRE_FALSE(decode_gemm_takes({.num_tokens = 16, .n = 64, .k = 1152}));
    GpuLab lab{lab_source(model)};
    std::vector<LabPrompt> prompts;
    for (std::uint64_t i = 0; i < 16; ++i) prompts.push_back({lab.ids(i, 4), 2});
    const LabSettings settings = {.policy = "continuous", .max_num_seqs = 16};
    LabRun runs[2];
    for (const bool is_fused : {false, true}) {
      runs[is_fused ? 1 : 0] =
          lab.run(settings, prompts, {.invariance = Invariance::Chunk, .fuses_decodes = is_fused});
    }
    for (std::uint32_t i = 0; i < 16; ++i) {
      const std::pair second = {RequestId{i}, 5};
      const std::vector<float>& apart = runs[0].logits.at(second);
      const std::vector<float>& fused = runs[1].logits.at(second);
      float largest = 0;
      float error = 0;
      for (std::size_t j = 0; j < apart.size(); ++j) {
        largest = std::max(largest, std::abs(apart[j]));
        error = std::max(error, std::abs(apart[j] - fused[j]));
      }
      CAPTURE(is_wide, i);
      CHECK(error <= largest * 3 * 0x1p-6f);  // as test_gpu_model.cpp has it
      if (!is_wide) CHECK(error > 0);         // else little is fused, and bf16 hides another order
    }
  }
}

}  // namespace TEST_FILE
