// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/simulated_model.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

WeightFormat format_of(Quantization quantization) {
  switch (quantization) {
    case Quantization::Auto:
    case Quantization::None: break;
    case Quantization::Fp8: return WeightFormat::Fp8;
    case Quantization::Fp8Block: return WeightFormat::Fp8Block;
    case Quantization::Nvfp4: return WeightFormat::Nvfp4;
    case Quantization::Mxfp4: return WeightFormat::Mxfp4;
    case Quantization::Int4: return WeightFormat::Int4;
  }
  return WeightFormat::Plain;
}

}  // namespace

ModelConfig find_served_model(const std::string& name_or_path, const SourceLocation& where) {
  ModelConfig model = find_model(name_or_path, where);
  if (!find_model_folder(name_or_path).empty()) {
    model.bytes_per_weight = std::min<std::int64_t>(model.bytes_per_weight, 2);
  }
  return model;
}

ModelConfig simulated_model(const Scenario& scenario) {
  ModelConfig model = find_served_model(scenario.model, scenario.location_of("model"));
  if (scenario.quantization != Quantization::Auto) {
    const WeightFormat format = format_of(scenario.quantization);
    if (format == WeightFormat::Mxfp4 && model.n_experts == 0) {
      fail_config(scenario.location_of("quantization"), "quantization",
                  "mxfp4 stores experts, and " + model.name +
                      " has none; allowed: auto, none, fp8, fp8_block, nvfp4, int4");
    }
    model.store_as(format);
  }
  if (scenario.kv_dtype != KvDtype::Auto) {
    model.bytes_per_kv_element = scenario.kv_dtype == KvDtype::Fp8 ? 1 : 2;
  }
  return model;
}

bool is_stored_in_fp8(const Scenario& scenario) {
  const ModelConfig model = find_served_model(scenario.model, scenario.location_of("model"));
  const WeightFormat own = model.n_experts > 0 ? model.expert_format : model.linear_format;
  return own == WeightFormat::Fp8 || own == WeightFormat::Fp8Block;
}

void refuse_other_formats(const Scenario& scenario) {
  if (scenario.quantization != Quantization::Auto && scenario.quantization != Quantization::None) {
    const bool is_named = is_default_of(scenario.serve_defaults, "quantization");
    fail_config(scenario.location_of(is_named ? "model" : "quantization"), "quantization",
                std::string(is_named ? "the model's name says a format, and " : "") +
                    "only the simulator quantises weights; allowed: auto, none");
  }
  if (scenario.kv_dtype != KvDtype::Auto) {
    fail_config(scenario.location_of("kv_cache.dtype"), "kv_cache.dtype",
                "only the simulator chooses the type of the KV cache; allowed: auto");
  }
}

}  // namespace metronome
