// SPDX-License-Identifier: Apache-2.0
// `metronome bench --products`: times the linear layers of a model with every kernel that can
// compute them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/plan/product_report.h"

namespace metronome {

struct ProductsCommand {
  std::string model;
  std::string json;  // output file; empty: none
  std::int32_t device = 0;
  bool has_early_launches = false;
  ProductBenchOptions bench;
};

// "64,512": ascending numbers from 1 to kMostProductTokens. Throws UsageError.
std::vector<std::int32_t> parse_tokens(const std::string& text);

// One row per product and number of tokens.
std::string products_text(const ProductReport& report);
std::string products_json(const ProductReport& report);

// The command, called after catch_signals(). On failure or interruption it first prints and writes
// the measurements so far. Throws UsageError if `bench` is empty, and the exceptions of
// ProductBenchFn and throw_if_interrupted().
void bench_products(const ProductsCommand& command, const ProductBenchFn& bench);

}  // namespace metronome
