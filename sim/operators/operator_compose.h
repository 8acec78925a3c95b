// SPDX-License-Identifier: Apache-2.0
// Composes the operators of one model from measured tables.
//
// The rules for shapes that were not measured are in product_curve.h and attention_grid.h, those
// for odd rows in operator_rows.h. Further rules:
//   products   The first table of the data type whose launches were not timed by mistake
//              (is_host_bound). TensorRT-LLM's products in fp8 and nvfp4 include quantising their
//              input: the smallest take 12.8 us, those of others 5.4. Its own times of that are
//              taken off, down to 1 us above the bound of product_curve.h. int4_wo without a table
//              is bfloat16. More tokens never take less time.
//   experts    Tokens are routed by the law power_law_1.2, or else power_law_1.01, or else evenly.
//              fp8 and fp8_block stand in for each other, w4a16_mxfp4 for w4a8_mxfp4_mxfp8. Where
//              the tensor parallel size was not measured: half, a quarter or twice of it, scaled.
//   routers    In bfloat16, or as router_product.h says.
//   all-reduce Captured launches. More bytes never take less time. Those that vLLM fuses with norms
//              on Blackwell are TensorRT-LLM's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model/model_config.h"
#include "sim/operators/operator_tables.h"
#include "sim/operators/operator_times.h"
#include "sim/operators/router_product.h"

namespace metronome {

// The name of a format in the tables of that GPU.
std::string table_dtype(WeightFormat format, const OperatorMeta& meta);

// The word of --quantization and of a scenario's `quantization` for a data type of the tables;
// empty if it has none.
std::string_view word_of_dtype(std::string_view dtype);

// Throws ConfigError that names what is missing and what is there, if the tables lack an operator
// of the model.
OperatorTimes compose_operators(const OperatorTables& tables, const ModelConfig& model,
                                std::int64_t tensor_parallel_size,
                                RouterDtype router_dtype = RouterDtype::Bfloat16);

}  // namespace metronome
