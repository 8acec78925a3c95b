// SPDX-License-Identifier: Apache-2.0
// Scheduling policies that are classes of Python: registered like any other, with keys.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "python/own_keys.h"

namespace metronome::python {

struct PolicyDescription {
  std::string name;
  std::string summary;                   // one line
  std::vector<std::string> shared_keys;  // keys of our own policies that it reads, too
  OwnKeys own_keys;
  // Called with the values of all these keys, by name; returns the policy of a run.
  nanobind::object make;
};

// Registers a policy; one of the same name and keys takes the place of the one before. Throws
// UsageError for a name or key that another policy has, and when there is no room for more.
void register_python_policy(PolicyDescription description);

}  // namespace metronome::python
