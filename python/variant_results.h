// SPDX-License-Identifier: Apache-2.0
// Runs of a scenario for the interpreter, which keeps them until it saves them or drops them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/scenario/scenario.h"
#include "reports/files/variant_result.h"

namespace metronome::python {

// A scenario as the interpreter gives it.
struct ScenarioSource {
  std::string text;       // YAML; empty: `name` is a file, or a scenario inside the program
  std::string name;       // a path; or of the text, in messages and results
  bool has_lines = true;  // false: nobody wrote the text, so errors leave out the line
  std::vector<std::string> notes = {};  // on the scenario, for the report
};

struct RunChoice {
  std::vector<std::string> assignments;  // "KEY=VALUE"
  std::vector<std::string> variants;     // names; empty: all
  std::optional<std::uint64_t> seed;
  std::string backend;
};

// One variant's run, with all that its files need.
struct VariantResult {
  VariantOutcome outcome;
  ResultsConfig wanted;
  bool has_variants = false;  // its scenario: its files are then in a folder of its own
};

// Of the variant with this name: requests that ended, and all.
using VariantProgress =
    std::function<void(const std::string& name, std::size_t num_ended, std::size_t num_total)>;

// Runs the chosen variants, as `metronome run` does. Throws ConfigError, UsageError, Interrupted.
std::vector<std::shared_ptr<VariantResult>> run_variants(const ScenarioSource& source,
                                                         const RunChoice& choice,
                                                         const VariantProgress& progress);

using VariantResults = std::vector<std::shared_ptr<VariantResult>>;

// Writes the files that `metronome run` writes. Returns those that it left out as too large, each
// with the variant and the key that asks for it. Throws ConfigError for a folder that holds
// anything but an earlier result.
std::vector<std::string> save_results(const VariantResults& results, const std::string& folder,
                                      const std::vector<std::string>& notes);

std::string summary_text(const VariantResults& results);  // summary.json
std::string table_text(const VariantResults& results);    // the tables of the terminal
std::string report_page(const VariantResults& results, const std::vector<std::string>& notes);

}  // namespace metronome::python
