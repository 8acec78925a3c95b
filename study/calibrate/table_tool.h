// SPDX-License-Identifier: Apache-2.0
// Runs tools/import_tables, which reads formats that no C++ library of the build reads.
#pragma once

#include <string>
#include <vector>

namespace metronome {

// The tool: `tools/import_tables` in a folder above the program, or `import_tables` beside it.
// Throws UsageError if there is none.
std::string find_table_tool();

// Runs `python3 TOOL ARGUMENTS...` without a shell, and waits. Throws ConfigError with the last
// line that the tool printed if it fails, or if there is no python3. Throws Interrupted after a
// caught signal.
void run_table_tool(const std::string& tool, const std::vector<std::string>& arguments);

}  // namespace metronome
