// SPDX-License-Identifier: Apache-2.0
// The `quantization_config` of a published config.json, or ModelOpt's hf_quant_config.json, whose
// keys are one level further in.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Sets the formats of weights and bytes_per_kv_element of a model without a shape_error(). Each
// module has its own format, by the groups, layers and lists of modules left alone that the file
// names (format_rules.h), and by the methods of quantization_methods.cpp. Embeddings and head are
// plain unless the file names them. Throws ConfigError for another method, which says what is
// allowed.
void read_quantization(const JsonSection& section, ModelConfig& model);

}  // namespace metronome
