// SPDX-License-Identifier: Apache-2.0
// The settings with which people start a version of an engine, for a scenario made from one line. A
// scenario file says all of this itself, and recipes do not touch it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/scenario/engine_product.h"

namespace metronome {

// The first numbers of a version: "0.5.10.post1" is {0, 5, 10}, "1.2.0rc6" is {1, 2, 0}.
using EngineVersion = std::array<int, 3>;
// Absent: the text names no release ("", "nightly-dev").
std::optional<EngineVersion> engine_version(std::string_view text);
// Whether it names a release before `other`. Without a name it is the newest.
bool is_before(std::string_view version, const EngineVersion& other);

// Settings for whoever lists them. Keys that the user gave are left out, and of a key that is added
// twice the first value counts.
class RecipeSteps {
 public:
  explicit RecipeSteps(const RecipeContext& context) : context_(context) {}

  void add(const char* key, const std::string& value, const std::string& reason) {
    if (!context_.is_given(key) && !is_default_of(steps_, key)) {
      steps_.push_back({key, value, reason});
    }
  }
  void add(const char* key, std::int64_t value, const std::string& reason) {
    add(key, std::to_string(value), reason);
  }
  std::vector<ServeDefault> take() { return std::move(steps_); }

 private:
  const RecipeContext& context_;
  std::vector<ServeDefault> steps_;
};

// The recipe of the engine whose policy the scenario has, for its model, GPU and clients; empty if
// the engine has none, or the GPU is unknown. Throws ConfigError for an unknown model.
std::vector<ServeDefault> serving_recipe(const Scenario& scenario, const RecipeContext& context);

}  // namespace metronome
