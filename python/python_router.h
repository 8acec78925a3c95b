// SPDX-License-Identifier: Apache-2.0
// Routers of a fleet that are classes of Python: registered like any other, with settings.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "python/own_keys.h"

namespace metronome::python {

struct RouterDescription {
  std::string name;
  std::string summary;        // one line
  OwnKeys own_keys;           // in the section of its name
  bool hears_blocks = false;  // it asks for cached blocks
  double report_ms = 0;       // between reports of the replicas; 0: it asks for none
  // Called with the values of its keys, by name; returns the router of a run.
  nanobind::object make;
};

// Registers a router; one of the same name and keys takes the place of the one before. Throws
// UsageError for a name that another router has, and when there is no room for more.
void register_python_router(RouterDescription description);

void define_router_view(nanobind::module_& module);

}  // namespace metronome::python
