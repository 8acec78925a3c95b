// SPDX-License-Identifier: Apache-2.0
// The arguments of a call of a filter, a test, a method or a function.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/value.h"

namespace metronome::jinja {

class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Assigns arguments to parameters, in order and by name, as Python does. `function` is named in
  // errors; the first `num_required` parameters must be given. Throws RenderError.
  void bind(std::string_view function, std::initializer_list<std::string_view> parameters,
            std::size_t num_required = 0);

  // After bind(). nullptr: not given.
  const Value* find(std::size_t parameter) const {
    return parameter < bound_.size() && bound_[parameter] ? &*bound_[parameter] : nullptr;
  }
  const Value& at(std::size_t parameter) const { return *find(parameter); }
  bool truth(std::size_t parameter, bool otherwise) const;
  // Throw RenderError for another type.
  std::int64_t integer(std::size_t parameter, std::int64_t otherwise) const;
  const std::string& text(std::size_t parameter) const;

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> bound_;
};

}  // namespace metronome::jinja
