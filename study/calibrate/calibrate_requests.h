// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from` with a request log, or the result of a benchmark's client. It holds
// when a served engine received requests and returned their first and last tokens. With a known
// scheduler, this yields the step times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metronome {

// Whether a file or folder is a request log or a client's result.
bool has_request_times(const std::string& path);

struct CorrectionOptions {
  std::string log;
  std::optional<std::int64_t> run_number;  // of a client's result with several runs
  std::string scenario;                    // with the step times to correct
  std::vector<std::string> assignments;    // KEY=VALUE, for it
  std::optional<double> until_s;           // the fit uses the log up to here; the rest is a check
  std::string out;                         // empty: no file is written
};

// Fits a correction (sim/corrected/corrected_fit.h) and writes the file. Prints the correction and
// its errors, including those on data outside the fit. Throws as follow_request_log() does. Throws
// ConfigError if the log has too little information, or if a corrected step is faster than the
// hardware allows. After an error no file is written.
void calibrate_from_requests(const CorrectionOptions& options);

}  // namespace metronome
