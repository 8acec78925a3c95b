// SPDX-License-Identifier: Apache-2.0
#include "study/compose/scaled_context.h"

#include <cstdint>
#include <fmt/core.h>
#include <map>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_chars.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_names.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

// The numbers of a dictionary of JSON, or of Python as a server logs it; nullopt: it is none.
std::optional<std::map<std::string, double>> numbers_of(const std::string& value) {
  std::map<std::string, double> numbers;
  try {
    const Json object = Json::parse(value);
    if (!object.is_object()) return std::nullopt;
    for (const auto& [key, part] : object.items()) {
      if (part.is_number()) numbers[key] = part.get<double>();
    }
    return numbers;
  } catch (const JsonError&) {  // of Python
  }
  const auto parts = value.starts_with('{') ? python_arguments(value) : std::nullopt;
  if (!parts) return std::nullopt;
  for (const auto& [key, part] : *parts) {
    if (const auto number = number_in<double>(part)) numbers[key] = *number;
  }
  return numbers;
}

// The context to which a command scales a model's positions, in tokens; else why it is the
// model's own.
struct ScaledContext {
  std::int64_t tokens = 0;
  std::string problem;  // empty: none
};

ScaledContext scaled_context(const std::string& model, const std::string& value) {
  const auto numbers = numbers_of(value);
  if (!numbers) return {0, "is no dictionary"};
  const auto factor = numbers->find("factor");
  if (factor == numbers->end()) return {0, "has no factor"};
  if (!(factor->second > 0)) return {0, "has a factor that is not above 0"};
  if (path_exists(model)) return {0, "is not applied to a model's own file: set it there"};
  const auto own = static_cast<double>(find_model(model, {}).max_context());
  const auto original = numbers->find("original_max_position_embeddings");
  const double tokens = factor->second * (original == numbers->end() ? own : original->second);
  if (!(tokens <= static_cast<double>(kMostContextOfName))) {
    return {0, fmt::format("scales to more than {}", count_text(kMostContextOfName, "token"))};
  }
  if (tokens < own) return {0, "scales to less than the model's own context"};
  return {tokens > own ? static_cast<std::int64_t>(tokens) : 0, {}};
}

}  // namespace

std::string with_scaled_context(const std::string& model, const EngineArguments& arguments,
                                std::vector<std::string>& notes) {
  std::string scaled = model;
  for (const auto& [name, value] : arguments) {
    const bool is_scaling = name.ends_with("rope_scaling") || name.ends_with("rope_parameters");
    if (!is_scaling || value.empty() || value == kNotSet || value == "null") continue;
    const ScaledContext context = scaled_context(model, value);
    if (!context.problem.empty()) {
      notes.push_back(fmt::format("Not simulated: {} {}: it {}.", flag_word(name), printable(value),
                                  context.problem));
    } else if (context.tokens > 0) {
      scaled = fmt::format("{}-{}k", model, context.tokens / 1024);
    }
  }
  return scaled;
}

}  // namespace metronome
