// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_tables.h"

#include <algorithm>

#include "core/base/error.h"
#include "sim/cost/interpolation.h"

namespace metronome {
namespace {

const Curve* find_layer(const std::vector<LayerTimes>& layers, const std::string& name) {
  const auto found = std::find_if(layers.begin(), layers.end(),
                                  [&](const LayerTimes& layer) { return layer.name == name; });
  return found == layers.end() ? nullptr : &found->us;
}

}  // namespace

double CurveFamily::at(double first, double second, bool& is_outside) const {
  return interpolate(find_bracket(x, first, is_outside),
                     [&](std::size_t i) { return curves[i].at(second, is_outside); });
}

double AttentionTable::decode_us(double sequences, double context, std::size_t begin,
                                 std::size_t end, bool& is_outside) const {
  METRONOME_CHECK(begin < end && end <= decode.rows.size(), "a side has at least one row");
  const std::vector<double>& rows = decode.rows;
  if (sequences > rows.back()) is_outside = true;
  if (end - begin == 1) {
    // The same total of keys and values in as many sequences as were measured.
    return decode.row_at(begin, context * sequences / rows[begin], is_outside);
  }
  std::size_t high = begin + 1;
  while (high + 1 < end && rows[high] <= sequences) ++high;
  const double share = (sequences - rows[high - 1]) / (rows[high] - rows[high - 1]);
  const double low_us = decode.row_at(high - 1, context, is_outside);
  const double high_us = decode.row_at(high, context, is_outside);
  if (share >= 0) {
    return interpolate({0, 1, share}, [&](std::size_t i) { return i == 0 ? low_us : high_us; });
  }
  // Fewer sequences than were measured on this side: extrapolate, but at least in proportion.
  return std::max(low_us * (1 - share) + high_us * share, low_us * sequences / rows[high - 1]);
}

double AttentionTable::prefill_us(double tokens, double history, bool& is_outside) const {
  const double largest = prefill.x.back();
  if (tokens <= largest) return prefill.at(tokens, history, is_outside);
  is_outside = true;
  const auto pairs = [history](double n) { return n * (history + n / 2); };
  return prefill.at(largest, history, is_outside) * (pairs(tokens) / pairs(largest));
}

double AttentionTable::mixed_us(double tokens, double history, double sequences, double context,
                                bool& is_outside) const {
  if (mixed.empty()) {
    return prefill_us(tokens, history, is_outside) +
           decode_us(sequences, context, 0, decode.rows.size(), is_outside);
  }
  const double largest = mixed.back().tokens;
  if (tokens > largest) {
    is_outside = true;
    const double more =
        prefill_us(tokens, history, is_outside) - prefill_us(largest, history, is_outside);
    return mixed_us(largest, history, sequences, context, is_outside) + std::max(more, 0.0);
  }
  const Bracket of_tokens = find_bracket(
      mixed.size(), [this](std::size_t i) { return mixed[i].tokens; }, tokens, is_outside);
  return interpolate(of_tokens, [&](std::size_t i) {
    const std::vector<Cell>& cells = mixed[i].cells;
    const Bracket of_history = find_bracket(
        cells.size(), [&cells](std::size_t k) { return cells[k].history; }, history, is_outside);
    return interpolate(of_history, [&](std::size_t k) {
      return cells[k].beside.at(sequences, context, is_outside);
    });
  });
}

double ProfileTables::experts_us(double tokens, double activated, bool& is_outside) const {
  double most = 0;
  for (const Curve& curve : experts.curves) most = std::max(most, curve.x.back());
  if (activated > most) is_outside = true;
  return interpolate(find_bracket(experts.x, tokens, is_outside), [&](std::size_t i) {
    const Curve& curve = experts.curves[i];
    return curve.at(std::min(activated, curve.x.back()), is_outside);
  });
}

const Curve* ProfileTables::find_dense(const std::string& name) const {
  return find_layer(dense, name);
}

const Curve* ProfileTables::find_per_sequence(const std::string& name) const {
  return find_layer(per_sequence, name);
}

}  // namespace metronome
