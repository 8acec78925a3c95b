// SPDX-License-Identifier: Apache-2.0
#include "models/weights/model_source.h"

#include <fmt/core.h>
#include <vector>

#include "core/base/names.h"
#include "core/config/config_reader.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "models/weights/gguf_weights.h"

namespace metronome {
namespace {

// As vLLM does (rotary_embedding/phi3_long_rope_scaled_rope.py): by the longest request that is
// allowed, so that a request's keys never change.
void choose_rope_factors(const Scenario& scenario, ModelConfig& model) {
  RopeScaling& scaling = model.rope_scaling;
  scaling.uses_long_factors = scaling.kind == RopeScaling::Kind::LongRope &&
                              scenario.engine.max_model_len.value_or(
                                  model.default_max_model_len()) > scaling.original_max_positions;
}

// `key` names the model.
ModelSource find_source(const Scenario& scenario, const std::string& name, const char* key) {
  const SourceLocation where = scenario.location_of(key);
  ModelSource source;
  source.config = find_model(name, where);
  const std::string folder = find_model_folder(name);
  const std::string gguf = find_gguf_file(name);
  if (!source.config.unsupported.empty()) {
    const std::string path = !gguf.empty() ? gguf : folder.empty() ? "" : name;
    fail_config(where, key,
                "cannot be computed here: " + (path.empty() ? "" : printable(path) + ": ") +
                    source.config.unsupported);
  }
  choose_rope_factors(scenario, source.config);
  source.seed = scenario.seed;
  source.is_drawn = scenario.weights == Weights::Random || (folder.empty() && gguf.empty());
  const std::string seed = std::to_string(scenario.seed);
  if (source.is_drawn) {
    source.weights = random_weights(source.config, scenario.seed);
    source.text = "random, from seed " + seed;
  } else if (!gguf.empty()) {
    source.weights = open_gguf_weights(gguf, source.config);
    source.text = "file " + gguf;
  } else {
    source.weights = open_model_folder(folder, source.config);
    source.text = "files in " + folder;
  }
  source.key = (source.is_drawn ? "seed " + seed : "files") + ", " + name;
  const std::vector<std::string> unused = source.weights->unused_tensors();
  if (!unused.empty()) {
    source.warning = fmt::format(
        "{} tensors are not used by {}; the first is {}. Do they belong to another model?",
        unused.size(), gguf.empty() ? "config.json" : "the file's configuration",
        printable(unused.front()));
  }
  return source;
}

}  // namespace

ModelSource find_model_source(const Scenario& scenario) {
  refuse_other_formats(scenario);
  return find_source(scenario, scenario.model, "model");
}

ModelSource find_draft_source(const Scenario& scenario, const ModelConfig& model) {
  constexpr const char* kKey = "speculative.model";
  ModelSource source = find_source(scenario, scenario.speculative.model, kKey);
  const ModelConfig& drafter = source.config;
  if (drafter.vocab_size != model.vocab_size) {
    fail_config(scenario.location_of(kKey), kKey,
                fmt::format("the vocabulary of {} has {} tokens and that of {} {}; allowed: a "
                            "model of the same vocabulary",
                            drafter.name, drafter.vocab_size, model.name, model.vocab_size));
  }
  const std::int64_t longest =
      scenario.engine.max_model_len.value_or(model.default_max_model_len());
  if (drafter.max_context() < longest) {
    fail_config(scenario.location_of(kKey), kKey,
                fmt::format("{} supports {} tokens, and requests may have {}; allowed: a model "
                            "that supports as many, or a smaller engine.max_model_len",
                            drafter.name, drafter.max_context(), longest));
  }
  return source;
}

}  // namespace metronome
