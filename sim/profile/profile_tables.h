// SPDX-License-Identifier: Apache-2.0
// Measured kernel times of one GPU and model, held for interpolation as sim/cost/curve.h says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/cost/curve.h"
#include "sim/cost/grid.h"
#include "sim/cost/interpolation.h"

namespace metronome {

// Times by one quantity more than those of its parts: curves, grids, or families again. Each part
// has its own points.
template <class Part>
struct TimeFamily {
  std::vector<double> x;    // ascending
  std::vector<Part> parts;  // one per x

  bool empty() const { return x.empty(); }
  // `at_part(part)` is the time of a part.
  template <class At>
  double at(double value, bool& is_outside, const At& at_part) const {
    return interpolate(find_bracket(x, value, is_outside),
                       [&](std::size_t i) { return at_part(parts[i]); });
  }
};

// One layer's attention. A chunk is the prompt tokens computed in this step; its history is what
// was computed before. Contexts are those of decodes. The grids of several measurements may be
// combined: every chunk has its own histories, and every history its own grid.
struct AttentionTable {
  Grid decode;                // decodes only: their number (rows), context (columns)
  TimeFamily<Curve> prefill;  // a chunk only: its tokens, then its history
  // A chunk's tokens and history, then the decodes in one launch with it. Empty: chunks and decodes
  // were measured separately and are added.
  TimeFamily<TimeFamily<Grid>> mixed;

  // Decodes only. Kernels split a context over several blocks below a number of sequences. So
  // look-ups use only rows [begin, end), which are on one side of that number.
  double decode_us(double sequences, double context, std::size_t begin, std::size_t end,
                   bool& is_outside) const;
  // A longer chunk than was measured takes as much longer as it has more (query, key) pairs.
  double prefill_us(double tokens, double history, bool& is_outside) const;
  double mixed_us(double tokens, double history, double sequences, double context,
                  bool& is_outside) const;
};

struct LayerTimes {
  std::string name;
  Curve us;
};

// A profile's measurements on one of the devices that share the model.
struct ProfileTables {
  std::vector<LayerTimes> dense;         // by tokens; one call
  std::vector<LayerTimes> per_sequence;  // by sequences; one call
  AttentionTable attention;
  TimeFamily<Curve> experts;  // router and experts of a layer: by tokens, then by activated experts
  Curve allreduce;            // by bytes of the result; empty: from the hardware's link

  // A token count cannot activate more experts than were measured for it. Only more experts than
  // were measured for any token count are outside.
  double experts_us(double tokens, double activated, bool& is_outside) const;

  // nullptr if not measured.
  const Curve* find_dense(const std::string& name) const;
  const Curve* find_per_sequence(const std::string& name) const;
};

}  // namespace metronome
