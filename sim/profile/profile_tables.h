// SPDX-License-Identifier: Apache-2.0
// Measured kernel times of one GPU and model, held for interpolation as sim/cost/curve.h says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/cost/curve.h"
#include "sim/cost/grid.h"

namespace metronome {

// Curves over one quantity, each at one value of another quantity and with its own points.
struct CurveFamily {
  std::vector<double> x;
  std::vector<Curve> curves;  // one per x

  bool empty() const { return x.empty(); }
  double at(double first, double second, bool& is_outside) const;
};

// One layer's attention. A chunk is the prompt tokens computed in this step; its history is what
// was computed before. Contexts are those of decodes. The grids of several measurements may be
// combined: every chunk has its own histories, and every history its own grid.
struct AttentionTable {
  struct Cell {
    double history = 0;
    Grid beside;  // the chunk with that many decodes (rows) at a context (columns), in one launch
  };
  struct Chunk {
    double tokens = 0;
    std::vector<Cell> cells;  // by history
  };

  Grid decode;               // decodes only: their number (rows), context (columns)
  CurveFamily prefill;       // a chunk only: its tokens, then its history
  std::vector<Chunk> mixed;  // empty: chunks and decodes were measured separately and are added

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
  CurveFamily experts;  // router and experts of a layer: by tokens, then by activated experts
  Curve allreduce;      // by bytes of the result; empty: from the hardware's link

  // A token count cannot activate more experts than were measured for it. Only more experts than
  // were measured for any token count are outside.
  double experts_us(double tokens, double activated, bool& is_outside) const;

  // nullptr if not measured.
  const Curve* find_dense(const std::string& name) const;
  const Curve* find_per_sequence(const std::string& name) const;
};

}  // namespace metronome
