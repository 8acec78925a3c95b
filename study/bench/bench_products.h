// `metronome bench --products`: the linear layers of a model by every kernel that computes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/plan/product_report.h"

namespace metronome {

struct ProductsCommand {
  std::string model;
  std::string json;  // file; empty: none
  std::int32_t device = 0;
  bool has_early_launches = false;
  ProductBenchOptions bench;
};

// "64,512": rising numbers from 1 to kMostProductTokens. Throws UsageError.
std::vector<std::int32_t> parse_tokens(const std::string& text);

// A row a product and number of tokens.
std::string products_text(const ProductReport& report);
std::string products_json(const ProductReport& report);

// The command behind catch_signals(). When it fails or is interrupted, what was
// measured is printed and written first. Throws UsageError where `bench` is empty, and what
// ProductBenchFn and throw_if_interrupted() throw.
void bench_products(const ProductsCommand& command, const ProductBenchFn& bench);

}  // namespace metronome
