// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_mapping.h"

#include <algorithm>
#include <span>

#include "core/base/names.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

using enum TraceField;

// Formats of one shape with the same names come in the order in which they are preferred.
const std::vector<TraceMapping>& known_traces() {
  static const std::vector<TraceMapping> all = {
      {.format = TraceFormat::Azure,
       .name = "azure",
       .fields = {{Arrival, "TIMESTAMP"}, {Prompt, "ContextTokens"}, {Output, "GeneratedTokens"}},
       .unit = TimeUnit::Date},
      {.format = TraceFormat::Vidur,
       .name = "vidur",
       .fields = {{Arrival, "arrived_at"},
                  {Prompt, "num_prefill_tokens"},
                  {Output, "num_decode_tokens"}}},
      {.format = TraceFormat::Vidur,
       .name = "vidur",
       .fields = {{Arrival, "arrival_s"}, {Prompt, "prompt_tokens"}, {Output, "output_tokens"}}},
      {.format = TraceFormat::BurstGpt,
       .name = "burstgpt",
       .fields = {{Arrival, "Timestamp"}, {Prompt, "Request tokens"}, {Output, "Response tokens"}},
       .skips_failed = true},
      {.format = TraceFormat::Mooncake,
       .name = "mooncake",
       .shape = TraceShape::JsonLines,
       .fields = {{Arrival, "timestamp"},
                  {Prompt, "input_length"},
                  {Output, "output_length"},
                  {Hashes, "hash_ids"}},
       .unit = TimeUnit::Milliseconds},
      {.format = TraceFormat::ShareGpt,
       .name = "sharegpt",
       .shape = TraceShape::JsonLines,
       .fields = {{Prompt, "input_toks"},
                  {Output, "output_toks"},
                  {Arrival, "arrival_time_ns"},
                  {Tokens, "input_tok_ids"},
                  {Images, "images", false},
                  {IgnoresEos, "ignore_eos", false}},
       .unit = TimeUnit::Nanoseconds},
  };
  return all;
}

// Whether the name is one of the columns, or a key of the JSON object. The latter needs no valid
// object: whoever reads it says what is wrong.
bool has_name(std::string_view line, TraceShape shape, std::string_view name) {
  if (shape == TraceShape::Csv) {
    bool found = false;
    for_each_csv_field(
        line, [&](std::size_t, std::string_view column) { found = found || column == name; });
    return found;
  }
  return line.find("\"" + std::string(name.substr(name.rfind('.') + 1)) + "\"") !=
         std::string_view::npos;
}

}  // namespace

const MappedField* TraceMapping::find(TraceField field) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [field](const MappedField& mapped) {
    return mapped.field == field;
  });
  return found != fields.end() ? &*found : nullptr;
}

std::string TraceMapping::article_and_name() const {
  const bool begins_with_vowel = std::string_view("aeiou").find(name.front()) != std::string::npos;
  return (begins_with_vowel ? "an " : "a ") + name;
}

std::string TraceMapping::needed_names() const {
  std::vector<std::string_view> needed;
  for (const MappedField& field : fields) {
    if (field.is_needed) needed.push_back(field.name);
  }
  return join_names(needed);
}

std::optional<TraceMapping> find_mapping(TraceFormat format, std::string_view first_line,
                                         bool is_json) {
  const TraceMapping* best = nullptr;
  std::ptrdiff_t best_score = 0;
  for (const TraceMapping& known : known_traces()) {
    const bool is_wanted = format == TraceFormat::Auto
                               ? is_json == (known.shape == TraceShape::JsonLines)
                               : format == known.format;
    if (!is_wanted) continue;
    std::ptrdiff_t num_needed = 0, num_found = 0;
    for (const MappedField& field : known.fields) {
      if (!field.is_needed) continue;
      ++num_needed;
      num_found += has_name(first_line, known.shape, field.name) ? 1 : 0;
    }
    if (format == TraceFormat::Auto && num_found == 0) continue;
    const std::ptrdiff_t score = 2 * num_found - num_needed;
    if (best != nullptr && score <= best_score) continue;
    best = &known;
    best_score = score;
  }
  return best != nullptr ? std::optional(*best) : std::nullopt;
}

std::string describe_formats(TraceShape shape) {
  std::string text;
  std::string_view before;
  for (const TraceMapping& known : known_traces()) {
    if (known.shape != shape) continue;
    if (known.name == before) {
      text.pop_back();
      text += " or " + known.needed_names() + ")";
      continue;
    }
    before = known.name;
    text += (text.empty() ? "" : ", ") + known.name + " (" + known.needed_names() + ")";
  }
  return text;
}

}  // namespace metronome
