// SPDX-License-Identifier: Apache-2.0
// report.html of result folders, of folders of `metronome tune`, and of results of benchmarks'
// clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metronome {

struct ReportPage {
  std::size_t num_runs = 0;
  std::size_t num_recorded = 0;  // with files of steps and requests
  // The reason for which figures of the runs cannot be compared; empty: none is known.
  std::string incomparable;
};

// A page may only replace a page. It does not replace a detailed one if the runs no longer have the
// records to draw. Throws UsageError, which names the option.
void check_replaceable(const std::string& option, const std::string& path, bool is_detailed);

enum class PageCheck : std::uint8_t { None, Replaces };  // check_replaceable() of --out

// Writes the page of these paths; of a client's result with several runs, that of `run_number`, or
// all of them.
ReportPage write_report_page(const std::vector<std::string>& paths, const std::string& out,
                             PageCheck check = PageCheck::None,
                             std::optional<std::int64_t> run_number = std::nullopt);

}  // namespace metronome
