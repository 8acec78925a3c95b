#include "core/model/generation_config.h"

#include <cstdint>
#include <limits>
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
  const Json* value = section.find("eos_token_id");
  if (value == nullptr) return;
  std::vector<std::int32_t> ids;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > std::uint64_t{kMax}) {
      section.fail("eos_token_id", "must be a token id or a list of them, got " +
                                       JsonSection::excerpt(*value) + "; allowed: 0 to 2^31 - 1");
    }
    ids.push_back(item.get<std::int32_t>());
  }
  if (!ids.empty()) model.eos_token_ids = std::move(ids);
}

void apply_generation_config(const std::string& folder, ModelConfig& model) {
  const std::string path = folder + "/generation_config.json";
  if (!path_exists(path)) return;
  const std::optional<std::string> text = read_file(path);
  if (!text) throw ConfigError(path + ": cannot be read; allowed: a readable file");
  apply_generation_config_text(*text, path, model);
}

}  // namespace metronome
