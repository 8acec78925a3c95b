// SPDX-License-Identifier: Apache-2.0
// Keys of a scenario that a class of Python adds, and their values.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace metronome {
class FieldVisitor;
}

namespace metronome::python {

// A whole number or a number.
struct OwnKey {
  std::string name;
  bool is_whole = true;
  double least = 0;
  double most = 0;
  double by_default = 0;
  std::string meaning;  // one line, with the unit

  bool operator==(const OwnKey&) const = default;
};

using OwnKeys = std::vector<OwnKey>;
using OwnValues = std::vector<double>;  // whole ones, too: below 2^53

OwnValues default_values(const OwnKeys& keys);
void visit_own_keys(FieldVisitor& visitor, const OwnKeys& keys, OwnValues& values);
// Adds them to a dict. Requires the interpreter's lock.
void add_own_values(const OwnKeys& keys, const OwnValues& values, nanobind::dict& dict);

}  // namespace metronome::python
