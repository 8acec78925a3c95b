// SPDX-License-Identifier: Apache-2.0
// The weights of a vision tower, and how files store them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer_parts.h"
#include "models/weights/model_weights.h"

namespace metronome {

// The first letters of every name: "model.visual.blocks.0.attn.qkv.weight". Names are those of
// transformers' Qwen3-VL.
constexpr const char* kVisionPrefix = "model.visual.";

// Every tensor of the tower, in order of use. Empty for a model without one.
std::vector<WeightSpec> vision_weight_specs(const VisionTower& tower);

// One of them by the part of its name behind kVisionPrefix ("merger.linear_fc1.bias").
WeightSpec vision_weight_spec(const VisionTower& tower, const std::string& name);

// The shape in which files store a tensor of the tower that is not a matrix or a row: the patch
// embedding is a convolution. Empty for the others.
std::vector<std::int64_t> stored_vision_shape(const VisionTower& tower, const WeightSpec& spec);

}  // namespace metronome
