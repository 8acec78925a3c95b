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
  for (const PolicyInfo* policy :
       {&vllm_policy(), &sglang_policy(), &tensorrt_llm_policy(), &sarathi_policy(),
        &fastgen_policy(), &llama_cpp_policy(), &nano_vllm_policy(), &vllm_prefill_first_policy(),
        &orca_policy(), &simple_chunking_policy()}) {
    register_policy(*policy);
  }
}

}  // namespace metronome
