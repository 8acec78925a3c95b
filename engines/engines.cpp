// SPDX-License-Identifier: Apache-2.0
#include "engines/engines.h"

#include "engines/fastgen/product.h"
#include "engines/llama_cpp/product.h"
#include "engines/nano_vllm/product.h"
#include "engines/sarathi/product.h"
#include "engines/sglang/product.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/vllm/product.h"

namespace metronome {

void register_engines() {
  for (const EngineProduct* product :
       {&vllm_product(), &sglang_product(), &tensorrt_llm_product(), &fastgen_product(),
        &llama_cpp_product(), &nano_vllm_product(), &sarathi_product()}) {
    register_engine(*product);
  }
}

}  // namespace metronome
