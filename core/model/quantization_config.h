// The `quantization_config` of a published config.json, or ModelOpt's hf_quant_config.json, whose
// keys are one level further in.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Sets linear_format, mlp_format, expert_format, int4_group_size and bytes_per_kv_element of a
// model whose layers and experts are known. Reads what vLLM reads: the methods fp8,
// compressed-tensors (floats of 8 and 4 bits, integers of 4), modelopt (FP8, NVFP4), gptq and awq
// of 4 bits, and mxfp4, which stores experts only. Lists of modules left alone (ignore,
// ignored_layers, modules_to_not_convert, exclude_modules) count where they hold the attention, the
// experts, or dense MLPs and shared experts of most layers. Embeddings and head are taken to be
// plain. A dense model has one format for attention and MLP: that of its MLP. Throws ConfigError
// for another method, which says what is allowed.
void read_quantization(const JsonSection& section, ModelConfig& model);

}  // namespace metronome
