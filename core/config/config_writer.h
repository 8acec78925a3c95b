// More visitors over the same fields a ConfigReader fills: one prints the resolved values, one
// documents the keys.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/config_reader.h"

namespace metronome {

using FieldVisit = std::function<void(FieldVisitor&)>;

// The fields that `visit` shows, as JSON in the order of the visit, two-space indent, no newline at
// the end. Unset optionals are null, or "auto" where that is their name; infinity is "inf" (JSON
// has no number for it). Dotted keys in `omitted` are left out.
std::string fields_to_json(const FieldVisit& visit, const std::vector<std::string>& omitted = {});

// The same as a tree, as if read from that JSON with nothing left out. Its nodes have no location.
ConfigNode fields_to_node(const FieldVisit& visit);

struct DocumentedKey {
  std::string key;            // dotted: "scheduler.prefill_chunk_size"
  std::string type;           // "integer", "list of numbers", ...
  std::string allowed;        // "1 to 64", "ragged, padded"
  std::string default_value;  // as JSON
  std::string doc;            // one line
  std::string example;        // as YAML: an allowed value, not the default where there is another
};

// One entry per field that `visit` shows, in its order. Defaults are the values it shows.
std::vector<DocumentedKey> document_fields(const FieldVisit& visit);

}  // namespace metronome
