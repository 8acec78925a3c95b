// SPDX-License-Identifier: Apache-2.0
// Models by name. The entries come from core/model/models.yaml, which is built into the program. A
// model may also be a GGUF file or a Hugging Face config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/model/model_config.h"
#include "core/model/model_names.h"

namespace metronome {

// Returns the catalogue model of that name, else that of the GGUF file or config.json at that path
// or in that folder, else the catalogue model of that repository of Hugging Face. Catalogue names
// win over paths
// ("./qwen3-4b" means a folder), and paths over repositories. `where` is the location of the name
// in the user's input.
//
// A config.json may be of the families of model_family.h, written by transformers 4 or 5. Of
// another architecture, it is read as the nearest family's (ModelConfig::approximation). Missing
// keys get the defaults of transformers' classes. The weights keep their stored type. Features that
// no executor computes (biases, other RoPE scalings, ...) go into `unsupported` and are ignored in
// the counts.
//
// Throws ConfigError for an unknown name (with the model that was meant, if one is near), an
// unreadable or malformed file, a missing or ill-typed key, and an impossible shape.
ModelConfig find_model(const std::string& name_or_path, const SourceLocation& where);

// The catalogue's name of the model that a name means: named_model(). Empty: none.
std::string catalogue_name(std::string_view name);

// The format of weights that such a name says; nothing where it is that of the model's own file.
std::optional<WeightFormat> named_format(std::string_view name);

// The folder with the files of such a model; empty for a catalogue model, which has none, and for a
// GGUF file, which has all in one.
std::string find_model_folder(const std::string& name_or_path);

// Where fetched models are, as NAME.gguf. Call it once, at the start; without it there are none.
void set_models_folder(const std::string& folder);

// The GGUF file that such a name means: the one at that path, or a fetched model; empty: none.
std::string find_gguf_file(const std::string& name_or_path);

// In the order of the file, which is read once.
const std::vector<ModelConfig>& all_models();

// The keys of an entry.
void visit_fields(FieldVisitor& visitor, ModelConfig& model);

// Reads a catalogue, a mapping from names to entries. An entry has the keys of visit_fields(), or
// `shape` with those of a config.json. `file` is shown in messages.
std::vector<ModelConfig> parse_models(std::string_view yaml, const std::string& file);

// A file that lies beside a config.json. `path` is shown in messages.
struct PublishedFile {
  std::string text;
  std::string path;
};

// Reads the text of a config.json. `path` is shown in messages. `quantization` is the folder's
// hf_quant_config.json: ModelOpt before 0.31 writes the formats of weights there, and vLLM reads it
// where the config.json has no quantization_config.
ModelConfig parse_hugging_face_config(std::string_view json, const std::string& path,
                                      const std::string& name,
                                      const std::optional<PublishedFile>& quantization = {});

}  // namespace metronome
