// SPDX-License-Identifier: Apache-2.0
// Latent attention (DeepSeek-V3) between its projections, from measured tables.
//
// The package has the kernels of SGLang and TensorRT-LLM: prompts in the expanded form, decodes in
// the absorbed one, and around those a product of each head into the latent space and one out of
// it. SGLang's prompts on Hopper were timed in the absorbed form, which it uses for short cached
// prefixes alone: they take 3.2 times as long as TensorRT-LLM's, and their arithmetic is 3.4 times
// as much. With KV in fp8 its decodes there take seven times as long as with bfloat16. Kernels that
// take more than twice as long as another engine's are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weight_format.h"
#include "sim/cost/curve.h"
#include "sim/operators/operator_tables.h"

namespace metronome {

// The attention tables without those of origins that take more than twice as long as another's
// with KV of this type, in total over the cells that both measured. Appends a remark for each.
std::vector<AttentionCells> without_slow_origins(const std::vector<AttentionCells>& all,
                                                 const std::string& kv_dtype,
                                                 const std::string& name,
                                                 std::vector<std::string>& remarks);

// The products into the latent space and out of it, by decoded tokens, for so many heads of a
// device: the fastest kernels of the engine, or else of another, in bfloat16, or in fp8 where the
// projections are. Other heads are scaled. Empty if none was measured.
Curve latent_products(const OperatorTables& tables, std::int64_t heads, WeightFormat format,
                      std::vector<std::string>& remarks);

}  // namespace metronome
