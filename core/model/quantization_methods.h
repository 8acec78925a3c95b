// SPDX-License-Identifier: Apache-2.0
// How the methods of published models say their formats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/format_rules.h"
#include "core/model/json_section.h"

namespace metronome {

struct QuantizationMethod {
  std::vector<std::string_view> names;  // the values of quant_method; the first is the usual one
  ModuleList::Names matching = ModuleList::Names::Parts;
  // Throws ConfigError for what cannot be counted.
  void (*read)(const JsonSection& section, FormatRules& rules) = nullptr;
};

const QuantizationMethod* find_quantization_method(std::string_view name);
// "fp8, compressed-tensors, ...".
std::string quantization_method_names();

// Of methods whose files name formats by module (quantization_layers.cpp).
void read_compressed_tensors(const JsonSection& section, FormatRules& rules);
void read_modelopt(const JsonSection& section, FormatRules& rules);
void read_quark(const JsonSection& section, FormatRules& rules);
void read_torchao(const JsonSection& section, FormatRules& rules);

// Of methods whose weights are indices into tables, or of any mean width (quantization_codes.cpp).
void read_aqlm(const JsonSection& section, FormatRules& rules);
void read_vptq(const JsonSection& section, FormatRules& rules);
void read_spqr(const JsonSection& section, FormatRules& rules);
void read_higgs(const JsonSection& section, FormatRules& rules);
void read_exl(const JsonSection& section, FormatRules& rules);
void read_bitnet(const JsonSection& section, FormatRules& rules);

}  // namespace metronome
