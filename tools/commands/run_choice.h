// What the commands that run scenarios are asked for alike: backend, variants, seed, jobs, folder,
// and where their text goes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "core/run/run.h"
#include "core/scenario/scenario.h"

namespace metronome {

// Where text for people goes: nowhere when quiet, and never between JSON.
std::ostream& text_stream(bool is_quiet, bool wants_json);

// Simulations at once, one for each processor.
int default_jobs();
// Throws UsageError when `--jobs` has no such number.
void check_jobs(int num_jobs);

// The number in `--seed TEXT`. Throws UsageError.
std::uint64_t parse_seed(const std::string& text);

// Registers the sections of the backends that scenarios may have: to be called once, at the start.
void register_backends();

// Throws UsageError for a name that is not in kBackendNames.
void check_backend(const std::string& name);

// Throws UsageError when this build does not have it.
std::unique_ptr<Backend> make_backend(const std::string& name);

// The scenario's path below the innermost folder named `scenarios`, or else its stem. Measured
// results do not take the place of simulated ones, nor those of some variants the place of all.
std::string default_folder(const std::string& scenario, const Backend& backend,
                           const std::vector<Scenario>& variants, bool has_all);
// The same for what measures without being a Backend; `measured_by` is empty for a simulation.
std::string default_folder(const std::string& scenario, std::string_view measured_by,
                           const std::vector<Scenario>& variants, bool has_all);

}  // namespace metronome
