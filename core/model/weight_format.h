// SPDX-License-Identifier: Apache-2.0
// How the weights of linear layers are stored.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace metronome {

enum class WeightFormat : std::uint8_t {
  Plain,     // the type of the other weights, ModelConfig::bytes_per_weight each
  Fp8,       // e4m3, a scale for each tensor or output channel
  Fp8Block,  // e4m3, a scale for each block of 128 x 128
  Nvfp4,     // e2m1, an e4m3 scale for each 16
  Mxfp4,     // e2m1, an e8m0 scale for each 32
  Int4,      // a 16-bit scale for each group of weights; products are computed in 16 bits
  // Of published files alone:
  Mxfp8,       // e4m3, an e8m0 scale for each 32
  Int8,        // integers, a scale for each output channel; products are computed in 8 bits
  Int4Fp8,     // as Int4; products are computed in fp8
  WeightOnly,  // of any other number of bits; products are computed in 16 bits
};

// As written in files, in the order of the enumerators.
constexpr std::string_view kWeightFormatNames[] = {
    "plain", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4", "mxfp8", "int8", "w4a8", "weight_only"};
// The formats that a catalogue of models or a scenario may ask for.
constexpr std::span<const std::string_view> kChosenFormatNames =
    std::span(kWeightFormatNames).first<6>();

std::string_view to_string(WeightFormat format);

// Bytes of a weight and its share of the scales; `plain_bytes` those of a plain one,
// `int4_group_size` the weights of a group of Int4 (0: many). Of WeightOnly, those of 8 bits.
double bytes_of(WeightFormat format, std::int64_t plain_bytes, std::int64_t int4_group_size);

// Modules of a model that one table of kernel times serves, or that are counted apart.
enum class ModuleKind : std::uint8_t {
  AttentionIn,   // queries, keys and values
  AttentionOut,  // of what heads attend to
  StateIn,       // of linear attention
  StateOut,
  MlpIn,  // gate and up of dense MLPs
  MlpOut,
  SharedIn,  // the same of shared experts
  SharedOut,
  ExpertIn,
  ExpertOut,
  Embedding,
  Head,
};

constexpr ModuleKind kAttentionModules[] = {ModuleKind::AttentionIn, ModuleKind::AttentionOut,
                                            ModuleKind::StateIn, ModuleKind::StateOut};
constexpr ModuleKind kMlpModules[] = {ModuleKind::MlpIn, ModuleKind::MlpOut, ModuleKind::SharedIn,
                                      ModuleKind::SharedOut};
constexpr ModuleKind kExpertModules[] = {ModuleKind::ExpertIn, ModuleKind::ExpertOut};

// Weights of one kind and format.
struct ModuleFormat {
  ModuleKind kind = ModuleKind::AttentionIn;
  WeightFormat format = WeightFormat::Plain;
  double bytes_per_weight = 0;  // with its share of the scales; of a plain one, no matter
  std::int64_t num_params = 0;

  bool operator==(const ModuleFormat&) const = default;
};

// The share of some modules' weights that has one format. All shares add up to 1.
struct FormatShare {
  WeightFormat format = WeightFormat::Plain;
  double bytes_per_weight = 0;
  double share = 1;
};

}  // namespace metronome
