// SPDX-License-Identifier: Apache-2.0
// More visitors over the fields that a ConfigReader fills. One prints the resolved values, one
// documents the keys, one finds the paths.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_reader.h"

namespace metronome {

using FieldVisit = std::function<void(FieldVisitor&)>;

// The visited fields as JSON, in the order of the visit, with two-space indent and no final
// newline. Unset optionals are null, or "auto" if the field allows it. Infinity is "inf" (JSON has
// no number for it). Dotted keys in `omitted` are left out.
std::string fields_to_json(const FieldVisit& visit, const std::vector<std::string>& omitted = {});

// These fields as a value. Bytes of texts that are not UTF-8 (a path may hold any) are replaced.
Json fields_to_value(const FieldVisit& visit, const std::vector<std::string>& omitted = {});

// These fields as a tree; no key is omitted, all bytes are kept. Its nodes have no location.
ConfigNode fields_to_node(const FieldVisit& visit);

struct DocumentedKey {
  std::string key;            // dotted: "scheduler.prefill_chunk_size"
  std::string type;           // "integer", "list of numbers", ...
  std::string allowed;        // "1 to 64", "ragged, padded"
  std::string default_value;  // as JSON
  std::string doc;            // one line
  std::string example;        // as YAML: an allowed value, if possible not the default
};

// One entry per visited field, in that order. Defaults are the visited values.
std::vector<DocumentedKey> document_fields(const FieldVisit& visit);

struct PathField {
  std::string key;  // dotted
  std::string* value;
  bool may_be_name = false;  // a name_or_path
};

// The visited fields that are paths, in that order. The visited struct outlives the result.
std::vector<PathField> path_fields(const FieldVisit& visit);

}  // namespace metronome
