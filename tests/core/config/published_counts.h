// SPDX-License-Identifier: Apache-2.0
// The parameters of the catalogue's models, as published.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace metronome::testing {

// Elements of the checkpoints on Hugging Face. Gemma-3-4B: the language model as keras-hub counts
// it (gemma3_4b_text), with 64 rows less in its embedding table. Qwen3-Next, Qwen3.5, Qwen3-VL,
// DeepSeek-V3 and gpt-oss: transformers' classes, without multi-token prediction. MiniMax-M2.5 and
// OPT: less what models.yaml says.
inline const std::map<std::string, std::int64_t>& published_counts() {
  static const std::map<std::string, std::int64_t> counts = {
      {"llama-3.2-1b", 1'235'814'400},
      {"llama-3.2-3b", 3'212'749'824},
      {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496},
      {"llama-2-7b", 6'738'415'616},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},
      {"qwen3-32b", 32'762'123'264},
      {"gemma-3-1b", 999'885'952},
      {"gemma-3-4b", 3'880'099'328 + 64 * 2560},
      {"smollm-135m", 134'515'008},
      {"tiny-gpt2", 842'496},
      {"tiny-qwen3-next", 1'683'256},
      {"tiny-llama", 1'311'872},
      {"mini-llama", 21'895'680},
      {"tiny-qwen3", 1'312'128},
      {"tiny-gemma3", 1'707'520},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"qwen3-next-80b-a3b", 79'674'391'296},
      {"qwen3.5-9b", 9'409'813'744},
      {"qwen3.5-27b", 27'356'728'560},
      {"qwen3.5-35b-a3b", 35'107'181'936},
      {"qwen3.5-122b-a10b", 122'562'817'776},
      {"qwen3.5-397b-a17b", 396'802'360'816},
      {"tiny-qwen3-vl", 1'824'512},
      {"qwen3-vl-4b", 4'437'815'808},
      {"qwen3-vl-8b", 8'767'123'696},
      {"qwen3-vl-30b-a3b", 31'070'754'032},
      {"deepseek-v3", 671'026'419'200},
      {"minimax-m2.5", 228'689'336'320},
      {"opt-13b", 12'840'514'560},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"phi-3-mini-4k", 3'821'079'552},
      {"phi-4", 14'659'507'200},
      {"phi-4-mini", 3'836'021'760},
      {"gemma-2-2b", 2'614'341'888},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-2-27b", 27'227'128'320},
      {"mistral-7b-v0.3", 7'248'023'552},
      {"mistral-nemo-12b", 12'247'782'400},
      {"mistral-small-24b", 23'572'403'200},
      {"smollm2-135m", 134'515'008},
      {"smollm2-360m", 361'821'120},
      {"smollm2-1.7b", 1'711'376'384},
      {"smollm3-3b", 3'075'098'624},
      {"olmo-2-1b", 1'484'916'736},
      {"olmo-2-7b", 7'298'617'344},
      {"olmo-2-13b", 13'716'198'400},
      {"granite-3.3-2b", 2'533'539'840},
      {"granite-3.1-8b", 8'170'848'256},
      {"gpt2", 124'439'808},
      {"gpt2-xl", 1'557'611'200},
  };
  return counts;
}

}  // namespace metronome::testing
