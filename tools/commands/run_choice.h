// SPDX-License-Identifier: Apache-2.0
// Options shared by the commands that run scenarios: backend, variants, seed, jobs, folder, and the
// output of text.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "core/run/run.h"

namespace metronome {

struct Scenario;

// The stream for human-readable text: none if quiet, and never mixed into JSON.
std::ostream& text_stream(bool is_quiet, bool wants_json);

// The number of parallel simulations: one per CPU core.
int default_jobs();

// The number in `--seed TEXT`. Throws UsageError.
std::uint64_t parse_seed(const std::string& text);

// Registers the scenario sections of the backends. Call it once, at the start.
void register_backends();

// Where tools/model puts what it fetches: $METRONOME_MODELS, else metronome/models in
// $XDG_DATA_HOME or in ~/.local/share.
std::string fetched_models_folder();

// Throws UsageError for a name outside kBackendNames.
void check_backend(const std::string& name);

// Throws UsageError if this build lacks the backend. Simulated fleets run on so many threads.
std::unique_ptr<Backend> make_backend(const std::string& name, std::int32_t num_threads = 1);

// The scenario's path below the innermost folder named `scenarios`, or else its stem. Measured
// results do not overwrite simulated ones, and results of some variants do not overwrite those of
// all.
std::string default_folder(const std::string& scenario, const Backend& backend,
                           const std::vector<Scenario>& variants, bool has_all);
// The folder of a measurement without a Backend; `measured_by` is empty for a simulation.
std::string default_folder(const std::string& scenario, std::string_view measured_by,
                           const std::vector<Scenario>& variants, bool has_all);

}  // namespace metronome
