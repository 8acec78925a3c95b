// Measured kernel times of one GPU and model, held for interpolation. All look-ups take
// microseconds linearly between the two measured points around a value. Below the first point its
// time holds: kernels work in tiles no smaller than the grids begin. Beyond the last point the last
// slope goes on (never downwards) and `is_outside` is set; it is left alone otherwise. Nothing is
// allocated.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace metronome {

// A function of one measured quantity.
struct Curve {
  std::vector<double> x;   // ascending; empty = not measured
  std::vector<double> us;  // one per x

  bool empty() const { return x.empty(); }
  double at(double value, bool& is_outside) const;
};

// The sum of curves, each times its factor: a curve over all their points.
struct WeightedCurve {
  const Curve* curve;
  double factor;
};
Curve sum_of(std::span<const WeightedCurve> terms);

// Times by two quantities, every combination measured.
struct Grid {
  std::vector<double> rows;
  std::vector<double> columns;
  std::vector<double> us;  // row after row

  bool empty() const { return rows.empty(); }
  double cell(std::size_t row, std::size_t column) const {
    return us[row * columns.size() + column];
  }
  double at(double row, double column, bool& is_outside) const;
  // Along the columns of one row.
  double row_at(std::size_t row, double column, bool& is_outside) const;
};

// Curves over one quantity, each at a value of another and with points of its own.
struct CurveFamily {
  std::vector<double> x;
  std::vector<Curve> curves;  // one per x

  bool empty() const { return x.empty(); }
  double at(double first, double second, bool& is_outside) const;
};

// One layer's attention. A chunk is the tokens of a prompt computed in this step, its history what
// was computed before; contexts are those of decodes. The grids of several measurements may be laid
// over each other: every chunk has its own histories, and every history its own grid.
struct AttentionTable {
  struct Cell {
    double history = 0;
    Grid beside;  // the chunk and that many decodes (rows) at a context (columns), in one launch
  };
  struct Chunk {
    double tokens = 0;
    std::vector<Cell> cells;  // by history
  };

  Grid decode;               // decodes alone: their number (rows), context (columns)
  CurveFamily prefill;       // a chunk alone: its tokens, then its history
  std::vector<Chunk> mixed;  // empty: chunks and decodes were measured apart, and are added

  // Decodes alone. Kernels that split a context over several blocks do so below a number of
  // sequences: look-ups between measured points stay among rows [begin, end), those of one side.
  double decode_us(double sequences, double context, std::size_t begin, std::size_t end,
                   bool& is_outside) const;
  double prefill_us(double tokens, double history, bool& is_outside) const {
    return prefill.at(tokens, history, is_outside);
  }
  double mixed_us(double tokens, double history, double sequences, double context,
                  bool& is_outside) const;
};

struct LayerTimes {
  std::string name;
  Curve us;
};

// What a profile measures on one of the devices that share the model.
struct ProfileTables {
  std::vector<LayerTimes> dense;         // by tokens; one call
  std::vector<LayerTimes> per_sequence;  // by sequences; one call
  AttentionTable attention;
  CurveFamily experts;  // router and experts of a layer: by tokens, then by experts activated
  Curve allreduce;      // by bytes of the result; empty: from the hardware's link

  // A number of tokens cannot activate more experts than were measured for it: only more than were
  // measured for any is outside.
  double experts_us(double tokens, double activated, bool& is_outside) const;

  // Null where it was not measured.
  const Curve* find_dense(const std::string& name) const;
  const Curve* find_per_sequence(const std::string& name) const;
};

}  // namespace metronome
