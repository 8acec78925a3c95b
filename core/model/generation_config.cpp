#include "core/model/generation_config.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_place.h"
#include "core/model/json_section.h"

namespace metronome {

void apply_generation_config_text(std::string_view json, const std::string& path,
                                  ModelConfig& model) {
  const Json root = parse_json(std::string(json), path);
  if (!root.is_object()) throw ConfigError(path + ": is not an object; allowed: a JSON object");
  const JsonSection section(root, path, "");
  std::vector<std::int32_t> ids = section.token_ids("eos_token_id");
  if (!ids.empty()) model.eos_token_ids = std::move(ids);
}

void apply_generation_config(const std::string& folder, ModelConfig& model) {
  const std::string path = folder + "/generation_config.json";
  if (!path_exists(path)) return;
  apply_generation_config_text(read_file(path, "a readable file"), path, model);
}

}  // namespace metronome
