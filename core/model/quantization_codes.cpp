// SPDX-License-Identifier: Apache-2.0
// The readers of methods whose weights are indices into tables, or of any mean width.
#include <cstdint>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <vector>

#include "core/model/quantization_methods.h"
#include "core/model/quantization_reading.h"

namespace metronome {
namespace {

constexpr double kHalf = 2;  // bytes of a value of a table

std::int64_t positive(const JsonSection& section, const char* key, std::int64_t otherwise,
                      std::int64_t most) {
  const std::int64_t value = section.integer_or(key, otherwise);
  if (value >= 1 && value <= most) return value;
  section.fail(key, fmt::format("is {}; allowed: 1 to {}", value, most));
}

// Bits of an index into a table of so many values, as files store them.
double index_bits(std::int64_t num_values) {
  int bits = 0;
  while ((std::int64_t{1} << bits) < num_values) ++bits;
  return bits;
}

// Weights of so many bits on average, as the file says.
StoredFormat mean_width(const JsonSection& section, const char* key) {
  const double bits = section.required_number(key);
  if (!(bits > 0 && bits <= 16)) {
    section.fail(key, fmt::format("is {}; allowed: more than 0, at most 16", bits));
  }
  return with_bytes(WeightFormat::WeightOnly, bits / 8);
}

// The numbers -1 and N of VPTQ's pairs: for outliers, which most files have none of, and others.
std::int64_t second_of_pair(const JsonSection& section, const char* key) {
  const Json* const pair = section.find(key);
  const bool is_pair = pair != nullptr && pair->is_array() && pair->size() == 2;
  if (is_pair && (*pair)[1].is_number_integer()) return (*pair)[1].get<std::int64_t>();
  section.fail(key, "is no pair of integers; allowed: such as [-1, 8]");
}

StoredFormat read_vptq_layer(const JsonSection& layer) {
  constexpr std::int64_t kMostValues = std::int64_t{1} << 24;
  const std::int64_t length = second_of_pair(layer, "vector_lens");
  const std::int64_t values = second_of_pair(layer, "num_centroids");
  const std::int64_t residual = second_of_pair(layer, "num_res_centroids");
  if (length < 1 || length > 64) {
    layer.fail("vector_lens", fmt::format("has vectors of {}; allowed: 1 to 64", length));
  }
  for (const std::int64_t count : {values, residual}) {
    if (count > kMostValues) {
      layer.fail("num_centroids", fmt::format("is {}; allowed: up to {}", count, kMostValues));
    }
  }
  const double bits = index_bits(values) + (residual > 0 ? index_bits(residual) : 0);
  const auto width = static_cast<double>(length);
  StoredFormat stored = with_bytes(WeightFormat::WeightOnly, bits / width / 8);
  const auto tables = static_cast<double>(values + (residual > 0 ? residual : 0));
  stored.codebook_bytes = tables * width * kHalf;
  return stored;
}

}  // namespace

// A group of weights is the sum of one vector from each codebook (arXiv:2401.06118; transformers'
// AqlmConfig). Each matrix has codebooks of its own; a scale for each output does not count.
void read_aqlm(const JsonSection& section, FormatRules& rules) {
  const auto books = static_cast<double>(positive(section, "num_codebooks", 1, 16));
  const std::int64_t bits = positive(section, "nbits_per_codebook", 16, 24);
  const auto group = static_cast<double>(positive(section, "in_group_size", 8, 1024) *
                                         positive(section, "out_group_size", 1, 1024));
  StoredFormat stored =
      with_bytes(WeightFormat::WeightOnly, books * static_cast<double>(bits) / group / 8);
  stored.codebook_bytes = books * static_cast<double>(std::int64_t{1} << bits) * group * kHalf;
  rules.otherwise = stored;
}

// Vectors by their nearest centroid, and by that of the rest, with numbers for each module
// (arXiv:2409.17066; the files of VPTQ-community).
void read_vptq(const JsonSection& section, FormatRules& rules) {
  constexpr const char* kLayers = "config_for_layers";
  constexpr const char* kShared = "shared_layer_config";
  if (!section.has(kShared)) section.required_section(kLayers);
  read_modules(section, kLayers, rules, read_vptq_layer);
  read_modules(section, kShared, rules, read_vptq_layer);
}

// Tiles of 16 x 16 weights of 3 bits. A row of a tile, with its scale and offset, takes 64 bits.
// `shapes` has the numbers of these rows, of outliers (32 bits each) and of the offsets of a
// matrix' rows (32 bits) for each matrix (arXiv:2306.03078; transformers' integrations/spqr.py).
void read_spqr(const JsonSection& section, FormatRules& rules) {
  const std::int64_t bits = positive(section, "bits", 3, 8);
  if (bits != 3) section.fail("bits", fmt::format("is {}; allowed: 3", bits));
  constexpr double kRowBytes = 8;
  constexpr double kRowWeights = 16;
  constexpr double kOtherBytes = 4;
  double num_rows = 0;
  double num_others = 0;
  const std::optional<JsonSection> shapes = section.section("shapes");
  const std::vector<std::string> names = shapes ? shapes->keys() : std::vector<std::string>();
  for (const std::string& name : names) {
    const bool is_dense = name.ends_with(".dense_weights.shape");
    const bool is_other = name.ends_with(".col_vals.shape") || name.ends_with(".row_offsets.shape");
    if (!is_dense && !is_other) continue;
    const auto count = static_cast<double>(shapes->required_integer(name.c_str()));
    (is_dense ? num_rows : num_others) += count;
  }
  const double outliers = num_rows > 0 ? num_others * kOtherBytes / (num_rows * kRowWeights) : 0;
  rules.otherwise = with_bytes(WeightFormat::WeightOnly, kRowBytes / kRowWeights + outliers);
}

// A grid that all matrices share, a scale for each group (transformers' HiggsConfig).
void read_higgs(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = integers_of(static_cast<double>(positive(section, "bits", 4, 8)),
                                read_group_size(section, "group_size", 256), kHalf);
}

// `bits` is the mean of all linear modules, scales included; the head has its own.
void read_exl(const JsonSection& section, FormatRules& rules) {
  rules.otherwise = mean_width(section, "bits");
  if (section.has("head_bits")) {
    store_module(section, "head_bits", "lm_head", mean_width(section, "head_bits"), rules);
  }
}

// Ternary weights, four in a byte (transformers' integrations/bitnet.py).
void read_bitnet(const JsonSection&, FormatRules& rules) {
  rules.otherwise = with_bytes(WeightFormat::WeightOnly, 0.25);
}

}  // namespace metronome
