// SPDX-License-Identifier: Apache-2.0
// Products of routers in float32, which the package's tables do not have.
//
// vLLM computes the router of MiniMax-M2 so (MiniMaxM2MoE: weights and input in float32), on CUDA
// cores, or in TF32 on tensor cores where VLLM_FLOAT32_MATMUL_PRECISION is `high`. Times are those
// of PyTorch's product of m tokens with 256 x 6144 weights on a GB200, published with
// github.com/vllm-project/vllm/pull/47973; in float32 beyond 1,024 tokens, of twice as many tokens
// with 128 x 6144 weights on a GB300 (pull/55899). They scale with n and k, down to the
// 5.4 us of the smallest measured products. Other GPUs count as equally fast: a multiprocessor of
// H100 and later has as many float32 units at about the same clock, and these products are too
// small to fill a GPU. Casting the input is a kernel of its own, which reads 2 bytes of each
// element and writes 4.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/model/model_config.h"
#include "sim/cost/curve.h"

namespace metronome {

enum class RouterDtype : std::uint8_t { Bfloat16, Tf32, Float32 };
constexpr std::string_view kRouterDtypeNames[] = {"bfloat16", "tf32", "float32"};

std::string_view to_string(RouterDtype dtype);

// As that engine computes the router of this architecture by default.
RouterDtype default_router_dtype(const ModelConfig& model, std::string_view engine);

// By tokens: the product with n x k weights, and casting its input. `bandwidth` is that of memory,
// bytes/s. Requires a dtype other than bfloat16.
Curve router_product(RouterDtype dtype, double n, double k, double bandwidth);

}  // namespace metronome
