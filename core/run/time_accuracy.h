// SPDX-License-Identifier: Apache-2.0
// The distance of simulated times from measured ones, for runs like a given one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metronome {

// Nine in ten measured values lie between these: measured / simulated - 1.
struct ErrorBand {
  double low = 0;
  double high = 0;

  friend bool operator==(const ErrorBand&, const ErrorBand&) = default;
};

struct TimeAccuracy {
  std::string step_times = {};  // their source: "roofline of h200", "operators: aiconfigurator ..."
  std::int64_t kv_bits = 0;     // of an element of the KV cache
  // The measured runs that count most: "llama-3.1-70b in fp8 on 8 h200 with vllm, 16 clients or
  // more". Empty: held-out steps of the file itself were compared.
  std::string nearest = {};
  std::int64_t num_values = 0;  // measured values of the nearest runs, or of held-out steps
  ErrorBand tpot = {};
  ErrorBand ttft = {};
  // Mean absolute error of TPOT, with the weights of the bands.
  double mean_tpot_error = 0;

  // "TPOT -9 to +12 %, TTFT -20 to +31 %: nine in ten measured values; the nearest are ...".
  std::string text() const;
  friend bool operator==(const TimeAccuracy&, const TimeAccuracy&) = default;
};

// Adds what is known of one of several runs. Those with the same source and the same nearest runs
// become one, with the widest bands.
void add_accuracy(const TimeAccuracy& accuracy, std::vector<TimeAccuracy>& all);

}  // namespace metronome
