// SPDX-License-Identifier: Apache-2.0
// The settings of policies that core does not know: those of reproduced engines (engines/) and of
// policies of one's own. Each is a struct with a function `visit_fields(FieldVisitor&, T&)`.
#pragma once

#include <any>
#include <list>

namespace metronome {

class FieldVisitor;

// At most one value of each type.
class PolicySettings {
 public:
  // Default values until edit() was called.
  template <class T>
  const T& get() const {
    for (const std::any& value : values_) {
      if (const T* found = std::any_cast<T>(&value)) return *found;
    }
    static const T by_default;
    return by_default;
  }
  // The reference is valid as long as this object.
  template <class T>
  T& edit() {
    for (std::any& value : values_) {
      if (T* found = std::any_cast<T>(&value)) return *found;
    }
    return std::any_cast<T&>(values_.emplace_back(T{}));
  }

 private:
  std::list<std::any> values_;
};

}  // namespace metronome
